"""Judges a history against the final state. Knows nothing of how either came about.

Each check is a function of what was written down and what is on disk; it yields a violation for each broken promise.
"""

from __future__ import annotations

import bisect
import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fencepost_chaos.history import Began, Call, History, Kill, Mutation, Outcome, Page, Rpc, Settled
from fencepost_chaos.state import KIND_OF, OPERATION_OF, State, Stored

from fencepost_mailbox.domain.deletion import Phase
from fencepost_mailbox.domain.values import Answer, FactKind, Kind, Origin, ReplyStatus

# Refusals that a kill may cause: each says that nothing was written.
ALLOWED_REFUSALS: Final = frozenset({"draining", "overloaded", "dependency_unavailable", "storage_error"})
NOBODY_REFUSAL: Final = "not_found"
# Of what is for an agent that is being deleted, or was.
DELETED_REFUSAL: Final = "agent_deleted"
CANCELLED_REFUSAL: Final = "key_cancelled"
CURSOR_REFUSALS: Final = frozenset({"invalid_cursor", "expired_cursor"})
# How late, at most, a process of a busy machine notices what happened: the end of a service, the end of a wait.
NOTICED_LATE_NS: Final = 1_000_000_000
WAIT_ENDED_LATE_NS: Final = 500_000_000
_NEVER_NS: Final = 2**63


class Broken(enum.StrEnum):
    """What a violation breaks."""

    DAMAGED = "the database is damaged"
    LOST = "an acknowledged record is gone"
    CHANGED = "a record is not what was sent"
    DOUBLED = "a record is there twice"
    UNASKED = "a record is there that was not written, as its caller was told, or that nobody sent"
    DISORDER = "out of the promised order"
    EXPOSED_TWICE = "a request was handed out as new work more than once"
    UNSETTLED = "a lost answer was settled neither to a receipt nor to a cancellation"
    LATE_ARRIVAL = "a cancelled key was written under after all, or did not refuse"
    UNDELIVERED = "a record never reached its recipient"
    CURSOR_LOST = "a cursor is not honoured any more"
    ACK_LOST = "an acknowledgement is gone"
    MISSED_WAKE = "a wait slept through a message"
    UNEXPECTED = "a call ended as none may"
    DIRECTORY = "the directory of agents is not what was answered"
    UNANSWERED = "a request to a deleted agent was not answered by the host, once, as failed"
    NOT_ERASED = "something of a deleted agent is left"
    UNDEAD = "a deletion did not come to its end, or did not last"


