"""What the edge makes of tools besides the seven: what a lost write came to, who names files, pages that are full."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.errors import Refused
from fencepost.mailbox.v1 import evidence_pb2, files_pb2, mailbox_pb2, tasks_pb2
from fencepost.mcp import registry
from fencepost.mcp.families import context, evidence, files, tasks
from fencepost.mcp.kinds import Problem
from fencepost.providers.v1 import providers_pb2
from fencepost.sessions.v1 import sessions_pb2
from fencepost_mailbox.domain.context import values as context_values
from fencepost_mailbox.domain.evidence import values as evidence_values
from fencepost_mailbox.domain.files import values as file_values
from fencepost_mailbox.domain.tasks import values
from fencepost_mcp_edge import agent_translate, task_translate
from fencepost_mcp_edge.domain.frames import Place, Settle, parse_request
from fencepost_mcp_edge.translate import InvalidReceipt, Payload
from fencepost_mcp_edge.usecases import outcomes
from fencepost_mcp_edge.usecases.answer import answer_settle
from fencepost_mcp_edge.usecases.outcomes import ToolError
from fencepost_mcp_edge.usecases.rows import Asking, paged
from fencepost_mcp_edge.usecases.task_tools import _assignee
from fencepost_mcp_edge.usecases.tools import READINGS, WRITES

UUID = "01234567-89ab-cdef-0123-456789abcdef"
HERE = Place(root="/w", ignore_case=False, paths=("a.py",), globs=())


class Said:
    """A service that answers in turn, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, request: Any = None) -> Any:
        self.asked.append(request)
        return self.answers.pop(0)


def asking(arguments: dict[str, Any], **faces: Any) -> Asking:
    caller: Any = SimpleNamespace(**faces)
    return Asking(caller=caller, arguments=arguments, key="mcp-x:1", place=HERE)


def change(**fields: Any) -> tasks_pb2.TaskChange:
    return tasks_pb2.TaskChange(**{"task_id": "task_1", "state": tasks_pb2.TASK_STATE_RUNNING, "version": 2, **fields})


START = {"task_id": "task_1", "revision": 1, "request_id": UUID}


@pytest.mark.requirement("tools.lost-writes-are-settled")
async def test_a_lost_write_of_a_task_is_settled_by_its_request_id_and_never_made_again() -> None:
    settle = Said(
        tasks_pb2.SettleTaskRequestResponse(fate=tasks_pb2.REQUEST_FATE_WRITTEN, change=change(attempt_id=UUID)),
        tasks_pb2.SettleTaskRequestResponse(fate=tasks_pb2.REQUEST_FATE_CANCELLED),
        tasks_pb2.SettleTaskRequestResponse(fate=tasks_pb2.REQUEST_FATE_UNKNOWN),
    )
    ask = asking(START, settling_tasks=SimpleNamespace(settle=settle))
    told = await WRITES["task_start"].settle(ask, "epoch-1")
    assert (told["id"], told["state"], told["attempt_id"], told["request_id"]) == ("task_1", "running", UUID, UUID)
    with pytest.raises(ToolError) as cancelled:
        await WRITES["task_start"].settle(ask, "epoch-1")
    assert (cancelled.value.code, cancelled.value.uncertain, cancelled.value.key_spent) == ("not_written", False, True)
    with pytest.raises(ToolError) as unknown:
        await WRITES["task_start"].settle(ask, "epoch-1")
    assert (unknown.value.code, unknown.value.uncertain) == ("delivery_uncertain", True)
    assert settle.asked == [tasks_pb2.SettleTaskRequestRequest(request_id=UUID, epoch="epoch-1")] * 3


@pytest.mark.requirement("tools.lost-writes-are-settled")
async def test_a_lost_write_is_settled_though_its_tool_is_not_offered_any_more() -> None:
    async def menu() -> registry.Menu:
        return registry.menu(frozenset())

    async def confirm() -> None:
        return None

    settle = Said(tasks_pb2.SettleTaskRequestResponse(fate=tasks_pb2.REQUEST_FATE_WRITTEN, change=change()))
    caller: Any = SimpleNamespace(
        menu=menu, confirm=confirm, warp=False, key=lambda *_: "k", settling_tasks=SimpleNamespace(settle=settle)
    )
    line = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "task_start", "arguments": START}}
    ).encode()
    request = parse_request(line)
    assert request is not None
    told = json.loads(await answer_settle(caller, Settle(number=1, line=line, epoch="epoch-1"), request))
    assert told["result"]["structuredContent"]["state"] == "running"


