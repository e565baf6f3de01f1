"""Who may do what to a task in which phase, under which conditions, and where it leads.

`RULES` is the specification of supervised tasks; nothing else decides. A pair that is not in it is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import InvalidState, Unauthorized
from fencepost_mailbox.domain.tasks.values import EXECUTING, Action, AttemptOutcome, Notice, Part, Phase, State


class Need(enum.Enum):
    """A condition that an action rests on besides the phase; `needs.py` says how each is checked.

    SLOT: the agent executes no other task. NEXT: no other task stands before it in the agent's queue. IN_TIME: its
    start deadline has not passed. OTHER_REVIEWER: whoever does the work is not its reviewer. TARGET: the agent that
    is to do it lives and is not its reviewer. ASSIGNEE: its assignee was not deleted. PREREQUISITES: those that are
    given belong to the same project and make no cycle. MET: every prerequisite is accepted. DUE: its time has come.
    """

    SLOT = "slot"
    NEXT = "next"
    IN_TIME = "in_time"
    OTHER_REVIEWER = "other_reviewer"
    TARGET = "target"
    ASSIGNEE = "assignee"
    PREREQUISITES = "prerequisites"
    MET = "met"
    DUE = "due"


class To(enum.Enum):
    """A destination that is not one state: queued or blocked by its prerequisites, or the state that it is in."""

    PLACE = "place"
    STAY = "stay"


class Effect(enum.Enum):
    """What an action does to the task's attempt.

    BEGIN: a new one. RESUME: the one before was interrupted, a new one goes on. END: it has ended, as the rule says.
    LOSE: whether it runs is not known any more. FENCE: nothing that it says counts any more.
    """

    KEEP = "keep"
    BEGIN = "begin"
    RESUME = "resume"
    END = "end"
    LOSE = "lose"
    FENCE = "fence"


@value(frozen=True, kw_only=True, slots=True)
class Rule:
    """One row: who may, what it needs, where it leads, what it does to the attempt, and whom it tells."""

    parts: frozenset[Part]
    to: State | To
    needs: tuple[Need, ...] = ()
    # One more revision, at the end of the queue.
    bumps: bool = False
    effect: Effect = Effect.KEEP
    outcome: AttemptOutcome = AttemptOutcome.NONE
    # Told where they stand in the phase that it leads to (notices.py), and never to the one who acts.
    tells: tuple[Notice, ...] = ()


_ISSUERS: Final = frozenset({Part.ISSUER, Part.OPERATOR})
_REVIEWERS: Final = frozenset({Part.REVIEWER, Part.OPERATOR})
_ASSIGNEE: Final = frozenset({Part.ASSIGNEE})
_SYSTEM: Final = frozenset({Part.SYSTEM})
_OPERATOR: Final = frozenset({Part.OPERATOR})

_UNSTARTED: Final = (Phase.BLOCKED, Phase.POOLED, Phase.QUEUED)
_ENDED: Final = (Phase.FAILED, Phase.EXPIRED, Phase.CANCELLED)
_HELD: Final = (Phase.RUNNING, Phase.LOST, Phase.CANCEL_REQUESTED, Phase.CANCEL_LOST)
_UNCERTAIN: Final = (Phase.LOST, Phase.CANCEL_REQUESTED, Phase.CANCEL_LOST, Phase.ABANDONED)
_OPEN_TO_LOSS: Final = (Phase.BLOCKED, Phase.QUEUED, Phase.SUBMITTED, *_ENDED)
assert frozenset(_HELD) == EXECUTING, "what holds the slot is what can be lost from sight"

_AGAIN: Final = (Notice.ASSIGNED, Notice.POOL)
_BEGINS: Final = (Need.IN_TIME, Need.SLOT)


_Rows = Iterator[tuple[Iterable[Phase], Action, Rule]]


def _rows() -> _Rows:
    """Yield the table, several phases with one rule in one row."""
    yield from _waiting()
    yield from _executed()
    yield from _judged()
    yield from _cancelled()
    yield from _given_again()
    yield from _left()


def _waiting() -> _Rows:
    """Yield how a task comes into being, and what happens to it before it is executed."""
    created = (Need.PREREQUISITES, Need.TARGET)
    yield (Phase.NONE,), Action.ASSIGN, Rule(parts=_ISSUERS, needs=created, to=To.PLACE, tells=(Notice.ASSIGNED,))
    yield (
        (Phase.NONE,),
        Action.CREATE_POOL,
        Rule(parts=_ISSUERS, needs=created, to=To.PLACE, tells=(Notice.POOL,)),
    )
    yield (Phase.BLOCKED,), Action.UNBLOCK, Rule(parts=_SYSTEM, needs=(Need.MET,), to=State.QUEUED, tells=_AGAIN)
    yield (
        _UNSTARTED,
        Action.SET_DEPENDENCIES,
        Rule(parts=_ISSUERS, needs=(Need.PREREQUISITES,), to=To.PLACE, tells=_AGAIN),
    )
    yield (
        _UNSTARTED,
        Action.EXPIRE,
        Rule(parts=_SYSTEM, needs=(Need.DUE,), to=State.EXPIRED, tells=(Notice.EXPIRED,)),
    )


def _executed() -> _Rows:
    """Yield how a task is executed."""
    yield (
        (Phase.POOLED,),
        Action.CLAIM,
        Rule(
            parts=frozenset({Part.ELIGIBLE}),
            needs=(Need.OTHER_REVIEWER, *_BEGINS),
            to=State.RUNNING,
            effect=Effect.BEGIN,
        ),
    )
    yield (
        (Phase.QUEUED,),
        Action.START,
        Rule(parts=_ASSIGNEE, needs=(*_BEGINS, Need.NEXT), to=State.RUNNING, effect=Effect.BEGIN),
    )
    yield (Phase.LOST,), Action.START, Rule(parts=_ASSIGNEE, to=State.RUNNING, effect=Effect.RESUME)
    yield (
        (Phase.RUNNING, Phase.CANCEL_REQUESTED),
        Action.PROGRESS,
        Rule(parts=_ASSIGNEE, to=To.STAY, tells=(Notice.WAITING,)),
    )
    yield (
        (Phase.RUNNING,),
        Action.SUBMIT,
        Rule(
            parts=_ASSIGNEE,
            to=State.SUBMITTED,
            effect=Effect.END,
            outcome=AttemptOutcome.SUBMITTED,
            tells=(Notice.REVIEW,),
        ),
    )
    yield (
        (Phase.RUNNING,),
        Action.FAIL,
        Rule(
            parts=_ASSIGNEE,
            to=State.FAILED,
            effect=Effect.END,
            outcome=AttemptOutcome.FAILED,
            tells=(Notice.FAILED,),
        ),
    )
    yield (
        (Phase.RUNNING, Phase.LOST),
        Action.TIME_OUT,
        Rule(parts=_SYSTEM, needs=(Need.DUE,), to=State.CANCEL_REQUESTED, tells=(Notice.STOP,)),
    )
    yield (
        (Phase.RUNNING, Phase.CANCEL_REQUESTED),
        Action.LOSE_SIGHT,
        Rule(parts=_SYSTEM, to=To.STAY, effect=Effect.LOSE, tells=(Notice.UNKNOWN, Notice.RESUME)),
    )


def _judged() -> _Rows:
    """Yield what becomes of work that was submitted, and of outcomes."""
    yield (
        (Phase.SUBMITTED,),
        Action.ACCEPT,
        Rule(parts=_REVIEWERS, needs=(Need.OTHER_REVIEWER,), to=State.ACCEPTED, tells=(Notice.ACCEPTED,)),
    )
    yield (
        (Phase.SUBMITTED,),
        Action.REJECT,
        Rule(
            parts=_REVIEWERS,
            needs=(Need.OTHER_REVIEWER,),
            to=To.PLACE,
            bumps=True,
            tells=(Notice.REWORK, Notice.ORPHANED),
        ),
    )
    yield (
        (Phase.SUBMITTED,),
        Action.MARK_OVERDUE,
        Rule(parts=_SYSTEM, needs=(Need.DUE,), to=To.STAY, tells=(Notice.OVERDUE,)),
    )
    yield (
        (Phase.ACCEPTED,),
        Action.INTEGRATE,
        Rule(parts=frozenset({Part.COORDINATOR, Part.SERVICE}), to=State.INTEGRATED),
    )
    yield (
        (Phase.ACCEPTED, Phase.INTEGRATED, *_ENDED),
        Action.ARCHIVE,
        Rule(parts=_ISSUERS, to=To.STAY),
    )


def _cancelled() -> _Rows:
    """Yield how work is given up."""
    yield (
        (*_UNSTARTED, Phase.SUBMITTED),
        Action.CANCEL,
        Rule(parts=_ISSUERS, to=State.CANCELLED, tells=(Notice.CANCELLED,)),
    )
    yield (
        (Phase.RUNNING, Phase.LOST),
        Action.CANCEL,
        Rule(parts=_ISSUERS, to=State.CANCEL_REQUESTED, tells=(Notice.STOP,)),
    )
    yield (
        (Phase.ABANDONED,),
        Action.CANCEL,
        Rule(
            parts=_ISSUERS,
            to=State.CANCELLED,
            effect=Effect.FENCE,
            outcome=AttemptOutcome.FENCED,
            tells=(Notice.CANCELLED,),
        ),
    )
    yield (
        (Phase.CANCEL_REQUESTED, Phase.CANCEL_LOST),
        Action.FINISH_CANCEL,
        Rule(
            parts=frozenset({Part.ASSIGNEE, Part.SERVICE}),
            to=State.CANCELLED,
            effect=Effect.END,
            outcome=AttemptOutcome.CANCELLED,
            tells=(Notice.CANCELLED,),
        ),
    )


def _given_again() -> _Rows:
    """Yield how work is queued again, for the same agent or another."""
    yield (
        _ENDED,
        Action.RETRY,
        Rule(parts=_ISSUERS, needs=(Need.ASSIGNEE,), to=To.PLACE, bumps=True, tells=_AGAIN),
    )
    yield (
        (*_UNSTARTED, *_ENDED),
        Action.REASSIGN,
        Rule(parts=_ISSUERS, needs=(Need.TARGET,), to=To.PLACE, bumps=True, tells=(Notice.ASSIGNED,)),
    )
    fenced: dict[str, Any] = {
        "to": To.PLACE,
        "bumps": True,
        "effect": Effect.FENCE,
        "outcome": AttemptOutcome.FENCED,
        "tells": (Notice.ASSIGNED,),
    }
    yield (
        (Phase.ABANDONED,),
        Action.REASSIGN,
        Rule(parts=_ISSUERS, needs=(Need.TARGET,), **fenced),
    )
    yield (
        _UNCERTAIN,
        Action.OVERRIDE_RETRY,
        Rule(parts=_OPERATOR, needs=(Need.ASSIGNEE,), **fenced),
    )
    yield (
        _UNCERTAIN,
        Action.OVERRIDE_REASSIGN,
        Rule(parts=_OPERATOR, needs=(Need.TARGET,), **fenced),
    )
    yield (
        _UNCERTAIN,
        Action.OVERRIDE_CANCEL,
        Rule(
            parts=_OPERATOR,
            to=State.CANCELLED,
            effect=Effect.FENCE,
            outcome=AttemptOutcome.FENCED,
            tells=(Notice.CANCELLED,),
        ),
    )


def _left() -> _Rows:
    """Yield what the deletion of an agent does to tasks that it has a part in."""
    alive = [phase for phase in Phase if phase not in (Phase.NONE, Phase.ARCHIVED)]
    yield alive, Action.LOSE_ISSUER, Rule(parts=_SYSTEM, to=To.STAY)
    yield alive, Action.LOSE_REVIEWER, Rule(parts=_SYSTEM, to=To.STAY, tells=(Notice.REVIEW,))
    told = (Notice.ORPHANED, Notice.UNKNOWN)
    yield _OPEN_TO_LOSS, Action.LOSE_ASSIGNEE, Rule(parts=_SYSTEM, to=To.STAY, tells=told)
    yield _HELD, Action.LOSE_ASSIGNEE, Rule(parts=_SYSTEM, to=To.STAY, effect=Effect.LOSE, tells=told)


def _table() -> Mapping[tuple[Phase, Action], Rule]:
    found: dict[tuple[Phase, Action], Rule] = {}
    for phases, action, rule in _rows():
        for phase in phases:
            assert (phase, action) not in found, "one rule for a phase and an action"
            found[phase, action] = rule
    return MappingProxyType(found)


RULES: Final = _table()

# What the mailbox does by itself to a task whose time has come.
WHEN_DUE: Final[Mapping[Phase, Action]] = MappingProxyType(
    {
        Phase.BLOCKED: Action.EXPIRE,
        Phase.POOLED: Action.EXPIRE,
        Phase.QUEUED: Action.EXPIRE,
        Phase.RUNNING: Action.TIME_OUT,
        Phase.LOST: Action.TIME_OUT,
        Phase.SUBMITTED: Action.MARK_OVERDUE,
    }
)

_HINTS: Final[Mapping[tuple[Phase, Action], str]] = MappingProxyType(
    {
        (Phase.LOST, Action.SUBMIT): "An earlier life of yours was running it: go on with it by task_start first.",
        (Phase.LOST, Action.PROGRESS): "An earlier life of yours was running it: go on with it by task_start first.",
        (Phase.LOST, Action.FAIL): "An earlier life of yours was running it: go on with it by task_start first.",
        (Phase.CANCEL_REQUESTED, Action.SUBMIT): "Stop, keep what was reached by task_progress, confirm by "
        "task_finish_cancel.",
        (Phase.CANCEL_REQUESTED, Action.FAIL): "Stop, and confirm by task_finish_cancel.",
        (Phase.RUNNING, Action.REASSIGN): "Cancel it first; once that is confirmed it can be given to another agent.",
        (Phase.RUNNING, Action.OVERRIDE_RETRY): "It runs, as far as is known: cancel it first.",
        (Phase.RUNNING, Action.OVERRIDE_REASSIGN): "It runs, as far as is known: cancel it first.",
        (Phase.RUNNING, Action.OVERRIDE_CANCEL): "It runs, as far as is known: cancel it first.",
        (Phase.LOST, Action.REASSIGN): "Whether it still runs is not known: only the operator may override that.",
        (Phase.ACCEPTED, Action.REASSIGN): "Accepted work stays as it is: assign a new task.",
        (Phase.ACCEPTED, Action.CANCEL): "Accepted work stays as it is: assign a new task.",
        **dict.fromkeys(
            ((phase, action) for phase in (Phase.QUEUED, Phase.RUNNING) for action in (Action.ACCEPT, Action.REJECT)),
            "It is reviewed once its assignee has submitted it by task_submit.",
        ),
        **dict.fromkeys(
            ((Phase.QUEUED, action) for action in (Action.PROGRESS, Action.SUBMIT, Action.FAIL)),
            "Its assignee begins it by task_start first.",
        ),
        (Phase.POOLED, Action.START): "Nobody has it yet: task_claim takes it and starts it.",
        (Phase.SUBMITTED, Action.INTEGRATE): "It is integrated once its reviewer has accepted it by task_review.",
        (Phase.BLOCKED, Action.START): "It waits for its prerequisites.",
        (Phase.BLOCKED, Action.CLAIM): "It waits for its prerequisites.",
    }
)

_MAY_EVER: Final[Mapping[Action, frozenset[Part]]] = MappingProxyType(
    {
        action: frozenset(part for (_, done), rule in RULES.items() if done is action for part in rule.parts)
        for action in Action
    }
)


def decide(phase: Phase, action: Action, parts: frozenset[Part]) -> tuple[Rule, Part]:
    """Return the rule for an action in a phase, and in which of its parts the actor acts.

    Raises:
        Unauthorized: none of the actor's parts may do this, here or in any phase.
        InvalidState: it is not possible in this phase.
    """
    word = action.name.lower().replace("_", " ")
    if not parts & _MAY_EVER[action]:
        who = ", ".join(sorted(part.name.lower() for part in _MAY_EVER[action]))
        raise Unauthorized(f"only {who} may do this to the task ({word}); nothing was written")
    rule = RULES.get((phase, action))
    stands = phase.name.lower()
    if rule is None:
        raise InvalidState(
            f"a task that is {stands} takes no {word}; nothing was written",
            hint=_HINTS.get((phase, action), ""),
            state={"phase": stands},
        )
    mine = parts & rule.parts
    if not mine:
        raise Unauthorized(f"you may not do this to a task that is {stands} ({word}); nothing was written")
    return rule, min(mine)
