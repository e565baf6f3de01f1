"""Threads, acknowledgement by id and the search of records over a store of its own, called by the names of agents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from fencepost_mailbox.domain.texts import record_id_text
from fencepost_mailbox.domain.threads.attributes import thread_id_text
from fencepost_mailbox.domain.threads.indexing import INDEX_PAUSE_MS
from fencepost_mailbox.domain.values import Completion, Kind, Record
from fencepost_mailbox.sweeping import Sweeper
from fencepost_mailbox.usecases import admit
from fencepost_mailbox.usecases.threads import look
from fencepost_mailbox.usecases.threads.acknowledge import Acknowledged, AcknowledgeRecords
from fencepost_mailbox.usecases.threads.attach import Attached
from fencepost_testing.mailboxes import WAIT_S_MAX
from fencepost_testing.task_desk import TaskDesk, caller_named


def id_of(record: Record) -> str:
    """The public id of a record."""
    return record_id_text(record.kind, record.record_id)


def thread_of(record: Record) -> str:
    """The public id of the thread of a record with attributes."""
    assert record.attributes is not None
    return thread_id_text(record.attributes.thread)


class ThreadDesk(TaskDesk):
    """A desk with the calls of threads and of the search."""

    async def say(
        self,
        sender: str,
        to: str,
        body: str = "text",
        *,
        kind: Kind = Kind.INFORMATION,
        key: str | None = None,
        supervised: bool = False,
        generation: int = 1,
        subject: str = "",
        thread_id: str = "",
        reply_to: str = "",
        task_id: str = "",
    ) -> Record:
        """Send with attributes and return the record; `supervised` makes it a request that wants a result."""
        command = admit.Command(
            kind=Kind.REQUEST if supervised else kind,
            target=to,
            body=body,
            key=self.key() if key is None else key,
            completion=Completion.EXPLICIT if supervised or kind is Kind.REQUEST else Completion.NONE,
            attached=Attached(subject=subject, thread_id=thread_id, reply_to=reply_to, task_id=task_id),
            supervised=supervised,
        )
        return (await admit.Admit(self.ports)(caller_named(sender, generation), command)).record

    async def thread(self, who: str, named: str, *, size: int = 0, token: str = "", page_bytes: int = 0) -> look.Thread:
        """A page of a thread."""
        return await look.GetThread(self.ports)(caller_named(who), named, size=size, token=token, page_bytes=page_bytes)

    async def searched(
        self, who: str, query: str, *, project_id: bytes | None = None, size: int = 0, token: str = ""
    ) -> look.Found:
        """A page of what was found."""
        asked = look.Search(query=query, project_id=project_id, size=size, token=token)
        return await look.SearchRecords(self.ports)(caller_named(who), asked)

    async def bodies(self, who: str, query: str) -> list[str]:
        """The texts of everything that was found, newest first."""
        return [record.body.decode("utf-8") for record, _ in (await self.searched(who, query)).records]

    async def acknowledge_ids(self, who: str, *records: Record, generation: int = 1) -> Acknowledged:
        """Acknowledge records by their ids."""
        named = [(record.kind, record.record_id) for record in records]
        return await AcknowledgeRecords(self.ports)(caller_named(who, generation), named)

    async def shown_all(self, who: str) -> Sequence[Record]:
        """Everything that receive shows."""
        return (await self.receive(who)).records

    def sweeper(self) -> Sweeper:
        """What indexes now and then."""
        return Sweeper(store=self.store, clock=self.clock, called=dict)

    async def swept(self, sweeper: Sweeper) -> None:
        """Let a round of the index pass, its pauses included."""
        round_ = asyncio.create_task(sweeper.index())
        async with asyncio.timeout(WAIT_S_MAX):
            while not round_.done():
                await self.clock.advance(INDEX_PAUSE_MS / 1000)
        await round_


@contextlib.asynccontextmanager
async def a_thread_desk(path: Path, *names: str, **options: Any) -> AsyncIterator[ThreadDesk]:
    """A desk over `path`, closed at the end."""
    desk = ThreadDesk(path, *names, **options)
    await desk.start()
    try:
        yield desk
    finally:
        await desk.stop()