@pytest.mark.requirement("tools.lost-writes-are-settled")
@pytest.mark.parametrize("other", [{"task_id": "task_2"}, {"state": tasks_pb2.TASK_STATE_SUBMITTED}])
async def test_what_another_call_did_under_the_request_id_is_no_answer_to_this_one(other: dict[str, Any]) -> None:
    written = tasks_pb2.SettleTaskRequestResponse(fate=tasks_pb2.REQUEST_FATE_WRITTEN, change=change(**other))
    ask = asking(START, settling_tasks=SimpleNamespace(settle=Said(written)))
    with pytest.raises(InvalidReceipt):
        await WRITES["task_start"].settle(ask, "epoch-1")


@pytest.mark.requirement("tools.lost-writes-are-settled")
async def test_a_lost_reservation_is_asked_for_again_of_the_same_store_only() -> None:
    describe = Said(SimpleNamespace(epoch="epoch-1"), SimpleNamespace(epoch="epoch-2"))
    reserve = Said(files_pb2.ReserveFilesResponse(reserved=True, reservation_id=UUID, expires_at_ms=1, duplicate=True))
    faces = {"settling": SimpleNamespace(describe=describe), "files": SimpleNamespace(reserve=reserve)}
    ask = asking({"file_path": "a.py"}, **faces)
    told = await WRITES["file_reserve"].settle(ask, "epoch-1")
    assert (told["reserved"], told["duplicate"], told["request_id"]) == (True, True, ask.request_id)
    with pytest.raises(ToolError) as unknown:
        await WRITES["file_reserve"].settle(ask, "epoch-1")
    assert unknown.value.uncertain
    assert len(reserve.asked) == 1


@pytest.mark.requirement("tools.lost-writes-are-settled")
def test_a_request_id_that_nobody_gave_is_the_same_whenever_its_call_is_asked_about() -> None:
    first, again = asking({}), asking({})
    assert first.request_id == again.request_id
    assert asking({"request_id": UUID}).request_id == UUID
    other = Asking(caller=first.caller, arguments={}, key="mcp-x:2")
    assert other.request_id != first.request_id


@pytest.mark.requirement("tools.integrate")
async def test_a_named_commit_is_merged_by_providers_and_asked_again_where_its_answer_was_lost() -> None:
    merged = providers_pb2.IntegrateTaskResponse(
        task_id="task_1", revision=1, version=7, integration=providers_pb2.INTEGRATION_KIND_MERGED, branch="main"
    )
    integrate = Said(merged, merged)
    faces = {
        "providers": SimpleNamespace(integrate_task=integrate),
        "settling": SimpleNamespace(describe=Said(SimpleNamespace(epoch="epoch-1"))),
    }
    ask = asking({"task_id": "task_1", "commit": "a" * 40, "request_id": UUID}, **faces)
    told = await WRITES["task_integrate"].ask(ask)
    assert (told["state"], told["integration"], told["branch"]) == ("integrated", "merged", "main")
    assert await WRITES["task_integrate"].settle(ask, "epoch-1") == told
    assert integrate.asked[0] == integrate.asked[1]
    assert (integrate.asked[0].commit, integrate.asked[0].request_id) == ("a" * 40, UUID)


CHECK = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"file_check","arguments":{"file_path":"a"},%b}}'
)
PLACED = b'"_meta":{"fencepost/files":{"root":"/w","ignore_case":true,"paths":["b"],"globs":[]}}'


@pytest.mark.requirement("tools.files-are-named-where-they-are")
def test_what_a_client_says_of_its_files_counts_only_where_a_shim_has_put_it() -> None:
    line = CHECK % PLACED
    taken, passed = parse_request(line, placed=True), parse_request(line)
    assert taken is not None
    assert passed is not None
    assert taken.place == Place(root="/w", ignore_case=True, paths=("b",), globs=())
    assert passed.place is None
    for wrong in (b'"_meta":{"fencepost/files":7}', PLACED.replace(b'["b"]', b"[7]"), PLACED.replace(b"true", b"1")):
        half = parse_request(CHECK % wrong, placed=True)
        assert half is not None
        assert half.place is None


