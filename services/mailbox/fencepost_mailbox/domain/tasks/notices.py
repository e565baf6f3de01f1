"""Which notification stands for whom and until when. Only the transition that ends its phase consumes one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.tasks.values import SETTLED, Action, Notice, Part, Phase, Task


@value(frozen=True, kw_only=True, slots=True)
class Standing:
    """Whose a notice is, and in which phases of its task it stands."""

    part: Part
    phases: frozenset[Phase]


def _of(part: Part, *phases: Phase) -> Standing:
    return Standing(part=part, phases=frozenset(phases))


STANDINGS: Final[Mapping[Notice, Standing]] = MappingProxyType(
    {
        Notice.ASSIGNED: _of(Part.ASSIGNEE, Phase.QUEUED),
        Notice.REWORK: _of(Part.ASSIGNEE, Phase.QUEUED),
        Notice.POOL: _of(Part.ELIGIBLE, Phase.POOLED),
        Notice.REVIEW: _of(Part.REVIEWER, Phase.SUBMITTED),
        Notice.STOP: _of(Part.ASSIGNEE, Phase.CANCEL_REQUESTED, Phase.CANCEL_LOST),
        Notice.RESUME: _of(Part.ASSIGNEE, Phase.LOST),
        Notice.UNKNOWN: _of(Part.ISSUER, Phase.LOST, Phase.CANCEL_LOST, Phase.ABANDONED),
        Notice.WAITING: _of(Part.ISSUER, Phase.RUNNING, Phase.CANCEL_REQUESTED),
        Notice.OVERDUE: _of(Part.ISSUER, Phase.SUBMITTED),
        Notice.ACCEPTED: _of(Part.ISSUER, Phase.ACCEPTED, Phase.INTEGRATED),
        Notice.FAILED: _of(Part.ISSUER, Phase.FAILED),
        Notice.EXPIRED: _of(Part.ISSUER, Phase.EXPIRED),
        Notice.CANCELLED: _of(Part.ISSUER, Phase.CANCELLED),
        Notice.ORPHANED: _of(Part.ISSUER, Phase.BLOCKED, Phase.QUEUED, Phase.ABANDONED),
    }
)

# Told again where one stands already: its words are new.
RETOLD: Final = frozenset({Notice.WAITING})


def holders(notice: Notice, task: Task, eligible: frozenset[bytes]) -> frozenset[bytes]:
    """Return the agents for whom a notice of this kind would stand now; none where it does not stand."""
    standing = STANDINGS[notice]
    if task.phase not in standing.phases:
        return frozenset()
    if notice is Notice.WAITING and not task.wait_reason:
        return frozenset()
    if notice is Notice.ORPHANED and not task.orphan:
        return frozenset()
    if standing.part is Part.ELIGIBLE:
        return eligible
    holder = {
        Part.ISSUER: task.issuer,
        Part.REVIEWER: task.reviewer,
        Part.ASSIGNEE: None if task.orphan else task.assignee,
    }[standing.part]
    return frozenset() if holder is None else frozenset({holder})


def stays_supervised(after: Task, action: Action, actor: bytes | None) -> bool | None:
    """Tell whether its issuer supervises a task after an action: True, False, or None for as before.

    Open work is always supervised. An outcome leaves the set where the issuer itself brought it about, and when it is
    put away; one that somebody else brought about stays until the issuer has handled it. Neither time nor the end of
    a turn takes anything out.
    """
    if action is Action.ARCHIVE:
        return False
    if after.phase not in SETTLED:
        return True
    own = actor is not None and actor == after.issuer
    return False if own and after.phase in (Phase.ACCEPTED, Phase.INTEGRATED, Phase.CANCELLED) else None
