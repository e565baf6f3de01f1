"""Preparing an agent's Codex home, whole, before every start. See the package for what it promises."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import (
    arguments,
    configuration,
    doctor,
    files,
    history,
    instructions,
    inward,
    links,
    location,
    projection,
    sessions,
)
from fencepost_providers.domain.runtimes import Finding, Gravity, LaunchPlan

PREPARE_MS_MAX: Final = 60_000
LOCK: Final = "lock"
HOME_VARIABLE: Final = "CODEX_HOME"
# Would put the databases of several homes into one place (R106).
DATABASES_VARIABLE: Final = "CODEX_SQLITE_HOME"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An agent's Codex home, ready for a start.

    `environment` is to be added to what the program inherits, `unset` taken from it. `socket` is where `--listen
    unix://` makes its control socket, or a link to it. `notes` say what a person should know.
    """

    codex_home: Path
    socket: Path
    developer_instructions: str
    environment: Mapping[str, str]
    unset: tuple[str, ...]
    notes: tuple[Finding, ...]


async def prepare(
    plan: LaunchPlan,
    *,
    native: Path,
    compact_roots: Sequence[Path] | None = None,
    socket_bytes_max: int | None = None,
) -> Prepared:
    """Make the agent's Codex home what it is to be, at most PREPARE_MS_MAX; may be repeated, and after any crash.

    `native` is the user's own Codex home; it need not exist.

    Raises:
        StartFailed: the home cannot be used; nothing was lost.
    """
    places = location.places_of(plan, native)
    roots = location.default_roots(places, os.environ) if compact_roots is None else tuple(compact_roots)
    return await in_thread(lambda: _prepared(plan, places, roots, socket_bytes_max))


async def in_thread(work: Callable[[], T]) -> T:
    """Run file work beside the event loop, at most PREPARE_MS_MAX.

    What is too slow goes on in its thread and holds the lock; whoever comes next waits for that.

    Raises:
        StartFailed: it took too long, or the file system refused something.
    """
    try:
        async with asyncio.timeout(PREPARE_MS_MAX / 1000):
            return await asyncio.to_thread(work)
    except TimeoutError:
        raise StartFailed(
            "codex_home_slow",
            f"preparing the agent's Codex home took over {PREPARE_MS_MAX} ms; it goes on, nothing was started",
            hint="See whether the disk is slow or full.",
            again=True,
        ) from None
    except (OSError, files.Unreadable) as error:
        what = f"{error.filename or ''} {os.strerror(error.errno or 0)}" if isinstance(error, OSError) else str(error)
        raise StartFailed(
            "codex_home_failed",
            f"the agent's Codex home cannot be prepared: {what}; what was done is kept and nothing was started",
            hint="Look at that path, its rights, and the space on its disk.",
            again=True,
        ) from error


def _prepared(plan: LaunchPlan, places: location.Places, roots: Sequence[Path], bytes_max: int | None) -> Prepared:
    native = places.native
    instructions_text = instructions.composed(plan.instructions)
    with locked(places):
        home, notes = location.settle(places, roots, bytes_max=bytes_max)
        _check_apart(home, native)
        notes += inward.copy_inward(native, home)
        notes += projection.restore(home, places.records)
        notes += configuration.reconcile(home, places.records, native, plan.mcp)
        notes += sessions.link(home, native, places.records)
        notes += links.refresh(
            home,
            places.records,
            habitat=places.habitat,
            native=native,
            skills=plan.skills,
            workspace=plan.workspace,
        )
        notes += instructions.write_habitat(places.habitat, instructions_text)
        notes += history.publish(home, native, places.records)
    return Prepared(
        codex_home=home,
        socket=home / location.SOCKET,
        developer_instructions=instructions_text,
        environment=MappingProxyType({HOME_VARIABLE: str(home)}),
        unset=(DATABASES_VARIABLE,),
        notes=tuple(notes),
    )


@contextlib.contextmanager
def locked(places: location.Places) -> Iterator[None]:
    """Hold the agent's home against other processes of ours; its folders are made.

    Raises:
        StartFailed: they are not this user's alone, or somebody else holds the home too long.
    """
    for folder in (places.folder, places.habitat, places.records):
        files.make_private(folder)
    with files.exclusive(places.records / LOCK):
        yield


def codex_home(plan: LaunchPlan) -> Path:
    """Return where the agent's Codex home is, or will be where it has none and its path is short enough."""
    return location.effective(location.places_of(plan, Path()))


