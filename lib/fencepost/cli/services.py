"""`fencepost up`, `down`, `status`, `version`: the services of a home."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fencepost import __version__
from fencepost.cli import acting, exits, screen
from fencepost.cli.directory import all_agents
from fencepost.cli.options import AsJson
from fencepost.cli.plain import one_line, plain
from fencepost.client import Budgets
from fencepost.errors import FencepostError, Refused, Uncertain
from fencepost.home import MAILBOX, SERVICES, SESSIONS, Home

if TYPE_CHECKING:
    from fencepost.up import Status

STOP_S: Final = 30.0
STOP_S_MAX: Final = 600.0
# A status is a glance: a service that does not answer at once is shown as not answering.
STATUS_BUDGETS: Final = Budgets(ready_ms=500, call_ms=2_000)
START: Final = "fencepost up --detach"


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
    described, agents = _ask()
    step = next_step(running=seen.running or bool(described), agents=agents)
    if as_json:
        written = {name: value for name, value in seen.to_dict().items() if name != "version"}
        services = [{**item, "described": described.get(item["name"])} for item in written["services"]]
        named = {item["name"] for item in services}
        alone = [{"name": name, "described": facts} for name, facts in described.items() if name not in named]
        fields = {**written, "services": services + alone, "home": home.text, "agents": agents}
        screen.put_json({**fields, "next_step": step})
    else:
        _show(home, seen, described, agents, step)
    if not seen.running and not described:
        raise typer.Exit(exits.NOT_RUNNING)


def next_step(*, running: bool, agents: int | None) -> str:
    """Return the command that a person most likely wants next, or nothing."""
    if not running:
        return START
    return "fencepost agent create NAME" if agents == 0 else ""


def _ask() -> tuple[dict[str, Any], int | None]:
    """Return how the services describe themselves, and how many agents there are, as far as they answer now."""
    try:
        who = acting.as_whoever()
    except FencepostError:
        # Without a credential there is nothing to ask with; what the supervisor wrote still shows.
        return {}, None
    published = [service for service in SERVICES if who.home.address(service).exists()]

    async def run() -> tuple[dict[str, Any], int | None]:
        described: dict[str, Any] = {}
        agents: int | None = None
        try:
            async with acting.connected(who, budgets=STATUS_BUDGETS) as services:
                if SESSIONS in published:
                    with contextlib.suppress(FencepostError):
                        described[SESSIONS] = plain(await services.sessions.describe())
                        agents = len(await all_agents(services.sessions))
                if MAILBOX in published:
                    with contextlib.suppress(FencepostError):
                        described[MAILBOX] = plain(await services.mailbox.describe())
        except FencepostError:
            return described, agents
        return described, agents

    return asyncio.run(run())


def _show(home: Home, seen: Status, described: Mapping[str, Any], agents: int | None, step: str) -> None:
    now_ms = int(time.time() * 1000)
    if seen.running:
        since = f", for {screen.span(now_ms - seen.started_at_ms)}" if seen.started_at_ms else ""
        screen.put(f"{home.text}: {seen.overall.value} (supervisor {seen.pid}{since})")
    elif described:
        screen.put(f"{home.text}: no supervisor, but {', '.join(described)} answer")
    else:
        screen.put(f"{home.text}: not running")
    if seen.problem:
        screen.put(f"Problem: {one_line(seen.problem)}")
    if seen.services or described:
        screen.put("\n" + services_table(seen, described, now_ms))
    if agents:
        screen.put(f"\n{agents} agent{'' if agents == 1 else 's'}: fencepost agent list")
    if step:
        screen.put(f"\n{'No agents yet. ' if agents == 0 else ''}Next: {step}")


def services_table(seen: Status, described: Mapping[str, Any], now_ms: int) -> str:
    """Return the services for people."""
    columns = [
        screen.Column(title=title) for title in ("SERVICE", "STATE", "PID", "FOR", "RESTARTS", "VERSION", "EPOCH")
    ]
    rows = []
    for item in seen.services:
        facts = described.get(item.name, {})
        rows.append(
            [
                item.name,
                item.phase.value.replace("_", " "),
                str(item.pid or "-"),
                screen.span(max(0, now_ms - item.since_ms)),
                str(item.restarts),
                facts.get("version", "-"),
                facts.get("epoch", "-"),
                item.last_end,
            ]
        )
    supervised = {item.name for item in seen.services}
    rows += [
        [name, "answers", "-", "-", "-", facts["version"], facts["epoch"], ""]
        for name, facts in described.items()
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
