"""GetRecord, ListRecords, Explain, ListReaders.

Looking without touching. Nothing here exposes, claims or acknowledges (DECISIONS M072).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.refusal import PermissionDenied
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.bindings import Binding
from fencepost_mailbox.domain.explanations import summary
from fencepost_mailbox.domain.pages import page_number
from fencepost_mailbox.domain.refusals import InvalidLimit, NotFound
from fencepost_mailbox.domain.tasks.values import Phase
from fencepost_mailbox.domain.values import (
    FACTS_MAX,
    LISTING_RECORDS_DEFAULT,
    LISTING_RECORDS_MAX,
    READERS_MAX,
    Answer,
    Fact,
    Kind,
    Origin,
    Record,
)
from fencepost_mailbox.store.protocol import Queries
from fencepost_mailbox.usecases.ports import Ports, Readership, check_may_read, readership

_BEFORE_ANYTHING: Final = 2**62
LISTING_STEPS_MAX: Final = 20
_ORIGIN_WORDS: Final = {
    Origin.AGENT: "its recipient",
    Origin.HUMAN: "a person",
    Origin.HOST: "Fencepost, on nobody's behalf",
    Origin.AUTOMATIC: "the final words of its turn",
}


class Direction(enum.IntEnum):
    """Which side of an agent's traffic."""

    BOTH = 0
    INBOX = 1
    SENT = 2


@value(frozen=True, kw_only=True, slots=True)
class Listing:
    """A page of a listing; `next_token` is empty on the last."""

    records: Sequence[Record]
    next_token: str


@value(frozen=True, kw_only=True, slots=True)
class Explanation:
    """What is known of a record."""

    record: Record
    facts: Sequence[Fact]
    reply_id: bytes | None
    readership: Readership
    summary: str
    binding: Binding | None
    # Facts between the admission and the newest that are not shown.
    left_out: int


class GetRecord:
    """GetRecord."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, kind: Kind, record_id: bytes) -> tuple[Record, Binding | None]:
        """Return a record of a kind with its body, and the turn that took it.

        Raises:
            NotFound, DirectoryStale: see check_may_read.
        """
        queries = self._ports.store.read
        with queries.snapshot():
            record = check_may_read(self._ports, caller, queries.record(record_id), kind)
            return record, _turn_of(queries, record)


def _turn_of(queries: Queries, record: Record) -> Binding | None:
    return None if record.claim_token is None else queries.binding(record.claim_token)


class ListRecords:
    """ListRecords."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(
        self, caller: Caller, *, agent_id: bytes | None, direction: Direction, size: int, token: str, open_only: bool
    ) -> Listing:
        """Return a page of an agent's traffic, newest first.

        Raises:
            InvalidLimit, InvalidCursor: the page asked for does not exist.
            PermissionDenied: an agent asked for another's.
            NotFound: an operator named nobody.
        """
        whose = self._whose(caller, agent_id)
        if not 0 <= size <= LISTING_RECORDS_MAX:
            raise InvalidLimit(f"page_size must be 1 to {LISTING_RECORDS_MAX}; nothing was read")
        size = size or LISTING_RECORDS_DEFAULT
        before = _BEFORE_ANYTHING if not token else page_number(token)
        found: list[Record] = []
        # Bounded: an open-only listing looks at this many pages of traffic for one page of answers.
        for _ in range(LISTING_STEPS_MAX):
            batch = self._batch(whose, direction, before, size + 1)
            kept = [record for record in batch if not open_only or record.answer is Answer.OPEN]
            found += kept
            if len(batch) <= size or len(found) > size:
                break
            before = _mark(whose, direction, batch[-1])
        page = found[:size]
        more = len(found) > size or len(batch) > size
        if not more:
            return Listing(records=page, next_token="")
        return Listing(records=page, next_token=str(_mark(whose, direction, page[-1]) if len(found) > size else before))

    def _whose(self, caller: Caller, agent_id: bytes | None) -> bytes:
        if caller.role is Role.OPERATOR:
            self._ports.directory.check_fresh()
            if agent_id is None:
                raise NotFound("an operator lists one agent's records: name the agent; nothing was read")
            return agent_id
        if caller.agent_id is None or agent_id not in (None, caller.agent_id):
            raise PermissionDenied("an agent lists its own records only; nothing was read")
        return caller.agent_id

    def _batch(self, whose: bytes, direction: Direction, before: int, limit: int) -> list[Record]:
        queries = self._ports.store.read
        if direction is Direction.INBOX:
            return queries.received(whose, before, limit)
        if direction is Direction.SENT:
            return queries.sent(whose, before, limit, besides=b"")
        # What an agent sent to itself stands where it received it, and only there.
        merged = [*queries.received(whose, before, limit), *queries.sent(whose, before, limit, besides=whose)]
        merged.sort(key=lambda record: _mark(whose, direction, record), reverse=True)
        return merged[:limit]


def _mark(whose: bytes, direction: Direction, record: Record) -> int:
    """Return the place of a record in a listing: its position where it was received, its sequence where it was sent."""
    return record.position if record.recipient == whose and direction is not Direction.SENT else record.sequence


class Explain:
    """Explain."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, kind: Kind, record_id: bytes) -> Explanation:
        """Return what is known of a record of a kind: its newest facts, and how many there are before them.

        Raises:
            NotFound, DirectoryStale: see check_may_read.
        """
        ports = self._ports
        queries = ports.store.read
        with queries.snapshot():
            record = check_may_read(ports, caller, queries.record(record_id), kind)
            settled = queries.settled(record_id)
            binding = _turn_of(queries, record)
            facts = queries.facts(record_id, FACTS_MAX - 1)
            left_out = queries.fact_count(record_id) - len(facts) if len(facts) == FACTS_MAX - 1 else 0
        who = readership(ports, record.recipient)
        return Explanation(
            record=record,
            binding=binding,
            left_out=left_out,
            facts=facts,
            reply_id=settled.reply_id if settled is not None else None,
            readership=who,
            summary=summary(
                record,
                reader=who.reader,
                answered_by=_ORIGIN_WORDS[settled.origin] if settled is not None else "nobody",
                bound=binding.state if binding is not None else None,
                left_out=left_out,
            ),
        )


class ListReaders:
    """ListReaders."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, agent_ids: Sequence[bytes]) -> list[tuple[bytes, Readership]]:
        """Return who looks at each mailbox that the caller may know of, and whether its agent executes a task.

        Raises:
            InvalidLimit: more than READERS_MAX were asked about.
            DirectoryStale: an operator asks and its authority cannot be checked now.
        """
        if caller.role is Role.OPERATOR:
            self._ports.directory.check_fresh()
        if len(agent_ids) > READERS_MAX:
            raise InvalidLimit(f"at most {READERS_MAX} agents can be asked about; nothing was read")
        found = []
        for agent_id in agent_ids:
            agent = self._ports.directory.agent(agent_id)
            if agent is not None and (caller.project_id is None or agent.project_id == caller.project_id):
                slot = self._ports.store.read.tasks.executing(agent_id)
                executing = slot is not None and slot.phase in (Phase.RUNNING, Phase.CANCEL_REQUESTED)
                found.append((agent_id, replace(readership(self._ports, agent_id), executing=executing)))
        return found