@pytest.mark.requirement("tools.files-are-named-where-they-are")
async def test_without_a_shim_files_are_named_in_the_folder_recorded_of_the_agent(tmp_path: Any) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    agent = sessions_pb2.Agent(workspace=str(tmp_path / "src"))
    check = Said(files_pb2.CheckFilesResponse(free=True, checked_at_ms=1))
    who = Said(sessions_pb2.GetCallerResponse(agent=agent))
    caller: Any = SimpleNamespace(sessions=SimpleNamespace(get_caller=who), files=SimpleNamespace(check=check))
    told = await READINGS["file_check"].ask(Asking(caller=caller, arguments={"file_path": "src/../b"}))
    assert told["free"] is True
    assert (list(check.asked[0].paths), check.asked[0].scope.checkout) == (["b"], str(tmp_path.resolve()))


@pytest.mark.requirement("tools.a-checkout-stands-for-who-works-in-it")
async def test_a_task_may_be_given_to_whoever_works_in_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)

    def agent(name: str, workspace: Path | str, **fields: Any) -> sessions_pb2.Agent:
        return sessions_pb2.Agent(agent_id=f"id-{name}", name=name, workspace=str(workspace), **fields)

    agents = [
        agent("ann", tmp_path / "a"),
        agent("bob", "/x", launch=sessions_pb2.LaunchSettings(checkout_root=str(tmp_path / "b"))),
        agent("gone", tmp_path / "b", state=sessions_pb2.AGENT_STATE_DELETING),
        agent("cyd", "/elsewhere/c"),
        agent("dan", "/elsewhere/c/"),
        agent("/named", ""),
    ]

    async def given(to: str) -> Any:
        list_agents = Said(sessions_pb2.ListAgentsResponse(agents=agents))
        return (await _assignee(asking({"to": to}, sessions=SimpleNamespace(list_agents=list_agents)))).arguments["to"]

    assert await given("dan") == "dan"
    assert await given(f"{tmp_path}/a") == "id-ann"
    assert await given(f"{tmp_path}/link/b/") == "id-bob"
    assert await given("/named") == "/named"
    for to, code in (("/elsewhere/c", "ambiguous_target"), ("/x", "not_found"), ("/", "not_found")):
        with pytest.raises(ToolError) as refused:
            await given(to)
        assert (refused.value.code, refused.value.uncertain) == (code, False)
    assert {row for row in WRITES if "_assigned" in repr(WRITES[row].ask)} == {"task_assign", "task_reassign"}


@pytest.mark.requirement("edge.error-envelope")
@pytest.mark.parametrize(
    ("tool", "said", "told"),
    [
        ("task_assign", "start_deadline_ms must lie ahead", "start_deadline must lie ahead."),
        ("task_retry", "start_deadline_ms must lie ahead", "start_deadline must lie ahead."),
        ("agent_send", "leave thread_id out", "Leave thread out."),
        ("thread_get", "thread_id names no record", "id names no record."),
        ("agent_ack", "record_ids has 1 to 100 entries", "ids has 1 to 100 entries."),
        ("task_assign", "context_refs names something twice", "context_refs names something twice."),
        ("task_get", "a thing that thread_id is not", "A thing that thread_id is not."),
    ],
)
def test_an_error_speaks_of_arguments_by_the_names_that_the_tool_has_for_them(tool: str, said: str, told: str) -> None:
    problem = outcomes.told(Refused("invalid_task_field", said, state={"field": "thread_id"}), mutation=True)
    told_of = {"agent_send": "thread", "thread_get": "id"}.get(tool, "thread_id")
    problem = outcomes.fitting(problem, tool)
    assert (problem.message, problem.state) == (told, {"field": told_of})


@pytest.mark.requirement("edge.error-envelope")
def test_who_has_not_the_role_for_a_tool_hears_of_the_tool_and_of_no_method_of_a_service() -> None:
    refused = Refused("permission_denied", "RecordIntegration is not open to the role agent", state={"role": "agent"})
    problem = outcomes.fitting(outcomes.told(refused, mutation=True), "task_integrate")
    assert problem.message == "task_integrate is not open to the role agent; nothing was written."
    assert "agent_list" in problem.hint
    assert "warp_agent_list" in outcomes.renamed(problem).hint


