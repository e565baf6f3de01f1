"""What the carrier asks of its store: one operation is one transaction, durable when it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fencepost_providers.domain.carried import Answer, Carried, Outcome
from fencepost_providers.domain.integration import Intent
from fencepost_providers.domain.runtimes import TurnBinding


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatcher:
    """Who carries. `dispatcher_id` stays over restarts, `incarnation` grows with each."""

    dispatcher_id: bytes
    incarnation: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LifeMark:
    """A life that was begun: its lease, and its process once there is one. `pid_mark` tells a reused pid apart."""

    agent_id: str
    acquisition_id: str
    generation: int
    pid: int = 0
    pid_mark: str = ""


class Store(Protocol):
    """The outbox and what else survives a restart.

    Every method that writes raises StorageError where the disk refused before anything was committed.
    """

    @property
    def schema_version(self) -> int:
        """Number of the newest applied migration."""
        ...

    @property
    def dispatcher(self) -> Dispatcher:
        """Who this process is; durable before start() returned."""
        ...

    def carried(self) -> Sequence[Carried]:
        """Return every claim that the mailbox has not acknowledged, oldest first."""
        ...

    def outcomes(self) -> Sequence[Outcome]:
        """Return every turn's end that the mailbox has not acknowledged, oldest first."""
        ...

    def lives(self) -> Sequence[LifeMark]:
        """Return the lives that were begun and not ended."""
        ...

    async def intend(self, carried: Carried) -> None:
        """Write an intent, before anything is submitted."""
        ...

    async def settle(self, token: str, answer: Answer, evidence: str, binding: TurnBinding | None) -> bool:
        """Write what came of an intent; False where something came of it before, which stays."""
        ...

    async def record(self, outcomes: Sequence[Outcome]) -> None:
        """Write how turns ended, all or none; what is recorded of a token already stays."""
        ...

    async def forget_carried(self, token: str, answer: Answer) -> None:
        """Drop a claim of which the mailbox has acknowledged this answer."""
        ...

    async def forget_outcome(self, token: str) -> None:
        """Drop a turn's end that the mailbox has acknowledged."""
        ...

    async def begin_life(self, mark: LifeMark) -> None:
        """Write a life; it replaces what was written of the agent."""
        ...

    async def end_life(self, agent_id: str) -> None:
        """Drop what was written of an agent's life."""
        ...

    def integrations(self) -> Sequence[Intent]:
        """Return the branches that were about to move and of which the mailbox has not acknowledged it."""
        ...

    async def intend_integration(self, intent: Intent) -> None:
        """Write that a branch is about to move; it replaces what was written under this request_id."""
        ...

    async def forget_integration(self, request_id: str) -> None:
        """Drop what was written under a request_id."""
        ...