LOSSES: Final = frozenset(
    {Broken.DAMAGED, Broken.LOST, Broken.CHANGED, Broken.UNDELIVERED, Broken.ACK_LOST, Broken.UNANSWERED}
)
DOUBLES: Final = frozenset({Broken.DOUBLED, Broken.EXPOSED_TWICE, Broken.UNASKED, Broken.LATE_ARRIVAL})


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One broken promise, with what it can be found by in the history."""

    broken: Broken
    text: str


@dataclass(frozen=True, kw_only=True)
class Case:
    """A history, the state it ended in, and what several checks look up."""

    history: History
    state: State
    by_id: dict[str, Stored] = field(default_factory=dict)
    by_body: dict[str, list[Stored]] = field(default_factory=lambda: defaultdict(list))
    # Agents that were deleted, and since when that was asked for.
    doomed: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, history: History, state: State) -> Case:
        """Index the state."""
        case = cls(history=history, state=state)
        for record in state.records:
            case.by_id[record.record_id] = record
            if record.origin is not Origin.HOST:
                case.by_body[record.body].append(record)
        case.doomed.update((doomed.agent, doomed.at_ns) for doomed in history.doomed)
        return case

    def written(self, mutation: Mutation) -> Stored | None:
        """Return the record that a mutation left, whatever its caller was told."""
        found = self.by_body.get(mutation.body)
        return found[0] if found else None


class _Cancelled:
    """The cancelled keys, found by their end: over MCP nobody but the shim knows how one begins."""

    def __init__(self, state: State) -> None:
        self._keys: set[tuple[str, int, str]] = set()
        for key in state.keys:
            if key.cancelled:
                self._keys.add((key.caller, key.operation, key.key.partition(":")[2] or key.key))

    def __contains__(self, item: tuple[str, Call, str]) -> bool:
        caller, call, key = item
        return (caller, OPERATION_OF[call], key) in self._keys


def _name(mutation: Mutation | Began) -> str:
    return f"{mutation.op} of {mutation.client}"


# --- the checks ------------------------------------------------------------------------------------------------------


def damage(case: Case) -> Iterator[Violation]:
    """The database is whole."""
    if case.state.integrity != "ok":
        yield Violation(broken=Broken.DAMAGED, text=case.state.integrity)


def acknowledged_records_are_there(case: Case) -> Iterator[Violation]:
    """What was acknowledged is on disk under its id, with exactly its content; unless its recipient was deleted."""
    for mutation in case.history.mutations:
        if mutation.outcome is not Outcome.DONE or mutation.recipient in case.doomed:
            continue
        record = case.by_id.get(mutation.record_id)
        if record is None:
            yield Violation(broken=Broken.LOST, text=f"{_name(mutation)}: no {mutation.record_id}")
            continue
        kept = (record.body, record.kind, record.sender, record.recipient, record.parent)
        sent = (mutation.body, KIND_OF[mutation.call], mutation.sender, mutation.recipient, mutation.parent)
        if kept != sent:
            yield Violation(broken=Broken.CHANGED, text=f"{_name(mutation)}: sent {sent}, kept {kept}")


def nothing_is_there_twice(case: Case) -> Iterator[Violation]:
    """Every body was made for one call: it is there at most once, and under the id that its caller has."""
    for body, records in case.by_body.items():
        if len(records) > 1:
            yield Violation(broken=Broken.DOUBLED, text=f"{body[:12]}: {[record.record_id for record in records]}")
    for mutation in case.history.mutations:
        allowed = {"", mutation.record_id} | ({DELETED_REFUSAL} if mutation.recipient in case.doomed else set())
        if mutation.outcome is Outcome.DONE and mutation.again not in allowed:
            yield Violation(
                broken=Broken.DOUBLED,
                text=f"{_name(mutation)}: {mutation.record_id}, and made again under its key: {mutation.again}",
            )
    replies = Counter(record.parent for record in case.state.records if record.kind is Kind.REPLY)
    for parent, count in replies.items():
        if count > 1:
            yield Violation(broken=Broken.DOUBLED, text=f"{parent} has {count} replies")


def nothing_is_there_that_was_denied(case: Case) -> Iterator[Violation]:
    """What a caller was told is not written is not there, and everything there was sent by somebody."""
    sent = {began.body for began in case.history.began}
    for mutation in case.history.mutations:
        sent.add(mutation.body)
        record = case.written(mutation)
        if record is not None and mutation.outcome in {Outcome.REFUSED, Outcome.NOT_WRITTEN}:
            broken = Broken.LATE_ARRIVAL if mutation.settled is Settled.CANCELLED else Broken.UNASKED
            yield Violation(
                broken=broken, text=f"{_name(mutation)} was {mutation.outcome}: {record.record_id} is there"
            )
    for record in case.state.records:
        # The host's answers for deleted agents are counted elsewhere; it has nothing else to say here.
        if record.body not in sent and (record.origin is not Origin.HOST or record.kind is not Kind.REPLY):
            yield Violation(broken=Broken.UNASKED, text=f"nobody sent {record.record_id}")


def lost_answers_are_settled(case: Case) -> Iterator[Violation]:
    """An answer that was lost became a receipt or a durable cancellation, under which nothing can arrive any more."""
    cancelled = _Cancelled(case.state)
    for mutation in case.history.mutations:
        if mutation.outcome is Outcome.UNCERTAIN:
            yield Violation(broken=Broken.UNSETTLED, text=f"{_name(mutation)}: {mutation.reason}")
        if mutation.settled is not Settled.CANCELLED or mutation.sender in case.doomed:
            continue
        if (mutation.sender, mutation.call, mutation.key) not in cancelled:
            yield Violation(broken=Broken.LATE_ARRIVAL, text=f"{_name(mutation)}: its cancellation is not on disk")
        if mutation.again not in {"", CANCELLED_REFUSAL}:
            yield Violation(
                broken=Broken.LATE_ARRIVAL, text=f"{_name(mutation)}: after the cancellation: {mutation.again}"
            )


def order_of_commits(case: Case) -> Iterator[Violation]:
    """A call that ended before another began stands before it; so a sender's sequential calls keep their order."""
    placed = [
        (mutation, record)
        for mutation in case.history.mutations
        # An explicit repeat of a reply, and a key that was settled, were written somewhere inside their calls too.
        if mutation.outcome is Outcome.DONE and (record := case.by_id.get(mutation.record_id)) is not None
    ]
    by_end = sorted(placed, key=lambda pair: pair[0].returned_ns)
    ends = [mutation.returned_ns for mutation, _ in by_end]
    newest: list[tuple[int, Mutation]] = []
    for mutation, record in by_end:
        before = newest[-1] if newest else (0, mutation)
        newest.append(max(before, (record.sequence, mutation), key=lambda pair: pair[0]))
    for mutation, record in placed:
        count = bisect.bisect_left(ends, mutation.invoked_ns)
        if count and newest[count - 1][0] > record.sequence:
            yield Violation(
                broken=Broken.DISORDER,
                text=f"{_name(mutation)} stands at {record.sequence}, behind {_name(newest[count - 1][1])}"
                f" at {newest[count - 1][0]}, which ended before it began",
            )