@pytest.mark.requirement("tools.agents-talk")
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "blocked"])
def test_a_reply_is_shown_with_the_outcome_that_it_was_given(outcome: str) -> None:
    status = agent_translate.reply_request({"request_id": "ask_1", "outcome": outcome, "body": "x"}, "k").status
    reply = mailbox_pb2.Record(record_id="rep_1", kind=mailbox_pb2.RECORD_KIND_REPLY, reply_status=status)
    told = mailbox_pb2.Record(record_id="inf_1", kind=mailbox_pb2.RECORD_KIND_INFORMATION)
    page = mailbox_pb2.ReceiveResponse(records=[reply, told])
    none = tasks_pb2.ListSupervisionResponse()
    shown = agent_translate.inbox_result(page, [], none, more_notifications=False)["messages"]
    assert [one.get("outcome") for one in shown] == [outcome, None]
    thread = mailbox_pb2.GetThreadResponse(records=[reply])
    assert [one["outcome"] for one in agent_translate.thread_result(thread)["messages"]] == [outcome]


@pytest.mark.requirement("tools.files-are-named-where-they-are")
async def test_what_is_reserved_is_not_listed_by_a_glob_which_would_only_seem_to_find_nothing() -> None:
    ask = asking({"file_path": "a/*"}, files=SimpleNamespace(list_reservations=Said()))
    with pytest.raises(ToolError) as refused:
        await READINGS["file_reservations"].ask(replace(ask, place=replace(HERE, paths=(), globs=("a/*",))))
    assert (refused.value.code, refused.value.uncertain) == ("invalid_arguments", False)


@pytest.mark.requirement("tasks.every-call-answers-over-the-wire")
def test_a_list_says_nothing_of_an_attempt_that_it_does_not_know() -> None:
    attempt = tasks_pb2.Attempt(attempt_id=UUID, revision=2, certainty=tasks_pb2.ATTEMPT_CERTAINTY_ACTIVE)
    one = tasks_pb2.Task(task_id="task_1", state=tasks_pb2.TASK_STATE_RUNNING, attempt=attempt)
    assert task_translate.task(one)["attempt"] == {"attempt_id": UUID, "revision": 2, "certainty": "active"}


@pytest.mark.requirement("edge.pages")
async def test_a_page_is_full_at_its_bytes_and_goes_on_with_what_did_not_fit() -> None:
    everything: list[Payload] = [{"place": place, "text": "x" * 100} for place in range(35)]

    async def some(size: int, cursor: str) -> tuple[list[Payload], str]:
        begin = int(cursor or 0)
        end = min(begin + size, len(everything))
        return everything[begin:end], "" if end == len(everything) else str(end)

    caller: Any = None
    read, cursor, pages = list[Payload](), "", 0
    while pages == 0 or cursor:
        arguments = {"cursor": cursor} if cursor else {}
        page = await paged(Asking(caller=caller, arguments=arguments, page_bytes_max=3_000), some)
        read, cursor, pages = [*read, *page.entries], page.cursor, pages + 1
    assert (read, pages) == (everything, 2)
    limited = await paged(Asking(caller=caller, arguments={"limit": 7}, page_bytes_max=30_000), some)
    assert (len(limited.entries), limited.cursor) == (7, "7")


@pytest.mark.requirement("tools.limits-are-the-services")
def test_the_limits_of_the_registry_are_those_of_the_mailbox() -> None:
    assert tasks.TASK_WORK_BYTES_MAX == values.DESCRIPTION_BYTES_MAX == values.ACCEPTANCE_BYTES_MAX
    assert tasks.TASK_TEXT_BYTES_MAX == values.TASK_TEXT_BYTES_MAX
    assert tasks.TASK_NAME_BYTES_MAX == values.TASK_NAME_BYTES_MAX
    assert tasks.CONTEXT_REFS_MAX == values.CONTEXT_REFS_MAX
    assert tasks.PREREQUISITES_MAX == values.PREREQUISITES_MAX
    assert tasks.ELIGIBLE_MAX == values.ELIGIBLE_MAX
    assert tasks.EVIDENCE_IDS_MAX == values.EVIDENCE_IDS_MAX
    assert evidence.EVIDENCE_PATH_BYTES_MAX == evidence_values.EVIDENCE_PATH_BYTES_MAX
    assert evidence.TEST_LABEL_BYTES_MAX == evidence_values.TEST_LABEL_BYTES_MAX
    assert evidence.EXIT_CODE_MAX == evidence_values.EXIT_CODE_MAX
    assert tasks.TIMEOUT_S_MAX == values.TIMEOUT_S_MAX
    assert tasks.LISTED_MAX == values.TASKS_LISTED_MAX
    assert context.CONTEXT_KEY_BYTES_MAX == tasks.CONTEXT_KEY_BYTES_MAX == context_values.CONTEXT_KEY_BYTES_MAX
    assert context.CONTEXT_BYTES_MAX == context_values.CONTEXT_BYTES_MAX
    assert context.MEMORY_BYTES_MAX == context_values.MEMORY_BYTES_MAX
    assert files.FILE_PATHS_MAX == file_values.PATHS_MAX
    assert files.FILE_PATH_BYTES_MAX == file_values.RESERVED_PATH_BYTES_MAX
    assert files.RESERVATION_S_MAX == file_values.DURATION_S_MAX
    assert files.FILE_REASON_BYTES_MAX == file_values.RESERVATION_REASON_BYTES_MAX


