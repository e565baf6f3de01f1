"""What `fencepost tunnel` does. Loaded by that command only."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.cli import acting, exits, screen
from fencepost.cli.directory import resolve
from fencepost.cli.plain import line, one_line
from fencepost.cli.renew import begin_generation
from fencepost.cli.tunnel import AT_END, GIVE_UP_S_MAX
from fencepost.client import new_key
from fencepost.connect.entry import SERVER_NAME
from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost.home import HOME_VARIABLE, SESSION_VARIABLE, Home, read_address, read_credential
from fencepost.mcp import names
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.tunnel.destination import Destination, check_destination
from fencepost.tunnel.link import SILENCE_MS_MAX, Link, Plan, Prepared, shim_files
from fencepost.tunnel.standing import Happening, stand

AGENTS_MAX: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What a person asked for."""

    destination: str
    agents: Sequence[str]
    remote_home: str
    install_shim: bool
    at_end: str
    port: int | None
    identity: Path | None
    ssh_config: Path | None
    ask: bool
    give_up_s: int
    as_json: bool


def carry_out(wish: Wish) -> int:
    """Keep a tunnel until the person ends it; return the exit code.

    Raises:
        FencepostError: it could not be opened, or not any more. What had been copied has been taken back, or goes by
            itself within SILENCE_MS_MAX.
    """
    operator = acting.as_operator()
    destination = _checked(wish)
    local = _edge_socket(operator.home)
    found = acting.call(operator, lambda services: _agents(services, wish.agents))
    plan = Plan(
        destination=destination,
        local=local,
        remote_home=wish.remote_home,
        credentials={one.agent_id: read_credential(operator.home.agent_credential(one.agent_id)) for one in found},
        at_end="keep" if wish.at_end == "keep" else "remove",
        tunnel=secrets.token_hex(16),
    )
    teller = _Teller(wish, found)
    try:
        asyncio.run(_until_ended(plan, wish, teller))
    finally:
        if wish.at_end == "renew" and teller.copied:
            _renew(operator, found, as_json=wish.as_json)
    return teller.last()


def _checked(wish: Wish) -> Destination:
    destination = Destination(
        name=wish.destination,
        port=wish.port,
        # ssh is started in another folder.
        identity=None if wish.identity is None else str(wish.identity.absolute()),
        configuration=None if wish.ssh_config is None else str(wish.ssh_config.absolute()),
        may_ask=wish.ask,
    )
    check_destination(destination, wish.remote_home)
    if wish.at_end not in AT_END:
        raise Refused("invalid_arguments", f"--at-end takes one of {', '.join(AT_END)}; nothing was started")
    if not 0 <= wish.give_up_s <= GIVE_UP_S_MAX:
        raise Refused("invalid_arguments", f"--give-up-s takes 0 to {GIVE_UP_S_MAX}; nothing was started")
    if len(wish.agents) > AGENTS_MAX:
        raise Refused("invalid_arguments", f"a tunnel takes at most {AGENTS_MAX} agents; nothing was started")
    for file in (wish.identity, wish.ssh_config):
        if file is not None and not file.is_file():
            raise Refused("invalid_arguments", f"there is no file {one_line(str(file))}; nothing was started")
    return destination


def _edge_socket(home: Home) -> Path:
    address = read_address(home.edge_address)
    if address is None:
        raise NotWritten(
            "not_running",
            f"mcp_edge of the home {home.text} does not run, so there is nothing to forward; nothing was started",
            hint="Start the services with `fencepost up`.",
        )
    return Path(address.removeprefix("unix:"))


async def _agents(services: acting.Services, targets: Sequence[str]) -> list[pb.Agent]:
    """Return the agents that are named, each once."""
    found = {}
    for target in targets:
        agent = (await resolve(services, target)).agent
        found[agent.agent_id] = agent
    return list(found.values())