def order_of_pages(case: Case) -> Iterator[Violation]:
    """Pages show a recipient's records in commit order: inside a page, and over pages for what is new."""
    highest: dict[str, int] = defaultdict(int)
    shown: dict[str, set[str]] = defaultdict(set)
    for page in _in_time(case.history.pages):
        last = 0
        for seen in page.records:
            record = case.by_id.get(seen.record_id)
            if record is None or seen.possibly_seen:
                continue  # not there: told elsewhere. An uncertain one stands under a number of its own.
            if seen.sequence not in {0, record.sequence}:
                yield Violation(broken=Broken.DISORDER, text=f"{seen.record_id} was told to be at {seen.sequence}")
            if record.sequence <= last:
                yield Violation(broken=Broken.DISORDER, text=f"{seen.record_id} stands behind a later one in a page")
            last = record.sequence
            if seen.record_id not in shown[page.agent] and record.sequence < highest[page.agent]:
                yield Violation(broken=Broken.DISORDER, text=f"{seen.record_id} was shown only after a later one")
            shown[page.agent].add(seen.record_id)
            highest[page.agent] = max(highest[page.agent], record.sequence)


def _in_time(pages: Iterable[Page]) -> list[Page]:
    return sorted((page for page in pages if page.outcome is Outcome.DONE), key=lambda page: page.returned_ns)


def requests_are_handed_out_once(case: Case) -> Iterator[Violation]:
    """One reader at most gets a request as new work: its recipient, or a dispatcher."""
    facts = case.state.facts
    for record in case.state.records:
        if record.kind is not Kind.REQUEST:
            continue
        exposed = facts.get((record.record_id, FactKind.EXPOSED), 0)
        taken = facts.get((record.record_id, FactKind.CLAIMED), 0)
        returned = facts.get((record.record_id, FactKind.RELEASED), 0)
        if exposed + taken - returned > 1:
            yield Violation(
                broken=Broken.EXPOSED_TWICE, text=f"{record.record_id}: {exposed} exposures, {taken} claims"
            )
    claims: dict[str, set[str]] = defaultdict(set)
    for claim in case.history.claims:
        claims[claim.record_id].add(claim.token)
    received = {seen.record_id for page in case.history.pages for seen in page.records if not seen.possibly_seen}
    for record_id, tokens in claims.items():
        if len(tokens) > 1 or record_id in received:
            where = " and received" if record_id in received else ""
            yield Violation(broken=Broken.EXPOSED_TWICE, text=f"{record_id}: claimed {len(tokens)} times{where}")