def some_evidence(*numbers: int, verdict: int = 0) -> list[evidence_pb2.Evidence]:
    return [
        evidence_pb2.Evidence(
            evidence_id=f"evi_{number:032}",
            commit=evidence_pb2.CommitEvidence(commit="1" * 40),
            verdict=evidence_pb2.Verdict.ValueType(verdict),
            verified_at_ms=verdict,
            checkout="/w" if verdict else "",
        )
        for number in numbers
    ]


@pytest.mark.requirement("evidence.checks-tell-what-is-there")
async def test_a_list_that_is_to_be_verified_is_looked_at_first_and_shown_as_it_was_found() -> None:
    listed = Said(
        evidence_pb2.ListEvidenceResponse(evidence=some_evidence(1, 2)),
        evidence_pb2.ListEvidenceResponse(evidence=some_evidence(1, 2, verdict=evidence_pb2.VERDICT_MISMATCH)),
    )
    verify = Said(providers_pb2.VerifyEvidenceResponse())
    ask = asking(
        {"task_id": "task_1", "verify": True},
        evidence=SimpleNamespace(list_evidence=listed),
        providers=SimpleNamespace(verify_evidence=verify),
    )
    told = await READINGS["evidence_list"].ask(ask)
    assert [(one["verdict"], one["checkout"]) for one in told["evidence"]] == [("mismatch", "/w")] * 2
    ids = [one.evidence_id for one in some_evidence(1, 2)]
    assert (list(verify.asked[0].evidence_ids), list(listed.asked[1].evidence_ids)) == (ids, ids)
    assert told["next_cursor"] is None


async def test_chosen_evidence_is_listed_in_order_and_goes_on_behind_a_cursor() -> None:
    ids = [one.evidence_id for one in some_evidence(*range(12))]
    listed = Said(
        evidence_pb2.ListEvidenceResponse(evidence=some_evidence(*range(10))),
        evidence_pb2.ListEvidenceResponse(evidence=some_evidence(10, 11)),
    )
    face = SimpleNamespace(list_evidence=listed)
    told = await READINGS["evidence_list"].ask(
        asking({"task_id": "task_1", "evidence_ids": ids[::-1], "limit": 10}, evidence=face)
    )
    assert (told["next_cursor"], [one["evidence_id"] for one in told["evidence"]]) == (ids[9], ids[:10])
    told = await READINGS["evidence_list"].ask(
        asking({"task_id": "task_1", "evidence_ids": ids, "cursor": ids[9]}, evidence=face)
    )
    assert ([one["evidence_id"] for one in told["evidence"]], told["next_cursor"]) == (ids[10:], None)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"kind": "file", "path": "a"}, "sha256 is missing"),
        ({"kind": "commit"}, "commit is missing"),
        ({"kind": "commit", "commit": "x", "path": "a"}, "path says nothing"),
        ({"kind": "diff"}, "a diff has"),
        ({"kind": "diff", "base": "x"}, "a diff has"),
        ({"kind": "diff", "path": "a", "base": "x", "head": "y"}, "a diff has"),
        ({"kind": "test", "label": "x"}, "outcome is missing"),
        ({"kind": "test", "label": "x", "outcome": "passed", "exit_code": 256}, "exit_code"),
    ],
)
def test_a_report_says_what_its_kind_has(arguments: dict[str, Any], problem: str) -> None:
    tool = next(one for one in evidence.TOOLS if one.name == "evidence_add")
    with pytest.raises(Problem, match=problem):
        tool.check({"task_id": "task_1", **arguments})
