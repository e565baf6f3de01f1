"""What the use cases need from outside, and the steps that several of them share."""

from __future__ import annotations

from dataclasses import field
from typing import Final, Protocol

from fencepost_kit.clock import Clock
from fencepost_kit.identity import Caller, Role
from fencepost_kit.values import replace, value
from fencepost_mailbox.domain.answers import AnswerEvent, settle
from fencepost_mailbox.domain.bindings import BINDING, Binding, BindingEvent, BindingState
from fencepost_mailbox.domain.claims import Claim, ClaimState, check_floor, loses_sight
from fencepost_mailbox.domain.deletion import check_lives
from fencepost_mailbox.domain.delivery import Event, advance
from fencepost_mailbox.domain.readership import reader_of
from fencepost_mailbox.domain.records import evolve
from fencepost_mailbox.domain.refusals import NotFound
from fencepost_mailbox.domain.values import Agent, Answer, Desired, Fact, FactKind, Kind, Reader, Record
from fencepost_mailbox.owners import Owners
from fencepost_mailbox.store.protocol import InvariantBroken, Store, Transaction
from fencepost_mailbox.usecases.tasks.steps import lose_attempt
from fencepost_mailbox.usecases.tasks.waking import rest_after

# Scope of the operator's keys. Not the credential, which is replaced now and then; no agent has an id of this length.
OPERATOR: Final = b"operator"
_SUPERSEDED: Final = "a later life of the agent began while the claim stood"


class Mint(Protocol):
    """Mints ids of 16 bytes, each greater than the one before."""

    def new(self) -> bytes:
        """Return a new id."""
        ...


class Directory(Protocol):
    """Who exists, as far as the mailbox follows sessions."""

    async def resolve(self, project_id: bytes, target: str) -> Agent:
        """Return the one agent that `target` names in a project.

        Raises:
            InvalidTarget, NotFound: see domain.texts; a near miss in case is named in the hint.
            DependencyDown, DirectoryStale: it cannot be told now; nothing was written.
        """
        ...

    def members(self, project_id: bytes) -> list[Agent]:
        """Return the agents of a project as the mirror knows them."""
        ...

    def anywhere(self, target: str) -> Agent:
        """Return the one agent of any project that `target` names, for an operator who names no project.

        Raises:
            InvalidTarget, AmbiguousTarget: it is not one exact name or UUID, or agents of several projects have it.
            NotFound: none that is known here has it.
        """
        ...

    def agent(self, agent_id: bytes) -> Agent | None:
        """Return an agent by id as the mirror knows it, or None."""
        ...

    def check_fresh(self) -> None:
        """Refuse where nothing was heard of sessions for MIRROR_AGE_MS_MAX.

        Raises:
            DirectoryStale: an operator's authority cannot be checked now.
        """
        ...

    def check_stands(self, caller: Caller) -> None:
        """Refuse where the caller's credential was removed since its call was let in. For calls that park.

        Raises:
            Unauthenticated: it was removed.
        """
        ...

    def must_know(self, agent_id: bytes) -> None:
        """Refuse where the mirror does not know an agent: it may only be behind, so this says nothing of the agent.

        Raises:
            DirectoryStale: it is not known here yet; nothing was written, may be resent.
        """
        ...


class Signals(Protocol):
    """Who waits for what, on the event loop."""

    def waiting(self, agent_id: bytes) -> bool:
        """Tell whether a wait of the agent is parked now."""
        ...

    def note_read(self, agent_id: bytes, now_ms: int) -> None:
        """Remember that the agent read its mailbox."""
        ...

    def last_read_at_ms(self, agent_id: bytes) -> int:
        """Return when the agent last read its mailbox; 0 for never."""
        ...


@value(frozen=True, kw_only=True, slots=True)
class Ports:
    """Everything that a use case is given."""

    store: Store
    directory: Directory
    signals: Signals
    mint: Mint
    clock: Clock
    owners: Owners = field(default_factory=Owners)


@value(frozen=True, kw_only=True, slots=True)
class Readership:
    """Who looks at a mailbox, and when it was last read."""

    reader: Reader
    last_read_at_ms: int
    waiting: bool
    # Whether a task is known to be executed by the agent; told by ListReaders alone.
    executing: bool = False


def readership(ports: Ports, agent_id: bytes) -> Readership:
    """Return who looks at an agent's mailbox."""
    at_ms = ports.signals.last_read_at_ms(agent_id)
    waiting = ports.signals.waiting(agent_id)
    agent = ports.directory.agent(agent_id)
    owned = ports.owners.generation(agent_id)
    # Asked for only where somebody says that it carries: the current life is the newest that anybody here knows of.
    current = max(ports.store.read.floor(agent_id), agent.generation if agent is not None else 0) if owned else 0
    reader = reader_of(
        desired=agent.desired if agent is not None else Desired.UNSPECIFIED,
        owned=bool(owned) and owned == current,
        seen=bool(at_ms or waiting),
    )
    return Readership(reader=reader, last_read_at_ms=at_ms, waiting=waiting)


def agent_of(caller: Caller) -> tuple[bytes, bytes]:
    """Return the agent and project of a caller whose role the guard has checked."""
    assert caller.agent_id is not None, "the rule of this method admits agents only"
    assert caller.project_id is not None, "an agent has a project"
    return caller.agent_id, caller.project_id


