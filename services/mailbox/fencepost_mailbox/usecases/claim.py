"""Claim, Release and Finish.

A dispatcher carries one record into a conversation (M072 M076 M082 M090 to M094 M104 to M107).
"""

from __future__ import annotations

import enum
from typing import Final

from fencepost_kit.identity import Caller
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.answers import AnswerEvent
from fencepost_mailbox.domain.bindings import Binding, BindingState, Turn, check_turn, publishes
from fencepost_mailbox.domain.claims import (
    EVENT_OF,
    STATE_OF,
    Claim,
    ClaimState,
    Outcome,
    check_fence,
    check_incarnation,
    check_stands,
    judge_finish,
    judge_release,
    over_release_cap,
    term,
)
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.delivery import Event, advance
from fencepost_mailbox.domain.idempotency import check_key, fingerprint, judge_repeat
from fencepost_mailbox.domain.records import evolve
from fencepost_mailbox.domain.refusals import InvalidLimit
from fencepost_mailbox.domain.texts import check_evidence
from fencepost_mailbox.domain.values import Answer, Fact, FactKind, Kind, Operation, Origin, Record, ReplyStatus
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Transaction
from fencepost_mailbox.usecases.ports import Ports, fence, held_record, lose_sight, lose_turn, mark_uncertain
from fencepost_mailbox.usecases.reply import write_answer
from fencepost_mailbox.usecases.tasks.steps import lose_every_attempt
from fencepost_mailbox.usecases.tasks.waking import call_out, close_wake, take_back

_GIVEN_UP: Final = (
    "Fencepost could not hand this request to its recipient's program: it was taken and given back too often."
)
_NEVER_STARTED: Final = (
    "Fencepost could not hand this request to its recipient's program, and the work was not started. Reason: "
)
# Later than any term ends.
_NEVER_MS: Final = 2**62
_RESTARTED: Final = "the dispatcher that held the claim was started again"