async def background_arguments(plan: LaunchPlan, *, default_model: str = "") -> tuple[str, ...]:
    """Return the `-c` arguments of a background start of a prepared home; nothing is written (M153).

    Raises:
        StartFailed: a setting, folder or custom argument is none that Codex can be started with.
    """
    return await in_thread(
        lambda: arguments.background_arguments(
            plan,
            codex_home(plan),
            instructions=instructions.composed(plan.instructions),
            default_model=default_model,
        )
    )


async def project(
    plan: LaunchPlan,
    *,
    native: Path,
    trust_workspace: bool = False,
    quiet_updates: bool = False,
    fullscreen: bool = True,
    default_model: str = "",
) -> tuple[Finding, ...]:
    """Put the launch settings into a prepared home for a terminal that is about to attach; `restore` undoes it.

    Trust of the workspace and silence of the update check only where the operator allows each (R130, M180).

    Raises:
        StartFailed: a setting is none that Codex has, or the configuration cannot be used. It is as it was.
    """
    places = location.places_of(plan, native)

    def work() -> list[Finding]:
        with locked(places):
            home = location.effective(places)
            text = instructions.composed(plan.instructions)
            notes = projection.restore(home, places.records)
            launch = arguments.values(plan, home, instructions=text, default_model=default_model)
            return notes + projection.project(
                home,
                places.records,
                launch,
                trust=plan.workspace if trust_workspace else "",
                quiet_updates=quiet_updates,
                fullscreen=fullscreen,
            )

    return tuple(await in_thread(work))


async def restore(plan: LaunchPlan, *, native: Path) -> tuple[Finding, ...]:
    """Undo what `project` has done, keeping what the person changed. Harmless where there is nothing to undo.

    Raises:
        StartFailed: the configuration cannot be used now; the next preparation tries again.
    """
    places = location.places_of(plan, native)

    def work() -> list[Finding]:
        with locked(places):
            return projection.restore(location.effective(places), places.records)

    return tuple(await in_thread(work))


async def publish_history(plan: LaunchPlan, *, native: Path) -> tuple[Finding, ...]:
    """Publish new records of the agent's history and index to the user's own copies.

    Raises:
        StartFailed: the home is held by another process, or too slow. The next publication goes on.
    """
    places = location.places_of(plan, native)

    def work() -> list[Finding]:
        with locked(places):
            return history.publish(location.effective(places), native, places.records)

    return tuple(await in_thread(work))


async def approve_tools(
    plan: LaunchPlan, tools: Sequence[str], *, native: Path, compact_roots: Sequence[Path] | None = None
) -> tuple[str, ...]:
    """Approve tools of our server, each by its name, in the agent's own configuration; return all that are approved.

    Nothing else is granted by it (M127-M129). A home that is not there yet is prepared.

    Raises:
        StartFailed: a name is none of our tools, our server is not registered, or the configuration cannot be used.
    """
    places = location.places_of(plan, native)
    if not (location.effective(places) / configuration.NAME).exists():
        await prepare(plan, native=native, compact_roots=compact_roots)

    def work() -> tuple[str, ...]:
        with locked(places):
            return configuration.approve(location.effective(places), places.records, tools)

    return await in_thread(work)


async def findings(
    plan: LaunchPlan,
    *,
    native: Path,
    plugins: Callable[[], Awaitable[bytes]] | None = None,
    socket_bytes_max: int | None = None,
) -> tuple[Finding, ...]:
    """Return how the agent's Codex home stands; changes nothing.

    `plugins` runs `codex plugin list --json` with the agent's CODEX_HOME, bounded, and returns what it printed.

    Raises:
        StartFailed: the files could not be looked at.
    """
    places = location.places_of(plan, native)
    found = await in_thread(lambda: doctor.findings(plan, places, bytes_max=socket_bytes_max))
    if plugins is not None:
        try:
            found += doctor.plugin_findings(await plugins())
        except (OSError, TimeoutError) as error:
            text = f"`codex plugin list --json` could not be asked: {type(error).__name__}"
            found.append(Finding(code="plugins_unknown", gravity=Gravity.FACT, text=text))
    return tuple(found)


def _check_apart(home: Path, native: Path) -> None:
    if os.path.realpath(native) == os.path.realpath(home):
        raise StartFailed(
            "codex_home_is_native",
            f"{native} is this agent's own Codex home and cannot be the user's as well; nothing was started",
            hint="Start Fencepost from a shell in which CODEX_HOME is not an agent's.",
        )
