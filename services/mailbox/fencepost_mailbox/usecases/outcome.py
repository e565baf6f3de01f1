"""RecordOutcome: how a bound turn ended is written, and answered from what stands (M083 M086 to M091 M095 to M098).

Two operations, handed in together: nearly always one transaction makes both durable, and no answer is ever on disk
without its evidence. Where the second is refused the first stands; what is left so is published when the next process
starts, when the requester receives, and by a look now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

from fencepost_kit import faults
from fencepost_kit.refusal import Refusal
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.answers import AnswerEvent
from fencepost_mailbox.domain.bindings import (
    BINDING,
    Binding,
    BindingEvent,
    BindingState,
    Ending,
    Turn,
    TurnOutcome,
    check_bound,
    judge_ending,
    publication,
)
from fencepost_mailbox.domain.claims import Claim, ClaimState, check_fence
from fencepost_mailbox.domain.deletion import check_lives, host_record_id
from fencepost_mailbox.domain.delivery import Event, advance
from fencepost_mailbox.domain.records import evolve
from fencepost_mailbox.domain.texts import check_evidence
from fencepost_mailbox.domain.values import PUBLISHED_ROWS_MAX, Answer, FactKind, Kind, Origin, Record
from fencepost_mailbox.store.protocol import Applied, InvariantBroken, Transaction
from fencepost_mailbox.usecases.claim import asked_by, note
from fencepost_mailbox.usecases.ports import Ports, held_record, lose_turn, mark_uncertain
from fencepost_mailbox.usecases.reply import write_answer
from fencepost_mailbox.usecases.tasks.waking import close_wake

RECORDED: Final = faults.register("mailbox.outcome.recorded", "the end of a turn is written, its answer is not")


@value(frozen=True, kw_only=True, slots=True)
class Recorded:
    """Where a binding stands."""

    binding: Binding
    kind: Kind
    duplicate: bool


@value(frozen=True, kw_only=True, slots=True)
class Recording:
    """The first step. Checked against the claim's own generation: evidence of a replaced life counts, once."""

    token: bytes
    generation: int
    turn: Turn
    told: Ending
    evidence: str
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[Recorded]:
        """Write how the turn ended, or return that it stands.

        Raises:
            StaleClaim, StaleBinding, AgentDeleted, ConflictingOutcome: nothing is written.
        """
        claim = check_fence(tx.claim(self.token), self.generation)
        check_lives(deleted=tx.deleted(claim.recipient), who="the recipient")
        bound = check_bound(tx.binding(self.token), self.turn)
        record = held_record(tx, claim)
        if not judge_ending(bound, self.told):
            return Applied(value=Recorded(binding=bound, kind=record.kind, duplicate=True))
        if self.told.outcome is TurnOutcome.LOST:
            return self._lose(tx, claim, bound, record)
        if claim.state is ClaimState.UNCERTAIN:
            # A turn that ended had taken the work.
            tx.set_claim_state(claim, ClaimState.ACCEPTED)
            settled = evolve(record, delivery=advance(record.kind, record.delivery, Event.ACCEPT))
            tx.move(record, settled)
            record = settled
        wanted = bound.publishes and record.answer is Answer.OPEN
        state = BINDING[bound.state, BindingEvent.RECORD]
        if bound.publishes and not wanted:
            # Another answer stood before: there is nothing to publish.
            state = BINDING[state, BindingEvent.PUBLISH]
        after = replace(
            bound,
            state=state,
            outcome=self.told.outcome,
            final_bytes=self.told.final_bytes,
            final_digest=self.told.digest(),
            final=self.told.final if wanted or record.kind is Kind.PROMPT else b"",
            evidence=self.evidence,
        )
        tx.move_binding(bound, after)
        note(
            tx,
            record,
            FactKind.OUTCOME_RECORDED,
            generation=self.generation,
            evidence=self.evidence,
            now_ms=self.now_ms,
        )
        concerned: tuple[bytes, ...] = ()
        if record.kind is Kind.WAKE and record.answer is Answer.OPEN:
            close_wake(tx, record, AnswerEvent.END, self.now_ms)
            concerned = (record.recipient,)
        return Applied(value=Recorded(binding=after, kind=record.kind, duplicate=False), work=concerned)

    def stands(self, tx: Transaction) -> bool:
        """Tell whether this very end is recorded: by this operation, or by one before it."""
        try:
            claim = check_fence(tx.claim(self.token), self.generation)
            check_lives(deleted=tx.deleted(claim.recipient))
            return not judge_ending(check_bound(tx.binding(self.token), self.turn), self.told)
        except Refusal:
            return False

    def _lose(self, tx: Transaction, claim: Claim, bound: Binding, record: Record) -> Applied[Recorded]:
        """Lose the turn from sight, and the delivery with it where its work still wants an answer."""
        wakes: tuple[bytes, ...] = ()
        if record.answer is Answer.OPEN:
            mark_uncertain(tx, claim, record, evidence=self.evidence, now_ms=self.now_ms)
            wakes = (record.recipient,)
        else:
            lose_turn(tx, bound, evidence=self.evidence, now_ms=self.now_ms)
        lost = tx.binding(self.token)
        if lost is None:
            raise InvariantBroken("a binding is gone")
        return Applied(
            value=Recorded(binding=lost, kind=record.kind, duplicate=False),
            wakes=wakes,
            work=wakes if record.kind is Kind.WAKE else (),
        )


