"""The directory as followers see it: one epoch, one revision, changes after a revision or everything.

A follower that holds revision R of this epoch gets what changed after R, in revision order. Each row carries the
revision of its last change, so that a row which changed twice is sent once, at its later revision. Removed
credentials and agents are kept by revision, agents for ever; once removals of credentials up to a revision `floor`
have been forgotten, a follower below it gets the whole directory again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from fencepost_sessions.domain.agents import Agent, Tombstone, agent_bytes
from fencepost_sessions.domain.credentials import Credential, credential_bytes
from fencepost_sessions.domain.limits import CHANGES_PER_MESSAGE_MAX
from fencepost_sessions.domain.paging import fitting
from fencepost_sessions.domain.refusals import EpochMismatch, InvalidRevision

UUID_TEXT_BYTES: Final = 40
NO_REVISION_IS_LATER: Final = 2**63 - 1


class HasRevision(Protocol):
    """A row of the directory."""

    @property
    def revision(self) -> int:
        """The directory's revision at the row's last change."""
        ...


Revised = TypeVar("Revised", bound=HasRevision)


@dataclass(frozen=True, kw_only=True, slots=True)
class Directory:
    """Where the directory stands."""

    epoch: bytes
    revision: int
    floor: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """A credential that is gone, and since which revision."""

    credential_id: bytes
    revision: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One message to a follower, which then holds everything up to `revision`; that is 0 inside a snapshot."""

    epoch: bytes
    revision: int
    snapshot_begin: bool = False
    snapshot_end: bool = False
    agents: tuple[Agent, ...] = ()
    credentials: tuple[Credential, ...] = ()
    removals: tuple[Removal, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """Rows after a revision, each kind in revision order and at most CHANGES_PER_MESSAGE_MAX + 1 of it."""

    agents: Sequence[Agent]
    credentials: Sequence[Credential]
    removals: Sequence[Removal]
    tombstones: Sequence[Tombstone] = ()


def needs_snapshot(directory: Directory, held: int) -> bool:
    """Tell whether a follower that holds `held` must get the whole directory."""
    return held == 0 or held < directory.floor


def starting_revision(directory: Directory, *, epoch: bytes | None, revision: int) -> int | None:
    """Return the revision from which a follower goes on; 0 means nothing; None means that it follows another directory.

    Raises:
        InvalidRevision: negative, or ahead of this directory although the epoch is the same: the database was put
            back to an earlier state behind the follower's back.
    """
    if revision < 0:
        raise InvalidRevision("a revision is not negative", hint="Send 0 to get the whole directory.")
    if epoch is None:
        return 0
    if epoch != directory.epoch:
        return None
    _check_reached(directory, revision)
    return revision


def step_of_changes(directory: Directory, changes: Changes) -> Step:
    """Return as many of `changes` as fit in one message, cut between two revisions.

    A single revision changes few rows (one agent, its credentials, one batch of removals), so a message never has to
    split one.
    """
    upto = min(
        directory.revision,
        _last_whole(changes.agents, agent_bytes),
        _last_whole(changes.credentials, credential_bytes),
        _last_whole(changes.removals, removal_bytes),
        _last_whole(changes.tombstones, removal_bytes),
    )
    return Step(
        epoch=directory.epoch,
        revision=upto,
        agents=tuple(_until(changes.agents, upto)),
        credentials=tuple(_until(changes.credentials, upto)),
        removals=tuple(_until(changes.removals, upto)),
        tombstones=tuple(_until(changes.tombstones, upto)),
    )


def removal_bytes(_removal: Removal | Tombstone) -> int:
    """Return at least the bytes that a removal takes in a message."""
    return UUID_TEXT_BYTES


def _last_whole(rows: Sequence[Revised], weigh: Callable[[Revised], int]) -> int:
    """Return the last revision of which every row of this kind fits in a message."""
    fits = fitting(rows, CHANGES_PER_MESSAGE_MAX, weigh)
    return rows[len(fits)].revision - 1 if len(fits) < len(rows) else NO_REVISION_IS_LATER


def confirmed_revision(directory: Directory, *, epoch: bytes | None, revision: int) -> int:
    """Return a revision that a follower confirms.

    Raises:
        EpochMismatch: of another directory.
        InvalidRevision: negative or not reached yet.
    """
    if epoch != directory.epoch:
        raise EpochMismatch(
            "the follower holds another directory than this one; nothing was confirmed",
            hint="Stop following and have the operator look: the database behind sessions was replaced.",
        )
    if revision < 0:
        raise InvalidRevision("a revision is not negative; nothing was confirmed", hint="Confirm what was applied.")
    _check_reached(directory, revision)
    return revision


def _check_reached(directory: Directory, revision: int) -> None:
    if revision > directory.revision:
        raise InvalidRevision(
            f"the directory is at revision {directory.revision}, not yet at {revision}; nothing was changed",
            hint="Stop following and have the operator look: the database of sessions was put back to an older state.",
            state={"revision": str(directory.revision)},
        )


def _until(rows: Iterable[Revised], revision: int) -> Iterable[Revised]:
    return (row for row in rows if row.revision <= revision)
