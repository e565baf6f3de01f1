"""Random histories of leases, lives and conversations over a real store, judged against a model that fits on a page."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fencepost.home import SESSIONS
from fencepost_kit.refusal import Refusal
from fencepost_sessions.credential_files import HomeCredentialFiles
from fencepost_sessions.domain.identifiers import uuid_bytes, uuid_text
from fencepost_sessions.domain.leases import LeaseKind
from fencepost_sessions.domain.roles import Caller, Role
from fencepost_sessions.tool_files import HomeToolFiles
from fencepost_sessions.usecases.acquire_lease import AcquireLease, acquire_lease
from fencepost_sessions.usecases.begin_generation import BeginGeneration, begin_generation
from fencepost_sessions.usecases.create_agent import CreateAgent, create_agent
from fencepost_sessions.usecases.ensure_project import EnsureProject, ensure_project
from fencepost_sessions.usecases.list_leases import list_leases
from fencepost_sessions.usecases.release_lease import release_lease
from fencepost_sessions.usecases.renew_lease import renew_lease
from fencepost_sessions.usecases.set_conversation import SetConversation, set_conversation
from fencepost_sessions.wiring import Parts, build
from fencepost_testing.clock import VirtualClock
from fencepost_testing.histories import ends_before_it_began
from fencepost_testing.processes import short_home

AGENTS = (0, 1)
CONVERSATIONS = ("", "talk-1", "talk-2")
TERMS = (1000, 3000)
# Mostly the lease that the agent has, sometimes one of long ago or of the other agent.
PICKS = st.sampled_from((0, 0, 0, 0, 1, 2))
OPERATOR = Caller(credential_id=b"o" * 16, role=Role.OPERATOR, agent_id=None, project_id=None, label="operator")
PROVIDERS = Caller(credential_id=b"s" * 16, role=Role.SERVICE, agent_id=None, project_id=None, label="providers")


@dataclass
class Held:
    """A lease in the model; `over` once somebody was told that it has ended."""

    acquisition: str
    talk: str
    generation: int
    fence: int
    term: int
    until: int
    over: bool = False


@dataclass
class Who:
    """An agent in the model."""

    agent_id: str
    generation: int = 1
    talk: str = ""
    fence: int = 0
    lease: Held | None = None


@dataclass
class Model:
    """Everything that sessions has to know of leases."""

    now: int = 0
    who: list[Who] = field(default_factory=list)

    def stands(self, lease: Held | None) -> bool:
        return lease is not None and not lease.over and self.now < lease.until

    def tell(self) -> None:
        """Whatever has expired stays so: somebody acted on it."""
        for one in self.who:
            if one.lease is not None and self.now >= one.lease.until:
                one.lease.over = True

    def owner(self, acquisition: str) -> Who | None:
        """The agent whose last lease this is."""
        return next((one for one in self.who if one.lease and one.lease.acquisition == acquisition), None)

    def covered(self, talk: str, besides: Who) -> bool:
        """Whether another agent's standing lease covers a conversation."""
        return bool(talk) and any(
            self.stands(one.lease) and one.lease is not None and one.lease.talk == talk
            for one in self.who
            if one is not besides
        )