def everything_reaches_its_recipient(case: Case) -> Iterator[Violation]:
    """When all have read to the end, each record was shown to its recipient, or a dispatcher has it, as it was sent."""
    shown: dict[str, str] = {}
    for page in case.history.pages:
        for seen in page.records:
            shown[seen.record_id] = page.agent
            record = case.by_id.get(seen.record_id)
            if record is None and page.agent in case.doomed:
                continue
            if record is None:
                yield Violation(broken=Broken.LOST, text=f"{seen.record_id} was shown and is not there")
            elif (record.body, record.sender, record.recipient) != (seen.body, seen.sender, page.agent):
                yield Violation(broken=Broken.CHANGED, text=f"{seen.record_id} was shown as another, or to another")
    claimed = {claim.record_id for claim in case.history.claims}
    readers = {page.agent for page in case.history.pages}
    for record in case.state.records:
        if record.recipient in readers and record.record_id not in shown and record.record_id not in claimed:
            yield Violation(broken=Broken.UNDELIVERED, text=f"{record.record_id} was never shown")
        if record.kind is Kind.REQUEST and record.recipient in readers and record.answer is not Answer.ANSWERED:
            yield Violation(broken=Broken.UNDELIVERED, text=f"{record.record_id} was never answered")


def cursors_and_acknowledgements_hold(case: Case) -> Iterator[Violation]:
    """A cursor works after any restart; what an acknowledged page covered never comes back as unread."""
    position: dict[str, int] = {}
    acknowledged: dict[str, int] = defaultdict(int)
    shown: dict[str, set[str]] = defaultdict(set)
    for page in sorted(case.history.pages, key=lambda page: page.returned_ns):
        if page.outcome is Outcome.REFUSED and page.reason in CURSOR_REFUSALS:
            yield Violation(broken=Broken.CURSOR_LOST, text=f"{page.client}: {page.reason}")
        if page.outcome is not Outcome.DONE:
            continue
        if page.ack:
            acknowledged[page.agent] = max(acknowledged[page.agent], position.get(page.ack, 0))
        for seen in page.records:
            record = case.by_id.get(seen.record_id)
            if record is None:
                continue
            if not page.cursor and seen.record_id in shown[page.agent] and record.sequence <= acknowledged[page.agent]:
                yield Violation(broken=Broken.ACK_LOST, text=f"{seen.record_id} came back to {page.client}")
            shown[page.agent].add(seen.record_id)
            position[page.ack_cursor] = record.sequence
    for agent, records in shown.items():
        for record_id in records:
            record = case.by_id[record_id]
            if record.sequence <= acknowledged[agent] and not record.acknowledged:
                yield Violation(broken=Broken.ACK_LOST, text=f"{record_id} is not acknowledged any more")


def waits_wake(case: Case) -> Iterator[Violation]:
    """A wait does not end by time where something unread was acknowledged before it began, or well before its end."""
    arrivals: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for mutation in case.history.mutations:
        if mutation.outcome is Outcome.DONE:
            arrivals[mutation.recipient].append((mutation.returned_ns, mutation.record_id))
    first_shown: dict[str, int] = {}
    for page in _in_time(case.history.pages):
        for seen in page.records:
            first_shown.setdefault(seen.record_id, page.invoked_ns)
    claimed = {claim.record_id for claim in case.history.claims}
    for arrived in arrivals.values():
        arrived.sort()
    for wait in case.history.waits:
        if not wait.timed_out:
            continue
        arrived = arrivals[wait.agent]
        # Only what was shown to nobody until the wait had ended is unread for certain.
        before_ns = max(wait.invoked_ns, wait.returned_ns - WAIT_ENDED_LATE_NS)
        for at_ns, record_id in arrived[: bisect.bisect_left(arrived, (before_ns, ""))]:
            if first_shown.get(record_id, 0) > wait.returned_ns and record_id not in claimed:
                yield Violation(
                    broken=Broken.MISSED_WAKE, text=f"{wait.client} slept through {record_id}, there since {at_ns}"
                )


