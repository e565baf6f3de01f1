"""When an idle agent is woken for what waits for it among its tasks, how often, and with which words.

Source: ARCHITECTURE "Dispatch", DECISIONS M102. A wake-up tells of everything that the agent can act on at that moment,
so that however much came meanwhile makes one turn. What nobody has to act on wakes nobody: outcomes, acknowledgements,
the pool, and tasks that stand behind another in a queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.tasks.needs import task_id_text
from fencepost_mailbox.domain.tasks.values import Notice, Notification
from fencepost_mailbox.domain.values import Delivery, Record

# After a turn that left a notification standing: how long until it is told again, the first time and the second.
WAKE_AGAIN_MS_MIN: Final = 60_000
WAKE_AGAIN_MS_MAX: Final = 600_000
WAKE_AGAIN_MS: Final = (WAKE_AGAIN_MS_MIN, WAKE_AGAIN_MS_MAX)
# Turns that one notification is told in. After the last it is left to a person, or to the next thing that happens.
WAKES_MAX: Final = 3
# Wake-ups of one agent within WAKES_WINDOW_MS. Agents that give each other tasks in a circle go no faster than this.
WAKES_WINDOW_MAX: Final = 60
WAKES_WINDOW_MS: Final = 3_600_000
# Notifications that one wake-up tells of; those that were told least often go first.
WAKE_NOTICES_MAX: Final = 16

# What an agent can act on while it has a task in execution, and what else while it has none.
ALWAYS: Final = frozenset({Notice.STOP, Notice.RESUME, Notice.REVIEW})
WITH_A_FREE_SLOT: Final = frozenset({Notice.ASSIGNED, Notice.REWORK})
WAKING: Final = ALWAYS | WITH_A_FREE_SLOT


@value(frozen=True, kw_only=True, slots=True)
class Due:
    """What is to be told to an agent now.

    `wake`: a turn is to be begun. `stop`: something is to be told to the turn that runs. `left`: how many
    notifications were told WAKES_MAX times and still stand. `held_until_ms`: until when no turn is begun although one
    is due, because the agent was woken WAKES_WINDOW_MAX times; 0 where that is not so.
    """

    wake: bool = False
    stop: bool = False
    left: int = 0
    held_until_ms: int = 0


NOTHING_DUE: Final = Due()


def judge(
    waiting: Sequence[Notification], outstanding: Sequence[Record], now_ms: int, *, oldest_counted_ms: int | None = None
) -> Due:
    """Return what is to be told, of what an agent can act on and of its wake-ups that are not over.

    `oldest_counted_ms`: when the wake-up was written that was WAKES_WINDOW_MAX ago; None where there were fewer.
    At most one is outstanding: none is begun while another is on its way or its turn runs. Only a request to stop may
    be told besides, to the turn that runs, and once.
    """
    if not waiting:
        return NOTHING_DUE
    # One that was given back is on its way no more: it is taken when something is due again.
    on_its_way = any(one.delivery is Delivery.CLAIMED for one in outstanding)
    is_free = all(one.delivery is Delivery.PENDING for one in outstanding)
    is_wanted = is_free and any(is_due(one, now_ms) for one in waiting)
    # One that was given back is counted already.
    held_until_ms = held_until(oldest_counted_ms, now_ms) if is_wanted and not outstanding else 0
    return Due(
        wake=is_wanted and held_until_ms == 0,
        stop=not on_its_way and any(joins(one) for one in waiting),
        held_until_ms=held_until_ms,
        left=sum(one.wakes >= WAKES_MAX for one in waiting),
    )


def is_due(notice: Notification, now_ms: int) -> bool:
    """Tell whether a notification is to be told: it never was, or it still stands after its pause."""
    return notice.wakes < WAKES_MAX and not _is_ahead(notice.again_at_ms, now_ms, WAKE_AGAIN_MS_MAX)


def held_until(oldest_counted_ms: int | None, now_ms: int) -> int:
    """Return until when no turn is begun for an agent's tasks; 0 where one may be."""
    until_ms = 0 if oldest_counted_ms is None else oldest_counted_ms + WAKES_WINDOW_MS
    return until_ms if _is_ahead(until_ms, now_ms, WAKES_WINDOW_MS) else 0


def _is_ahead(at_ms: int, now_ms: int, most_ms: int) -> bool:
    """Tell whether a moment is still to come. One further ahead than it was ever set was set by another clock."""
    return now_ms < at_ms <= now_ms + most_ms


def joins(notice: Notification) -> bool:
    """Tell whether a notification is told to a turn that runs: a request to stop that no turn was told of."""
    return notice.notice is Notice.STOP and notice.wakes == 0


def again_at_ms(notice: Notification, ended_at_ms: int) -> int:
    """Return when a notification is told again whose wake-up is over; 0 for never."""
    return 0 if notice.wakes >= WAKES_MAX else ended_at_ms + WAKE_AGAIN_MS[max(0, notice.wakes - 1)]


_ORDER: Final = (Notice.STOP, Notice.RESUME, Notice.REVIEW, Notice.REWORK, Notice.ASSIGNED)
_WORDS: Final[Mapping[Notice, str]] = MappingProxyType(
    {
        Notice.STOP: "you are asked to stop it. Stop what you do for it, then call task_finish_cancel.",
        Notice.RESUME: "it was in execution when an earlier run of yours ended, and nobody knows how far it came. "
        "Look at what is there, then go on with it by task_start, or report it by task_fail.",
        Notice.REVIEW: "it waits for your review. Look at its result and evidence, then call task_review.",
        Notice.REWORK: "it came back from review with feedback. Call task_start to do it again.",
        Notice.ASSIGNED: "it is assigned to you and first in your queue. Call task_start to begin.",
    }
)
_HEAD: Final = "Fencepost says this, not an agent and not a person: supervised work waits for you."
_TAIL: Final = (
    "Read a task by task_get before you act on it, and what else stands for you by agent_inbox. Without these tools "
    "use `fencepost task` in a shell. This wants no reply."
)


def in_order(notices: Sequence[Notification]) -> list[Notification]:
    """Return notifications as a wake-up tells them: what stops work first, then what goes on, then what begins."""
    return sorted(notices, key=lambda one: (_ORDER.index(one.notice), one.sequence))


def words(
    notices: Sequence[Notification], *, uncertain: Sequence[str] = (), repeated: bool = False, more: bool = False
) -> bytes:
    """Return the text of a wake-up: ids, what each asks for, and which call answers it. Nothing of a task's own text.

    `uncertain` names earlier wake-ups of which nobody knows whether they arrived; `repeated`: some of it was told by
    one that did; `more`: not everything fits.
    """
    lines = [_HEAD]
    lines += [f"- {task_id_text(one.task_id)}: {_WORDS[one.notice]}" for one in in_order(notices)]
    if more:
        lines.append("There is more of the kind: agent_inbox lists it.")
    if uncertain:
        lines.append(
            f"Whether an earlier wake-up reached you is not known ({', '.join(uncertain)}): look at what you did "
            "already before you do it again."
        )
    elif repeated:
        lines.append("You were woken for some of it before. If you cannot act on it, tell its issuer why.")
    lines.append(_TAIL)
    return "\n".join(lines).encode("utf-8")
