"""Preparing an agent's Codex home, whole, before every start. See the package for what it promises."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from fencepost.home import SOCKET_PATH_BYTES_MAX
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import configuration, files, inward, location
from fencepost_providers.domain.runtimes import Finding, LaunchPlan

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
    socket_bytes_max: int = SOCKET_PATH_BYTES_MAX,
) -> Prepared:
    """Make the agent's Codex home what it is to be, at most PREPARE_MS_MAX; may be repeated, and after any crash.

    `native` is the user's own Codex home; it need not exist.

    Raises:
        StartFailed: the home cannot be used; nothing was lost.
    """
    roots = location.default_roots(os.environ) if compact_roots is None else tuple(compact_roots)
    return await in_thread(lambda: _prepared(plan, native, roots, socket_bytes_max))


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
    except OSError as error:
        raise StartFailed(
            "codex_home_failed",
            f"the agent's Codex home cannot be prepared: {error.filename or ''} {os.strerror(error.errno or 0)};"
            " what was done is kept and nothing was started",
            hint="Look at that path, its rights, and the space on its disk.",
            again=True,
        ) from error


def _prepared(plan: LaunchPlan, native: Path, roots: Sequence[Path], bytes_max: int) -> Prepared:
    places = location.places_of(plan, native)
    for folder in (places.folder, places.habitat, places.records):
        files.make_private(folder)
    with files.exclusive(places.records / LOCK):
        home, notes = location.settle(places, roots, bytes_max=bytes_max)
        _check_apart(home, native)
        notes += inward.copy_inward(native, home)
        notes += configuration.reconcile(home, places.records, native, plan.mcp)
    return Prepared(
        codex_home=home,
        socket=home / location.SOCKET,
        developer_instructions="",
        environment={HOME_VARIABLE: str(home)},
        unset=(DATABASES_VARIABLE,),
        notes=tuple(notes),
    )


def _check_apart(home: Path, native: Path) -> None:
    if os.path.realpath(native) == os.path.realpath(home):
        raise StartFailed(
            "codex_home_is_native",
            f"{native} is this agent's own Codex home and cannot be the user's as well; nothing was started",
            hint="Start Fencepost from a shell in which CODEX_HOME is not an agent's.",
        )
