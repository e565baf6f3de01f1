"""`fencepost task` and `project` over scripted services: what they ask, what they print, and what they refuse."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fencepost.cli import task_views
from fencepost.cli.app import app
from fencepost.cli.moments import moment_ms
from fencepost.cli.screen import _VERBS
from fencepost.common.v1 import common_pb2
from fencepost.errors import NotWritten, Refused
from fencepost.mailbox.v1 import context_pb2, evidence_pb2
from fencepost.mailbox.v1 import tasks_pb2 as pb
from fencepost.providers.v1 import providers_pb2
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import BOB, PROJECT, Shell

TASK = "task_0190f3a2111172228333444455556666"
OTHER = "task_0190f3a2111172228333444455557777"
ATTEMPT = "0190f3a2-4444-7222-8333-444455556666"
ID = "0190f3a2-5555-7222-8333-444455556666"
AT_MS = 1_700_000_000_000
CHANGE = pb.TaskChange(
    task_id=TASK, state=pb.TASK_STATE_RUNNING, revision=2, version=7, attempt_id=ATTEMPT, at_ms=AT_MS
)
NAMED = ("bob", "Do it.", "--acceptance", "It is done.")
METHODS = {
    "assign": pb.AssignTaskResponse,
    "create_pool": pb.CreatePoolTaskResponse,
    "claim": pb.ClaimTaskResponse,
    "start": pb.StartTaskResponse,
    "progress": pb.ProgressTaskResponse,
    "submit": pb.SubmitTaskResponse,
    "review": pb.ReviewTaskResponse,
    "record_integration": pb.RecordIntegrationResponse,
    "cancel": pb.CancelTaskResponse,
    "finish_cancel": pb.FinishCancelTaskResponse,
    "fail": pb.FailTaskResponse,
    "retry": pb.RetryTaskResponse,
    "reassign": pb.ReassignTaskResponse,
    "set_dependencies": pb.SetTaskDependenciesResponse,
    "override": pb.OverrideTaskResponse,
    "archive": pb.ArchiveTaskResponse,
}


def a_task(**facts: Any) -> pb.Task:
    usual: dict[str, Any] = {
        "task_id": TASK,
        "project_id": PROJECT,
        "assignee": common_pb2.AgentRef(agent_id=BOB, name="bob"),
        "state": pb.TASK_STATE_RUNNING,
        "revision": 2,
        "version": 6,
        "description": "Do it.",
        "created_at_ms": AT_MS,
        "changed_at_ms": AT_MS,
        "attempt": pb.Attempt(
            attempt_id=ATTEMPT,
            revision=2,
            agent=common_pb2.AgentRef(agent_id=BOB, name="bob"),
            generation=3,
            started_at_ms=AT_MS,
            certainty=pb.ATTEMPT_CERTAINTY_UNKNOWN,
        ),
    }
    return pb.Task(**{**usual, **facts})


@pytest.fixture
def desk(shell: Shell) -> Shell:
    """A shell in whose services one task runs, of which nobody knows."""
    here = sessions.Project(
        project_id=PROJECT, name="here", kind=sessions.PROJECT_KIND_FOLDER, location=os.path.realpath(Path.cwd())
    )
    shell.sessions.answers = {"list_projects": sessions.ListProjectsResponse(projects=[here])}
    shell.tasks.answers = {name: kind(change=CHANGE) for name, kind in METHODS.items()}
    shell.tasks.answers["get"] = pb.GetTaskResponse(task=a_task())
    shell.evidence.answers["list_evidence"] = evidence_pb2.ListEvidenceResponse()
    return shell


def asked(shell: Shell) -> Any:
    """The one write that was made."""
    (made,) = [request for name, request in shell.tasks.asked if name in METHODS]
    return made


@pytest.mark.requirement("cli.tasks-go-their-whole-way")
def test_work_is_given_with_everything_that_belongs_to_it(desk: Shell) -> None:
    done = desk(
        *("task", "assign", *NAMED, "--reviewer", "ann", "--depends-on", OTHER, "--context", "api/v1@3"),
        *("--context", "a@b", "--start-by", "2030-01-01T00:00:00+00:00", "--execution-timeout-s", "600"),
        *("--review-timeout-s", "60", "--request-id", ID, "--json"),
    )
    assert done.document["request_id"] == ID
    assert done.document["change"]["attempt_id"] == ATTEMPT
    ask = asked(desk)
    assert (ask.to, ask.description, ask.acceptance, ask.reviewer) == ("bob", "Do it.", "It is done.", "ann")
    assert (ask.project_id, ask.request_id, list(ask.dependencies)) == (PROJECT, ID, [OTHER])
    assert [(ref.key, ref.version) for ref in ask.context_refs] == [("api/v1", 3), ("a@b", 0)]
    assert (ask.start_deadline_ms, ask.execution_timeout_seconds, ask.review_timeout_seconds) == (
        1_893_456_000_000,
        600,
        60,
    )


def test_texts_come_from_files_and_standard_input_and_each_from_one_place_only(desk: Shell, tmp_path: Path) -> None:
    desk.as_agent()
    proof = tmp_path / "proof"
    proof.write_text("12 passed\n")
    done = desk(
        "task", "submit", TASK, "--stdin", "--evidence-file", str(proof), "--evidence-id", "log", stdin=b"Done\n"
    )
    assert (done.code, done.err) == (0, "")
    ask = asked(desk)
    assert (ask.result, ask.evidence, list(ask.evidence_ids), ask.revision) == ("Done\n", "12 passed\n", ["log"], 2)
    for command in (
        ("submit", TASK, "x", "--stdin", "--evidence", "e"),
        ("submit", TASK, "x"),
        ("submit", TASK, "--evidence", "e"),
        ("submit", TASK, "x", "--evidence", "e", "--evidence-file", str(proof)),
        ("assign", "bob", "x"),
        ("review", TASK),
        ("depend", TASK),
        ("depend", TASK, "--none", "--depends-on", OTHER),
        ("fail", TASK),
    ):
        assert desk("task", *command, "--json").error["code"] == "invalid_arguments"
    assert len([name for name, _ in desk.tasks.asked if name in METHODS]) == 1


@pytest.mark.requirement("cli.tasks-are-repeated-by-request-id")
def test_what_would_be_another_command_when_repeated_must_be_named(desk: Shell) -> None:
    soon = desk("task", "assign", *NAMED, "--start-by", "+30m", "--request-id", ID, "--json")
    assert soon.error["code"] == "invalid_arguments"
    desk.as_agent()
    unnamed = desk("task", "review", TASK, "--accept", "--request-id", ID, "--json")
    assert unnamed.error["code"] == "invalid_arguments"
    assert not desk.tasks.asked
    assert desk("task", "review", TASK, "--accept", "--request-id", ID, "--revision", "1").code == 0
    assert asked(desk).revision == 1
    assert [name for name, _ in desk.tasks.asked] == ["review"]


@pytest.mark.parametrize(
    ("command", "method"),
    [
        (("pool", "Do it.", "--acceptance", "a", "--eligible", "bob", "--start-by", "+1h"), "create_pool"),
        (("claim", TASK), "claim"),
        (("start", TASK), "start"),
        (("progress", TASK, "half", "--percent", "50", "--wait-reason", "a key"), "progress"),
        (("review", TASK, "no", "--reject"), "review"),
        (("integrate", TASK, "--commit", "a" * 40, "--record-only"), "record_integration"),
        (("cancel", TASK, "why"), "cancel"),
        (("finish-cancel", TASK), "finish_cancel"),
        (("fail", TASK, "why", "--attempt", ATTEMPT), "fail"),
        (("retry", TASK), "retry"),
        (("reassign", TASK, "bob", "why", "--reviewer", "cyd"), "reassign"),
        (("depend", TASK, "--none"), "set_dependencies"),
        (("archive", TASK), "archive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.requirement("cli.tasks-go-their-whole-way")
def test_each_command_makes_its_call_under_a_version_and_a_new_id(
    desk: Shell, command: tuple[str, ...], method: str
) -> None:
    desk.as_agent()
    versioned = () if method == "create_pool" else ("--expected-version", "6")
    done = desk("task", *command, *versioned)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{TASK}: running (revision 2, version 7).\n  Attempt {ATTEMPT}\n")
    assert [name for name, _ in desk.tasks.asked if name != "get"] == [method]
    ask = asked(desk)
    assert str(uuid.UUID(ask.request_id)) == ask.request_id
    assert method == "create_pool" or ask.expected_version == 6


@pytest.mark.requirement("cli.tasks-go-their-whole-way")
def test_an_attempt_that_is_over_is_not_told_with_a_change(desk: Shell) -> None:
    desk.as_agent()
    for state, told in (
        (pb.TASK_STATE_SUBMITTED, True),
        (pb.TASK_STATE_QUEUED, False),
        (pb.TASK_STATE_ACCEPTED, False),
    ):
        change = pb.TaskChange(task_id=TASK, state=state, revision=3, version=8, attempt_id=ATTEMPT)
        desk.tasks.answers["review"] = pb.ReviewTaskResponse(change=change)
        assert ("Attempt" in desk("task", "review", TASK, "--accept").out) is told


@pytest.mark.requirement("cli.tasks-go-their-whole-way")
def test_accepted_work_is_integrated_by_the_service_that_merges(desk: Shell) -> None:
    desk.as_agent()
    desk.providers.answers["integrate_task"] = providers_pb2.IntegrateTaskResponse(
        task_id=TASK, revision=2, version=9, branch="main", head="b" * 40, detail="merged one commit"
    )
    done = desk("task", "integrate", TASK, "for 1.4", "--commit", "a" * 40, "--expected-version", "8")
    assert done.out == (f"{TASK}: integrated (revision 2, version 9).\n  main is at {'b' * 40}\n  merged one commit\n")
    ((_, ask),) = desk.providers.asked
    assert (ask.commit, ask.note, ask.expected_version) == ("a" * 40, "for 1.4", 8)
    again = desk("task", "integrate", TASK, "--request-id", ID, "--json").document
    assert (again["branch"], again["request_id"]) == ("main", ID)


@pytest.mark.requirement("cli.an-override-says-what-it-fences")
def test_an_override_asks_what_the_person_asserts_and_tells_what_was_fenced(desk: Shell) -> None:
    only_says = desk("task", "override", TASK, "--reassign", "cyd", "--json")
    assert (only_says.code, only_says.error["code"]) == (1, "confirmation_missing")
    assert f"attempt {ATTEMPT} of bob, generation 3" in only_says.error["message"]
    assert [name for name, _ in desk.tasks.asked] == ["get"]
    for command in (("--retry", "--cancel"), (), ("--previous-stopped",)):
        assert desk("task", "override", TASK, "x", *command, "--json").error["code"] == "invalid_arguments"
    wordless = desk("task", "override", TASK, "--retry", "--previous-unknown", "--json")
    assert (wordless.error["code"], "what may happen" in wordless.error["hint"]) == ("invalid_arguments", True)
    done = desk("task", "override", TASK, "Seen it end.", "--reassign", "cyd", "--previous-stopped")
    assert f"  Fenced: attempt {ATTEMPT} of bob, generation 3, since " in done.out
    ask = asked(desk)
    assert (ask.override, ask.to) == (pb.OVERRIDE_REASSIGN, "cyd")
    assert ask.risk == "The operator states that the previous execution has stopped. Seen it end."


@pytest.mark.requirement("cli.tasks-are-shown")
def test_a_list_tells_state_and_people_and_what_has_left_the_set(desk: Shell) -> None:
    pages = {
        "": pb.ListTasksResponse(tasks=[a_task()], next_page_token="t", retired=[OTHER], pending_count=1),
        "t": pb.ListTasksResponse(
            tasks=[a_task(task_id=OTHER, state=pb.TASK_STATE_QUEUED, assignee=None, attempt=None)], pending_count=1
        ),
    }
    desk.tasks.answers["list_tasks"] = lambda ask: pages[ask.page_token]
    out = desk("task", "list", "--state", "running", "--state", "cancel-requested", "--assignee", "bob").out
    lines = out.splitlines()
    assert lines[1].split()[:4] == [TASK, "running", "(unknown)", "2"]
    assert "whoever claims it" in lines[2]
    assert "You supervise 1." in lines
    assert lines[-1].endswith(OTHER)
    first = desk.tasks.asked[0][1]
    assert list(first.states) == [pb.TASK_STATE_RUNNING, pb.TASK_STATE_CANCEL_REQUESTED]
    assert (first.assignee, first.project_id) == ("bob", PROJECT)
    assert desk("task", "list", "--json").document["tasks"][0]["state"] == "running"
    assert desk("task", "list", "--state", "lost", "--json").error["code"] == "invalid_arguments"
    desk.tasks.answers["list_tasks"] = pb.ListTasksResponse()
    assert desk("task", "list").out.startswith("No tasks.")


@pytest.mark.requirement("cli.tasks-are-shown")
@pytest.mark.requirement("cli.no-body-passes-for-ours")
def test_a_task_is_shown_with_its_texts_behind_a_prefix_and_everything_that_limits_it(desk: Shell) -> None:
    told = a_task(
        description="Do it.\nresult",
        result="Done.",
        percent=40,
        note="half\x1b[31m",
        wait_reason="a key",
        start_deadline_ms=AT_MS,
        execution_timeout_seconds=600,
        review_timeout_seconds=60,
        review_overdue=True,
        commit="a" * 40,
        context_refs=[pb.ContextRef(key="api", version=2)],
        evidence_ids=["log"],
    )
    waits_for = a_task(task_id=OTHER, state=pb.TASK_STATE_ACCEPTED, attempt=None)
    desk.tasks.answers["get"] = pb.GetTaskResponse(task=told, dependencies=[waits_for], supervised=True)
    out = desk("task", "show", TASK).out
    assert "Description\n  | Do it.\n  | result\nResult\n  | Done.\nNamed with it: log\n" in out
    assert "\x1b" not in out
    for words in (
        "running (unknown), revision 2, version 6",
        "for bob; given by the operator, reviewed by the operator",
        "may be executed for 10 min 0 s; to be reviewed within 60.00 s, overdue",
        "40 %: half",
        "waits for: a key",
        f"after {OTHER}, which is accepted",
        "context api, version 2",
        "you supervise it",
    ):
        assert words in out
    pooled = a_task(assignee=None, attempt=None, state=pb.TASK_STATE_QUEUED)
    desk.tasks.answers["get"] = pb.GetTaskResponse(task=pooled)
    assert "in the pool, for any agent of the project; given by" in desk("task", "show", TASK).out


@pytest.mark.requirement("cli.evidence-is-shown-as-reported-and-as-found")
def test_evidence_is_shown_as_its_reporters_word_and_apart_from_it_what_a_check_found(desk: Shell) -> None:
    pieces = [
        evidence_pb2.Evidence(
            evidence_id="evi_1", file=evidence_pb2.FileEvidence(path="a.py", sha256="f" * 64, commit="a" * 40), note="n"
        ),
        evidence_pb2.Evidence(
            evidence_id="evi_2",
            reporter=common_pb2.AgentRef(agent_id=BOB, name="bob"),
            commit=evidence_pb2.CommitEvidence(commit="b" * 40),
            verdict=evidence_pb2.VERDICT_MISMATCH,
            verified_at_ms=AT_MS,
            checkout="/w",
            detail="no such commit",
        ),
        evidence_pb2.Evidence(evidence_id="evi_3", diff=evidence_pb2.DiffEvidence(base="1" * 40, head="2" * 40)),
        evidence_pb2.Evidence(
            evidence_id="evi_4",
            test=evidence_pb2.TestEvidence(label="make test", outcome=evidence_pb2.TEST_OUTCOME_NOT_RUN, exit_code=3),
        ),
        evidence_pb2.Evidence(evidence_id="evi_5", diff=evidence_pb2.DiffEvidence(path="x.diff")),
        evidence_pb2.Evidence(evidence_id="evi_6"),
    ]
    pages = {
        "": evidence_pb2.ListEvidenceResponse(evidence=pieces[:5], has_more=True),
        "evi_5": evidence_pb2.ListEvidenceResponse(evidence=pieces[5:]),
    }
    desk.evidence.answers["list_evidence"] = lambda ask: pages[ask.after]
    out = desk("task", "show", TASK).out
    assert f"evi_1  file a.py at {'a' * 40}, sha256 {'f' * 64}, reported by the operator\n  n\n  not checked\n" in out
    assert f"evi_2  commit {'b' * 40}, reported by bob\n  mismatch at " in out
    assert " in /w: no such commit\n" in out
    assert f"evi_3  diff {'1' * 40}..{'2' * 40}, " in out
    assert "evi_4  test make test: not run, exit code 3, " in out
    assert "evi_5  diff x.diff, " in out
    assert "evi_6  evidence of a kind that this version does not know" in out
    assert [one["evidence_id"] for one in desk("task", "show", TASK, "--json").document["evidence"]][5] == "evi_6"
    desk.evidence.answers["list_evidence"] = Refused("not_found", "no part in it")
    assert desk("task", "show", TASK, "--json").document["evidence"] is None


@pytest.mark.requirement("cli.evidence-is-shown-as-reported-and-as-found")
def test_evidence_is_looked_at_when_asked_all_of_it_in_calls_that_are_allowed(desk: Shell) -> None:
    pieces = [evidence_pb2.Evidence(evidence_id=f"evi_{number}") for number in range(33)]
    desk.evidence.answers["list_evidence"] = evidence_pb2.ListEvidenceResponse(evidence=pieces)
    desk.providers.answers["verify_evidence"] = lambda ask: providers_pb2.VerifyEvidenceResponse(
        evidence=[
            providers_pb2.CheckedEvidence(
                evidence_id=one, verdict=providers_pb2.EVIDENCE_VERDICT_VERIFIED, detail="as reported", checkout="/w"
            )
            for one in ask.evidence_ids
        ]
    )
    lines = desk("task", "verify", TASK).out.splitlines()
    assert (len(lines), lines[0]) == (33, "evi_0  verified in /w: as reported")
    assert [len(ask.evidence_ids) for _, ask in desk.providers.asked] == [32, 1]
    named = desk("task", "verify", TASK, "evi_7", "--json").document["evidence"]
    assert [(one["evidence_id"], one["verdict"]) for one in named] == [("evi_7", "verified")]
    desk.evidence.answers["list_evidence"] = evidence_pb2.ListEvidenceResponse()
    assert desk("task", "verify", TASK).out == "No evidence was reported for it.\n"


def an_event(sequence: int, action: Any, to: Any, **facts: Any) -> pb.TaskEvent:
    return pb.TaskEvent(
        sequence=sequence, action=action, to_state=to, revision=1, part=pb.TASK_PART_ASSIGNEE, at_ms=AT_MS, **facts
    )


def history_of(*events: pb.TaskEvent) -> Any:
    """Answer pages of one event each."""

    def answer(ask: pb.GetTaskHistoryRequest) -> pb.GetTaskHistoryResponse:
        rest = [event for event in events if event.sequence > ask.after]
        return pb.GetTaskHistoryResponse(events=rest[:1], has_more=len(rest) > 1)

    return answer


@pytest.mark.requirement("cli.tasks-are-shown")
def test_a_history_is_read_to_its_end_one_line_an_event(desk: Shell) -> None:
    desk.tasks.answers["history"] = history_of(
        an_event(5, pb.TASK_ACTION_START, pb.TASK_STATE_RUNNING, from_state=pb.TASK_STATE_QUEUED),
        an_event(9, pb.TASK_ACTION_PROGRESS, pb.TASK_STATE_RUNNING, from_state=pb.TASK_STATE_RUNNING, text="a\nb"),
    )
    lines = desk("task", "history", TASK).out.splitlines()
    assert lines[0].endswith("start: queued -> running, revision 1, by assignee")
    assert lines[1].endswith("progress: running, revision 1, by assignee: a⏎b")
    events = desk("task", "history", TASK, "--after", "5", "--json").document["events"]
    assert [event["sequence"] for event in events] == [9]


@pytest.mark.requirement("cli.watching-tasks-tells-each-change-once")
def test_watching_a_task_rides_out_a_loss_and_ends_when_the_task_has(
    desk: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_views, "WATCH_POLL_MS", 1)
    begun = an_event(5, pb.TASK_ACTION_START, pb.TASK_STATE_RUNNING)
    ended = an_event(9, pb.TASK_ACTION_FAIL, pb.TASK_STATE_FAILED)
    rounds = iter(
        [
            history_of(begun),
            lambda _: NotWritten("not_running", "it is away"),
            lambda _: Refused("draining", "it goes away", may_resend=True),
            history_of(begun, ended),
        ]
    )

    def page(ask: pb.GetTaskHistoryRequest) -> Any:
        return next(rounds)(ask)

    desk.tasks.answers["history"] = page
    done = desk("task", "watch", TASK, "--until-settled", "--json")
    assert [json.loads(line)["sequence"] for line in done.out.splitlines()] == [5, 9]
    desk.tasks.answers["history"] = Refused("not_found", "there is none")
    assert desk("task", "watch", TASK).code == 2
    monkeypatch.setattr(task_views, "WATCH_AWAY_MS_MAX", 5)
    desk.tasks.answers["history"] = NotWritten("not_running", "it stays away")
    assert desk("task", "watch", TASK).code == 6


@pytest.mark.requirement("cli.watching-tasks-tells-each-change-once")
def test_watching_a_project_tells_each_change_of_a_task_once(desk: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_views, "WATCH_POLL_MS", 1)
    rounds = iter(
        [
            [a_task(version=6), a_task(task_id=OTHER, version=1, changed_at_ms=AT_MS - 1)],
            [a_task(version=6), a_task(task_id=OTHER, version=1, changed_at_ms=AT_MS - 1)],
            [a_task(version=7, state=pb.TASK_STATE_SUBMITTED)],
        ]
    )

    def page(_: pb.ListTasksRequest) -> Any:
        tasks = next(rounds, None)
        return Refused("permission_denied", "enough") if tasks is None else pb.ListTasksResponse(tasks=tasks)

    desk.tasks.answers["list_tasks"] = page
    lines = desk("task", "watch").out.splitlines()
    assert [(line.split()[2], line.split("  ")[2]) for line in lines] == [
        (OTHER, "running (unknown), revision 2, bob"),
        (TASK, "running (unknown), revision 2, bob"),
        (TASK, "submitted, revision 2, bob"),
    ]
    desk.tasks.answers["list_tasks"] = pb.ListTasksResponse(tasks=[a_task()])
    assert json.loads(desk("task", "watch", "--until-now", "--json").out)["task"]["version"] == 6
    assert desk("task", "watch", "--until-settled", "--json").error["code"] == "invalid_arguments"
    desk.as_agent()
    assert desk("task", "watch", "--json").error["code"] == "invalid_arguments"


@pytest.mark.parametrize(
    ("text", "after_ms"), [("+1s", 1_000), ("+90m", 5_400_000), ("+2h", 7_200_000), ("+3d", 259_200_000)]
)
def test_a_time_from_now_counts_from_now(text: str, after_ms: int) -> None:
    assert moment_ms(text, now_ms=AT_MS) == AT_MS + after_ms


@pytest.mark.parametrize("text", ["", "+0s", "+1", "+1w", "-1h", "tomorrow", "9999999", "2030-13-01", "+99999999s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Refused) as caught:
        moment_ms(text, now_ms=AT_MS)
    assert caught.value.reason == "invalid_arguments"


@pytest.mark.requirement("cli.projects-are-shown-and-made")
def test_a_project_is_shown_with_what_its_caller_may_see(desk: Shell) -> None:
    desk.sessions.answers["list_agents"] = sessions.ListAgentsResponse(agents=[sessions.Agent(name="bob")])
    desk.tasks.answers["list_tasks"] = pb.ListTasksResponse(
        tasks=[a_task(), a_task(), a_task(state=pb.TASK_STATE_CANCEL_REQUESTED)]
    )
    remembered = context_pb2.ProjectMemory(version=4)
    desk.contexts.answers["get_memory"] = context_pb2.GetProjectMemoryResponse(memory=remembered)
    out = desk("project", "show").out
    assert "agents: bob\n  tasks: 2 running, 1 cancel requested\n  memory: version 4" in out
    assert desk("project", "show", PROJECT.upper(), "--json").document["tasks"] == {"running": 2, "cancel_requested": 1}
    unknown = desk("project", "show", BOB, "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "not_found")
    asked_before = len(desk.tasks.asked)
    desk.as_agent()
    desk.sessions.answers["get_caller"] = sessions.GetCallerResponse(project=sessions.Project(name="mine"))
    assert "tasks" not in desk("project", "show").out
    assert len(desk.tasks.asked) == asked_before
    assert desk("project", "show", PROJECT, "--json").error["code"] == "invalid_arguments"


@pytest.mark.requirement("cli.projects-are-shown-and-made")
def test_a_project_is_made_of_a_folder(desk: Shell, tmp_path: Path) -> None:
    desk.sessions.answers["ensure_project"] = lambda ask: sessions.EnsureProjectResponse(
        project=sessions.Project(project_id=PROJECT, name=ask.name, location=ask.location), created=True
    )
    done = desk("project", "create", str(tmp_path), "--name", "Elsewhere", "--idempotency-key", "k")
    assert done.out == f"{os.path.realpath(tmp_path)} is a project now: Elsewhere, {PROJECT}\n"
    ask = desk.sessions.asked[-1][1]
    assert (ask.idempotency_key, ask.kind) == ("k", sessions.PROJECT_KIND_FOLDER)
    assert desk("project", "create", "/nowhere/at/all", "--json").error["code"] == "not_found"


@pytest.mark.requirement("cli.what-is-missing-is-made-by-the-command-that-is-named")
def test_where_there_is_no_project_or_memory_the_command_that_makes_one_is_named(desk: Shell) -> None:
    desk.contexts.answers["get_memory"] = context_pb2.GetProjectMemoryResponse()
    told = desk("memory", "show").out
    desk.contexts.answers["update_memory"] = context_pb2.UpdateProjectMemoryResponse(version=1)
    suggested = told.strip().partition("Begin with: fencepost ")[2].split()
    assert desk(*suggested).code == 0
    desk.sessions.answers["list_projects"] = sessions.ListProjectsResponse()
    for command in (("task", "list"), ("context", "list"), ("memory", "show"), ("file", "list"), ("project", "show")):
        error = desk(*command, "--json").error
        assert (error["code"], "`fencepost project create`" in error["hint"]) == ("not_found", True), command


@pytest.mark.requirement("cli.tasks-are-shown")
def test_hints_that_name_tools_of_tasks_are_told_in_commands_that_exist(desk: Shell) -> None:
    tree: Any = get_command(app)
    for tool, verb in _VERBS.items():
        _, noun, command = verb.strip("`").split()
        assert command in tree.commands[noun].commands, tool
    desk.tasks.answers["get"] = Refused("not_found", "there is none", hint="Check the id with task_list.")
    assert "Check the id with `fencepost task list`." in desk("task", "show", TASK).err
