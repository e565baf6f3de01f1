"""Random histories of tasks over a real store, judged against a model that knows nothing of the code's tables.

The model says of every call whether it must succeed, and after each step what stands: every task, every queue, every
execution slot, every supervision set and every notification.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost_kit.refusal import Refusal
from fencepost_mailbox.domain.tasks.values import Action, Certainty, Notice, State
from fencepost_testing.histories import ends_before_it_began
from fencepost_testing.mailboxes import id16
from fencepost_testing.task_desk import OPERATOR, TaskDesk

AGENTS = ("ann", "bob", "cyd")
COORDINATOR = "cyd"
OUT = {"accepted", "integrated", "cancelled", "failed", "expired"}
HOLDS = {"running", "cancel_requested"}


@dataclass(eq=False)
class Job:
    """A task in the model."""

    task_id: bytes
    issuer: str | None
    assignee: str | None
    reviewer: str | None
    state: str
    eligible: frozenset[str] = frozenset()
    after: list[Job] = field(default_factory=list)
    revision: int = 1
    version: int = 1
    place: int = 0
    unknown: bool = False
    archived: bool = False
    started: bool = False
    deadline: int = 0
    limit_s: int = 0
    since: int = 0
    waits_for: str = ""
    supervised: bool = False
    notices: set[tuple[str, str]] = field(default_factory=set)

    def waiting(self) -> bool:
        """Whether a prerequisite is open."""
        return any(one.state not in ("accepted", "integrated") for one in self.after)

    def sees(self, who: str) -> bool:
        """Whether somebody may know of it."""
        if who in (OPERATOR, COORDINATOR):
            return True
        return who in (self.issuer, self.assignee, self.reviewer) or (self.assignee is None and who in self.eligible)


class Model:
    """Every task there is, and what the clock and lives make of it."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.lives = dict.fromkeys(AGENTS, 1)
        self.places = 0

    def slot(self, who: str) -> Job | None:
        """What an agent has in execution."""
        return next((job for job in self.jobs if job.assignee == who and job.state in HOLDS), None)

    def queue(self, who: str) -> list[Job]:
        """An agent's queue, in order."""
        waiting = [job for job in self.jobs if job.assignee == who and job.state == "queued" and not job.archived]
        return sorted(waiting, key=lambda job: job.place)

    def owns(self, who: str, job: Job) -> bool:
        """Whether somebody may steer a task."""
        return who in (OPERATOR, job.issuer)

    def put(self, job: Job, *, again: bool) -> None:
        """Queue a task, or block it; at the end of the queue where it comes anew."""
        was, job.state = job.state, "blocked" if job.waiting() else "queued"
        if job.state == "queued" and (again or was != "queued"):
            self.places += 1
            job.place = self.places
        if again:
            job.revision, job.unknown, job.waits_for = job.revision + 1, False, ""

    def touched(self, job: Job, actor: str | None, now: int, was: str, tells: dict[str, str | None]) -> None:
        """Count a change, tell who is to be told, and let go of what no longer stands."""
        job.version += 1
        if job.state != was:
            job.since = now
        self.forget(job)
        for notice, agent in tells.items():
            if agent is not None and agent != actor:
                job.notices.add((agent, notice))
        self.forget(job)
        if job.issuer is not None:
            if job.archived:
                job.supervised = False
            elif job.state not in OUT:
                job.supervised = True
            elif actor == job.issuer and job.state in ("accepted", "integrated", "cancelled"):
                job.supervised = False

    def forget(self, job: Job) -> None:
        """Drop every notification whose time is over."""
        stands = {
            "assigned": job.state == "queued" and job.assignee,
            "rework": job.state == "queued" and job.assignee,
            "pool": job.state == "queued" and not job.assignee and "*",
            "review": job.state == "submitted" and job.reviewer,
            "stop": job.state == "cancel_requested" and job.assignee,
            "resume": job.state == "running" and job.unknown and job.assignee,
            "unknown": job.state in HOLDS and job.unknown and job.issuer,
            "waiting": job.state in HOLDS and not job.unknown and job.waits_for and job.issuer,
            "accepted": job.state in ("accepted", "integrated") and job.issuer,
            "failed": job.state == "failed" and job.issuer,
            "expired": job.state == "expired" and job.issuer,
            "cancelled": job.state == "cancelled" and job.issuer,
        }
        job.notices = {
            (agent, notice)
            for agent, notice in job.notices
            if not job.archived and stands[notice] and stands[notice] in (agent, "*")
        }

    def unblock(self, now: int) -> None:
        """Queue what waits for nothing any more, in the order of ids."""
        for job in sorted(self.jobs, key=lambda one: one.task_id):
            if job.state == "blocked" and not job.archived and not job.waiting() and job.after:
                self.put(job, again=False)
                self.touched(job, None, now, "blocked", self.queued(job))

    def queued(self, job: Job) -> dict[str, str | None]:
        """Whom a task tells that has come into a queue; a pool tells those it names."""
        for who in job.eligible if job.assignee is None and job.state == "queued" else ():
            job.notices.add((who, "pool"))
        return {"assigned": job.assignee}

    def waits_for_itself(self, job: Job, after: list[Job]) -> bool:
        """Whether a task would wait for itself."""
        seen: list[Job] = []
        waiting = list(after)
        while waiting:
            one = waiting.pop()
            if one is job:
                return True
            if one not in seen:
                seen.append(one)
                waiting += one.after
        return False


