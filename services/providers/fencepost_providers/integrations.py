"""Integrating: accepted work comes into the main checkout all or nothing, and is recorded exactly once. T051.

What is about to happen is on disk before a branch moves; after a crash the branch itself says whether it did. A call
goes on to its end when its caller has gone; the same request_id joins it, and later answers what it did. One repository
is worked on by one call at a time; other programs are kept out by git's own locks and by compare-and-swap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost_kit import faults, logs
from fencepost_kit.clock import Clock
from fencepost_kit.refusal import DependencyDown, Draining, Overloaded, Refusal
from fencepost_providers.domain.integration import (
    ACCEPTED,
    INTEGRATED,
    Integrated,
    Intent,
    Kind,
    Recorded,
    TaskFacts,
    Wanted,
    author_mail,
    author_name,
    merge_message,
)
from fencepost_providers.domain.refusals import (
    BranchMoved,
    ChangeTooLarge,
    GitFailed,
    GitUnavailable,
    InvalidState,
    NoMainCheckout,
    NotFound,
    RequestConflict,
    TaskRefused,
    VersionConflict,
)
from fencepost_providers.links import TasksPort
from fencepost_providers.processes.child import to_the_end
from fencepost_providers.repository import checkout as git
from fencepost_providers.repository.checkout import Checkout, Signature
from fencepost_providers.repository.git import Git, check_version
from fencepost_providers.store.protocol import Store

# Until the branch moves: waiting for others in the repository, fetching, merging and looking included.
PREPARE_MS_MAX: Final = 110_000
RECOVERED_MS_MAX: Final = 10_000
JOBS_MAX: Final = 64
RECORD_AGAIN_MS_MIN: Final = 100
RECORD_AGAIN_MS_MAX: Final = 5_000

INTENDED: Final = faults.register("providers.integration.intended", "an integration is on disk, no branch has moved")
MOVED: Final = faults.register("providers.integration.moved", "the branch has moved, the working tree has not")
FOLLOWED: Final = faults.register(
    "providers.integration.followed", "the working tree has followed, nothing is recorded"
)
RECORDED: Final = faults.register("providers.integration.recorded", "the mailbox has it, the intent is still on disk")

_SAME_REASON: Final[Mapping[str, type[Refusal]]] = {
    one.reason: one for one in (NotFound, InvalidState, VersionConflict, RequestConflict)
}
# A refusal for one of these says something about this process or the moment, not about the task.
_OURS: Final = frozenset({"unauthenticated", "permission_denied", "directory_stale"})
_log: Final = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A call with what the directory knows of it."""

    wanted: Wanted
    project_id: str
    coordinator: str
    worker: Callable[[str], str]

    @property
    def content(self) -> tuple[str, ...]:
        """What has to be the same where the request_id is. The version was checked by whoever came first."""
        return _content(self.wanted)


