"""A carrier in the test's own process: sessions, mailbox and programs held by the test, the outbox on a real disk."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost.home import Home
from fencepost_kit.identity import Role, fingerprint
from fencepost_kit.ids import uuid_text
from fencepost_providers.adapters.base import Attachment, Listener, Runtime, StartFailed, Terminal
from fencepost_providers.adapters.registry import Adapters
from fencepost_providers.domain.agents import Agent, Desired, Holder
from fencepost_providers.domain.carried import Answer, Carried, Outcome
from fencepost_providers.domain.integration import ACCEPTED, INTEGRATED, Kind, Place, Recorded, TaskFacts, Wanted
from fencepost_providers.domain.runtimes import (
    Accepted,
    Activity,
    Capability,
    CapabilityKind,
    Catalogue,
    Closed,
    Delivery,
    Finding,
    Installation,
    Interrupted,
    Interruption,
    LaunchPlan,
    Mode,
    Model,
    Permits,
    State,
    Submission,
    Support,
    TurnBinding,
    TurnEnd,
    TurnStatus,
    Visible,
)
from fencepost_providers.domain.verification import Claim
from fencepost_providers.domain.verification import Finding as EvidenceFinding
from fencepost_providers.domain.verification import Reported as EvidenceReported
from fencepost_providers.keeper import Keeper
from fencepost_providers.links import Binding, ClaimAsk, ClaimKind, DirectoryStep, LeaseKind, Status, Taken, Work
from fencepost_providers.settings import Settings
from fencepost_providers.wiring import Carrying

WAIT_S_MAX: Final = 10.0
HURRY: Final = 50
TASK: Final = "task_" + "1" * 32
PROJECT: Final = "0190f3a2-1111-7222-8333-00000000aaaa"
OTHER_PROJECT: Final = "0190f3a2-1111-7222-8333-00000000bbbb"


def uuid_of(name: str) -> str:
    """The UUID of an agent of that name."""
    return uuid_text(fingerprint(f"fp_{name}")[:16])


def token_of(name: str) -> str:
    """The token of whoever has that name."""
    return "fp_" + (name + "-" * 43)[:43]


class HurriedClock:
    """Time that passes HURRY times as fast: pauses and backoffs keep their proportions."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() * HURRY

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / HURRY)  # sleep: the clock itself


async def until(condition: Callable[[], Any], what: str = "what was waited for") -> Any:
    """Poll until `condition` gives something true, and return it."""
    end = time.monotonic() + WAIT_S_MAX
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {WAIT_S_MAX} s"
        await asyncio.sleep(0.002)
    return found


def refused(reason: str) -> Refused:
    """A refusal of another service."""
    return Refused(reason, f"{reason}; nothing was written")


def away() -> NotWritten:
    """A service that is not there."""
    return NotWritten("not_running", "it publishes no address; nothing was sent")


