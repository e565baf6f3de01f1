"""What the carrier asks of sessions and mailbox, as values and protocols.

Failures are the library's three: `Refused` and `NotWritten` (nothing was written), `Uncertain` (not known). Everything
here is asked again only where asking again is harmless: under the same key, or as evidence on the same token.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from fencepost_providers.domain.agents import Agent, Holder
from fencepost_providers.domain.carried import Bound, Carried, Outcome
from fencepost_providers.domain.integration import Kind, Place, Recorded, TaskFacts, Wanted
from fencepost_providers.domain.runtimes import Delivery
from fencepost_providers.domain.verification import Finding, Reported

LEASE_TERM_MS: Final = 30_000
RENEW_EVERY_MS: Final = 10_000


class LeaseKind(enum.IntEnum):
    """Why an agent is held; the numbers of fencepost.sessions.v1.LeaseKind."""

    INTERACTIVE = 1
    BACKGROUND = 2
    LIFECYCLE = 3


class Observed(enum.IntEnum):
    """What is observed of a runtime; the numbers of fencepost.sessions.v1.ObservedState."""

    OFF = 1
    STARTING = 2
    IDLE = 3
    PROCESSING = 4
    ACTION_NEEDED = 5
    ERROR = 6


class Evidence(enum.IntEnum):
    """What a report rests on; the numbers of fencepost.sessions.v1.EvidenceKind."""

    PROVIDER_EVENT = 1
    PROVIDER_ANSWER = 2
    PROCESS = 3
    OPERATOR = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """A report. `sequence` grows with each report of one life."""

    state: Observed
    evidence: Evidence
    observed_at_ms: int
    generation: int
    sequence: int
    detail: str = ""
    turn_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectoryStep:
    """A step of the directory. A whole directory comes as one step: what it does not name does not exist."""

    epoch: str
    revision: int
    whole: bool
    agents: Sequence[Agent]
    holders: Sequence[Holder]
    removed_credentials: Sequence[bytes] = ()
    removed_agents: Sequence[str] = ()


class SessionsPort(Protocol):
    """Sessions, as this service calls it. Every call is bounded."""

    def watch(self, epoch: str, revision: int) -> AsyncIterator[DirectoryStep]:
        """Follow the directory until the stream is lost (FencepostError)."""
        ...

    async def acquire(self, agent_id: str, *, key: str, generation: int) -> str:
        """Take the lease for a change of life and return its acquisition id; the same key answers the same lease.

        Raises:
            Refused: lease_held, stale_generation, not_found ...
        """
        ...

    async def renew(self, acquisition_id: str, kind: LeaseKind | None = None) -> None:
        """Put the expiry off. Refused as lease_lost where the lease has ended."""
        ...

    async def release(self, acquisition_id: str) -> None:
        """End a lease. Harmless where it has ended."""
        ...

    async def begin_generation(self, agent_id: str, *, key: str, expected: int, acquisition_id: str) -> int:
        """Begin the next life under a lease; the same key answers the same life."""
        ...

    async def report(self, agent_id: str, acquisition_id: str, status: Status) -> None:
        """Tell what was observed. The same report again changes nothing."""
        ...

    async def set_conversation(
        self, agent_id: str, acquisition_id: str, *, generation: int, conversation_id: str, replace: bool
    ) -> Agent:
        """Bind the exact conversation of a life."""
        ...

    async def lookup_credential(self, token_sha256: bytes) -> Holder | None:
        """Ask what a token means; None where it means nothing."""
        ...


class ClaimKind(enum.IntEnum):
    """What is taken; the numbers of fencepost.mailbox.v1.ClaimKind."""

    REQUEST = 1
    CONTEXT = 2
    WAKE = 3
    STOP = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimAsk:
    """A Claim. Asked again whole, so that its key answers the same."""

    agent_id: str
    generation: int
    kind: ClaimKind
    high_water: int
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A claimed record."""

    token: str
    generation: int
    expires_at_ms: int
    delivery: Delivery


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What an agent has for a dispatcher; without an agent it ends the first listing.

    `wake`: a turn is to be begun for what waits among its tasks. `stop`: the turn that runs is to be told of a request
    to stop. `left`: how many notifications were told often enough, and are left to a person.
    `held_until_ms`: until when no turn is begun for them because there were too many; 0 where that is not so.
    """

    agent_id: str
    requests: bool
    context: bool
    high_water: int
    wake: bool = False
    stop: bool = False
    left: int = 0
    held_until_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """A binding that the mailbox holds without a recorded end."""

    bound: Bound
    uncertain: bool


class MailboxPort(Protocol):
    """Mailbox, as this service calls it. Every call is bounded."""

    def watch_work(self, dispatcher_id: str) -> AsyncIterator[Work]:
        """Follow who has work until the stream is lost (FencepostError)."""
        ...

    async def claim(self, ask: ClaimAsk) -> Taken | None:
        """Take the oldest record of a kind; None where there is none."""
        ...

    async def tell_carried(self, carried: Carried) -> None:
        """Tell what came of a claim: Release or Finish. Telling it again changes nothing."""
        ...

    async def tell_outcome(self, outcome: Outcome) -> None:
        """Tell how a turn ended. Telling it again changes nothing."""
        ...

    async def bindings(self) -> Sequence[Binding]:
        """Return the bindings of this dispatcher without a recorded end."""
        ...

    async def report_owners(self, owners: Sequence[tuple[str, int]]) -> None:
        """Tell for which agents, and which of their lives, records are carried."""
        ...

    async def open_generation(self, agent_id: str, generation: int) -> None:
        """Raise an agent's generation floor."""
        ...


class TasksPort(Protocol):
    """Tasks and projects, as this service asks for them. Every call is bounded; failures are FencepostError."""

    async def task(self, task_id: str) -> TaskFacts:
        """Return a task; Refused as not_found where there is none."""
        ...

    async def record(self, wanted: Wanted, kind: Kind) -> Recorded:
        """Record an integration for its coordinator; the same again answers the same."""
        ...

    async def place(self, project_id: str) -> Place | None:
        """Return where a project lies."""
        ...

    async def evidence(self, task_id: str, evidence_ids: Sequence[str]) -> Sequence[Reported]:
        """Return evidence of a task; Refused where it does not have all of it."""
        ...

    async def record_finding(self, task_id: str, finding: Finding, asked_by: str) -> int:
        """Record what a check found, for an agent or, where that is empty, the operator; returns when."""
        ...