def calls_end_as_they_may(case: Case) -> Iterator[Violation]:
    """A kill causes refusals that say so, and no others."""
    for mutation in case.history.mutations:
        allowed = ALLOWED_REFUSALS if mutation.recipient else ALLOWED_REFUSALS | {NOBODY_REFUSAL}
        # Refused so before anybody asked for the deletion would be a lie.
        if mutation.reason == DELETED_REFUSAL and mutation.returned_ns > case.doomed.get(mutation.recipient, _NEVER_NS):
            continue
        if mutation.outcome is Outcome.REFUSED and mutation.reason not in allowed:
            yield Violation(broken=Broken.UNEXPECTED, text=f"{_name(mutation)}: refused as {mutation.reason}")
        if mutation.outcome is Outcome.DONE and not mutation.recipient:
            yield Violation(broken=Broken.UNEXPECTED, text=f"{_name(mutation)}: sent to nobody")
    for page in case.history.pages:
        if page.outcome is Outcome.REFUSED and page.reason not in ALLOWED_REFUSALS | CURSOR_REFUSALS:
            yield Violation(broken=Broken.UNEXPECTED, text=f"receive of {page.client}: refused as {page.reason}")
    for directed in case.history.directed:
        if directed.outcome is not Outcome.DONE:
            yield Violation(
                broken=Broken.DIRECTORY,
                text=f"{directed.call} {directed.key}: {directed.outcome} as {directed.reason}",
            )


def the_deleted_leave_nothing(case: Case) -> Iterator[Violation]:
    """Each deletion is finished here, and nothing is kept of its agent but what it sent to others."""
    places = Counter(record.recipient for record in case.state.records if record.recipient in case.doomed)
    left = [f"{count} records for {agent}" for agent, count in places.items()]
    left += [f"a key of {key.caller}" for key in case.state.keys if key.caller in case.doomed]
    left += [f"{table} names {agent}" for agent, table in sorted(case.state.lives) if agent in case.doomed]
    left += [f"{fact.name} of {record_id}" for record_id, fact in case.state.facts if record_id not in case.by_id]
    for text in left:
        yield Violation(broken=Broken.NOT_ERASED, text=text)
    for agent in case.doomed:
        phase = case.state.tombstones.get(agent)
        if phase is not Phase.FINISHED:
            yield Violation(broken=Broken.UNDEAD, text=f"{agent} is at {phase!r} in the mailbox")
    for agent in case.state.tombstones.keys() - case.doomed.keys():
        yield Violation(broken=Broken.UNDEAD, text=f"nobody deleted {agent}")


def requests_to_the_deleted_are_answered(case: Case) -> Iterator[Violation]:
    """Whoever asked an agent that was deleted has one reply, by the host, as failed; and nobody else has one.

    Where the answer to the call itself was lost, and its record erased before it was settled, its caller knows that it
    was written and not its id: the replies to such are counted.
    """
    replies: dict[str, list[Stored]] = defaultdict(list)
    for record in case.state.records:
        if record.kind is Kind.REPLY and record.origin is Origin.HOST:
            replies[record.parent].append(record)
    nameless: Counter[str] = Counter()
    for mutation in case.history.mutations:
        if mutation.call is not Call.REQUEST or mutation.recipient not in case.doomed:
            continue
        nameless[mutation.sender] += mutation.settled is Settled.ERASED
        if mutation.outcome is not Outcome.DONE:
            continue
        found = [(one.recipient, one.status) for one in replies.pop(mutation.record_id, [])]
        if found != [(mutation.sender, ReplyStatus.FAILED)]:
            yield Violation(
                broken=Broken.UNANSWERED, text=f"{_name(mutation)}: {mutation.record_id} has the answers {found}"
            )
    others = Counter(record.recipient for of_request in replies.values() for record in of_request)
    for agent in sorted(others.keys() | nameless.keys()):
        if others[agent] != nameless[agent]:
            yield Violation(
                broken=Broken.UNANSWERED,
                text=f"{agent} has {others[agent]} more answers of the host, and {nameless[agent]} requests for them",
            )