class FakeSessions:
    """See SessionsPort."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.holders: list[Holder] = []
        self.steps: asyncio.Queue[DirectoryStep] = asyncio.Queue()
        self.leases: dict[str, str] = {}
        self.kinds: dict[str, LeaseKind] = {}
        self.reports: list[tuple[str, Status]] = []
        self.lost: set[str] = set()
        self.told: list[str] = []
        self.trouble: dict[str, list[Exception]] = {}
        self._numbers = itertools.count(1)
        self._revision = 0

    def _met(self, call: str) -> None:
        self.told.append(call)
        waiting = self.trouble.get(call)
        if waiting:
            raise waiting.pop(0)

    def tell(self, agent: Agent) -> None:
        """Let the directory change."""
        self._revision += 1
        agent = replace(agent, revision=self._revision)
        self.agents[agent.agent_id] = agent
        self.steps.put_nowait(
            DirectoryStep(epoch="e", revision=self._revision, whole=False, agents=[agent], holders=[])
        )

    def remove(self, agent_id: str) -> None:
        """Let an agent's deletion end."""
        del self.agents[agent_id]
        self._revision += 1
        self.steps.put_nowait(
            DirectoryStep(
                epoch="e", revision=self._revision, whole=False, agents=[], holders=[], removed_agents=[agent_id]
            )
        )

    async def watch(self, epoch: str, revision: int) -> AsyncIterator[DirectoryStep]:
        self._met("watch")
        yield DirectoryStep(
            epoch="e",
            revision=self._revision,
            whole=True,
            agents=tuple(self.agents.values()),
            holders=tuple(self.holders),
        )
        while True:
            yield await self.steps.get()

    async def acquire(self, agent_id: str, *, key: str, generation: int) -> str:
        self._met("acquire")
        if agent_id in self.leases:
            raise refused("lease_held")
        self.leases[agent_id] = f"lease-{next(self._numbers)}"
        return self.leases[agent_id]

    async def renew(self, acquisition_id: str, kind: LeaseKind | None = None) -> None:
        self._met("renew")
        if acquisition_id in self.lost or acquisition_id not in self.leases.values():
            raise refused("lease_lost")
        if kind is not None:
            self.kinds[acquisition_id] = kind

    async def release(self, acquisition_id: str) -> None:
        self._met("release")
        for agent_id in [agent_id for agent_id, held in self.leases.items() if held == acquisition_id]:
            del self.leases[agent_id]

    async def begin_generation(self, agent_id: str, *, key: str, expected: int, acquisition_id: str) -> int:
        self._met("begin_generation")
        agent = self.agents[agent_id]
        if expected != agent.generation:
            raise refused("stale_generation")
        self.tell(replace(agent, generation=agent.generation + 1))
        return agent.generation + 1

    async def report(self, agent_id: str, acquisition_id: str, status: Status) -> None:
        self._met("report")
        self.reports.append((agent_id, status))

    async def set_conversation(
        self, agent_id: str, acquisition_id: str, *, generation: int, conversation_id: str, replace: bool
    ) -> Agent:
        self._met("set_conversation")
        agent = self.agents[agent_id]
        if agent.conversation_id not in {"", conversation_id} and not replace:
            raise refused("conversation_conflict")
        self.tell(_with_conversation(agent, conversation_id))
        return self.agents[agent_id]

    async def lookup_credential(self, token_sha256: bytes) -> Holder | None:
        self._met("lookup_credential")
        return None


def _with_conversation(agent: Agent, conversation_id: str) -> Agent:
    return replace(agent, conversation_id=conversation_id)