class TaskMachine(RuleBasedStateMachine):
    """Drives a desk and the model alike."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.runner = self.stack.enter_context(asyncio.Runner())
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.desk = TaskDesk(Path(folder) / "mailbox" / "mailbox.db", *AGENTS)
        self.model = Model()

    @initialize(
        given=st.lists(
            st.tuples(st.sampled_from(AGENTS), st.sampled_from(AGENTS), st.booleans()), min_size=2, max_size=4
        )
    )
    def begin(self, given: list[tuple[str, str, bool]]) -> None:
        """Start with some work: which rules a history has is drawn too, and one without tasks is none."""
        self.run(self.desk.start())
        self.stack.callback(lambda: self.run(self.desk.stop()))
        for number, (issuer, to, dated) in enumerate(given):
            reviewer = next(who for who in AGENTS if who != to)
            self.assign(issuer, to, reviewer, [0] if number % 2 else [], dated=dated)
        self.pool("ann", frozenset({"bob", "cyd"}))

    def teardown(self) -> None:
        self.stack.close()

    def run(self, call: Awaitable[Any]) -> Any:
        async def within() -> Any:
            async with asyncio.timeout(10):
                return await call

        return self.runner.run(within())

    def attempt(self, call: Awaitable[Any], *, allowed: bool) -> Any:
        """Make a call; it is refused exactly where the model says so."""
        try:
            answer = self.run(call)
        except Refusal:
            if allowed:
                raise
            return None
        assert allowed, f"allowed, but the model refuses it: {answer}"
        return answer

    @property
    def now(self) -> int:
        return self.desk.clock.now_ms()

    def job(self, pick: int) -> Job:
        return self.model.jobs[-1 - pick % len(self.model.jobs)]

    def life(self, who: str) -> dict[str, int]:
        return {} if who == OPERATOR else {"generation": self.model.lives[who]}

    def choose(self, who: str, pick: int, allowed: Callable[[str, Job], bool], *, fair: bool) -> tuple[str, Job]:
        """Whoever may do it to whatever it may be done to, where a fair call is wanted and possible; else anybody."""
        found = [
            (one, job)
            for job in (self.model.jobs if fair else ())
            for one in (*AGENTS, OPERATOR)
            if not job.archived and job.sees(one) and allowed(one, job)
        ]
        return found[pick % len(found)] if found else (who, self.job(pick))

    # Mostly what is possible: refused calls alone lead nowhere.
    FAIR = st.sampled_from((True, True, True, False))
    WHO = st.sampled_from(AGENTS)
    ANYBODY = st.sampled_from((*AGENTS, OPERATOR))
    PICK = st.integers(0, 5)
    PICKS = st.lists(st.integers(0, 7), max_size=2, unique=True)

    def wanted(self, picks: list[int]) -> list[Job]:
        found: list[Job] = []
        for pick in picks if self.model.jobs else ():
            if self.job(pick) not in found:
                found.append(self.job(pick))
        return found

    def create(self, issuer: str, job: Job, change: Any) -> None:
        job.task_id = change.event.task_id
        self.model.put(job, again=False)
        self.model.jobs.append(job)
        job.version -= 1
        self.model.touched(job, issuer, self.now, "", self.model.queued(job))
        job.notices.discard((issuer, "pool"))
        job.since = self.now

    @rule(issuer=ANYBODY, to=WHO, reviewer=st.sampled_from(("", *AGENTS)), after=PICKS, dated=st.booleans())
    def assign(self, issuer: str, to: str, reviewer: str, after: list[int], *, dated: bool) -> None:
        reviews = reviewer or (None if issuer == OPERATOR else issuer)
        after_jobs = self.wanted(after)
        deadline = self.now + 3000 if dated else 0
        call = self.desk.assigning(
            issuer,
            to,
            after=[one.task_id for one in after_jobs],
            reviewer=reviewer,
            start_deadline_ms=deadline,
            execution_timeout_s=5 if dated else 0,
            **self.life(issuer),
        )
        change = self.attempt(call, allowed=reviews != to)
        if change is not None:
            giver = None if issuer == OPERATOR else issuer
            job = Job(b"", giver, to, reviews, "", after=after_jobs, deadline=deadline, limit_s=5 if dated else 0)
            self.create(issuer, job, change)

    @rule(issuer=WHO, eligible=st.frozensets(WHO, min_size=1))
    def pool(self, issuer: str, eligible: frozenset[str]) -> None:
        call = self.desk.assigning(issuer, "", pool=True, eligible=tuple(sorted(eligible)), **self.life(issuer))
        change = self.attempt(call, allowed=issuer not in eligible)
        if change is not None:
            self.create(issuer, Job(b"", issuer, None, issuer, "", eligible=eligible), change)

    def act(self, who: str, action: Action, job: Job, *, allowed: bool, **options: Any) -> bool:
        if options.get("expected_version"):
            allowed = allowed and options["expected_version"] == job.version
        call = self.desk.act(who, action, job.task_id, **self.life(who), **options)
        return self.attempt(call, allowed=allowed and not job.archived and job.sees(who)) is not None

    @precondition(lambda self: self.model.jobs)
    @rule(who=WHO, pick=PICK, fair=FAIR)
    def claim(self, who: str, pick: int, *, fair: bool) -> None:
        def may(who: str, job: Job) -> bool:
            waits = job.assignee is None and job.state == "queued" and who in job.eligible
            return waits and self.model.slot(who) is None

        who, job = self.choose(who, pick, may, fair=fair)
        if self.act(who, Action.CLAIM, job, allowed=may(who, job)):
            job.state, job.assignee, job.started = "running", who, True
            self.model.touched(job, who, self.now, "queued", {})

    @precondition(lambda self: self.model.jobs)
    @rule(who=WHO, pick=PICK, fair=FAIR, older=st.sampled_from((False, False, True)))
    def start_task(self, who: str, pick: int, *, fair: bool, older: bool) -> None:
        def may(who: str, job: Job) -> bool:
            first = self.model.queue(who)[:1] == [job] and self.model.slot(who) is None
            in_time = not job.deadline or job.started or self.now < job.deadline
            resumes = job.state == "running" and job.unknown
            return job.assignee == who and (resumes or (first and in_time))

        who, job = self.choose(who, pick, may, fair=fair)
        was = job.state
        version = job.version - 1 if older and job.version > 1 else job.version
        if self.act(who, Action.START, job, allowed=may(who, job), expected_version=version):
            job.state, job.unknown, job.started = "running", False, True
            self.model.touched(job, who, self.now, was, {})
            job.since = self.now

    @precondition(lambda self: self.model.jobs)
    @rule(who=WHO, pick=PICK, fair=FAIR, waits_for=st.sampled_from(("", "an answer")))
    def progress(self, who: str, pick: int, waits_for: str, *, fair: bool) -> None:
        def may(who: str, job: Job) -> bool:
            return job.assignee == who and job.state in HOLDS and not job.unknown

        who, job = self.choose(who, pick, may, fair=fair)
        if self.act(who, Action.PROGRESS, job, allowed=may(who, job), wait_reason=waits_for):
            job.waits_for = waits_for
            self.model.touched(job, who, self.now, job.state, {"waiting": job.issuer})

    @precondition(lambda self: self.model.jobs)
    @rule(who=WHO, pick=PICK, fair=FAIR, fails=st.sampled_from((False, False, True)))
    def end(self, who: str, pick: int, *, fair: bool, fails: bool) -> None:
        def may(who: str, job: Job) -> bool:
            return job.assignee == who and job.state == "running" and not job.unknown

        who, job = self.choose(who, pick, may, fair=fair)
        if self.act(who, Action.FAIL if fails else Action.SUBMIT, job, allowed=may(who, job)):
            job.state, job.waits_for = "failed" if fails else "submitted", ""
            tells = {"failed": job.issuer} if fails else {"review": job.reviewer}
            self.model.touched(job, who, self.now, "running", tells)

    @precondition(lambda self: self.model.jobs)
    @rule(who=ANYBODY, pick=PICK, fair=FAIR, accepts=st.booleans())
    def review(self, who: str, pick: int, *, fair: bool, accepts: bool) -> None:
        def may(who: str, job: Job) -> bool:
            return job.state == "submitted" and who in (OPERATOR, job.reviewer)

        who, job = self.choose(who, pick, may, fair=fair)
        if self.act(who, Action.ACCEPT if accepts else Action.REJECT, job, allowed=may(who, job)):
            if accepts:
                job.state = "accepted"
                self.model.touched(job, who, self.now, "submitted", {"accepted": job.issuer})
                self.model.unblock(self.now)
            else:
                self.model.put(job, again=True)
                self.model.touched(job, who, self.now, "submitted", {"rework": job.assignee})

    @precondition(lambda self: self.model.jobs)
    @rule(who=WHO, pick=PICK, fair=FAIR)
    def integrate(self, who: str, pick: int, *, fair: bool) -> None:
        def may(who: str, job: Job) -> bool:
            return job.state == "accepted" and who == COORDINATOR

        who, job = self.choose(who, pick, may, fair=fair)
        if self.act(who, Action.INTEGRATE, job, allowed=may(who, job)):
            job.state = "integrated"
            self.model.touched(job, who, self.now, "accepted", {})

    @precondition(lambda self: self.model.jobs)
    @rule(who=ANYBODY, pick=PICK)
    def cancel(self, who: str, pick: int) -> None:
        job, was = self.job(pick), self.job(pick).state
        allowed = self.model.owns(who, job) and was in ("blocked", "queued", "submitted", "running")
        if self.act(who, Action.CANCEL, job, allowed=allowed):
            job.state = "cancel_requested" if was == "running" else "cancelled"
            tells = {"stop": job.assignee, "cancelled": job.issuer}
            self.model.touched(job, who, self.now, was, tells)

    @precondition(lambda self: self.model.jobs)
    @rule(who=WHO, pick=PICK, fair=FAIR)
    def finish_cancel(self, who: str, pick: int, *, fair: bool) -> None:
        def may(who: str, job: Job) -> bool:
            return job.assignee == who and job.state == "cancel_requested"

        who, job = self.choose(who, pick, may, fair=fair)
        if self.act(who, Action.FINISH_CANCEL, job, allowed=may(who, job)):
            job.state, job.unknown = "cancelled", False
            self.model.touched(job, who, self.now, "cancel_requested", {"cancelled": job.issuer})

    def again(self, who: str, job: Job, was: str, to: str | None = None) -> None:
        if to is not None:
            job.assignee, job.eligible = to, frozenset()
        job.deadline, job.started = 0, False
        self.model.put(job, again=True)
        self.model.touched(job, who, self.now, was, self.model.queued(job))
        job.notices.discard((who, "pool"))

    @precondition(lambda self: self.model.jobs)
    @rule(who=ANYBODY, pick=PICK, fair=FAIR)
    def retry(self, who: str, pick: int, *, fair: bool) -> None:
        def may(who: str, job: Job) -> bool:
            return self.model.owns(who, job) and job.state in ("failed", "expired", "cancelled")

        who, job = self.choose(who, pick, may, fair=fair)
        was = job.state
        if self.act(who, Action.RETRY, job, allowed=may(who, job)):
            self.again(who, job, was)

    @precondition(lambda self: self.model.jobs)
    @rule(who=ANYBODY, pick=PICK, fair=FAIR, to=WHO)
    def reassign(self, who: str, pick: int, to: str, *, fair: bool) -> None:
        def may(who: str, job: Job) -> bool:
            free = job.state in ("blocked", "queued", "failed", "expired", "cancelled")
            return self.model.owns(who, job) and free and to != job.reviewer

        who, job = self.choose(who, pick, may, fair=fair)
        was = job.state
        if self.act(who, Action.REASSIGN, job, allowed=may(who, job), target=to):
            self.again(who, job, was, to)

    @precondition(lambda self: self.model.jobs)
    @rule(who=ANYBODY, pick=PICK, fair=FAIR, after=PICKS)
    def depend(self, who: str, pick: int, after: list[int], *, fair: bool) -> None:
        wanted = self.wanted(after)

        def may(who: str, job: Job) -> bool:
            unstarted = self.model.owns(who, job) and job.state in ("blocked", "queued")
            return unstarted and not self.model.waits_for_itself(job, wanted)

        who, job = self.choose(who, pick, may, fair=fair)
        was, prerequisites = job.state, tuple(one.task_id for one in wanted)
        if self.act(who, Action.SET_DEPENDENCIES, job, allowed=may(who, job), prerequisites=prerequisites):
            job.after = wanted
            self.model.put(job, again=False)
            again = {notice for _, notice in job.notices} & {"assigned", "rework"}
            told = self.model.queued(job)
            self.model.touched(job, who, self.now, was, {} if "assigned" in again else told)
            job.notices.discard((who, "pool"))

    @precondition(lambda self: self.model.jobs)
    @rule(pick=PICK, fair=FAIR, to=st.sampled_from((None, "cancel", *AGENTS)))
    def override(self, pick: int, to: str | None, *, fair: bool) -> None:
        def may(who: str, job: Job) -> bool:
            return who == OPERATOR and job.state in HOLDS and (job.unknown or job.state == "cancel_requested")

        who, job = self.choose(OPERATOR, pick, may, fair=fair)
        was, allowed = job.state, may(who, job)
        if to == "cancel":
            if self.act(OPERATOR, Action.OVERRIDE_CANCEL, job, allowed=allowed):
                job.state, job.unknown = "cancelled", False
                self.model.touched(job, None, self.now, was, {"cancelled": job.issuer})
        elif to is None:
            if self.act(OPERATOR, Action.OVERRIDE_RETRY, job, allowed=allowed):
                self.again(OPERATOR, job, was)
        elif self.act(OPERATOR, Action.OVERRIDE_REASSIGN, job, allowed=allowed and to != job.reviewer, target=to):
            self.again(OPERATOR, job, was, to)

    @precondition(lambda self: self.model.jobs)
    @rule(who=ANYBODY, pick=PICK)
    def archive(self, who: str, pick: int) -> None:
        job = self.job(pick)
        if self.act(who, Action.ARCHIVE, job, allowed=self.model.owns(who, job) and job.state in OUT):
            job.archived = True
            self.model.touched(job, who, self.now, job.state, {})

    @precondition(lambda self: self.model.jobs)
    @rule(who=WHO, pick=PICK)
    def acknowledge(self, who: str, pick: int) -> None:
        job = self.job(pick)
        mine = job.issuer == who and job.supervised
        if self.model.lives[who] != 1:
            return  # the desk acknowledges as a first life
        answer = self.attempt(self.desk.acknowledge(who, job.task_id), allowed=not mine or job.state in OUT)
        if answer:
            job.supervised = False
            job.notices -= {(who, notice) for notice in ("accepted", "failed", "expired", "cancelled")}

    @precondition(lambda self: self.model.jobs)
    @rule(pick=PICK, well=st.sampled_from((True, True, False)))
    def go_on(self, pick: int, *, well: bool) -> None:
        """Do to a task what its state asks for: random calls alone hardly ever lead anywhere."""
        job = self.job(pick)
        mine = {"pick": pick, "fair": False}
        if job.state == "queued" and job.assignee is None:
            self.claim(min(job.eligible), **mine)
        elif job.state == "queued" and job.assignee is not None:
            # Where it is not the first of its queue, whatever may be started is.
            first = self.model.queue(job.assignee)[:1]
            self.start_task(job.assignee, pick, fair=first != [job], older=False)
        elif job.state == "running" and job.assignee is not None:
            if job.unknown:
                self.start_task(job.assignee, **mine, older=False)
            else:
                self.end(job.assignee, **mine, fails=not well)
        elif job.state == "submitted":
            self.review(job.reviewer or OPERATOR, **mine, accepts=well)
        elif job.state == "cancel_requested" and job.assignee is not None:
            self.finish_cancel(job.assignee, **mine)
        elif job.state in OUT:
            self.retry(job.issuer or OPERATOR, **mine)

    @precondition(lambda self: self.model.jobs)
    @rule(pick=PICK)
    def an_assignee_tries_to_start(self, pick: int) -> None:
        """Out of turn, beside other work, too late, blocked: whatever is the case."""
        job = self.job(pick)
        if job.assignee is not None:
            self.start_task(job.assignee, pick, fair=False, older=False)

    @precondition(lambda self: self.model.jobs)
    @rule(picks=st.lists(PICK, min_size=2, max_size=6))
    def go_far(self, picks: list[int]) -> None:
        """Go on with several tasks, one after the other, each time judged."""
        for pick in picks:
            self.go_on(pick, well=True)
            self.everything_is_what_the_model_says()

    @rule(who=WHO, sees=st.booleans())
    def a_later_life_begins(self, who: str, *, sees: bool) -> None:
        self.model.lives[who] += 1
        life = self.model.lives[who]
        self.run(self.desk.given(who, generation=life) if sees else self.desk.open(who, life))
        job = self.model.slot(who)
        if job is not None and not job.unknown:
            job.unknown = True
            self.model.touched(job, None, self.now, job.state, {"unknown": job.issuer, "resume": who})

    @rule(ms=st.sampled_from((1, 1000, 3000)))
    def time_passes(self, ms: int) -> None:
        self.run(self.desk.pass_time(ms))
        for job in self.model.jobs:
            if job.archived:
                continue
            if job.state in ("blocked", "queued") and job.deadline and not job.started and job.deadline <= self.now:
                was, job.state = job.state, "expired"
                self.model.touched(job, None, self.now, was, {"expired": job.issuer})
            elif job.state == "running" and job.limit_s and job.since + job.limit_s * 1000 <= self.now:
                job.state = "cancel_requested"
                self.model.touched(job, None, self.now, "running", {"stop": job.assignee})

    @rule(often=st.sampled_from((False, False, False, True)))
    def the_service_restarts(self, *, often: bool) -> None:
        if often:
            self.run(self.desk.restart())

    @invariant()
    def everything_is_what_the_model_says(self) -> None:
        self.every_task_is_what_the_model_says()
        self.every_queue_and_slot_is_what_the_model_says()
        self.every_notification_is_what_the_model_says()

    def every_task_is_what_the_model_says(self) -> None:
        for job in self.model.jobs:
            task = self.desk.task(job.task_id)
            assert (task.state.name.lower(), task.revision, task.version) == (job.state, job.revision, job.version)
            assert task.assignee == (None if job.assignee is None else id16(job.assignee))
            assert (task.certainty is Certainty.UNKNOWN) is job.unknown
            assert (task.archived, task.wait_reason) == (job.archived, job.waits_for)
            assert (task.attempt_id is not None) >= (job.state in HOLDS)
            if job.issuer is not None:
                assert self.desk.supervises(job.issuer, job.task_id) is job.supervised
            events = self.desk.store.read.tasks.events(job.task_id, 0, 1000)
            assert [event.version for event in events] == list(range(1, job.version + 1))
            assert State(events[-1].to_state) is task.state

    def every_queue_and_slot_is_what_the_model_says(self) -> None:
        read = self.desk.store.read.tasks if self.model.jobs else None
        for who in AGENTS if read is not None else ():
            queue, slot = self.model.queue(who), self.model.slot(who)
            assert read.first_queued(id16(who)) == (queue[0].task_id if queue else None)
            executing = read.executing(id16(who))
            assert (executing.task_id if executing else None) == (slot.task_id if slot else None)

    def every_notification_is_what_the_model_says(self) -> None:
        for who in AGENTS if self.model.jobs else ():
            found = {(one.task_id, one.notice) for one in self.desk.store.read.tasks.notifications(id16(who), 0, 1000)}
            wanted = {
                (job.task_id, Notice[notice.upper()])
                for job in self.model.jobs
                for agent, notice in job.notices
                if agent == who
            }
            assert found == wanted


TestTaskMachine = pytest.mark.requirement(
    "tasks.a-model-agrees-with-every-history",
    "tasks.a-queue-is-worked-off-in-order",
    "tasks.one-task-is-executed-at-a-time",
    "tasks.a-lost-life-makes-an-attempt-unknown",
    "supervision.only-the-matching-transition-consumes-a-notification",
    "supervision.an-entry-leaves-when-its-outcome-is-handled",
)(TaskMachine.TestCase)
TestTaskMachine.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def test_a_history_that_never_began_leaves_nothing_behind() -> None:
    ends_before_it_began(TaskMachine)