def _content(wanted: Wanted) -> tuple[str, ...]:
    return (wanted.task_id, wanted.commit, wanted.note, wanted.coordinator_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    content: tuple[str, ...]
    task: asyncio.Task[Integrated]


def refusal_of(error: FencepostError) -> Refusal:
    """Return what another service's answer means where nothing was written yet."""
    if not isinstance(error, Refused) or error.may_resend or error.reason in _OURS:
        return DependencyDown(
            "the mailbox or the directory did not answer as it should; nothing was changed",
            hint="`fencepost status` shows what runs; call again with the same request_id.",
            state={"cause": error.reason},
        )
    known = _SAME_REASON.get(error.reason, TaskRefused)
    return known(error.message, hint=error.hint, state={**error.state, "cause": error.reason})


class Integrations:
    """Every integration of this process."""

    def __init__(self, *, store: Store, tasks: TasksPort, clock: Clock, environ: Mapping[str, str]) -> None:
        self._store = store
        self._tasks = tasks
        self._clock = clock
        self._environ = environ
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._jobs: dict[str, _Job] = {}
        self._recovered = asyncio.Event()
        self._stopping = False
        self._git_is_new_enough = False

    # --- calls ------------------------------------------------------------------------------------------------------

    async def integrate(self, work: Work) -> Integrated:
        """Bring accepted work into the main checkout and record it; it is done, on disk and recorded on return.

        A caller that is cancelled leaves the call to go on.

        Raises:
            Refusal: nothing was changed, except where TaskRefused says that the merge stands.
        """
        await self._when_recovered()
        job = self._jobs.get(work.wanted.request_id)
        if job is None:
            if len(self._jobs) >= JOBS_MAX:
                raise Overloaded(f"{JOBS_MAX} integrations are under way; nothing was changed")
            job = self._begin(work.wanted.request_id, work.content, self._run(work))
        elif job.content != work.content:
            raise _conflict()
        return await asyncio.shield(job.task)

    async def task(self, task_id: str) -> TaskFacts:
        """Return a task.

        Raises:
            Refusal: there is none, or the mailbox does not answer.
        """
        try:
            return await self._tasks.task(task_id)
        except FencepostError as error:
            raise refusal_of(error) from None

    async def _when_recovered(self) -> None:
        if self._stopping:
            raise Draining("providers is stopping; nothing was changed")
        try:
            async with asyncio.timeout(RECOVERED_MS_MAX / 1000):
                await self._recovered.wait()
        except TimeoutError:
            raise DependencyDown(
                "integrations of before this start are still being looked at; nothing was changed",
                hint="Call again with the same request_id.",
            ) from None

    def _begin(self, request_id: str, content: tuple[str, ...], run: Awaitable[Integrated]) -> _Job:
        task = asyncio.ensure_future(run)
        assert isinstance(task, asyncio.Task)
        job = _Job(content=content, task=task)
        self._jobs[request_id] = job
        task.add_done_callback(lambda done: self._ended(request_id, done))
        return job

    def _ended(self, request_id: str, task: asyncio.Task[Integrated]) -> None:
        self._jobs.pop(request_id, None)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Refusal):
            _log.exception("integration_failed", error, request=request_id)

    async def stop(self) -> None:
        """End every call that has not moved a branch yet; wait for a move to end. What is unrecorded stays on disk."""
        self._stopping = True
        jobs = [job.task for job in self._jobs.values()]
        for task in jobs:
            task.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    # --- one integration --------------------------------------------------------------------------------------------

    async def _run(self, work: Work) -> Integrated:
        wanted = work.wanted
        facts = await self.task(wanted.task_id)
        known = await self._checked(work, facts)
        if known is not None:
            return known
        if not wanted.commit:
            recorded = await self._recorded(wanted, Kind.RECORDED)
            detail = "No commit was named: this is only recorded, and nothing was merged."
            return Integrated(recorded=recorded, kind=Kind.RECORDED, detail=detail)
        try:
            async with asyncio.timeout(PREPARE_MS_MAX / 1000) as deadline:
                main = await self._main(work.project_id)
                lock = self._lock(main)
                async with lock:
                    return await self._in_repository(work, main, deadline)
        except TimeoutError:
            raise Overloaded(
                f"the repository was not free, or not ready, within {PREPARE_MS_MAX} ms; nothing was changed",
                hint="Call again with the same request_id.",
            ) from None

    async def _checked(self, work: Work, facts: TaskFacts) -> Integrated | None:
        """Return what this request_id did before, or None where the task can be integrated."""
        wanted = work.wanted
        if facts.state == INTEGRATED or facts.archived:
            return await self._replayed(wanted)
        if facts.state != ACCEPTED:
            raise InvalidState(
                "the task is not accepted, and only accepted work is integrated; nothing was changed",
                hint="task_get shows how it stands.",
            )
        if wanted.expected_version not in (0, facts.version):
            raise VersionConflict(
                "the task has changed since it was looked at; nothing was changed",
                hint="Look at it again with task_get, and call with its version.",
                state={"version": str(facts.version)},
            )
        return None

    async def _replayed(self, wanted: Wanted) -> Integrated:
        """Return what an earlier call with this request_id did, as the mailbox judges: it writes nothing any more.

        Asked only of a task that nothing leads back to accepted: else it could be accepted just now, and be recorded
        as merged without a merge.

        Raises:
            InvalidState: it did nothing. RequestConflict: it was another call.
        """
        kinds = (Kind.MERGED, Kind.CONTAINED) if wanted.commit else (Kind.RECORDED,)
        for kind in kinds:
            try:
                recorded = await self._tasks.record(wanted, kind)
            except Refused as refused:
                if refused.reason == RequestConflict.reason:
                    continue
                raise refusal_of(refused) from None
            except FencepostError as error:
                raise refusal_of(error) from None
            return Integrated(recorded=recorded, kind=kind, detail="An earlier call with this request_id did it.")
        raise _conflict()

    async def _main(self, project_id: str) -> Checkout:
        try:
            place = await self._tasks.place(project_id)
        except FencepostError as error:
            raise refusal_of(error) from None
        if place is None:
            raise NoMainCheckout("the directory knows no such project; nothing was changed")
        if not self._git_is_new_enough:
            await check_version(Git("/", self._environ))
            self._git_is_new_enough = True
        return await git.main_checkout(place, self._environ)

    def _lock(self, main: Checkout) -> asyncio.Lock:
        return self._locks.setdefault(main.common, asyncio.Lock())

    async def _in_repository(self, work: Work, main: Checkout, deadline: asyncio.Timeout) -> Integrated:
        wanted = work.wanted
        # Whoever had the repository before may have integrated this very task.
        facts = await self.task(wanted.task_id)
        known = await self._checked(work, facts)
        if known is not None:
            return known
        head = await git.head_of(main)
        await git.bring_commit(main, wanted.commit, work.worker(facts.assignee_id), self._environ)
        if await git.is_contained(main.git, wanted.commit, head.commit):
            deadline.reschedule(None)
            recorded = await self._recorded(wanted, Kind.CONTAINED)
            detail = "The branch contained the commit already; nothing was merged."
            return Integrated(
                recorded=recorded, kind=Kind.CONTAINED, branch=head.branch, head=head.commit, detail=detail
            )
        await git.check_at_rest(main)
        signature = Signature(
            name=author_name(work.coordinator),
            mail=author_mail(wanted.coordinator_id),
            at_s=self._clock.now_ms() // 1000,
        )
        new = await git.merged(main, head, wanted.commit, signature, merge_message(wanted, head.branch))
        await git.check_follows(main, head.commit, new)
        deadline.reschedule(None)
        intent = Intent(
            request_id=wanted.request_id,
            task_id=wanted.task_id,
            coordinator_id=wanted.coordinator_id,
            commit_id=wanted.commit,
            note=wanted.note,
            checkout=main.folder,
            branch=head.branch,
            old_id=head.commit,
            new_id=new,
            written_at_ms=self._clock.now_ms(),
        )
        follows = await to_the_end(self._moved(main, intent))
        return await self._told(intent, follows=follows)

    async def _moved(self, main: Checkout, intent: Intent) -> bool:
        """Move the branch and let the working tree follow; False where the branch moved and the tree could not.

        Raises:
            BranchMoved, StorageError: nothing was changed.
            GitFailed: it is not known whether the branch moved; the intent stays.
        """
        await self._store.intend_integration(intent)
        if faults.ARMED:
            faults.hit(INTENDED)
        why = f"fencepost: integrate {intent.task_id}"
        try:
            await git.move_branch(main, intent.branch, intent.old_id, intent.new_id, why)
        except BranchMoved:
            await self._store.forget_integration(intent.request_id)
            raise
        if faults.ARMED:
            faults.hit(MOVED)
        follows = await self._follows(main, intent)
        if faults.ARMED:
            faults.hit(FOLLOWED)
        return follows

    async def _follows(self, main: Checkout, intent: Intent) -> bool:
        try:
            if await git.follow(main, intent.branch, intent.old_id, intent.new_id):
                return True
            await git.move_branch(
                main, intent.branch, intent.new_id, intent.old_id, f"fencepost: undo {intent.task_id}"
            )
        except (GitFailed, GitUnavailable, BranchMoved, ChangeTooLarge) as refusal:
            _log.error("checkout_behind", reason=refusal.reason, checkout=main.folder, branch=intent.branch)
            return False
        await self._store.forget_integration(intent.request_id)
        raise git.moved_meanwhile(intent.branch)

    # --- recording --------------------------------------------------------------------------------------------------

    async def _told(self, intent: Intent, *, follows: bool) -> Integrated:
        wanted = _wanted_of(intent)
        try:
            recorded = await self._recorded(wanted, Kind.MERGED, certain=True)
        except Refusal as refusal:
            _log.warning("integration_not_recorded", reason=refusal.reason, task=intent.task_id, head=intent.new_id)
            await self._store.forget_integration(intent.request_id)
            raise TaskRefused(
                f"the commit is merged into {_short(intent.branch)}, and the mailbox does not record that:"
                f" {refusal.message}",
                hint="Look at the task. Where it is still accepted, call again with a new request_id: what is contained"
                " is recorded.",
                state={"cause": refusal.reason, "head": intent.new_id, "branch": intent.branch},
            ) from None
        if faults.ARMED:
            faults.hit(RECORDED)
        await self._store.forget_integration(intent.request_id)
        forward = intent.new_id == intent.commit_id
        done = "went forward to the commit" if forward else "has a merge of the commit"
        behind = "" if follows else " The working tree could not follow: `git status` there shows how it differs."
        return Integrated(
            recorded=recorded,
            kind=Kind.MERGED,
            branch=intent.branch,
            head=intent.new_id,
            fast_forward=forward,
            detail=f"{_short(intent.branch)} {done}.{behind}",
        )

    async def _recorded(self, wanted: Wanted, kind: Kind, *, certain: bool = False) -> Recorded:
        """Record until it is known what came of it. A `certain` one is asked again also where nothing was written.

        Raises:
            Refusal: the mailbox refused; nothing was recorded.
        """
        pause_ms = RECORD_AGAIN_MS_MIN
        while True:
            try:
                return await self._tasks.record(wanted, kind)
            except Refused as refused:
                if not certain or not (refused.may_resend or refused.reason in _OURS):
                    raise refusal_of(refused) from None
                _log.warning("record_waits", reason=refused.reason, task=wanted.task_id)
            except NotWritten as error:
                if not certain:
                    raise refusal_of(error) from None
            except FencepostError as error:
                # The same again answers what the lost call did.
                certain = True
                _log.debug("record_waits", reason=error.reason, task=wanted.task_id)
            await self._clock.sleep(pause_ms / 1000)
            pause_ms = min(RECORD_AGAIN_MS_MAX, pause_ms * 2)

    # --- after a start ----------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Look at what an earlier start meant to do: record what moved, drop what did not."""
        for intent in self._store.integrations():
            try:
                await self._take_up(intent)
            except Exception as error:  # noqa: BLE001 - it is looked at again at the next start
                _log.exception("integration_not_known", error, task=intent.task_id, checkout=intent.checkout)
        self._recovered.set()

    async def _take_up(self, intent: Intent) -> None:
        main = await git.checkout_at(intent.checkout, self._environ)
        if main is None:
            _log.warning("checkout_is_away", task=intent.task_id, checkout=intent.checkout)
            return
        try:
            moved = await git.is_contained(main.git, intent.new_id, intent.branch)
        except GitFailed:
            # What a branch contains is there: an object that is gone was in none.
            moved = False
        if not moved:
            _log.info("integration_never_moved", task=intent.task_id)
            await self._store.forget_integration(intent.request_id)
            return
        follows = await self._caught_up(main, intent)
        self._begin(intent.request_id, _content(_wanted_of(intent)), self._told(intent, follows=follows))

    async def _caught_up(self, main: Checkout, intent: Intent) -> bool:
        at_it = await git.commit_of(main, intent.branch) == intent.new_id
        if at_it and await git.is_at(main, intent.old_id):
            return await git.follow(main, intent.branch, intent.old_id, intent.new_id)
        return True


def _wanted_of(intent: Intent) -> Wanted:
    return Wanted(
        task_id=intent.task_id,
        commit=intent.commit_id,
        note=intent.note,
        expected_version=0,
        request_id=intent.request_id,
        coordinator_id=intent.coordinator_id,
    )


def _short(branch: str) -> str:
    return branch.removeprefix("refs/heads/")


def _conflict() -> RequestConflict:
    return RequestConflict(
        "this request_id was used for a call with other content; nothing was changed",
        hint="Use a new request_id for a new call.",
    )
