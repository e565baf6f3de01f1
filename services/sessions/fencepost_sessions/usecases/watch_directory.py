"""WatchDirectory: the directory from a position on, then every change, then heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from functools import partial

from fencepost_kit import logs
from fencepost_kit.clock import Clock
from fencepost_kit.refusal import PermissionDenied, Unauthenticated
from fencepost_sessions.domain.agents import Agent, agent_bytes
from fencepost_sessions.domain.credentials import Credential, credential_bytes
from fencepost_sessions.domain.directory import Step, needs_snapshot, starting_revision, step_of_changes
from fencepost_sessions.domain.identifiers import uuid_bytes
from fencepost_sessions.domain.limits import CHANGES_PER_MESSAGE_MAX, HEARTBEAT_MS
from fencepost_sessions.domain.paging import fitting
from fencepost_sessions.domain.roles import Caller
from fencepost_sessions.store.protocol import Reading
from fencepost_sessions.usecases.ports import Ports

_log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchDirectory:
    """The request as it came: the epoch (empty for none) and revision (0 for none) that the follower holds."""

    epoch: str
    revision: int
    follower: str


def epoch_of(text: str) -> bytes | None:
    """Return an epoch; None for an empty text.

    Raises:
        Malformed: not a UUID.
    """
    return uuid_bytes(text, what="epoch") if text else None


def check_follower(caller: Caller, follower: str) -> None:
    """Let a service speak as the follower that it is.

    Raises:
        PermissionDenied: the name is not the one of the presented credential: a confirmation in another's name would
            make a removal look enforced where it is not.
    """
    if follower != caller.label:
        raise PermissionDenied(
            "a service follows and confirms under its own name only",
            hint="Send the label of the presented credential as the follower.",
            state={"label": caller.label},
        )


async def watch_directory(ports: Ports, caller: Caller, request: WatchDirectory) -> AsyncGenerator[Step, None]:
    """Yield the directory from the follower's position on, in revision order; a step each HEARTBEAT_MS at least.

    Nothing is queued for a follower: it is read for it when it can take it, so that a slow one costs nothing and
    loses nothing. With an epoch other than this directory's it yields one step with the epoch of this directory and
    ends.

    Raises:
        Malformed, InvalidRevision, PermissionDenied, Overloaded (WATCHES_MAX are open), Draining (the service stops),
            Unauthenticated (the caller's credential was removed meanwhile).
    """
    epoch = epoch_of(request.epoch)
    check_follower(caller, request.follower)
    # Listening before the first look: what is committed in between rings.
    with ports.bells.listening() as bell:
        directory = ports.store.read(lambda reading: reading.directory())
        held = starting_revision(directory, epoch=epoch, revision=request.revision)
        if held is None:
            _log.warning("follower_of_another_epoch", follower=request.follower)
            yield Step(epoch=directory.epoch, revision=directory.revision)
            return
        ports.followers.begins_at(request.follower, held)
        _log.info("watch_began", follower=request.follower, revision=held)
        # The first beat is due at once: a follower that missed nothing hears so, and confirms, without waiting.
        beat_at = ports.clock.monotonic()
        while True:
            ports.bells.check_open()
            bell.clear()
            _check_still_valid(ports, caller)
            directory = ports.store.read(lambda reading: reading.directory())
            if needs_snapshot(directory, held):
                for step in snapshot(ports):
                    held = step.revision
                    yield step
            elif held < directory.revision:
                step = ports.store.read(partial(_changes, held=held))
                held = step.revision
                yield step
            elif await _rings(bell, ports.clock, until=beat_at):
                # Perhaps for nothing that a follower sees: only what is sent puts the next beat off.
                continue
            else:
                yield Step(epoch=directory.epoch, revision=held)
            beat_at = ports.clock.monotonic() + HEARTBEAT_MS / 1000


def snapshot(ports: Ports) -> Iterator[Step]:
    """Yield the whole directory, a page at a time.

    Pages are read at different moments and ordered by id, which never changes. What changes meanwhile has a revision
    after the one that ends the snapshot, so the follower gets it right after; nothing that stood all the time is
    missed.
    """
    directory = ports.store.read(lambda reading: reading.directory())
    yield Step(epoch=directory.epoch, revision=0, snapshot_begin=True)
    last = b""
    while agents := ports.store.read(partial(_agents_page, after=last)):
        last = agents[-1].agent_id
        yield Step(epoch=directory.epoch, revision=0, agents=agents)
    last = b""
    while credentials := ports.store.read(partial(_credentials_page, after=last)):
        last = credentials[-1].credential_id
        yield Step(epoch=directory.epoch, revision=0, credentials=credentials)
    yield Step(epoch=directory.epoch, revision=directory.revision, snapshot_end=True)


def _agents_page(reading: Reading, after: bytes) -> tuple[Agent, ...]:
    rows = reading.agents_after_id(after, rows=CHANGES_PER_MESSAGE_MAX)
    return fitting(rows, CHANGES_PER_MESSAGE_MAX, agent_bytes)


def _credentials_page(reading: Reading, after: bytes) -> tuple[Credential, ...]:
    rows = reading.credentials_after_id(after, rows=CHANGES_PER_MESSAGE_MAX)
    return fitting(rows, CHANGES_PER_MESSAGE_MAX, credential_bytes)


def _changes(reading: Reading, held: int) -> Step:
    return step_of_changes(reading.directory(), reading.changes_after(held, rows=CHANGES_PER_MESSAGE_MAX + 1))


def _check_still_valid(ports: Ports, caller: Caller) -> None:
    if ports.store.read(lambda reading: reading.credential(caller.credential_id)) is None:
        raise Unauthenticated(
            "the credential of this watch was removed",
            hint="Read the credential file again and watch from where you are.",
        )


async def _rings(bell: asyncio.Event, clock: Clock, *, until: float) -> bool:
    """Wait for the bell until a moment of the monotonic clock; tell whether it rang before."""
    if clock.monotonic() >= until:
        return False
    waits = [
        asyncio.ensure_future(bell.wait()),
        asyncio.ensure_future(clock.sleep(until - clock.monotonic())),
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return bell.is_set()
