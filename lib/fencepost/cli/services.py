"""`fencepost up`, `down`, `status`, `version`: the services of a home."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fencepost import __version__
from fencepost.cli import acting, exits, screen
from fencepost.cli.directory import all_agents
from fencepost.cli.options import AsJson
from fencepost.cli.plain import one_line, plain
from fencepost.client import Budgets
from fencepost.errors import FencepostError, Refused, Uncertain
from fencepost.home import MAILBOX, MCP_EDGE, PROVIDERS, SERVICES, SESSIONS, Home

if TYPE_CHECKING:
    from fencepost.up import Status

STOP_S: Final = 30.0
STOP_S_MAX: Final = 600.0
# A status is a glance: a service that does not answer at once is shown as not answering.
STATUS_BUDGETS: Final = Budgets(ready_ms=500, call_ms=2_000)
START: Final = "fencepost up --detach"
REMEDIES: Final = {
    "not answering": ": its process hangs, is stopped, or has just ended. Look again; if it stays, `fencepost down`"
    " and `fencepost up`",
    "replaced": ": a process that the supervisor did not start has its place. End that process",
}


def up(
    *,
    detach: Annotated[bool, typer.Option("--detach", help="Return once all is ready, and leave it running.")] = False,
    service: Annotated[
        list[str] | None,
        typer.Option("--service", metavar="NAME", help="Only this service and what it needs."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the services of the home and keep them up, until Ctrl-C or `fencepost down`."""
    from fencepost import up as compose  # noqa: PLC0415 (what only looks or sends loads no supervisor)

    acting.refuse_agents()
    compose.check_services(service or ())
    home = Home.from_environment()
    before = compose.status(home)
    if before.running:
        raise Refused(
            "already_up",
            f"process {before.pid} keeps the services of {home.text} up; nothing was started",
            hint="Use them (`fencepost status`), or stop them with `fencepost down`.",
            state={"pid": str(before.pid)},
        )
    if not as_json:
        code = compose.run(home, detach=detach, services=service)
        if code:
            raise typer.Exit(code)
        if detach:
            screen.put("Next: fencepost status")
        return
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = compose.run(home, detach=detach, services=service)
    if code:
        raise Refused("not_started", said.getvalue().strip() or "the services could not be started")
    screen.put_json(compose.status(home).to_dict())


def down(
    *,
    timeout_s: Annotated[float, typer.Option("--timeout-s", metavar="S", help="How long to wait.")] = STOP_S,
    as_json: AsJson = False,
) -> None:
    """Stop the services of the home in order; what is under way ends first."""
    from fencepost import up as compose  # noqa: PLC0415 (what only looks or sends loads no supervisor)

    acting.refuse_agents()
    if not 0 < timeout_s <= STOP_S_MAX:
        raise Refused("invalid_timeout", f"--timeout-s takes more than 0, at most {STOP_S_MAX:g}; nothing was stopped")
    home = Home.from_environment()
    result = compose.stop(home, timeout_s)
    if not result.stopped:
        raise Uncertain(
            "deadline_exceeded",
            f"process {result.pid} was asked to stop and still runs after {timeout_s:g} s",
            hint="Look again with `fencepost status`; it goes on stopping.",
        )
    if as_json:
        fields = {"was_running": result.was_running, "pid": result.pid, "waited_ms": result.waited_ms}
        screen.put_json({**fields, "stopped": result.stopped})
    elif result.was_running:
        screen.put(f"Stopped, in {screen.span(result.waited_ms)}.")
    else:
        screen.put(f"Nothing to stop: no services are up in {home.text}.")


def status(*, as_json: AsJson = False) -> None:
    """Show the services of the home, and what to do next."""
    from fencepost import up as compose  # noqa: PLC0415 (what only looks or sends loads no supervisor)

    home = Home.from_environment()
    seen = compose.status(home)
    now = asyncio.run(_ask(home, seen))
    described, agents = now.described, now.agents
    # The supervisor writes what happens to a process; one that hangs has had nothing happen to it.
    if seen.overall is compose.Overall.READY and any(word != "serving" for word in now.health.values()):
        seen = replace(seen, overall=compose.Overall.DEGRADED)
    step = next_step(running=seen.running or bool(described), agents=agents)
    if as_json:
        written = {name: value for name, value in seen.to_dict().items() if name != "version"}
        services = [{**item, **now.of(item["name"])} for item in written["services"]]
        named = {item["name"] for item in services}
        alone = [{"name": name, "described": facts} for name, facts in described.items() if name not in named]
        fields = {**written, "services": services + alone, "home": home.text, "agents": agents}
        screen.put_json({**fields, "next_step": step})
    else:
        _show(home, seen, now, step)
    if not seen.running and not described:
        raise typer.Exit(exits.NOT_RUNNING)