class ClaimKind(enum.IntEnum):
    """What a dispatcher asks for."""

    REQUEST = 1
    CONTEXT = 2
    WAKE = 3
    STOP = 4


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A Claim as it was made; see ClaimRequest."""

    agent_id: bytes
    generation: int
    dispatcher: bytes
    incarnation: int
    kind: ClaimKind
    high_water: int
    term_ms: int
    key: str


@value(frozen=True, kw_only=True, slots=True)
class Taken:
    """A claim with the record that it is on."""

    claim: Claim
    record: Record
    duplicate: bool


@value(frozen=True, kw_only=True, slots=True)
class Claiming:
    """The writing part of Claim."""

    caller: bytes
    command: Command
    term_ms: int
    key: bytes
    content: bytes
    token: bytes
    # Of a wake-up that is written by this.
    wake_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Taken | None]:
        """Take the oldest record of the kind, or return None and write nothing but what was learnt of lives.

        Raises:
            AgentDeleted, StaleIncarnation, StaleGeneration, IdempotencyConflict, KeyCancelled: nothing is written.
            StaleClaim: the claim that this key took was given back: the record may be another reader's now.
        """
        asked = self.command
        woken = fence(tx, asked.agent_id, asked.generation, self.now_ms)
        woken += self._see_incarnation(tx)
        known = tx.key(self.caller, Operation.CLAIM, self.key)
        if known is not None:
            claim = tx.claim(judge_repeat(known, self.content))
            if claim is None:
                raise InvariantBroken("a key stands for a claim that is not there")
            check_stands(claim)
            taken = Taken(claim=claim, record=held_record(tx, claim), duplicate=True)
            return Applied(value=taken, wakes=woken, work=woken)
        record = self._next(tx)
        if record is None:
            return Applied(value=None, wakes=woken, work=woken)
        tx.take_key(
            caller=self.caller,
            operation=Operation.CLAIM,
            key=self.key,
            fingerprint=self.content,
            record_id=self.token,
            now_ms=self.now_ms,
        )
        return Applied(value=self._take(tx, record), wakes=woken, work=woken)

    def _next(self, tx: Transaction) -> Record | None:
        asked = self.command
        match asked.kind:
            case ClaimKind.REQUEST:
                return tx.oldest_pending_request(asked.agent_id)
            case ClaimKind.CONTEXT:
                return tx.oldest_stored_context(asked.agent_id, asked.high_water)
            case ClaimKind.WAKE | ClaimKind.STOP:
                return call_out(
                    tx,
                    asked.agent_id,
                    record_id=self.wake_id,
                    joining=asked.kind is ClaimKind.STOP,
                    now_ms=self.now_ms,
                )

    def _see_incarnation(self, tx: Transaction) -> tuple[bytes, ...]:
        asked = self.command
        if not check_incarnation(asked.incarnation, tx.incarnation(asked.dispatcher)):
            return ()
        tx.set_incarnation(asked.dispatcher, asked.incarnation)
        older = [*tx.held_claims(dispatcher=asked.dispatcher), *tx.accepted_open(dispatcher=asked.dispatcher)]
        lost = [claim for claim in older if lose_sight(tx, claim, evidence=_RESTARTED, now_ms=self.now_ms)]
        for binding in tx.bound(dispatcher=asked.dispatcher):
            lose_turn(tx, binding, evidence=_RESTARTED, now_ms=self.now_ms)
        return tuple({claim.recipient for claim in lost})

    def _take(self, tx: Transaction, record: Record) -> Taken:
        asked = self.command
        claim = Claim(
            token=self.token,
            record_id=record.record_id,
            recipient=record.recipient,
            dispatcher=asked.dispatcher,
            incarnation=asked.incarnation,
            generation=asked.generation,
            taken_at_ms=self.now_ms,
            term_ms=self.term_ms,
            expires_at_ms=self.now_ms + self.term_ms,
            state=ClaimState.HELD,
        )
        after = evolve(
            record,
            delivery=advance(record.kind, record.delivery, Event.CLAIM),
            claim_token=self.token,
            claim_generation=asked.generation,
        )
        tx.move(record, after)
        tx.insert_claim(claim)
        note(
            tx,
            record,
            FactKind.CLAIMED,
            generation=asked.generation,
            evidence="taken by a dispatcher",
            now_ms=self.now_ms,
        )
        return Taken(claim=claim, record=after, duplicate=False)


def note(tx: Transaction, record: Record, fact: FactKind, *, generation: int, evidence: str, now_ms: int) -> int:
    """Append a fact of a record and return its sequence."""
    sequence = tx.next_sequence(record.project_id)
    tx.add_fact(
        Fact(
            sequence=sequence,
            record_id=record.record_id,
            fact=fact,
            at_ms=now_ms,
            generation=generation,
            evidence=evidence,
        )
    )
    return sequence


class TakeClaim:
    """Claim."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, command: Command) -> Taken | None:
        """Take a record for a dispatcher; None where there is nothing to take.

        Raises:
            InvalidLimit, InvalidIdempotencyKey: the call cannot be carried out.
            DirectoryStale: the agent is not known here yet; nothing was written, may be resent.
            Others: see Claiming.
        """
        ports = self._ports
        ports.directory.must_know(command.agent_id)
        if command.high_water < 0:
            raise InvalidLimit("high_water must not be negative; nothing was written")
        content = fingerprint(
            command.agent_id,
            command.dispatcher,
            b"%d %d %d %d %d"
            % (command.generation, command.incarnation, command.kind, command.high_water, command.term_ms),
        )
        return await ports.store.submit(
            Claiming(
                caller=caller.credential_id,
                command=command,
                term_ms=term(command.term_ms),
                key=check_key(command.key),
                content=content,
                # A token is an id nobody can guess from another: the mint's ids are ordered, so it is mixed with the
                # record of the call.
                token=fingerprint(ports.mint.new(), caller.credential_id, ports.store.cursor_secret),
                wake_id=ports.mint.new(),
                now_ms=ports.clock.now_ms(),
            )
        )


@value(frozen=True, kw_only=True, slots=True)
class Settled:
    """What became of a claim."""

    record: Record
    duplicate: bool
    reply_id: bytes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Releasing:
    """The writing part of Release."""

    token: bytes
    generation: int
    proof: str
    reply_id: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Settled]:
        """Give the record back under a fresh number; at the cap a request fails with the host's answer instead.

        Raises:
            StaleClaim, AgentDeleted, ConflictingOutcome: nothing is written.
        """
        claim = check_fence(tx.claim(self.token), self.generation)
        check_lives(deleted=tx.deleted(claim.recipient), who="the recipient")
        record = held_record(tx, claim)
        if not judge_release(claim):
            return Applied(value=Settled(record=record, duplicate=True))
        releases = record.releases + 1
        if record.answer is Answer.OPEN and over_release_cap(releases):
            return self._give_up(tx, claim, replace(record, releases=releases), record)
        sequence = note(
            tx, record, FactKind.RELEASED, generation=self.generation, evidence=self.proof, now_ms=self.now_ms
        )
        after = evolve(
            record,
            delivery=advance(record.kind, record.delivery, Event.PROVE_NOT_WRITTEN),
            claim_token=None,
            claim_generation=0,
            releases=releases,
            position=sequence,
        )
        tx.move(record, after)
        tx.set_claim_state(claim, ClaimState.RELEASED)
        if record.kind is Kind.WAKE:
            take_back(tx, record.record_id)
        concerned = (record.recipient,)
        return Applied(value=Settled(record=after, duplicate=False), wakes=concerned, work=concerned)

    def _give_up(self, tx: Transaction, claim: Claim, counted: Record, before: Record) -> Applied[Settled]:
        after = evolve(counted, delivery=advance(before.kind, before.delivery, Event.FAIL))
        tx.move(before, after)
        tx.set_claim_state(claim, ClaimState.FAILED)
        note(tx, before, FactKind.FAILED, generation=self.generation, evidence=self.proof, now_ms=self.now_ms)
        reply = answer_by_host(
            tx, after, body=_GIVEN_UP, generation=self.generation, reply_id=self.reply_id, now_ms=self.now_ms
        )
        asked = asked_by(before)
        return Applied(
            value=Settled(record=after, duplicate=False, reply_id=id_of(reply)),
            wakes=asked,
            work=(*asked, before.recipient),
        )


