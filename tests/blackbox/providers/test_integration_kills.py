"""Integrations and checks through the real services: a call that is repeated after a kill finds it done once."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.client import Channels, Evidences, Providers, Tasks
from fencepost.common.v1 import common_pb2
from fencepost.errors import NotWritten, Uncertain
from fencepost.home import MAILBOX, PROVIDERS, SESSIONS, Home, read_credential
from fencepost.mailbox.v1 import evidence_pb2, tasks_pb2
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_testing.carried import QUICK, Carried, until
from fencepost_testing.processes import Services, short_home
from fencepost_testing.repositories import Repository

# Every place at which it can die, and whether the branch had moved by then.
POINTS = {
    "providers.integration.intended": False,
    "providers.integration.moved": True,
    "providers.integration.followed": True,
    "providers.integration.recorded": True,
}


class Project:
    """A project in a repository, with the coordinator Cyd and the worker Ann, who has a clone."""

    def __init__(self, services: Services, channels: Channels, folder: Path) -> None:
        self.services = services
        self.channels = channels
        self.home = services.home
        self.carried = Carried(services, channels)
        self.main = Repository.new(folder / "main")
        self.worker = self.main.clone(folder / "worker")

    async def start(self) -> None:
        """Create both, and let a task be accepted."""
        sessions = self.carried.sessions
        project = await sessions.ensure_project(
            sessions_pb.EnsureProjectRequest(
                idempotency_key=uuid.uuid4().hex,
                kind=sessions_pb.PROJECT_KIND_GIT,
                location=str(self.main.folder / ".git"),
            )
        )
        ids = {}
        for name, role in (("cyd", common_pb2.ROLE_COORDINATOR), ("ann", common_pb2.ROLE_AGENT)):
            created = await sessions.create_agent(
                sessions_pb.CreateAgentRequest(
                    idempotency_key=uuid.uuid4().hex,
                    project_id=project.project.project_id,
                    name=name,
                    role=role,
                    workspace=str(self.worker.folder),
                )
            )
            ids[name] = created.agent.agent_id
        self.tokens = {name: read_credential(self.home.agent_credential(ids[name])) for name in ids}
        cyd, ann = self.tasks("cyd"), self.tasks("ann")
        assigned = await cyd.assign(
            tasks_pb2.AssignTaskRequest(to="ann", description="do", acceptance="done", request_id=str(uuid.uuid4()))
        )
        self.task_id = assigned.change.task_id
        named: dict[str, Any] = {"task_id": self.task_id, "revision": 1}
        await ann.start(tasks_pb2.StartTaskRequest(**named, request_id=str(uuid.uuid4())))
        await ann.submit(tasks_pb2.SubmitTaskRequest(**named, result="r", evidence="e", request_id=str(uuid.uuid4())))
        await cyd.review(tasks_pb2.ReviewTaskRequest(**named, accepted=True, request_id=str(uuid.uuid4())))

    def tasks(self, who: str) -> Tasks:
        """Tasks as somebody sees them."""
        return Tasks(self.channels, self.tokens[who])

    async def integrate(self, commit: str, request_id: str) -> pb.IntegrateTaskResponse:
        """Make the coordinator's call."""
        request = pb.IntegrateTaskRequest(task_id=self.task_id, commit=commit, note="done", request_id=request_id)
        return await Providers(self.channels, self.tokens["cyd"]).integrate_task(request)

    async def task(self) -> tasks_pb2.Task:
        """The task as it stands."""
        return (await self.tasks("cyd").get(self.task_id)).task

    async def integrations(self) -> int:
        """How often the history says that it was integrated."""
        history = await self.tasks("cyd").history(tasks_pb2.GetTaskHistoryRequest(task_id=self.task_id))
        return sum(event.action == tasks_pb2.TASK_ACTION_INTEGRATE for event in history.events)


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    with short_home() as home:
        running = Services(home, env=QUICK)
        try:
            asyncio.run(running.start(SESSIONS, MAILBOX, PROVIDERS))
            yield running
        finally:
            running.close()
            running.print_logs()