def may_see(caller: Caller, record: Record) -> bool:
    """Tell whether the caller sent the record, was sent it, or is no agent: the rule of a method lets in who may."""
    return caller.agent_id is None or caller.agent_id in (record.sender, record.recipient)


def check_may_read(ports: Ports, caller: Caller, record: Record | None, kind: Kind | None = None) -> Record:
    """Return the record where the caller sent it, was sent it, or is the operator; of `kind` where one is given.

    Raises:
        NotFound: there is none, or none that the caller may see: the two are not told apart.
        DirectoryStale: an operator asks and its authority cannot be checked now.
    """
    if caller.role in (Role.OPERATOR, Role.SERVICE):
        if caller.role is Role.OPERATOR:
            ports.directory.check_fresh()
        visible = record is not None
    else:
        visible = record is not None and caller.agent_id in (record.sender, record.recipient)
    if not visible or record is None or kind not in (None, record.kind):
        raise NotFound(
            "no record has this id, or none that you may see",
            hint="Check the id, or list what you may see with message list.",
        )
    return record


def fence(tx: Transaction, agent_id: bytes, generation: int, now_ms: int) -> tuple[bytes, ...]:
    """Let only the newest known life of an agent go on; returns the agents whose waits and work changed by it.

    The first sight of a higher generation raises the floor in this same transaction (ARCHITECTURE "Identity and
    fences").

    Raises:
        AgentDeleted: the agent is being deleted, or was.
        StaleGeneration: the generation is below the floor.
    """
    check_lives(deleted=tx.deleted(agent_id))
    if check_floor(generation, tx.floor(agent_id)):
        tx.raise_floor(agent_id, generation)
        supersede(tx, agent_id, generation, now_ms)
        return (agent_id, *lose_attempt(tx, agent_id, generation, now_ms))
    return ()


def supersede(tx: Transaction, agent_id: bytes, generation: int, now_ms: int) -> list[Record]:
    """Turn the claims of older generations of an agent uncertain; returns their records. Their files are free."""
    tx.files.drop_of_holder(agent_id, generation)
    claims = [*tx.held_claims(recipient=agent_id), *tx.accepted_open(recipient=agent_id)]
    lost = [
        held_record(tx, claim)
        for claim in claims
        if claim.generation < generation and lose_sight(tx, claim, evidence=_SUPERSEDED, now_ms=now_ms)
    ]
    for binding in tx.bound(recipient=agent_id):
        if binding.generation < generation:
            lose_turn(tx, binding, evidence=_SUPERSEDED, now_ms=now_ms)
    return lost


def lose_sight(tx: Transaction, claim: Claim, *, evidence: str, now_ms: int) -> bool:
    """Turn a claim and its record uncertain where the rules say so. Never back to pending (M075 M090)."""
    record = held_record(tx, claim)
    bound = tx.binding(claim.token) if claim.state is ClaimState.ACCEPTED else None
    if not loses_sight(claim, answer=record.answer, bound=bound):
        return False
    mark_uncertain(tx, claim, record, evidence=evidence, now_ms=now_ms)
    return True


def mark_uncertain(tx: Transaction, claim: Claim, record: Record, *, evidence: str, now_ms: int) -> Record:
    """Write that what became of a claim is not known. The record becomes readable again under a fresh number.

    A turn that is bound under it is lost from sight with it. A wake-up is over by that: another tells of the same
    later, and names this one.
    """
    if claim.state is ClaimState.ACCEPTED and (bound := tx.binding(claim.token)) is not None:
        tx.move_binding(bound, replace(bound, state=BINDING[bound.state, BindingEvent.LOSE_SIGHT]))
    sequence = tx.next_sequence(record.project_id)
    is_over = record.kind is Kind.WAKE and record.answer is Answer.OPEN
    after = evolve(
        record,
        delivery=advance(record.kind, record.delivery, Event.LOSE_SIGHT),
        position=sequence,
        answer=settle(record, AnswerEvent.END) if is_over else record.answer,
    )
    tx.move(record, after)
    if is_over:
        rest_after(tx, record.record_id, now_ms)
    tx.set_claim_state(claim, ClaimState.UNCERTAIN)
    tx.add_fact(
        Fact(
            sequence=sequence,
            record_id=record.record_id,
            fact=FactKind.UNCERTAIN,
            at_ms=now_ms,
            generation=claim.generation,
            evidence=evidence,
        )
    )
    return after


def lose_turn(tx: Transaction, binding: Binding, *, evidence: str, now_ms: int) -> None:
    """Write that a running turn was lost from sight whose work has its answer: what became of the work stays known."""
    record = tx.record(binding.record_id)
    if record is None or record.answer is Answer.OPEN or binding.state is not BindingState.BOUND:
        raise InvariantBroken("only a running turn of settled work is lost by itself")
    tx.move_binding(binding, replace(binding, state=BINDING[binding.state, BindingEvent.LOSE_SIGHT]))
    tx.add_fact(
        Fact(
            sequence=tx.next_sequence(record.project_id),
            record_id=record.record_id,
            fact=FactKind.TURN_LOST,
            at_ms=now_ms,
            generation=binding.generation,
            evidence=evidence,
        )
    )


def held_record(tx: Transaction, claim: Claim) -> Record:
    """Return the record that a claim is on."""
    record = tx.record(claim.record_id)
    if record is None:
        raise InvariantBroken("a claim stands on a record that does not")
    return record