class FakeMailbox:
    """See MailboxPort. Records of an agent in two queues, claims by token."""

    def __init__(self) -> None:
        self.requests: dict[str, list[Delivery]] = {}
        self.context: dict[str, list[Delivery]] = {}
        # Wake-ups that are due, and those for the turn that runs.
        self.wakes: dict[str, list[Delivery]] = {}
        self.stops: dict[str, list[Delivery]] = {}
        self.left_alone: dict[str, int] = {}
        self.held_until_ms: dict[str, int] = {}
        self.claims: dict[str, tuple[str, ClaimKind, Delivery]] = {}
        self.keys: dict[str, Taken] = {}
        self.carried: list[Carried] = []
        self.outcomes: list[Outcome] = []
        self.left: list[Binding] = []
        self.owners: list[tuple[str, int]] = []
        self.opened: list[tuple[str, int]] = []
        self.trouble: dict[str, list[Exception]] = {}
        self.term_ms = 60_000
        self.silent = False
        self._numbers = itertools.count(1)
        self._watchers: list[asyncio.Queue[str]] = []

    def _met(self, call: str) -> None:
        waiting = self.trouble.get(call)
        if waiting:
            raise waiting.pop(0)

    def add(self, name: str, kind: str, body: str = "body") -> str:
        """Store a record for an agent."""
        record_id = f"{kind[:3]}_{next(self._numbers):032x}"
        stored = "wake" if kind == "stop" else kind
        if stored == "wake":
            record_id = f"wak_{record_id[4:]}"
        work = Delivery(record_id=record_id, kind=stored, sender="somebody", sender_id="s", body=body)
        place = {"request": self.requests, "prompt": self.requests, "wake": self.wakes, "stop": self.stops}.get(
            kind, self.context
        )
        place.setdefault(uuid_of(name), []).append(work)
        self.mark(uuid_of(name))
        return record_id

    def mark(self, agent_id: str) -> None:
        """Tell watchers, unless told to be silent."""
        if not self.silent:
            for watcher in self._watchers:
                watcher.put_nowait(agent_id)

    def _work(self, agent_id: str) -> Work:
        return Work(
            agent_id=agent_id,
            requests=bool(self.requests.get(agent_id)),
            context=bool(self.context.get(agent_id)),
            high_water=999,
            wake=bool(self.wakes.get(agent_id)),
            stop=bool(self.stops.get(agent_id)),
            left=self.left_alone.get(agent_id, 0),
            held_until_ms=self.held_until_ms.get(agent_id, 0),
        )

    def _place(self, kind: ClaimKind) -> dict[str, list[Delivery]]:
        return {
            ClaimKind.REQUEST: self.requests,
            ClaimKind.CONTEXT: self.context,
            ClaimKind.WAKE: self.wakes,
            ClaimKind.STOP: self.stops,
        }[kind]

    async def watch_work(self, dispatcher_id: str) -> AsyncIterator[Work]:
        self._met("watch_work")
        news: asyncio.Queue[str] = asyncio.Queue()
        self._watchers.append(news)
        try:
            for agent_id in {*self.requests, *self.context, *self.wakes, *self.stops}:
                work = self._work(agent_id)
                if work.requests or work.context or work.wake or work.stop:
                    yield work
            yield Work(agent_id="", requests=False, context=False, high_water=999)
            while True:
                yield self._work(await news.get())
        finally:
            self._watchers.remove(news)

    async def claim(self, ask: ClaimAsk) -> Taken | None:
        self._met("claim")
        known = self.keys.get(ask.key)
        if known is None:
            waiting = self._place(ask.kind).get(ask.agent_id, [])
            if not waiting:
                return None
            work = waiting.pop(0)
            token = f"{next(self._numbers):032x}"
            self.claims[token] = (ask.agent_id, ask.kind, work)
            known = Taken(
                token=token,
                generation=ask.generation,
                expires_at_ms=time.time_ns() // 1_000_000 + self.term_ms,
                delivery=work,
            )
            self.keys[ask.key] = known
        self._met("claim_answer")
        return known

    async def tell_carried(self, carried: Carried) -> None:
        self._met("tell_carried")
        self.carried.append(carried)
        if carried.answer is Answer.RELEASED:
            agent_id, kind, work = self.claims[carried.token]
            self._place(kind).setdefault(agent_id, []).insert(0, work)
            self.mark(agent_id)

    async def tell_outcome(self, outcome: Outcome) -> None:
        self._met("tell_outcome")
        self.outcomes.append(outcome)

    async def bindings(self) -> Sequence[Binding]:
        self._met("bindings")
        return self.left

    async def report_owners(self, owners: Sequence[tuple[str, int]]) -> None:
        self._met("report_owners")
        self.owners = list(owners)

    async def open_generation(self, agent_id: str, generation: int) -> None:
        self._met("open_generation")
        self.opened.append((agent_id, generation))

    def answers(self, record_id: str) -> list[Answer]:
        """What was told of a record's claims, in order."""
        return [one.answer for one in self.carried if one.record_id == record_id]


@dataclass
class FakeAttachment:
    """A terminal that the test holds."""

    terminal: Terminal = field(default_factory=lambda: Terminal(argv=("tui",), environment={}, working_directory="/"))
    has_joined: asyncio.Event = field(default_factory=asyncio.Event)
    has_left: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    problem: StartFailed | None = None

    async def joined(self) -> None:
        await self.has_joined.wait()
        if self.problem is not None:
            raise self.problem

    async def left(self) -> None:
        await self.has_left.wait()

    async def close(self) -> None:
        self.closed = True


