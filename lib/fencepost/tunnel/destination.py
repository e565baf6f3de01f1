"""Where a tunnel leads, and the words by which ssh is called: decided here, pure, and nothing of it read by a shell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fencepost.errors import FencepostError, NotWritten, Refused

DESTINATION_CHARS_MAX: Final = 320
PORT_MAX: Final = 65_535
CONNECT_S_MAX: Final = 10
# A connection that is silent for so long is given up by ssh on this side.
ALIVE_INTERVAL_S: Final = 10
ALIVE_COUNT_MAX: Final = 3

# A user and a host, or an alias of ssh's configuration. Neither may begin like an option, nor hold what ssh or a shell
# on its way (a ProxyCommand with %h, say) could read as more than a name.
_DESTINATION: Final = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:-]*")
_REMOTE_HOME: Final = re.compile(r"[A-Za-z0-9/._+@,=][A-Za-z0-9/._+@,=-]*")
# What fits there is judged over there, by the limit of that system.
REMOTE_HOME_BYTES_MAX: Final = 1_024

# The same text for every tunnel, without a word of anybody's, so that every shell reads it alike. It takes a length and
# so much program from standard input, and leaves the rest to that program.
BOOTSTRAP: Final = "exec python3 -Ic 'import sys;b=sys.stdin.buffer;exec(b.read(int(b.readline())))'"


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """Where to, as ssh understands it, and how ssh is to be called for it."""

    name: str
    port: int | None = None
    identity: str | None = None
    # Read instead of the person's own configuration.
    configuration: str | None = None
    # ssh may ask for a passphrase, a password, or whether a host key is right.
    may_ask: bool = False


def check_destination(destination: Destination, remote_home: str) -> None:
    """Let a destination and a folder pass that can be nothing but that.

    Raises:
        Refused: they could be read as something else (invalid_destination, invalid_arguments). Nothing was started.
    """
    name = destination.name
    if len(name) > DESTINATION_CHARS_MAX or _DESTINATION.fullmatch(name) is None:
        raise Refused(
            "invalid_destination",
            "a destination is HOST or USER@HOST, in letters, digits and . _ + : -, and does not begin with -; nothing"
            " was started",
            hint="For anything else write a Host entry in ~/.ssh/config and name that.",
        )
    if destination.port is not None and not 1 <= destination.port <= PORT_MAX:
        raise Refused("invalid_arguments", f"--port takes 1 to {PORT_MAX}; nothing was started")
    too_long = len(remote_home.encode()) > REMOTE_HOME_BYTES_MAX
    if remote_home and (too_long or _REMOTE_HOME.fullmatch(remote_home) is None):
        raise Refused(
            "invalid_arguments",
            f"--remote-home takes up to {REMOTE_HOME_BYTES_MAX} bytes of letters, digits and / . _ + @ , = -; nothing"
            " was started",
            hint="A relative path is one below the home folder of the user over there.",
        )


def ssh_words(program: str, destination: Destination, *, forward: str | None, local: str) -> list[str]:
    """Return program and arguments of a connection that runs BOOTSTRAP.

    `forward`: path over there at which connections are taken, of PATH_CHARS alone; they go to `local`, a path relative
    to the folder in which ssh is started.
    """
    options = {
        "BatchMode": "no" if destination.may_ask else "yes",
        "ConnectTimeout": str(CONNECT_S_MAX),
        "ServerAliveInterval": str(ALIVE_INTERVAL_S),
        "ServerAliveCountMax": str(ALIVE_COUNT_MAX),
        "ExitOnForwardFailure": "yes",
        # A connection of its own: one that is shared would outlive this child, and its forwarding with it.
        "ControlMaster": "no",
        "ControlPath": "none",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "PermitLocalCommand": "no",
        "RequestTTY": "no",
        "LogLevel": "ERROR",
    }
    words = [program, "-T"]
    if destination.configuration is not None:
        words += ["-F", destination.configuration]
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    if destination.port is not None:
        words += ["-p", str(destination.port)]
    if destination.identity is not None:
        words += ["-i", destination.identity]
    if forward is not None:
        words += ["-R", f"{forward}:./{local}"]
    return [*words, "--", destination.name, BOOTSTRAP]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """What ssh says when something goes wrong, what it means, and whether it may go right later by itself."""

    said: re.Pattern[str]
    reason: str
    what: str
    hint: str
    passes: bool


_CHANGED: Final = "Look at whether that machine was set up anew; `ssh-keygen -R HOST` forgets its old key."
_KINDS: Final = (
    _Kind(
        said=re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED"),
        reason="host_key_changed",
        what="the machine shows another host key than the one that is known",
        hint=_CHANGED,
        passes=False,
    ),
    _Kind(
        said=re.compile(r"Host key verification failed|No .* host key is known"),
        reason="host_key_unknown",
        what="the machine's host key is not known here",
        hint="Connect once by hand, `ssh DESTINATION true`, and compare the fingerprint; or give --ask.",
        passes=False,
    ),
    _Kind(
        said=re.compile(r"Permission denied|Too many authentication failures|No more authentication methods"),
        reason="ssh_auth_refused",
        what="the machine does not let this user in",
        hint="`ssh DESTINATION true` must work unasked; give --identity FILE, load a key with ssh-add, or give --ask.",
        passes=False,
    ),
    _Kind(
        said=re.compile(r"remote port forwarding failed"),
        reason="forwarding_refused",
        what="sshd over there does not forward sockets, or could not make this one",
        hint="Its sshd_config needs AllowStreamLocalForwarding yes (or remote) and DisableForwarding no.",
        passes=False,
    ),
    _Kind(
        said=re.compile(
            r"python3: (?:command )?not found|python3: No such file|Unknown command:? '?python3", re.IGNORECASE
        ),
        reason="remote_without_python",
        what="there is no python3 over there, on the PATH of a command that ssh runs",
        hint="Install Python 3.11 or later there.",
        passes=False,
    ),
    _Kind(
        said=re.compile(
            r"Could not resolve hostname|Connection refused|timed out|No route to host|Network is unreachable"
            r"|Connection closed|Connection reset|Broken pipe|not responding|kex_exchange_identification"
        ),
        reason="unreachable",
        what="the machine cannot be reached, or the connection was lost",
        hint="Look at the network, the name and the port.",
        passes=True,
    ),
)


def failure(said: str, status: int) -> tuple[FencepostError, bool]:
    """Return what an ssh that ended with `status` and these words means, and whether it may go right by itself."""
    for kind in _KINDS:
        if kind.said.search(said):
            words = f"{kind.what}; nothing was forwarded"
            state = {"ssh": _last(said)} if said.strip() else {}
            made = NotWritten if kind.passes else Refused
            return made(kind.reason, words, hint=kind.hint, state=state), kind.passes
    if status == 127:
        # The shell over there found no python3, and said so in its own words.
        python = next(kind for kind in _KINDS if kind.reason == "remote_without_python")
        return Refused(python.reason, f"{python.what}; nothing was forwarded", hint=python.hint), False
    ended = f"ssh ended with status {status}"
    return NotWritten("ssh_failed", f"{ended}: {_last(said) or 'it said nothing'}; nothing was forwarded"), True


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""
