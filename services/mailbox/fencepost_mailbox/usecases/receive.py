"""Receive and Wait: read a page, acknowledge an earlier one, wait for something to read.

Source: M006 to M012 M017 M029 to M040 M099 M100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost_kit.identity import Caller
from fencepost_kit.refusal import Refusal
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain import cursors, pages
from fencepost_mailbox.domain.answers import AnswerEvent, settle
from fencepost_mailbox.domain.delivery import Event, advance
from fencepost_mailbox.domain.inbox import acknowledgeable
from fencepost_mailbox.domain.records import evolve
from fencepost_mailbox.domain.values import (
    ACKNOWLEDGED_ROWS_MAX,
    OPEN_REQUESTS_MAX,
    UNACKNOWLEDGED_COUNT_MAX,
    Answer,
    Delivery,
    Fact,
    FactKind,
    Inbox,
    Kind,
    Record,
)
from fencepost_mailbox.store.protocol import Applied, Queries, Transaction
from fencepost_mailbox.usecases.outcome import publish_left
from fencepost_mailbox.usecases.ports import Ports, agent_of, fence
from fencepost_mailbox.waits import Waits, Wake

ACKNOWLEDGING_STEPS_MAX: Final = 10_000
_NEW: Final = (Inbox.FRESH,)
_REPLAY: Final = (Inbox.FRESH, Inbox.SEEN)


@value(frozen=True, kw_only=True, slots=True)
class Command:
    """A call as it was made; see ReceiveRequest."""

    cursor: str
    ack_cursor: str
    limit: int
    timeout_ms: int
    page_bytes: int


@value(frozen=True, kw_only=True, slots=True)
class Page:
    """What receive answers."""

    records: Sequence[Record]
    next_cursor: str
    ack_cursor: str
    has_more: bool
    timed_out: bool
    wake_reason: str
    high_water: int
    unacknowledged: int
    open_requests: Sequence[Record]


def acknowledge(tx: Transaction, record: Record, *, generation: int, evidence: str, now_ms: int) -> None:
    """Acknowledge a record that its recipient was shown. A result takes its request out of the supervision set."""
    assert acknowledgeable(delivery=record.delivery, exposed=record.exposed), "only what was shown"
    tx.move(record, evolve(record, acknowledged=True))
    tx.add_fact(
        Fact(
            sequence=tx.next_sequence(record.project_id),
            record_id=record.record_id,
            fact=FactKind.ACKNOWLEDGED,
            at_ms=now_ms,
            generation=generation,
            evidence=evidence,
        )
    )
    if record.kind is Kind.REPLY and record.parent_id is not None:
        tx.tasks.leave(record.recipient, record.parent_id)


@value(frozen=True, kw_only=True, slots=True)
class Acknowledging:
    """Acknowledge what was shown up to a position, in bounded steps.

    Each is whole in itself and repeating it is harmless.
    """

    recipient: bytes
    generation: int
    up_to: int
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[bool]:
        """Acknowledge at most ACKNOWLEDGED_ROWS_MAX records; True where more remain.

        Raises:
            StaleGeneration: an earlier life acknowledges nothing.
        """
        woken = fence(tx, self.recipient, self.generation, self.now_ms)
        records = tx.acknowledgeable(self.recipient, self.up_to, ACKNOWLEDGED_ROWS_MAX)
        for record in records:
            acknowledge(
                tx, record, generation=self.generation, evidence="ack_cursor of the recipient", now_ms=self.now_ms
            )
        return Applied(value=len(records) == ACKNOWLEDGED_ROWS_MAX, wakes=woken, work=woken)


@value(frozen=True, kw_only=True, slots=True)
class Seen:
    """The records of a page, whether more stand behind them, and the newest commit that they take into account."""

    records: Sequence[Record]
    more: bool
    high_water: int


@value(frozen=True, kw_only=True, slots=True)
class Reading:
    """Take a page in one transaction.

    What it returns for the first time becomes exposed, requests pass to their receiver.
    """

    recipient: bytes
    generation: int
    after: int
    replay: bool
    limit: int
    page_bytes: int
    now_ms: int

    def look(self, queries: Queries) -> Seen:
        """Return the page as it stands."""
        places = _REPLAY if self.replay else _NEW
        # One moment: a page must not claim to have taken into account what was committed while it was read.
        with queries.snapshot():
            high_water = queries.newest_sequence()
            candidates = queries.page(self.recipient, places, self.after, self.limit + 1)
        count = pages.fitting(candidates, limit=self.limit, page_bytes=self.page_bytes)
        return Seen(records=candidates[:count], more=len(candidates) > count, high_water=high_water)

    def apply(self, tx: Transaction) -> Applied[Seen]:
        """Return the page, exposed.

        Raises:
            StaleGeneration: an earlier life is shown nothing.
        """
        woken = fence(tx, self.recipient, self.generation, self.now_ms)
        found = self.look(tx)
        shown = [record if record.exposed else self._expose(tx, record) for record in found.records]
        first = tuple(record for record in found.records if not record.exposed)
        return Applied(value=replace(found, records=shown), wakes=woken, work=woken, exposed=first, at_ms=self.now_ms)

    def _expose(self, tx: Transaction, record: Record) -> Record:
        # A prompt ends here: what the agent says to it stays in the agent's own conversation, and no turn is bound.
        answer = record.answer
        closes = record.kind is Kind.PROMPT and record.delivery is Delivery.PENDING and answer is Answer.OPEN
        after = evolve(
            record,
            delivery=advance(record.kind, record.delivery, Event.RECEIVE),
            answer=settle(record, AnswerEvent.READ) if closes else answer,
            exposed=True,
        )
        tx.move(record, after)
        tx.add_fact(
            Fact(
                sequence=tx.next_sequence(record.project_id),
                record_id=record.record_id,
                fact=FactKind.EXPOSED,
                at_ms=self.now_ms,
                generation=self.generation,
                evidence="returned by receive, which closes a prompt" if closes else "returned by receive",
            )
        )
        return after


class Receive:
    """Receive."""

    def __init__(self, ports: Ports, waits: Waits) -> None:
        self._ports = ports
        self._waits = waits

    async def __call__(self, caller: Caller, command: Command) -> Page:
        """Acknowledge, then return a page; wait for one where there is none and the caller has time.

        Raises:
            InvalidLimit, InvalidTimeout, InvalidCursor, ExpiredCursor: nothing was read or acknowledged.
            StaleGeneration, AgentDeleted: an earlier life reads nothing, nor does an agent that is no more.
            Unauthenticated: the credential was removed while the call waited.
        """
        ports = self._ports
        recipient, _ = agent_of(caller)
        limit, page_bytes = pages.check_limit(command.limit), pages.check_budget(command.page_bytes)
        timeout_ms = pages.check_timeout(command.timeout_ms)
        after = self._position(command.cursor, recipient)
        up_to = self._position(command.ack_cursor, recipient)
        with self._waits.register(recipient) as wait:
            acknowledged = await self._acknowledge(caller, recipient, up_to)
            # What the recipient asked and an ended turn answers, where the answer was not written then (M096).
            await publish_left(ports, requester=recipient)
            while True:
                reading = Reading(
                    recipient=recipient,
                    generation=caller.generation,
                    after=after or 0,
                    replay=after is not None,
                    limit=limit,
                    page_bytes=page_bytes,
                    now_ms=ports.clock.now_ms(),
                )
                try:
                    ports.directory.check_stands(caller)
                    seen = await self._read(reading)
                except Refusal as refusal:
                    raise (_after_acknowledging(refusal) if acknowledged else refusal) from None
                # Noted behind the fence: an earlier life is refused, and its reading tells nobody anything.
                ports.signals.note_read(recipient, reading.now_ms)
                if seen.records or timeout_ms == 0:
                    return self._page(recipient, command, seen, wake=None)
                wake = await wait.sleep(timeout_ms / 1000)
                if wake is not Wake.ACTIVITY:
                    return self._page(recipient, command, seen, wake=wake)

    def _position(self, cursor: str, recipient: bytes) -> int | None:
        if not cursor:
            return None
        store = self._ports.store
        return cursors.position_of(cursor, recipient=recipient, epoch=store.epoch, secret=store.cursor_secret)

    async def _acknowledge(self, caller: Caller, recipient: bytes, up_to: int | None) -> bool:
        """Acknowledge in steps; tells whether anything was asked to be, so that a refusal afterwards can say so."""
        if up_to is None:
            return False
        for step in range(ACKNOWLEDGING_STEPS_MAX):
            acknowledging = Acknowledging(
                recipient=recipient, generation=caller.generation, up_to=up_to, now_ms=self._ports.clock.now_ms()
            )
            try:
                more = await self._ports.store.submit(acknowledging)
            except Refusal as refusal:
                raise (_after_acknowledging(refusal, whole=False) if step else refusal) from None
            if not more:
                break
        return True

    async def _read(self, reading: Reading) -> Seen:
        queries = self._ports.store.read
        seen = reading.look(queries)
        # A page of records that were shown before needs no writing, and an empty one neither; a stale life is told
        # either way.
        current = queries.floor(reading.recipient) == reading.generation and not queries.deleted(reading.recipient)
        if current and all(record.exposed for record in seen.records):
            return seen
        return await self._ports.store.submit(reading)

    def _page(self, recipient: bytes, command: Command, seen: Seen, *, wake: Wake | None) -> Page:
        store = self._ports.store
        queries, records = store.read, seen.records
        ack = ""
        if records:
            ack = cursors.issue(
                records[-1].position, recipient=recipient, epoch=store.epoch, secret=store.cursor_secret
            )
        shown = {record.record_id for record in records}
        return Page(
            records=records,
            next_cursor=ack or command.cursor,
            ack_cursor=ack,
            has_more=seen.more,
            timed_out=wake is Wake.TIMED_OUT,
            wake_reason=wake.value if wake in (Wake.DRAINING, Wake.PROVIDER_CONTEXT) else "",
            high_water=seen.high_water,
            unacknowledged=queries.count_fresh(recipient, UNACKNOWLEDGED_COUNT_MAX),
            open_requests=[
                record
                for record in queries.open_requests(recipient, OPEN_REQUESTS_MAX + len(shown))
                if record.record_id not in shown
            ][:OPEN_REQUESTS_MAX],
        )


def _after_acknowledging(refusal: Refusal, *, whole: bool = True) -> Refusal:
    """Return a refusal of what came after acknowledgements that are on disk: it must not say that nothing is."""
    done = "what ack_cursor covers is acknowledged" if whole else "a part of what ack_cursor covers is acknowledged"
    rest = refusal.message.replace("nothing was written", "nothing else was written").replace(
        "nothing more was read or written", "nothing else was read or written"
    )
    told = type(refusal)(
        f"{done}, and no page was read: {rest}",
        hint=f"{refusal.hint} Acknowledging again is harmless.".strip(),
        state={**refusal.state, "acknowledged": "all" if whole else "part"},
    )
    told.__cause__ = refusal.__cause__
    return told


class Wait:
    """Wait: ends when receive would show something unacknowledged; reads, claims and acknowledges nothing."""

    def __init__(self, ports: Ports, waits: Waits) -> None:
        self._ports = ports
        self._waits = waits

    async def __call__(self, caller: Caller, timeout_ms: int) -> Wake:
        """Return why the wait ended.

        Raises:
            InvalidTimeout: outside 0..WAIT_MS_MAX.
            StaleGeneration, AgentDeleted: an earlier life does not wait, nor does an agent that is no more.
            Unauthenticated: the credential was removed while the call waited.
        """
        ports = self._ports
        recipient, _ = agent_of(caller)
        pages.check_timeout(timeout_ms)
        # Subscribed before the state is read: a commit between the two is not missed (M008).
        with self._waits.register(recipient) as wait:
            while True:
                # Each time anew: what woke it may have been the next life of the agent, or the end of its credential.
                ports.directory.check_stands(caller)
                await self._check_life(caller, recipient)
                ports.signals.note_read(recipient, ports.clock.now_ms())
                if ports.store.read.has_fresh(recipient):
                    return Wake.ACTIVITY
                if timeout_ms == 0:
                    return Wake.TIMED_OUT
                wake = await wait.sleep(timeout_ms / 1000)
                if wake is not Wake.ACTIVITY:
                    return wake

    async def _check_life(self, caller: Caller, recipient: bytes) -> None:
        queries = self._ports.store.read
        if queries.floor(recipient) != caller.generation or queries.deleted(recipient):
            await self._ports.store.submit(
                Fencing(agent_id=recipient, generation=caller.generation, now_ms=self._ports.clock.now_ms())
            )


@value(frozen=True, kw_only=True, slots=True)
class Fencing:
    """See a generation, and nothing more."""

    agent_id: bytes
    generation: int
    now_ms: int

    def apply(self, tx: Transaction) -> Applied[None]:
        """Raise the floor on first sight.

        Raises:
            StaleGeneration: an earlier life.
        """
        woken = fence(tx, self.agent_id, self.generation, self.now_ms)
        return Applied(value=None, wakes=woken, work=woken)