class FakeRuntime:
    """A running program that answers what the test says; by default as a well-behaved one."""

    def __init__(self, plan: LaunchPlan, listener: Listener, number: int) -> None:
        self.plan = plan
        self.listener = listener
        self.conversation_id = plan.conversation_id or f"conversation-{number}"
        self.version = "1"
        self.pid = 0
        self.now = Activity(state=State.IDLE)
        self.submitted: list[tuple[str, Delivery]] = []
        self.answers: list[Submission | Callable[[], Awaitable[Submission]]] = []
        self.stopped = False
        self.looks = 0
        self.interrupts: list[str] = []
        self.attachment = FakeAttachment()
        self._turns = itertools.count(1)

    def say(self, activity: Activity) -> None:
        """Let the program say what it does."""
        self.now = activity
        self.listener.activity(activity)

    def end(self, turn_id: str, text: str = "final", *, status: TurnStatus = TurnStatus.COMPLETED) -> None:
        """Let a turn end, and the program be idle."""
        self.listener.turn_ended(
            TurnEnd(turn_id=turn_id, status=status, final_text=text, final_bytes=len(text.encode()))
        )
        self.say(Activity(state=State.IDLE))

    async def activity(self) -> Activity:
        self.looks += 1
        return self.now

    async def _submit(self, what: str, work: Delivery, fair: Submission) -> Submission:
        self.submitted.append((what, work))
        answer = self.answers.pop(0) if self.answers else fair
        return await answer() if callable(answer) else answer

    async def show(self, context: Delivery) -> Submission:
        return await self._submit("show", context, Visible(evidence="seen"))

    async def begin(self, work: Delivery) -> Submission:
        turn_id = f"turn-{next(self._turns)}"
        answer = await self._submit("begin", work, self.accepted(turn_id, Mode.START))
        if isinstance(answer, Accepted):
            self.say(Activity(state=State.PROCESSING, turn_id=answer.binding.turn_id))
        return answer

    async def steer(self, work: Delivery, turn_id: str) -> Submission:
        return await self._submit("steer", work, self.accepted(turn_id, Mode.STEER))

    def accepted(self, turn_id: str, mode: Mode) -> Accepted:
        """Taken, with proof."""
        binding = TurnBinding(provider="fake", conversation_id=self.conversation_id, turn_id=turn_id, mode=mode)
        return Accepted(binding=binding, evidence="receipt")

    async def interrupt(self, turn_id: str) -> Interrupted:
        self.interrupts.append(turn_id)
        self.end(turn_id, "", status=TurnStatus.INTERRUPTED)
        return Interrupted(result=Interruption.CONFIRMED, turn_id=turn_id)

    async def attach(self, permits: Permits) -> Attachment:
        self.permits = permits
        return self.attachment

    async def stop(self) -> None:
        self.stopped = True


class FakeAdapter:
    """One kind of program, held by the test."""

    name = "fake"
    title = "Fake"

    def __init__(self) -> None:
        self.runtimes: list[FakeRuntime] = []
        self.plans: list[LaunchPlan] = []
        self.failures: list[Exception] = []
        self.gate: asyncio.Event | None = None
        self.cancelled = 0
        self.none: dict[CapabilityKind, str] = {}
        self.approved: list[str] = []
        self.forgotten: list[tuple[str, str]] = []
        self.forgetting: list[Exception] = []

    async def forget(self, agent_id: str, folder: str) -> None:
        self.forgotten.append((agent_id, folder))
        if self.forgetting:
            raise self.forgetting.pop(0)

    async def probe(self) -> Installation:
        return Installation(program="/bin/fake", version="1")

    def capabilities(self, version: str) -> Mapping[CapabilityKind, Capability]:
        return {
            kind: Capability(support=Support.NONE, reason=self.none[kind])
            if kind in self.none
            else Capability(support=Support.CERTIFIED)
            for kind in CapabilityKind
        }

    async def models(self, *, refresh: bool) -> Catalogue:
        return Catalogue(models=(Model(model="m"),), source="live", asked_at_ms=1 if refresh else 0)

    async def start(self, plan: LaunchPlan, listener: Listener) -> Runtime:
        self.plans.append(plan)
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if self.failures:
            raise self.failures.pop(0)
        runtime = FakeRuntime(plan, listener, len(self.runtimes) + 1)
        self.runtimes.append(runtime)
        return runtime

    async def inspect(self, plan: LaunchPlan, runtime: Runtime | None) -> Sequence[Finding]:
        return []

    async def launch_arguments(self, plan: LaunchPlan) -> Sequence[str]:
        return ["fake", *plan.settings.custom_arguments]

    async def approve_tools(self, plan: LaunchPlan, tools: Sequence[str]) -> Sequence[str]:
        self.approved += tools
        return self.approved

    def private_home(self, plan: LaunchPlan) -> str:
        return f"{plan.folder}/habitat"

    def log_file(self, plan: LaunchPlan) -> str:
        return f"{plan.folder}/logs/fake.log"