@pytest.fixture
async def project(services: Services, tmp_path: Path) -> AsyncIterator[Project]:
    async with Channels(Home(services.home.text)) as channels:
        made = Project(services, channels, tmp_path)
        await made.start()
        yield made


@pytest.mark.requirement("integration.a-kill-never-merges-twice-and-never-hides-a-merge")
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_at_each_point_leaves_one_merge_and_one_record(project: Project, point: str) -> None:
    services, main = project.services, project.main
    theirs = project.worker.commit({"new": "new"})
    ours = main.commit({"other": "other"})
    request_id = str(uuid.uuid4())
    await services.restart(PROVIDERS, env={"FENCEPOST_FAULTS": f"{point}=kill"})
    with pytest.raises(Uncertain):
        await project.integrate(theirs, request_id)
    assert await asyncio.to_thread(services.join, PROVIDERS) == -signal.SIGKILL
    assert (main.head != ours) is POINTS[point]
    await services.start(PROVIDERS)
    if POINTS[point]:
        # Nobody has to ask for what was done to be recorded.
        async def recorded() -> bool:
            return (await project.task()).state == tasks_pb2.TASK_STATE_INTEGRATED

        await until(recorded, "the merge being recorded")

    async def again() -> pb.IntegrateTaskResponse | None:
        try:
            return await project.integrate(theirs, request_id)
        except NotWritten:
            return None

    done = await until(again, "the same call again")
    assert done.integration == pb.INTEGRATION_KIND_MERGED
    assert main.parents() == [ours, theirs]
    assert main.git("rev-list", "--merges", "--count", "HEAD") == "1"
    assert (main.status, main.read("new"), main.read("other")) == ("", "new", "other")
    found = await project.task()
    assert (found.state, found.commit) == (tasks_pb2.TASK_STATE_INTEGRATED, theirs)
    assert await project.integrations() == 1


@pytest.mark.requirement("evidence.checks-tell-what-is-there")
async def test_what_the_worker_reports_is_checked_in_its_checkout_and_shown_to_the_coordinator(
    project: Project,
) -> None:
    commit = project.worker.commit({"new": "new"})
    evidence = Evidences(project.channels, project.tokens["ann"])
    reports: tuple[dict[str, Any], ...] = (
        {"file": evidence_pb2.FileEvidence(path="new", sha256=hashlib.sha256(b"new").hexdigest(), commit=commit)},
        {"file": evidence_pb2.FileEvidence(path="new", sha256=hashlib.sha256(b"old").hexdigest())},
        {"commit": evidence_pb2.CommitEvidence(commit=commit)},
        {"diff": evidence_pb2.DiffEvidence(base=project.main.head, head=commit)},
        {"test": evidence_pb2.TestEvidence(label="make test", outcome=evidence_pb2.TEST_OUTCOME_PASSED)},
    )
    ids = []
    for report in reports:
        ask = evidence_pb2.AddEvidenceRequest(task_id=project.task_id, request_id=str(uuid.uuid4()), **report)
        ids.append((await evidence.add(ask)).evidence_id)
    verify = pb.VerifyEvidenceRequest(task_id=project.task_id, evidence_ids=ids)
    checked = (await Providers(project.channels, project.tokens["cyd"]).verify_evidence(verify)).evidence
    wanted = ["VERIFIED", "MISMATCH", "VERIFIED", "VERIFIED", "UNAVAILABLE"]
    assert [pb.EvidenceVerdict.Name(one.verdict).removeprefix("EVIDENCE_VERDICT_") for one in checked] == wanted
    listing = evidence_pb2.ListEvidenceRequest(task_id=project.task_id)
    shown = (await Evidences(project.channels, project.tokens["cyd"]).list_evidence(listing)).evidence
    assert [evidence_pb2.Verdict.Name(one.verdict).removeprefix("VERDICT_") for one in shown] == wanted
    assert {(one.verified_for.name, one.checkout) for one in shown} == {("cyd", str(project.worker.folder))}
    assert [one.verified_at_ms for one in shown] == [one.recorded_at_ms for one in checked]