def asked_by(work: Record) -> tuple[bytes, ...]:
    """Return whom an answer concerns: the sender of a request, nobody where it is a prompt."""
    return () if work.sender is None else (work.sender,)


def id_of(reply: Record | None) -> bytes | None:
    """Return the id of a reply where there is one."""
    return None if reply is None else reply.record_id


def answer_by_host(
    tx: Transaction,
    request: Record,
    *,
    body: str,
    generation: int,
    reply_id: bytes,
    now_ms: int,
    evidence: str = "answered by the host",
) -> Record | None:
    """Answer open work as failed on nobody's behalf, in this transaction; a prompt is closed without a reply."""
    return write_answer(
        tx,
        request,
        event=AnswerEvent.HOST,
        fact=FactKind.ANSWERED_BY_HOST,
        status=ReplyStatus.FAILED,
        body=body.encode("utf-8"),
        origin=Origin.HOST,
        sender=None,
        generation=generation,
        reply_id=reply_id,
        now_ms=now_ms,
        evidence=evidence,
    )


class Release:
    """Release."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, token: bytes, generation: int, proof: str) -> Settled:
        """Give a claim back with the proof that nothing was written.

        Raises:
            InvalidLimit: no proof, or one that is too long.
            Others: see Releasing.
        """
        return await self._ports.store.submit(
            Releasing(
                token=token,
                generation=generation,
                proof=check_evidence(proof, "proof"),
                reply_id=self._ports.mint.new(),
                now_ms=self._ports.clock.now_ms(),
            )
        )


_FACT_OF: Final = {
    Outcome.ACCEPTED: FactKind.ACCEPTED,
    Outcome.VISIBLE: FactKind.VISIBLE,
    Outcome.FAILED: FactKind.FAILED,
    Outcome.UNCERTAIN: FactKind.UNCERTAIN,
}


@value(frozen=True, kw_only=True, slots=True)
class Finishing:
    """The writing part of Finish.

    Checked against the claim's own generation: a replaced life may still tell what it knows, once.
    """

    token: bytes
    generation: int
    outcome: Outcome
    evidence: str
    reply_id: bytes
    now_ms: int
    # The exact turn that took the work, with an acceptance: bound in the same transaction (M082).
    turn: Turn | None = None

    def apply(self, tx: Transaction) -> Applied[Settled]:
        """Record the outcome and bind the turn, or return that it stands already.

        Raises:
            StaleClaim, AgentDeleted, ConflictingOutcome, InvalidState, InvalidBinding: nothing is written.
        """
        claim = check_fence(tx.claim(self.token), self.generation)
        check_lives(deleted=tx.deleted(claim.recipient), who="the recipient")
        record = held_record(tx, claim)
        bound = tx.binding(self.token)
        if not judge_finish(claim, self.outcome, kind=record.kind, answer=record.answer, turn=self.turn, bound=bound):
            settled = tx.settled(record.record_id) if self.outcome is Outcome.FAILED else None
            known = settled.reply_id if settled is not None else None
            return Applied(value=Settled(record=record, duplicate=True, reply_id=known))
        if self.outcome is Outcome.UNCERTAIN:
            after = mark_uncertain(tx, claim, record, evidence=self.evidence, now_ms=self.now_ms)
            concerned = (record.recipient,)
            rests = concerned if record.kind is Kind.WAKE else ()
            return Applied(value=Settled(record=after, duplicate=False), wakes=concerned, work=rests)
        after = evolve(record, delivery=advance(record.kind, record.delivery, EVENT_OF[self.outcome]))
        tx.move(record, after)
        tx.set_claim_state(claim, STATE_OF[self.outcome])
        note(tx, record, _FACT_OF[self.outcome], generation=self.generation, evidence=self.evidence, now_ms=self.now_ms)
        if self.turn is not None:
            self._bind(tx, claim, record, self.turn)
        elif record.kind is Kind.WAKE and record.answer is Answer.OPEN and self.outcome is Outcome.ACCEPTED:
            # Nobody will tell of the end of its turn.
            after = close_wake(tx, after, AnswerEvent.END, self.now_ms)
            return Applied(value=Settled(record=after, duplicate=False), work=(record.recipient,))
        if self.outcome is Outcome.FAILED and record.answer is Answer.OPEN:
            return self._fail(tx, after)
        shown = (record.recipient,) if self.outcome is Outcome.VISIBLE else ()
        return Applied(value=Settled(record=after, duplicate=False), work=(record.recipient,), injected=shown)

    def _bind(self, tx: Transaction, claim: Claim, record: Record, turn: Turn) -> None:
        sequence = note(
            tx,
            record,
            FactKind.BOUND,
            generation=self.generation,
            evidence=f"{turn.mode.name.lower()}: turn {turn.turn_id} of {turn.provider} {turn.session_id}",
            now_ms=self.now_ms,
        )
        tx.insert_binding(
            Binding(
                token=self.token,
                record_id=record.record_id,
                recipient=record.recipient,
                requester=record.sender,
                dispatcher=claim.dispatcher,
                generation=claim.generation,
                turn=turn,
                sequence=sequence,
                state=BindingState.BOUND,
                publishes=publishes(record.kind, record.completion),
            )
        )

    def _fail(self, tx: Transaction, record: Record) -> Applied[Settled]:
        reply = answer_by_host(
            tx,
            record,
            body=_NEVER_STARTED + self.evidence,
            generation=self.generation,
            reply_id=self.reply_id,
            now_ms=self.now_ms,
        )
        answered = held_record(tx, check_fence(tx.claim(self.token), self.generation))
        asked = asked_by(record)
        return Applied(
            value=Settled(record=answered, duplicate=False, reply_id=id_of(reply)),
            wakes=asked,
            work=(*asked, record.recipient),
        )


class Finish:
    """Finish."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(
        self, token: bytes, generation: int, outcome: Outcome, evidence: str, turn: Turn | None = None
    ) -> Settled:
        """Record what became of a claim, exactly once; with an acceptance the exact turn is bound.

        Raises:
            InvalidLimit: no evidence, or too much.
            InvalidBinding: the turn is not named as a turn must be.
            Others: see Finishing.
        """
        return await self._ports.store.submit(
            Finishing(
                token=token,
                generation=generation,
                outcome=outcome,
                evidence=check_evidence(evidence, "evidence"),
                reply_id=self._ports.mint.new(),
                now_ms=self._ports.clock.now_ms(),
                turn=None if turn is None else check_turn(turn),
            )
        )