CHECKS: Final[tuple[Callable[[Case], Iterator[Violation]], ...]] = (
    damage,
    acknowledged_records_are_there,
    nothing_is_there_twice,
    nothing_is_there_that_was_denied,
    lost_answers_are_settled,
    order_of_commits,
    order_of_pages,
    requests_are_handed_out_once,
    everything_reaches_its_recipient,
    cursors_and_acknowledgements_hold,
    waits_wake,
    calls_end_as_they_may,
    the_deleted_leave_nothing,
    requests_to_the_deleted_are_answered,
)


def audit(history: History, state: State) -> list[Violation]:
    """Return every violation."""
    case = Case.of(history, state)
    return [violation for check in CHECKS for violation in check(case)]


# --- what is counted -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A kill, and how many calls through the killed service were open then."""

    kill: Kill
    calls: int
    parked: int


def hits(history: History) -> list[Hit]:
    """Tell for each kill which calls it cut.

    A call was open where it began before the kill and ended after it. At a fault point the end is noticed a little
    late: there a call counts too whose answer was lost just before that.
    """
    found: list[Hit] = []
    for service in sorted({kill.service for kill in history.kills}):
        calls = [rpc for rpc in history.rpcs if service in rpc.services]
        for kill in (kill for kill in history.kills if kill.service == service):
            cut = [rpc for rpc in calls if _is_cut(rpc, kill)]
            parked = sum(rpc.parked for rpc in cut)
            found.append(Hit(kill=kill, calls=len(cut) - parked, parked=parked))
    return found


def _is_cut(rpc: Rpc, kill: Kill) -> bool:
    if rpc.began_ns > kill.at_ns:
        return False
    late_ns = NOTICED_LATE_NS if rpc.lost and kill.point else 0
    return rpc.ended_ns > kill.at_ns - late_ns


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The figures of a run."""

    kills: int
    kills_while_a_call_was_open: int
    acknowledged: int
    lost_answers: int
    settled_written: int
    settled_cancelled: int
    uncertain: int
    deleted: int
    lost: int
    doubled: int
    out_of_order: int
    other: int


def count(history: History, state: State, violations: list[Violation]) -> Counts:
    """Return the figures. Over MCP a settlement is known by what it left: a duplicate receipt, a cancelled key."""
    cancelled = _Cancelled(state)
    done = [mutation for mutation in history.mutations if mutation.outcome is Outcome.DONE]
    settled_written = sum(
        mutation.settled is Settled.WRITTEN or (mutation.via == "mcp" and mutation.duplicate) for mutation in done
    ) + sum(mutation.settled is Settled.ERASED for mutation in history.mutations)
    settled_cancelled = sum(
        mutation.settled is Settled.CANCELLED
        or (mutation.via == "mcp" and (mutation.sender, mutation.call, mutation.key) in cancelled)
        for mutation in history.mutations
    )
    uncertain = sum(mutation.outcome is Outcome.UNCERTAIN for mutation in history.mutations)
    kinds = Counter(violation.broken for violation in violations)
    lost = sum(kinds[broken] for broken in LOSSES)
    doubled = sum(kinds[broken] for broken in DOUBLES)
    return Counts(
        kills=len(history.kills),
        kills_while_a_call_was_open=sum(hit.calls > 0 for hit in hits(history)),
        acknowledged=len(done),
        lost_answers=settled_written + settled_cancelled + uncertain,
        settled_written=settled_written,
        settled_cancelled=settled_cancelled,
        uncertain=uncertain,
        deleted=len(history.doomed),
        lost=lost,
        doubled=doubled,
        out_of_order=kinds[Broken.DISORDER],
        other=sum(kinds.values()) - lost - doubled - kinds[Broken.DISORDER],
    )