@value(frozen=True, kw_only=True, slots=True)
class Publishing:
    """The second step: of one end, one requester's, or all. `seed` is a minted id; replies take theirs of it."""

    seed: bytes
    now_ms: int
    of: Recording | None = None
    requester: bytes | None = None

    def apply(self, tx: Transaction) -> Applied[Sequence[Binding]]:
        """Answer from at most PUBLISHED_ROWS_MAX recorded outcomes, and return their bindings as they stand then."""
        if self.of is not None:
            one = tx.binding(self.of.token) if self.of.stands(tx) else None
            due = [one] if one is not None and one.publishes and one.state is BindingState.OUTCOME_RECORDED else []
            if due and faults.ARMED:
                faults.hit(RECORDED)
        else:
            due = tx.unpublished(PUBLISHED_ROWS_MAX, requester=self.requester)
        published: list[Binding] = []
        replied: list[Record] = []
        concerned: dict[bytes, None] = {}
        for binding in due:
            record = tx.record(binding.record_id)
            if record is None:
                raise InvariantBroken("a turn is bound to a record that does not stand")
            published.append(self._publish(tx, binding, record))
            if record.answer is Answer.OPEN:
                concerned |= dict.fromkeys(asked_by(record))
                if record.sender is not None and publication(binding).origin is Origin.AUTOMATIC:
                    replied.append(record)
        told = tuple(concerned)
        return Applied(value=published, wakes=told, work=told, replied=tuple(replied), at_ms=self.now_ms)

    def _publish(self, tx: Transaction, binding: Binding, record: Record) -> Binding:
        reply_id = None
        if record.answer is Answer.OPEN:
            said = publication(binding)
            by_agent = said.origin is Origin.AUTOMATIC
            reply = write_answer(
                tx,
                record,
                event=AnswerEvent.PUBLISH if by_agent else AnswerEvent.HOST,
                fact=FactKind.PUBLISHED,
                status=said.status,
                body=said.body,
                origin=said.origin,
                sender=record.recipient if by_agent else None,
                generation=binding.generation,
                reply_id=host_record_id(self.seed, record.record_id),
                now_ms=self.now_ms,
                evidence=said.evidence,
            )
            reply_id = None if reply is None else reply.record_id
        # A reply holds the words now; of a prompt they are here and nowhere else.
        final = binding.final if record.kind is Kind.PROMPT else b""
        after = replace(binding, state=BINDING[binding.state, BindingEvent.PUBLISH], reply_id=reply_id, final=final)
        tx.move_binding(binding, after)
        return after


class RecordOutcome:
    """RecordOutcome."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, token: bytes, generation: int, turn: Turn, told: Ending, evidence: str) -> Recorded:
        """Record how a bound turn ended, exactly once, and publish it.

        Where the disk or the queue refuses the second step the first stands, and is told as such.

        Raises:
            InvalidLimit: no evidence, or too much.
            Others: see Recording.
        """
        ports = self._ports
        recording = Recording(
            token=token,
            generation=generation,
            turn=turn,
            told=told,
            evidence=check_evidence(evidence, "evidence"),
            now_ms=ports.clock.now_ms(),
        )
        # Handed in one behind the other before either is awaited: one commit at the end of a turn, not two. The second
        # finds nothing to do where the first is refused, repeated, or not to be answered.
        first: Awaitable[Recorded] = ports.store.submit(recording)
        recorded, published = await asyncio.gather(first, _published(ports, of=recording), return_exceptions=True)
        if isinstance(recorded, BaseException):
            raise recorded
        if isinstance(published, BaseException):
            raise published
        return replace(recorded, binding=published[0]) if published else recorded


async def _published(ports: Ports, *, of: Recording | None = None, requester: bytes | None = None) -> Sequence[Binding]:
    publishing = Publishing(seed=ports.mint.new(), now_ms=ports.clock.now_ms(), of=of, requester=requester)
    try:
        return await ports.store.submit(publishing)
    except Refusal as refusal:
        if not refusal.may_resend:
            raise
        # Nothing is lost: the outcome is on disk, and the next look publishes it.
        return []


async def publish_left(ports: Ports, *, requester: bytes | None = None) -> int:
    """Publish what a crash or a refusal left recorded, of one requester or of all; returns how many it was (M096)."""
    count, queries = 0, ports.store.read
    while queries.has_unpublished(requester) if requester is not None else queries.unpublished(1):
        published = await _published(ports, requester=requester)
        count += len(published)
        if not published:
            break
    return count