@value(frozen=True, kw_only=True, slots=True)
class Expiring:
    """Turn claims that stood for too long uncertain. Never an accepted one: acceptance does not expire."""

    now_ms: int

    def apply(self, tx: Transaction) -> Applied[int]:
        """Return how many expired."""
        expired = tx.held_claims(expired_at_ms=self.now_ms)
        for claim in expired:
            lose_sight(tx, claim, evidence="the claim stood for its whole term without an outcome", now_ms=self.now_ms)
        # What is uncertain can be read again, and what a wake-up told of is told again later.
        concerned = tuple({claim.recipient for claim in expired})
        return Applied(value=len(expired), wakes=concerned, work=concerned)


@value(frozen=True, kw_only=True, slots=True)
class Resuming:
    """The first operation of a process: a stop of the mailbox costs no claim its term."""

    now_ms: int

    def apply(self, tx: Transaction) -> Applied[int]:
        """Return how many claims were given a whole term from now."""
        return Applied(value=tx.extend_held_claims(self.now_ms))


@value(frozen=True, kw_only=True, slots=True)
class Restoring:
    """The first operation on a restored copy: nobody knows what became of claims that were held when it was made."""

    now_ms: int

    def apply(self, tx: Transaction) -> Applied[int]:
        """Return how many claims became uncertain, whatever their term. Attempts at tasks become unknown with them."""
        held = tx.held_claims(expired_at_ms=_NEVER_MS)
        for claim in held:
            lose_sight(tx, claim, evidence="the store was restored from a backup", now_ms=self.now_ms)
        _, told = lose_every_attempt(tx, self.now_ms)
        tx.own_copy()
        return Applied(value=len(held), wakes=(*{claim.recipient for claim in held}, *told))