class FakeTasks:
    """See TasksPort: tasks that can be integrated, each once, by request_id."""

    def __init__(self, place: Place | None = None) -> None:
        self.where = place
        self.tasks: dict[str, TaskFacts] = {}
        self.done: dict[str, tuple[Wanted, Kind, Recorded]] = {}
        self.trouble: list[FencepostError] = []
        # What happens after something was written and before the answer is heard.
        self.lost: list[FencepostError] = []
        self.records = 0
        self.reports: dict[str, Claim] = {}
        self.findings: list[tuple[EvidenceFinding, str]] = []

    def add(self, task_id: str = TASK, *, state: int = ACCEPTED, **facts: Any) -> None:
        """Let there be a task."""
        given: dict[str, Any] = {"project_id": PROJECT, "version": 7, "assignee_id": uuid_of("ann")}
        self.tasks[task_id] = TaskFacts(task_id=task_id, state=state, **{**given, **facts})

    async def task(self, task_id: str) -> TaskFacts:
        """See TasksPort."""
        if task_id not in self.tasks:
            raise Refused("not_found", "no task has this id; nothing was written")
        return self.tasks[task_id]

    async def record(self, wanted: Wanted, kind: Kind) -> Recorded:
        """See TasksPort."""
        if self.trouble:
            raise self.trouble.pop(0)
        known = self.done.get(wanted.request_id)
        if known is not None:
            if known[:2] != (wanted, kind):
                raise Refused("request_conflict", "other content; nothing was written")
            return known[2]
        facts = self.tasks[wanted.task_id]
        if facts.state != ACCEPTED:
            raise Refused("invalid_state", "it is not accepted; nothing was written")
        self.records += 1
        self.add(wanted.task_id, state=INTEGRATED, version=facts.version + 1)
        recorded = Recorded(
            task_id=wanted.task_id,
            revision=1,
            version=facts.version + 1,
            at_ms=1,
            sequence=self.records,
            duplicate=False,
        )
        self.done[wanted.request_id] = (wanted, kind, recorded)
        if self.lost:
            raise self.lost.pop(0)
        return recorded

    async def evidence(self, task_id: str, evidence_ids: Sequence[str]) -> Sequence[EvidenceReported]:
        """See TasksPort."""
        if any(one not in self.reports for one in evidence_ids):
            raise Refused("invalid_evidence", "the task does not have it; nothing was read")
        return [EvidenceReported(evidence_id=one, claim=self.reports[one]) for one in evidence_ids]

    async def record_finding(self, task_id: str, finding: EvidenceFinding, asked_by: str) -> int:
        """See TasksPort."""
        if self.trouble:
            raise self.trouble.pop(0)
        self.findings.append((finding, asked_by))
        return len(self.findings)

    async def place(self, project_id: str) -> Place | None:
        """See TasksPort."""
        return self.where if project_id == PROJECT else None


