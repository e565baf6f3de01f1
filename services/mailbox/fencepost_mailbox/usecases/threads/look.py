"""GetThread and SearchRecords: looking, which exposes nothing (DECISIONS M072)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost_kit.identity import Caller, Role
from fencepost_kit.values import value
from fencepost_mailbox.domain.pages import check_budget, fitting, page_number
from fencepost_mailbox.domain.refusals import InvalidLimit
from fencepost_mailbox.domain.threads.indexing import SEARCH_CHUNKS_MAX
from fencepost_mailbox.domain.threads.words import excerpt, terms_of
from fencepost_mailbox.domain.values import LISTING_RECORDS_DEFAULT, LISTING_RECORDS_MAX, Record
from fencepost_mailbox.usecases.look import LISTING_STEPS_MAX
from fencepost_mailbox.usecases.ports import Ports, may_see
from fencepost_mailbox.usecases.threads.attach import thread_named
from fencepost_mailbox.usecases.threads.index import Indexing

_BEFORE_ANYTHING: Final = 2**62


@value(frozen=True, kw_only=True, slots=True)
class Thread:
    """A page of a thread; `next_token` is empty on the last."""

    thread: bytes
    subject: str
    records: Sequence[Record]
    next_token: str


@value(frozen=True, kw_only=True, slots=True)
class Search:
    """What is looked for; see SearchRecordsRequest."""

    query: str
    project_id: bytes | None
    size: int
    token: str


@value(frozen=True, kw_only=True, slots=True)
class Found:
    """A page of what was found, each with what is shown of its text; `complete`: nothing was left out."""

    records: Sequence[tuple[Record, str]]
    next_token: str
    complete: bool


def check_size(size: int) -> int:
    """Return how many records a page has.

    Raises:
        InvalidLimit: outside 0..LISTING_RECORDS_MAX.
    """
    if not 0 <= size <= LISTING_RECORDS_MAX:
        raise InvalidLimit(f"page_size must be 1 to {LISTING_RECORDS_MAX}; nothing was read")
    return size or LISTING_RECORDS_DEFAULT


class GetThread:
    """GetThread."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, named: str, *, size: int, token: str, page_bytes: int) -> Thread:
        """Return a page of a thread in commit order: of its records those that the caller may see, with their texts.

        Raises:
            InvalidLimit, InvalidCursor: the page asked for does not exist.
            NotFound: see thread_named. DirectoryStale: an operator's authority cannot be checked now.
        """
        if caller.role is Role.OPERATOR:
            self._ports.directory.check_fresh()
        limit, budget = check_size(size), check_budget(page_bytes)
        after = page_number(token) if token else 0
        queries = self._ports.store.read
        found: list[Record] = []
        with queries.snapshot():
            thread = thread_named(queries, caller, named)
            # Bounded: this many pages of others' records are looked at for one page of answers.
            for _ in range(LISTING_STEPS_MAX):
                batch = queries.threads.of_thread(thread, after, limit + 1)
                found += [record for record in batch if may_see(caller, record)]
                if len(batch) <= limit or len(found) > limit:
                    break
                after = batch[-1].sequence
            subject = self._subject(caller, thread)
        count = fitting(found, limit=limit, page_bytes=budget)
        # Behind what is shown where more was found, else behind what was looked at.
        behind = found[count - 1].sequence if count < len(found) else after if len(batch) > limit else 0
        return Thread(thread=thread, subject=subject, records=found[:count], next_token=str(behind) if behind else "")

    def _subject(self, caller: Caller, thread: bytes) -> str:
        first = self._ports.store.read.threads.of_thread(thread, 0, LISTING_RECORDS_DEFAULT)
        given = (one.attributes.subject for one in first if one.attributes is not None and may_see(caller, one))
        return next((subject for subject in given if subject), "")


class SearchRecords:
    """SearchRecords."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, caller: Caller, search: Search) -> Found:
        """Return a page of the records that have all the words, newest first, among those that the caller may see.

        What is not indexed yet is taken into the index first, up to SEARCH_CHUNKS_MAX chunks.

        Raises:
            InvalidQuery, InvalidLimit, InvalidCursor: nothing was read.
            DirectoryStale: an operator's authority cannot be checked now. StorageError: the index cannot be written.
        """
        operator = caller.role is Role.OPERATOR
        if operator:
            self._ports.directory.check_fresh()
        terms, limit = terms_of(search.query), check_size(search.size)
        before = page_number(search.token) if search.token else _BEFORE_ANYTHING
        complete = await self._catch_up()
        found = self._ports.store.read.threads.found(
            terms,
            agent=None if operator else caller.agent_id,
            project_id=search.project_id if operator else caller.project_id,
            before=before,
            limit=limit + 1,
        )
        # The index names sides and projects; who may see a record is decided by the record all the same.
        shown = [record for record in found[:limit] if may_see(caller, record)]
        return Found(
            records=[(record, excerpt(record.body.decode("utf-8"), terms)) for record in shown],
            next_token=str(found[limit - 1].sequence) if len(found) > limit else "",
            complete=complete,
        )

    async def _catch_up(self) -> bool:
        store = self._ports.store
        for _ in range(SEARCH_CHUNKS_MAX):
            if not store.read.threads.lag():
                return True
            await store.submit(Indexing())
        return not store.read.threads.lag()
