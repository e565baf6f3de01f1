"""`fencepost tunnel`: an agent on another machine takes part in this home, over OpenSSH."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.cli.options import AsJson

AT_END: Final = ("remove", "renew", "keep")
GIVE_UP_S_DEFAULT: Final = 3_600
GIVE_UP_S_MAX: Final = 7 * 86_400


def tunnel(
    destination: Annotated[
        str, typer.Argument(metavar="[USER@]HOST", help="As ssh knows it; a Host of its configuration.")
    ],
    *,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="TARGET", help="Whose credential goes there while it stands. Repeated."),
    ] = None,
    remote_home: Annotated[
        str,
        typer.Option("--remote-home", metavar="DIR", help="The folder over there; default: ~/.fencepost-tunnel there."),
    ] = "",
    install_shim: Annotated[
        bool, typer.Option("--install-shim", help="Copy the MCP server there: Python files that need python3 alone.")
    ] = False,
    at_end: Annotated[
        str,
        typer.Option(
            "--at-end",
            metavar="WHAT",
            help="With the copied credentials: remove (default), renew (and begin a new generation), or keep.",
        ),
    ] = AT_END[0],
    port: Annotated[int | None, typer.Option("--port", metavar="N", help="The port of sshd over there.")] = None,
    identity: Annotated[
        Path | None, typer.Option("--identity", metavar="FILE", help="The private key, as ssh -i.")
    ] = None,
    ssh_config: Annotated[
        Path | None, typer.Option("--ssh-config", metavar="FILE", help="Read instead of your own, as ssh -F.")
    ] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Let ssh ask in this terminal: for a passphrase, or about a host key.")
    ] = False,
    give_up_s: Annotated[
        int,
        typer.Option("--give-up-s", metavar="S", help=f"Seek a lost connection so long: 0 to {GIVE_UP_S_MAX} s."),
    ] = GIVE_UP_S_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Let agents on another machine take part: forward the edge's socket there, and nothing else. Ends by Ctrl-C."""
    from fencepost.cli import tunnelling  # noqa: PLC0415 (no other command needs what it loads)

    wish = tunnelling.Wish(
        destination=destination,
        agents=tuple(agents or ()),
        remote_home=remote_home,
        install_shim=install_shim,
        at_end=at_end,
        port=port,
        identity=identity,
        ssh_config=ssh_config,
        ask=ask,
        give_up_s=give_up_s,
        as_json=as_json,
    )
    return tunnelling.carry_out(wish)
