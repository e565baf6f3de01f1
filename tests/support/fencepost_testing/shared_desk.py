"""Every call of shared context, project memory and files over a store of its own, by the names of agents."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from fencepost_mailbox.domain.context.values import Memory, ShownContext
from fencepost_mailbox.domain.files.values import Mode, Reserved, Scope
from fencepost_mailbox.sweeping import Sweeper
from fencepost_mailbox.usecases.context import look
from fencepost_mailbox.usecases.context.publish import (
    Publish,
    PublishContext,
    Remember,
    UpdateProjectMemory,
    Written,
)
from fencepost_mailbox.usecases.files import hold
from fencepost_mailbox.usecases.files.look import Checked, LookAtFiles
from fencepost_testing.mailboxes import PROJECT, id16
from fencepost_testing.task_desk import OPERATOR, TaskDesk, caller_named

MINUTE_MS = 60_000


class SharedDesk(TaskDesk):
    """A desk with the calls of contexts, memory and files. `called` is what the directory noted of projects."""

    def __init__(self, path: Path, *names: str, **options: Any) -> None:
        super().__init__(path, *names, **options)
        self.called: dict[bytes, int] = {}

    @property
    def sweeper(self) -> Sweeper:
        """What lets go of things, over this store."""
        return Sweeper(store=self.store, clock=self.clock, called=lambda: self.called)

    # --- context and memory -------------------------------------------------------------------------------------------

    async def publish(
        self, who: str, key: str, content: str = "words", *, generation: int = 1, **options: Any
    ) -> Written:
        """Publish a context."""
        facts: dict[str, Any] = {
            "key": key,
            "content": content,
            "pinned": None,
            "expected_version": 0,
            "request_id": self.request_id(),
            "project_id": PROJECT if who == OPERATOR else None,
        }
        command = Publish(**{**facts, **options})
        return await PublishContext(self.ports)(caller_named(who, generation), command)

    async def remember(
        self, who: str, content: str, expected_version: int, *, generation: int = 1, **options: Any
    ) -> Written:
        """Replace the project's memory."""
        facts: dict[str, Any] = {
            "content": content,
            "expected_version": expected_version,
            "request_id": self.request_id(),
            "project_id": PROJECT if who == OPERATOR else None,
        }
        command = Remember(**{**facts, **options})
        return await UpdateProjectMemory(self.ports)(caller_named(who, generation), command)

    @property
    def look_at_context(self) -> look.LookAtContext:
        """What reads contexts and memory."""
        return look.LookAtContext(self.ports)

    async def context(self, who: str, key: str, version: int = 0) -> ShownContext:
        """Read a context."""
        return await self.look_at_context.get(caller_named(who), PROJECT if who == OPERATOR else None, key, version)

    async def keys(self, who: str = "ann", *, prefix: str = "", pinned_only: bool = False, size: int = 0) -> list[str]:
        """List keys, page by page."""
        found: list[str] = []
        token = ""
        while True:
            page = await self.look_at_context.list_contexts(
                caller_named(who), None, prefix=prefix, pinned_only=pinned_only, size=size, token=token
            )
            found += [one.topic.key for one in page.contexts]
            token = page.next_token
            if not token:
                return found

    async def memory(self, who: str = "ann", version: int = 0) -> Memory:
        """Read the project's memory."""
        return await self.look_at_context.memory(caller_named(who), PROJECT if who == OPERATOR else None, version)

    # --- files --------------------------------------------------------------------------------------------------------

    async def reserve(
        self,
        who: str,
        *paths: str,
        globs: Iterable[str] = (),
        mode: Mode = Mode.EXCLUSIVE,
        seconds: int = 0,
        checkout: str = "",
        ignore_case: bool = False,
        generation: int = 1,
        **options: Any,
    ) -> hold.Answer:
        """Reserve files."""
        facts: dict[str, Any] = {
            "paths": paths,
            "globs": tuple(globs),
            "scope": Scope(checkout=checkout, ignore_case=ignore_case),
            "mode": mode,
            "duration_seconds": seconds,
            "reason": "",
            "attempt_id": None,
            "request_id": self.request_id(),
        }
        return await hold.HoldFiles(self.ports).reserve(
            caller_named(who, generation), hold.Reserve(**{**facts, **options})
        )

    async def renew(
        self,
        who: str,
        *paths: str,
        ids: Iterable[bytes] = (),
        globs: Iterable[str] = (),
        seconds: int = 0,
        generation: int = 1,
        request_id: bytes | None = None,
    ) -> hold.Renewed:
        """Renew what is held."""
        command = hold.Renew(
            reservation_ids=tuple(ids),
            paths=paths,
            globs=tuple(globs),
            duration_seconds=seconds,
            request_id=self.request_id() if request_id is None else request_id,
        )
        return await hold.HoldFiles(self.ports).renew(caller_named(who, generation), command)

    async def let_go(
        self,
        who: str,
        *paths: str,
        ids: Iterable[bytes] = (),
        globs: Iterable[str] = (),
        everything: bool = False,
        holder: str | None = None,
        generation: int = 1,
        request_id: bytes | None = None,
    ) -> hold.Released:
        """Release what is held."""
        command = hold.Release(
            reservation_ids=tuple(ids),
            paths=paths,
            globs=tuple(globs),
            everything=everything,
            holder=None if holder is None else id16(holder),
            request_id=self.request_id() if request_id is None else request_id,
        )
        return await hold.HoldFiles(self.ports).release(caller_named(who, generation), command)

    async def check(
        self, who: str, *paths: str, globs: Iterable[str] = (), checkout: str = "", ignore_case: bool = False
    ) -> Checked:
        """Ask whether files may be written to."""
        return await LookAtFiles(self.ports).check(
            caller_named(who),
            PROJECT if who == OPERATOR else None,
            paths,
            tuple(globs),
            Scope(checkout=checkout, ignore_case=ignore_case),
        )

    async def bars(self, who: str, *paths: str, **options: Any) -> list[str]:
        """Who bars an agent from writing to files, by name."""
        checked = await self.check(who, *paths, **options)
        return sorted({self.name_of(one.held.holder) for one in checked.conflicts.listed})

    async def reservations(
        self, who: str = "ann", *, path: str = "", holder: str = "", size: int = 0
    ) -> list[Reserved]:
        """List what is held, page by page."""
        found: list[Reserved] = []
        token = ""
        while True:
            page = await LookAtFiles(self.ports).list_reservations(
                caller_named(who),
                PROJECT if who == OPERATOR else None,
                path=path,
                holder=holder,
                size=size,
                token=token,
            )
            found += page.reservations
            token = page.next_token
            if not token:
                return found

    def name_of(self, agent_id: bytes) -> str:
        """The name of an agent."""
        agent = self.agents.agent(agent_id)
        return agent.name if agent is not None else ""


@contextlib.asynccontextmanager
async def a_shared_desk(path: Path, *names: str, **options: Any) -> AsyncIterator[SharedDesk]:
    """A running desk with agents of these names, closed at the end."""
    desk = SharedDesk(path, *names, **options)
    await desk.start()
    try:
        yield desk
    finally:
        await desk.stop()