async def _until_ended(plan: Plan, wish: Wish, teller: _Teller) -> None:
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ends.set)
    first = Link(plan)
    try:
        preparing = asyncio.ensure_future(first.prepare(shim=shim_files() if wish.install_shim else None))
        ending = asyncio.ensure_future(ends.wait())
        await asyncio.wait([preparing, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not preparing.done():
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
            teller(Happening(what="ended", cleared=True))
            return
        prepared = preparing.result()
    finally:
        await first.close()
    await stand(plan, prepared, ends=ends, give_up_s=wish.give_up_s, tell=teller)


class _Teller:
    """Tells the person what happens to a tunnel, and how it ended."""

    def __init__(self, wish: Wish, agents: Sequence[pb.Agent]) -> None:
        self._wish = wish
        self._agents = agents
        self._cleared: bool | None = None
        # True once credentials may lie over there.
        self.copied = False

    def __call__(self, happening: Happening) -> None:
        """Tell it now."""
        if self._wish.as_json:
            screen.put(line(self._document(happening)))
        elif happening.what == "stands" and happening.prepared is not None:
            self._stands(happening, happening.prepared)
        elif happening.what == "lost" and happening.error is not None:
            said = happening.error.state.get("ssh", "")
            why = f"{happening.error.message}{f' ({one_line(said)})' if said else ''}"
            screen.put(f"Lost: {one_line(why)}. Again in {screen.span(happening.again_ms)}.")
        if happening.what == "stands":
            self.copied = bool(self._agents)
        if happening.what == "ended":
            self._cleared = happening.cleared

    def last(self) -> int:
        """Tell how it ended; return the exit code."""
        safe = self._cleared is True or not self.copied or self._wish.at_end == "renew"
        if self._wish.as_json:
            return exits.OK if safe else exits.TIMED_OUT
        if self.copied and self._wish.at_end == "keep":
            screen.put("Ended. The credentials stay over there, as you asked.")
        elif self._cleared is True:
            screen.put("Ended: the socket and the credentials over there are gone.")
        else:
            screen.put(
                f"Ended, unheard by the other machine: what is there goes by itself within {SILENCE_MS_MAX // 1000} s,"
                " if that machine runs."
            )
        if not safe:
            for agent in self._agents:
                screen.put(f"  To be certain: fencepost agent renew {one_line(agent.name)}")
        return exits.OK if safe else exits.TIMED_OUT

    def _stands(self, happening: Happening, prepared: Prepared) -> None:
        if self.copied:
            screen.put(f"The tunnel stands again (ssh is process {happening.pid}).")
            return
        where = f"{one_line(self._wish.destination)}:{one_line(prepared.folder)}"
        screen.put(f"The tunnel stands: {where} (ssh is process {happening.pid}). Ctrl-C ends it.")
        if not prepared.shim:
            screen.put("No fencepost-mcp was found over there: begin again with --install-shim.")
        for agent in self._agents:
            screen.put(f"\nThe MCP configuration of {one_line(agent.name)} over there:")
            screen.put(json.dumps(_configuration(prepared, agent.agent_id), indent=2, ensure_ascii=False))
        if not self._agents:
            screen.put("No agent was named: no credential was copied.")

    def _document(self, happening: Happening) -> dict[str, Any]:
        fields: dict[str, Any] = {"event": happening.what}
        if happening.prepared is not None:
            prepared = happening.prepared
            fields |= {
                "destination": self._wish.destination,
                "remote_home": prepared.folder,
                "shim": prepared.shim or None,
                "ssh_pid": happening.pid,
                "agents": [
                    {
                        "agent_id": agent.agent_id,
                        "name": agent.name,
                        "mcp": _configuration(prepared, agent.agent_id),
                    }
                    for agent in self._agents
                ],
            }
        if happening.error is not None:
            fields |= {"code": happening.error.reason, "message": happening.error.message}
            fields |= {"state": dict(happening.error.state), "again_ms": happening.again_ms}
        if happening.what == "ended":
            fields["cleared"] = happening.cleared
        return fields


def _configuration(prepared: Prepared, agent_id: str) -> Mapping[str, Any]:
    """Return what an agent program over there is to be given."""
    # It is a remote account's also where the program is started at that machine's own screen.
    environment = {
        HOME_VARIABLE: prepared.folder,
        SESSION_VARIABLE: agent_id,
        names.SERVER_VARIABLE: names.SSH,
    }
    command = prepared.shim or "fencepost-mcp"
    return {"mcpServers": {SERVER_NAME: {"command": command, "args": [], "env": environment}}}


def _renew(operator: acting.Acting, found: Sequence[pb.Agent], *, as_json: bool) -> None:
    """Begin a new generation of each agent, so that what was copied is worthless wherever it lies."""
    for agent in found:
        name = one_line(agent.name)
        try:
            begun = _begun(operator, agent)
        except FencepostError as error:
            screen.put_error(error, as_json=as_json)
            continue
        if as_json:
            screen.put(line({"event": "renewed", "agent_id": agent.agent_id, "generation": begun.generation}))
        else:
            screen.put(f"Generation {begun.generation} of {name} has begun: the copied credential is worthless.")


def _begun(operator: acting.Acting, agent: pb.Agent) -> pb.BeginGenerationResponse:
    begun, _ = acting.call(operator, lambda services: begin_generation(services, agent, new_key("cli")))
    return begun