class LeasesMachine(RuleBasedStateMachine):
    """The same history for the model and for the use cases."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.home = self.stack.enter_context(short_home())
        self.clock = VirtualClock()
        self.model = Model()
        self.keys = (f"k{number}" for number in itertools.count())
        self.taken: list[str] = ["00000000-0000-0000-0000-000000000001"]
        self.parts: Parts | None = None

    @property
    def ports(self) -> Any:
        assert self.parts is not None
        return self.parts.ports

    def ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return what a use case answers, or the reason of its refusal."""
        try:
            return self.runner.run(work)
        except Refusal as refused:
            return refused.reason

    def one_of(self, agent: int, pick: int) -> str:
        """An acquisition: the agent's last, or another one."""
        lease = self.model.who[agent].lease
        return self.taken[-pick % len(self.taken)] if pick or lease is None else lease.acquisition

    def open(self) -> None:
        async def opened() -> Parts:
            self.home.prepare()
            files = HomeCredentialFiles(self.home)
            fatal: list[BaseException] = []
            parts = build(
                self.home.database(SESSIONS), files, HomeToolFiles(self.home), on_fatal=fatal.append, clock=self.clock
            )
            await parts.open()
            return parts

        self.parts = self.runner.run(opened())

    def close(self) -> None:
        if self.parts is not None:
            self.runner.run(self.parts.close())
            self.parts = None

    def teardown(self) -> None:
        self.close()
        self.stack.close()

    @initialize()
    def begin(self) -> None:
        self.open()
        place = EnsureProject(idempotency_key="p", kind=2, location="/w", name="")
        project = self.runner.run(ensure_project(self.ports, OPERATOR, place)).project
        for number in AGENTS:
            wanted = CreateAgent(
                idempotency_key=f"a{number}",
                project_id=uuid_text(project.project_id),
                name=f"a{number}",
                role=None,
                provider="",
                workspace="",
            )
            created, _ = self.runner.run(create_agent(self.ports, OPERATOR, wanted))
            self.model.who.append(Who(uuid_text(created.agent.agent_id)))

    @rule(agent=st.sampled_from(AGENTS), term=st.sampled_from(TERMS))
    def acquire(self, agent: int, term: int) -> None:
        one = self.model.who[agent]
        wanted = AcquireLease(
            idempotency_key=next(self.keys),
            agent_id=one.agent_id,
            kind=int(LeaseKind.LIFECYCLE),
            holder="somebody",
            term_ms=term,
            expected_generation=0,
        )
        answer = self.ask(acquire_lease(self.ports, PROVIDERS, wanted))
        if self.model.stands(one.lease) or self.model.covered(one.talk, one):
            assert answer == "lease_held"
            return
        self.model.tell()
        one.fence += 1
        acquisition = uuid_text(answer.lease.acquisition_id)
        one.lease = Held(acquisition, one.talk, one.generation, one.fence, term, self.model.now + term)
        self.taken.append(acquisition)

    @rule(agent=st.sampled_from(AGENTS), pick=PICKS)
    def renew(self, agent: int, pick: int) -> None:
        acquisition = self.one_of(agent, pick)
        one = self.model.owner(acquisition)
        answer = self.ask(renew_lease(self.ports, PROVIDERS, acquisition_id=acquisition, kind=0))
        if one is None or one.lease is None or not self.model.stands(one.lease):
            assert answer == "lease_lost"
            self.model.tell()
        else:
            one.lease.until = self.model.now + one.lease.term
            assert answer[0].fence == one.lease.fence

    @rule(agent=st.sampled_from(AGENTS), pick=PICKS)
    def release(self, agent: int, pick: int) -> None:
        acquisition = self.one_of(agent, pick)
        one = self.model.owner(acquisition)
        stood = one is not None and self.model.stands(one.lease)
        assert self.ask(release_lease(self.ports, PROVIDERS, acquisition_id=acquisition)) is stood
        self.model.tell()
        if stood and one is not None and one.lease is not None:
            one.lease.over = True

    @rule(agent=st.sampled_from(AGENTS), pick=PICKS, under=st.booleans())
    def another_life(self, agent: int, pick: int, under: bool) -> None:
        one = self.model.who[agent]
        acquisition = self.one_of(agent, pick) if under else ""
        wanted = BeginGeneration(
            idempotency_key=next(self.keys),
            agent_id=one.agent_id,
            expected_generation=0,
            acquisition_id=acquisition,
        )
        answer = self.ask(begin_generation(self.ports, PROVIDERS, wanted))
        stands = self.model.stands(one.lease)
        if under and not (stands and one.lease is not None and one.lease.acquisition == acquisition):
            assert answer == "lease_lost"
            self.model.tell()
        elif not under and stands:
            assert answer == "lease_held"
        else:
            one.generation += 1
            assert answer[0].generation == one.generation
            if under and one.lease is not None:
                one.lease.generation = one.generation
            else:
                self.model.tell()

    @rule(
        agent=st.sampled_from(AGENTS),
        pick=PICKS,
        talk=st.sampled_from(CONVERSATIONS),
        replacing=st.booleans(),
    )
    def bind(self, agent: int, pick: int, talk: str, replacing: bool) -> None:
        one = self.model.who[agent]
        acquisition = self.one_of(agent, pick)
        wanted = SetConversation(
            agent_id=one.agent_id,
            acquisition_id=acquisition,
            generation=one.generation,
            conversation_id=talk,
            replace=replacing,
        )
        answer = self.ask(set_conversation(self.ports, PROVIDERS, wanted))
        lease = one.lease
        if lease is None or lease.acquisition != acquisition or not self.model.stands(lease):
            assert answer == "lease_lost"
            self.model.tell()
        elif one.talk == talk:
            assert answer.conversation_id == talk
        elif talk and (any(other.talk == talk for other in self.model.who) or (one.talk and not replacing)):
            assert answer == "conversation_conflict"
        elif self.model.covered(talk, one):
            assert answer == "lease_held"
        else:
            one.talk = talk
            assert answer.conversation_id == talk
            if talk:
                self.model.tell()
                lease.talk = talk

    @rule(ms=st.sampled_from((1, 999, 1000, 3000)))
    def time_passes(self, ms: int) -> None:
        self.runner.run(self.clock.advance(ms / 1000))
        self.model.now += ms

    @rule(agent=st.sampled_from(AGENTS))
    def a_loss_is_told_and_sessions_starts_anew(self, agent: int) -> None:
        lease = self.model.who[agent].lease
        if self.model.stands(lease) and lease is not None:
            self.time_passes(lease.until - self.model.now)
        self.renew(agent, 0)
        self.restart(0)

    @rule(ms=st.sampled_from((-5000, 5000)))
    def the_wall_is_set(self, ms: int) -> None:
        self.clock.step_wall(ms)

    @rule(away=st.sampled_from((0, 10_000)))
    def restart(self, away: int) -> None:
        self.close()
        self.runner.run(self.clock.advance(away / 1000))
        self.open()
        for one in self.model.who:
            if one.lease is not None and not one.lease.over:
                one.lease.until = self.model.now + one.lease.term

    @invariant()
    def sessions_says_what_the_model_says(self) -> None:
        if self.parts is None:
            return
        for one in self.model.who:
            leases, moment = self.runner.run(list_leases(self.ports, agent_id=one.agent_id))
            expected = one.lease if self.model.stands(one.lease) else None
            assert len(leases) == (expected is not None)
            for lease in leases:
                assert expected is not None
                assert (uuid_text(lease.acquisition_id), lease.fence) == (expected.acquisition, expected.fence)
                assert (lease.generation, lease.conversation_id) == (one.generation, expected.talk)
                assert lease.expires_at_ms - moment.running_ms == expected.until - self.model.now
            agent = self.ports.store.read(lambda reading, one=one: reading.agent(uuid_bytes(one.agent_id, what="")))
            assert (agent.generation, agent.conversation_id) == (one.generation, one.talk)
        every, _ = self.runner.run(list_leases(self.ports, agent_id=""))
        assert {uuid_text(lease.acquisition_id) for lease in every} == {
            one.lease.acquisition for one in self.model.who if one.lease and self.model.stands(one.lease)
        }
        talks = [lease.conversation_id for lease in every if lease.conversation_id]
        assert len(talks) == len(set(talks))


TestLeases = pytest.mark.requirement("sessions.one-lease-stands")(LeasesMachine.TestCase)
TestLeases.settings = settings(max_examples=40, stateful_step_count=50)


def test_a_history_that_never_began_leaves_nothing_behind() -> None:
    ends_before_it_began(LeasesMachine)