class CarrierBench:
    """A running carrier with the fakes around it."""

    def __init__(self, folder: Path, *, sweep_ms: int = 3_600_000) -> None:
        self.home = Home(folder)
        self.sessions = FakeSessions()
        self.mailbox = FakeMailbox()
        self.tasks = FakeTasks()
        self.adapter = FakeAdapter()
        self.adapters = Adapters({"fake": self.adapter}, {"broken": "it cannot be loaded"})
        self.clock = HurriedClock()
        self._settings = Settings(sweep_ms=sweep_ms)
        self._stack = contextlib.AsyncExitStack()

    def agent(self, who: str, *, desired: Desired = Desired.ON, **facts: Any) -> Agent:
        """An agent of the fake program with a workspace; not told yet."""
        workspace = self.home.path / "work" / who
        workspace.mkdir(parents=True, exist_ok=True)
        given: dict[str, Any] = {
            "agent_id": uuid_of(who),
            "project_id": PROJECT,
            "name": who,
            "provider": "fake",
            "workspace": str(workspace),
            "desired": desired,
        }
        return Agent(**{**given, **facts})

    def hold(self, name: str, role: Role, *, project_id: str = PROJECT) -> None:
        """Give somebody a credential. Before start()."""
        is_agent = role in {Role.AGENT, Role.COORDINATOR}
        self.sessions.holders.append(
            Holder(
                credential_id=fingerprint(token_of(name))[:16],
                token_sha256=fingerprint(token_of(name)),
                role=role.value,
                agent_id=uuid_of(name) if is_agent else "",
                project_id=project_id if is_agent else "",
                generation=1,
                label=name,
            )
        )

    async def start(self) -> None:
        """Start the carrier."""
        self.home.prepare()
        self._stack = contextlib.AsyncExitStack()
        self.carrying = Carrying(
            home=self.home,
            links=lambda _dispatcher: (self.sessions, self.mailbox, self.tasks),
            adapters=self.adapters,
            settings=self._settings,
            registry=CollectorRegistry(),
            clock=self.clock,
        )
        await self._stack.enter_async_context(self.carrying.running())

    async def stop(self) -> None:
        """Stop it, as at a stop of the service."""
        await self._stack.aclose()

    def keeper(self, name: str) -> Keeper:
        """The keeper of an agent."""
        keeper = self.carrying.roster.keeper(uuid_of(name))
        assert keeper is not None, f"nobody keeps {name}"
        return keeper

    async def sweep_until(self, count: int) -> None:
        """Sweep until so much was found, and no more.

        One sweep passes a keeper by that something else wakes in that moment, an echo of its own report for example.
        """
        roster, end = self.carrying.roster, time.monotonic() + WAIT_S_MAX
        while roster.swept < count:
            assert time.monotonic() < end, f"{roster.swept} and not {count} were found within {WAIT_S_MAX} s"
            await roster.sweep_once()
        assert roster.swept == count

    async def kept(self, name: str, **facts: Any) -> FakeRuntime:
        """Tell of an agent that is to run, and wait for its first runtime."""
        count = len(self.adapter.runtimes)
        self.sessions.tell(self.agent(name, **facts))
        return await self.next_runtime(count, name)

    async def next_runtime(self, count: int, name: str) -> FakeRuntime:
        """Wait until a runtime beyond `count` is ready."""
        await until(lambda: len(self.adapter.runtimes) > count, "another runtime")
        runtime = self.adapter.runtimes[-1]
        await until(lambda: (life := self.keeper(name).life) is not None and life.runtime is runtime, "it being ready")
        return runtime

    def change(self, name: str, **facts: Any) -> None:
        """Let a person change an agent."""
        self.sessions.tell(replace(self.sessions.agents[uuid_of(name)], **facts))


@contextlib.asynccontextmanager
async def a_carrier(folder: Path, **options: Any) -> AsyncIterator[CarrierBench]:
    """A running carrier."""
    bench = CarrierBench(folder, **options)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.stop()


def closed(detail: str = "it died") -> Closed:
    """The end of a program that nobody asked for."""
    return Closed(intended=False, detail=detail, exit_code=9)
