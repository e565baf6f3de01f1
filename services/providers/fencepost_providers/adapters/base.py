"""The contract between the carrier and an agent program. Source: ARCHITECTURE "Dispatch"; M076-M097 M135-M158.

An adapter is found through the entry-point group ADAPTERS_GROUP: a callable without arguments that returns an Adapter.
It starts, speaks to and stops one kind of program, and reports what it sees; it knows no mailbox and no lease. The
behaviours that every adapter shows are held by one list of tests that each adapter runs (tests/contract).

Rules that the carrier relies on:
- A submission returns one of four values and raises nothing but CancelledError. What the adapter cannot classify is
  Uncertain; so is a submission that was cancelled after its first byte left. NotSubmitted needs a proof.
- Nothing is submitted twice by an adapter: no retry after the first byte has left, on no path.
- Listener calls come on the event loop, in the order in which the program said it: the end of a turn before the
  activity that follows it. They may come before the submission that belongs to them has returned.
- A runtime belongs to one generation: after `stop`, or once `closed` was called, the listener hears nothing more.
- Every wait inside has a named limit; starting alone may wait for the program's own indexing without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from fencepost_providers.domain.runtimes import (
    Activity,
    Capability,
    CapabilityKind,
    Catalogue,
    Closed,
    Delivery,
    Finding,
    Installation,
    Interrupted,
    LaunchPlan,
    Permits,
    Row,
    Submission,
    TurnEnd,
)

ADAPTERS_GROUP: Final = "fencepost.adapters"
PROBE_MS_MAX: Final = 12_000
SUBMIT_MS_MAX: Final = 30_000
INTERRUPT_MS_MAX: Final = 10_000
STOP_GRACE_MS: Final = 5_000


class StartFailed(Exception):
    """The program could not be started, and that is certain: no child is left, nothing was submitted.

    `code` is stable; `hint` says what a person can do. `again` tells whether a later attempt may differ by itself
    (somebody else writes the conversation just now) or only after a person acted (no program, version, login).
    """

    def __init__(self, code: str, message: str, *, hint: str = "", again: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.again = again


class Listener(Protocol):
    """Who is told what a running program says. No call raises, none waits."""

    def activity(self, activity: Activity) -> None:
        """Activity has changed, or was said again."""
        ...

    def turn_ended(self, end: TurnEnd) -> None:
        """A turn ended, whoever started it."""
        ...

    def row(self, row: Row) -> None:
        """Something happened in the conversation."""
        ...

    def closed(self, closed: Closed) -> None:
        """The runtime has ended; its child is joined."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminal:
    """How a person's terminal joins the running conversation."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str


class Attachment(Protocol):
    """A person's terminal on its way into a conversation. M138-M150."""

    terminal: Terminal

    async def joined(self) -> None:
        """Return once the terminal was seen on exactly the expected conversation.

        Raises:
            StartFailed: it never was within the adapter's limit, or was seen on another; nothing is delivered then.
        """
        ...

    async def left(self) -> None:
        """Return once the terminal has gone, for whatever reason."""
        ...

    async def close(self) -> None:
        """Undo what only an attached terminal needs. Harmless when repeated."""
        ...


class Runtime(Protocol):
    """A running program with exactly one conversation of one agent."""

    conversation_id: str
    version: str
    pid: int

    async def activity(self) -> Activity:
        """Ask the program what the conversation does now; UNKNOWN where it does not answer in SUBMIT_MS_MAX."""
        ...

    async def show(self, context: Delivery) -> Submission:
        """Show information, a reply or a notice without starting a turn: Visible, NotSubmitted or Uncertain."""
        ...

    async def begin(self, work: Delivery) -> Submission:
        """Start a turn with work while idle: Accepted, NotSubmitted or Uncertain.

        Accepted names a turn that did not run before and holds a receipt of this very record. A turn that ran already
        when the program answered is Uncertain.
        """
        ...

    async def steer(self, work: Delivery, turn_id: str) -> Submission:
        """Put work into exactly this running turn: Accepted, NotSubmitted or Uncertain."""
        ...

    async def interrupt(self, turn_id: str) -> Interrupted:
        """Interrupt exactly this turn and wait for its end, at most INTERRUPT_MS_MAX."""
        ...

    async def attach(self, permits: Permits) -> Attachment:
        """Prepare a person's terminal on this conversation, with what the operator permits it and no more.

        Raises:
            StartFailed: this program, or this version, cannot.
        """
        ...

    async def stop(self) -> None:
        """End the program: politely, after STOP_GRACE_MS by force, with everything it started; return when joined."""
        ...


@runtime_checkable
class Forgets(Protocol):
    """What an adapter has besides that keeps something of an agent outside the agent's folder."""

    async def forget(self, agent_id: str, folder: str) -> None:
        """Take back what is outside of the folder of an agent that was deleted; nothing of it runs any more.

        Called for every adapter, at the deletion and at each start of the service after it: repeated, it does nothing.
        Raises nothing.
        """
        ...


class Adapter(Protocol):
    """One kind of agent program."""

    name: str
    title: str

    async def probe(self) -> Installation:
        """Find the program and learn its version, at most PROBE_MS_MAX. Raises nothing."""
        ...

    def capabilities(self, version: str) -> Mapping[CapabilityKind, Capability]:
        """Return one entry of each kind for a version; "" stands for no program."""
        ...

    async def models(self, *, refresh: bool) -> Catalogue:
        """Return the models that the program offers. Raises nothing; an older answer never replaces a newer one."""
        ...

    async def start(self, plan: LaunchPlan, listener: Listener) -> Runtime:
        """Prepare the private home, start the program, open exactly the planned conversation or a new one.

        Cancelling it ends and joins the child before CancelledError leaves.

        Raises:
            StartFailed: see there.
        """
        ...

    async def inspect(self, plan: LaunchPlan, runtime: Runtime | None) -> Sequence[Finding]:
        """Tell what is wrong with the program, private home and registration. Changes nothing, raises nothing."""
        ...

    async def launch_arguments(self, plan: LaunchPlan) -> Sequence[str]:
        """Return the arguments with which the program would be started, without secrets."""
        ...

    async def approve_tools(self, plan: LaunchPlan, tools: Sequence[str]) -> Sequence[str]:
        """Approve tools of our MCP server in the private home; returns all that are approved.

        Raises:
            StartFailed: there is nowhere to write it down.
        """
        ...

    def private_home(self, plan: LaunchPlan) -> str:
        """Return where the program's private state lives; empty where it has none."""
        ...

    def log_file(self, plan: LaunchPlan) -> str:
        """Return where the program's own output goes; empty where it is not kept."""
        ...