def next_step(*, running: bool, agents: int | None) -> str:
    """Return the command that a person most likely wants next, or nothing."""
    if not running:
        return START
    return "fencepost agent create NAME" if agents == 0 else ""


@dataclass(kw_only=True)
class Now:
    """What the services answer now: how they describe themselves, their health, the edge's version, the agents."""

    described: dict[str, Any] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)
    edge_version: str = ""
    agents: int | None = None

    def version(self, name: str) -> str:
        """Return the version of a running service, or nothing where it does not tell."""
        told = self.described.get(name, {}).get("version", "")
        return str(told) or (self.edge_version if name == MCP_EDGE else "")

    def of(self, name: str) -> dict[str, Any]:
        """Return what is known of one service, for --json."""
        facts = {"described": self.described.get(name), "version": self.version(name) or None}
        return {**facts, "health": self.health.get(name)}


async def _ask(home: Home, seen: Status) -> Now:
    """Return what the services answer now, within the limits of a glance."""
    from fencepost import up as compose  # noqa: PLC0415 (what only looks or sends loads no supervisor)

    now = Now()

    async def probe() -> None:
        now.health = await compose.health(home, seen)

    await asyncio.gather(probe(), _greet(home, now), _describe(now))
    return now


async def _greet(home: Home, now: Now) -> None:
    from fencepost.doctor.look import greet  # noqa: PLC0415 (what only sends need not pay for it)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STATUS_BUDGETS.ready_ms / 1000):
            edge, _ = await greet(home)
            now.edge_version = "" if edge is None else edge.version


async def _describe(now: Now) -> None:
    try:
        who = acting.as_whoever()
    except FencepostError:
        # Without a credential there is nothing to ask with; health and what the supervisor wrote still show.
        return
    published = [service for service in SERVICES if who.home.address(service).exists()]
    with contextlib.suppress(FencepostError):
        async with acting.connected(who, budgets=STATUS_BUDGETS) as services:
            if SESSIONS in published:
                with contextlib.suppress(FencepostError):
                    now.described[SESSIONS] = plain(await services.sessions.describe())
                    now.agents = len(await all_agents(services.sessions))
            if MAILBOX in published:
                with contextlib.suppress(FencepostError):
                    now.described[MAILBOX] = plain(await services.mailbox.describe())
            if PROVIDERS in published:
                with contextlib.suppress(FencepostError):
                    now.described[PROVIDERS] = plain(await services.providers.describe())


def _show(home: Home, seen: Status, now: Now, step: str) -> None:
    now_ms = int(time.time() * 1000)
    described, agents = now.described, now.agents
    if seen.running:
        since = f", for {screen.span(now_ms - seen.started_at_ms)}" if seen.started_at_ms else ""
        screen.put(f"{home.text}: {seen.overall.value} (supervisor {seen.pid}{since})")
    elif described:
        screen.put(f"{home.text}: no supervisor, but {', '.join(described)} answer")
    else:
        screen.put(f"{home.text}: not running")
    if seen.problem:
        screen.put(f"Problem: {one_line(seen.problem)}")
    for name, word in now.health.items():
        if word != "serving":
            screen.put(f"Problem: {name} is {word}{REMEDIES.get(word, '')}")
    if seen.services or described:
        screen.put("\n" + services_table(seen, now, now_ms))
    if agents:
        screen.put(f"\n{agents} agent{'' if agents == 1 else 's'}: fencepost agent list")
    if step:
        screen.put(f"\n{'No agents yet. ' if agents == 0 else ''}Next: {step}")


def services_table(seen: Status, now: Now, now_ms: int) -> str:
    """Return the services for people."""
    columns = [
        screen.Column(title=title) for title in ("SERVICE", "STATE", "PID", "FOR", "RESTARTS", "VERSION", "EPOCH")
    ]
    rows = []
    for item in seen.services:
        word = now.health.get(item.name, "serving")
        rows.append(
            [
                item.name,
                item.phase.value.replace("_", " ") if word == "serving" else word,
                str(item.pid or "-"),
                screen.span(max(0, now_ms - item.since_ms)),
                str(item.restarts),
                now.version(item.name) or "-",
                now.described.get(item.name, {}).get("epoch", "-"),
                item.last_end,
            ]
        )
    supervised = {item.name for item in seen.services}
    rows += [
        [name, "answers", "-", "-", "-", facts["version"], facts.get("epoch", "-"), ""]
        for name, facts in now.described.items()
        if name not in supervised
    ]
    if not any(row[-1] for row in rows):
        return screen.table(columns, [row[:-1] for row in rows])
    return screen.table([*columns, screen.Column(title="LAST END", text=True)], rows)


def version(*, as_json: AsJson = False) -> None:
    """Print the version of this program."""
    if as_json:
        screen.put_json({"version": __version__})
    else:
        screen.put(f"fencepost {__version__}")
