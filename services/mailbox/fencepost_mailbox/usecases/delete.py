"""Deleting an agent's mail: closing it in one transaction, then erasing it in chunks.

Source: ARCHITECTURE "Identity and fences", "Deleting an agent".
"""

from __future__ import annotations

from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.answers import settle
from fencepost_mailbox.domain.deletion import (
    ABANDONED,
    ANSWERED_FOR,
    CLOSED_REQUESTS_MAX,
    CLOSED_TASKS_MAX,
    HOST_NOTICE,
    HOST_REPLY,
    SIGHT_LOST,
    TAKEN_BACK,
    Phase,
    Tombstone,
    end_of_sent,
    host_record_id,
    wants_notice,
)
from fencepost_mailbox.domain.records import evolve, new_record
from fencepost_mailbox.domain.threads.attributes import of_answer
from fencepost_mailbox.domain.values import FactKind, Kind, Origin, Record
from fencepost_mailbox.store.protocol import Applied, Transaction
from fencepost_mailbox.usecases.claim import answer_by_host, note
from fencepost_mailbox.usecases.ports import lose_sight
from fencepost_mailbox.usecases.tasks.steps import leave_tasks


@value(frozen=True, kw_only=True, slots=True)
class Settling:
    """Settles open requests to and from a deleted agent; of `seed`, a minted id, the host's records take theirs."""

    agent_id: bytes
    seed: bytes
    now_ms: int

    def write(self, tx: Transaction, limit: int) -> list[bytes]:
        """Settle up to `limit` and return whom each concerns; a prompt concerns nobody but the agent itself."""
        concerned = [self._answer(tx, request) for request in tx.open_of_recipient(self.agent_id, limit)]
        sent = tx.open_of_sender(self.agent_id, limit - len(concerned)) if len(concerned) < limit else []
        return concerned + [self._end(tx, request) for request in sent]

    def _answer(self, tx: Transaction, request: Record) -> bytes:
        answer_by_host(
            tx,
            request,
            body=HOST_REPLY,
            generation=0,
            reply_id=host_record_id(self.seed, request.record_id),
            now_ms=self.now_ms,
            evidence=ANSWERED_FOR,
        )
        return request.sender or request.recipient

    def _end(self, tx: Transaction, request: Record) -> bytes:
        event = end_of_sent(request)
        tx.move(request, evolve(request, answer=settle(request, event)))
        told = wants_notice(event)
        evidence = ABANDONED if told else TAKEN_BACK
        note(tx, request, FactKind.WITHDRAWN, generation=0, evidence=evidence, now_ms=self.now_ms)
        if told:
            notice = new_record(
                sequence=tx.next_sequence(request.project_id),
                record_id=host_record_id(self.seed, request.record_id),
                kind=Kind.NOTICE,
                project_id=request.project_id,
                sender=None,
                recipient=request.recipient,
                body=HOST_NOTICE.encode("utf-8"),
                now_ms=self.now_ms,
                origin=Origin.HOST,
                parent_id=request.record_id,
                attributes=of_answer(request),
            )
            tx.insert(notice)
        return request.recipient


@value(frozen=True, kw_only=True, slots=True)
class Closing:
    """An agent whose mail is to be closed; `seed` is an id minted for it."""

    agent_id: bytes
    project_id: bytes
    seed: bytes
    now_ms: int

    def write(self, tx: Transaction) -> tuple[bytes, ...]:
        """Close the mail in this transaction and return the agents that it concerns; none where it was closed before.

        What it held uncertain becomes known to nobody, what it was asked is answered as failed by the host, what it
        asked is taken back or closed with a notice, and a tombstone refuses everything that comes later.
        """
        if tx.deleted(self.agent_id):
            return ()
        for claim in tx.held_claims(recipient=self.agent_id):
            lose_sight(tx, claim, evidence=SIGHT_LOST, now_ms=self.now_ms)
        settling = Settling(agent_id=self.agent_id, seed=self.seed, now_ms=self.now_ms)
        concerned = [self.agent_id, *settling.write(tx, CLOSED_REQUESTS_MAX)]
        tx.files.drop_of_holder(self.agent_id)
        _, told = leave_tasks(tx, self.agent_id, CLOSED_TASKS_MAX, self.now_ms)
        concerned += told
        tx.put_tombstone(
            Tombstone(
                agent_id=self.agent_id,
                project_id=self.project_id,
                phase=Phase.ERASING,
                closed_at_ms=self.now_ms,
                sequence=tx.next_sequence(self.project_id),
            )
        )
        return tuple(dict.fromkeys(concerned))


@value(frozen=True, kw_only=True, slots=True)
class Erasing:
    """One chunk of the erasure of what a deleted agent was sent, and of everything that was kept about it.

    Records that it sent to others are theirs, and stay.
    """

    tombstone: Tombstone
    rows: int
    seed: bytes
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[bool]:
        """Settle or remove at most `rows` requests, records or keys; True where the erasure has ended, noted so."""
        agent_id = self.tombstone.agent_id
        settling = Settling(agent_id=agent_id, seed=self.seed, now_ms=self.now_ms)
        concerned = settling.write(tx, self.rows)
        done = len(concerned)
        if done < self.rows:
            left, others = leave_tasks(tx, agent_id, self.rows - done, self.now_ms)
            done, concerned = done + left, [*concerned, *others]
        done += tx.tasks.erase_agent(agent_id, self.rows - done) if done < self.rows else 0
        done += tx.erase_received(agent_id, self.rows - done) if done < self.rows else 0
        done += tx.erase_keys(agent_id, self.rows - done) if done < self.rows else 0
        ended = done < self.rows
        if ended:
            tx.erase_lives(agent_id)
        # Also for a chunk that is not the last: what it removed may have held the newest number.
        phase = Phase.ERASED if ended else Phase.ERASING
        tx.put_tombstone(replace(self.tombstone, phase=phase, sequence=tx.next_sequence(self.tombstone.project_id)))
        told = tuple(dict.fromkeys(concerned))
        return Applied(value=ended, wakes=told, work=told)


@value(frozen=True, kw_only=True, slots=True)
class Finishing:
    """Sessions knows that nothing is left: only the tombstone stays."""

    tombstone: Tombstone

    def apply(self, tx: Transaction) -> Applied[None]:
        """Note it."""
        sequence = tx.next_sequence(self.tombstone.project_id)
        tx.put_tombstone(replace(self.tombstone, phase=Phase.FINISHED, sequence=sequence))
        return Applied(value=None)
