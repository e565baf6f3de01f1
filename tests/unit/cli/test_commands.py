"""The commands: for whom they act, what they ask, what they print, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli import deleting
from fencepost.cli.app import RETIRED, RETIRED_OPTIONS
from fencepost.client import BODY_BYTES_MAX
from fencepost.common.v1 import common_pb2
from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import AGENT, AGENT_TOKEN, BOB, OPERATOR_TOKEN, PROJECT, Shell

INF = "inf_0190f3a2111172228333444455556666"
ASK = "ask_0190f3a2111172228333444455556666"
TASK = "task_0190f3a2111172228333444455556666"
AGENTS_ONLY = [
    ("message", "send", "bob", "hi"),
    ("message", "followup", "bob", "hi"),
    ("message", "reply", ASK, "hi"),
    ("message", "receive"),
    ("message", "wait"),
    ("message", "withdraw", ASK),
    ("task", "claim", TASK),
    ("task", "start", TASK),
    ("task", "progress", TASK, "hi"),
    ("task", "submit", TASK, "hi", "--evidence", "e"),
    ("task", "finish-cancel", TASK),
    ("task", "fail", TASK, "hi"),
    ("task", "integrate", TASK),
]
OPERATORS_ONLY = [
    ("agent", "create", "x"),
    ("agent", "update", "x", "--name", "y"),
    ("agent", "delete", "x", "--confirm", "x"),
    ("project", "list"),
    ("project", "create"),
    ("task", "override", TASK, "x", "--cancel", "--previous-stopped"),
    ("credential", "list"),
    ("credential", "revoke", BOB),
    *(("agent", verb, "bob") for verb in ("start", "stop", "pause", "resume", "restart", "new-session", "doctor")),
    ("agent", "watch", "bob"),
    ("agent", "clone", "bob", "cyd"),
    ("agent", "prompt", "bob", "hi"),
    ("agent", "tools", "bob", "--approve", "reply"),
    ("delivery", "resolve", ASK, "--done"),
    ("up",),
    ("up", "--detach"),
    ("down",),
]
BOTH = [
    *[("agent", "list"), ("agent", "show", "x"), ("message", "show", INF), ("why", INF)],
    *[("message", "thread", INF), ("message", "search", "word")],
    *[("message", "interrupt", "x"), ("agent", "interrupt", "x"), ("delivery", "capabilities", "x")],
    *[("delivery", "show", INF), ("provider", "list"), ("provider", "models", "codex")],
    ("agent", "models", "--provider", "codex"),
    *[("task", "show", TASK), ("task", "history", TASK), ("task", "list"), ("task", "cancel", TASK)],
    ("project", "show"),
]


def sent(**fields: Any) -> pb.SendResponse:
    return pb.SendResponse(
        record_id=INF,
        delivery_state=pb.DELIVERY_STATE_ADMITTED,
        recipient=common_pb2.AgentRef(agent_id=BOB, name="bob"),
        recipient_reader=pb.RECIPIENT_READER_NONE,
        admitted_at_ms=1_700_000_000_000,
        **fields,
    )


def agent(name: str, agent_id: str = BOB) -> sessions.Agent:
    return sessions.Agent(
        agent_id=agent_id, project_id=PROJECT, name=name, role=common_pb2.ROLE_AGENT, generation=1, workspace="/w"
    )


@pytest.mark.requirement("cli.no-identity-touches-nothing")
@pytest.mark.parametrize("command", AGENTS_ONLY, ids=" ".join)
def test_without_an_agents_identity_nothing_is_touched_and_the_exit_is_3(
    shell: Shell, command: tuple[str, ...]
) -> None:
    done = shell(*command, "--json")
    assert (done.code, done.out, done.error["code"]) == (3, "", "missing_managed_sender")
    assert shell.acted == []


@pytest.mark.requirement("cli.an-agent-is-no-operator")
@pytest.mark.parametrize("command", OPERATORS_ONLY, ids=" ".join)
@pytest.mark.parametrize("variable", ["FENCEPOST_SESSION_ID", "FENCEPOST_CREDENTIAL_FILE"])
def test_an_agent_gets_no_operators_command_even_where_the_operators_credential_lies_beside_it(
    shell: Shell, command: tuple[str, ...], variable: str
) -> None:
    shell.monkeypatch.setenv(variable, AGENT if "SESSION" in variable else str(shell.home.agent_credential(AGENT)))
    done = shell(*command, "--json")
    assert (done.code, done.error["code"]) == (3, "permission_denied")
    assert shell.acted == []


@pytest.mark.requirement("cli.an-agent-is-no-operator")
@pytest.mark.parametrize("command", BOTH, ids=" ".join)
def test_what_both_may_do_is_done_with_the_agents_credential_in_an_agents_environment(
    shell: Shell, command: tuple[str, ...]
) -> None:
    shell(*command)
    shell.as_agent()
    shell(*command)
    assert [who.identity.token for who in shell.acted] == [OPERATOR_TOKEN, AGENT_TOKEN]


def test_a_home_that_never_ran_is_not_running_and_says_how_to_start_it(shell: Shell) -> None:
    shell.home.operator_credential.unlink()
    done = shell("agent", "list", "--json")
    assert (done.code, done.error["code"], done.error["outcome"]) == (6, "not_running", "not_written")
    assert "fencepost up" in done.error["hint"]


def test_a_send_prints_the_receipt_the_recipient_and_what_to_expect(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = sent()
    done = shell("message", "send", "bob", "hello", "--idempotency-key", "k")
    assert done.code == 0
    assert INF in done.out
    assert f"Information for bob ({BOB}) is stored: admitted." in done.out
    assert "Nobody has ever read bob's mailbox" in done.out
    assert shell.mailbox.asked == [("send", pb.SendRequest(target="bob", body="hello", idempotency_key="k"))]


@pytest.mark.requirement("cli.one-json-document")
def test_a_receipt_as_json_is_the_services_own_with_the_key(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = sent(duplicate=True)
    found = shell("message", "send", "bob", "hello", "--json").document
    assert (found["record_id"], found["duplicate"], found["delivery_state"]) == (INF, True, "admitted")
    assert found["recipient"] == {"agent_id": BOB, "name": "bob"}
    assert found["idempotency_key"].startswith("cli-")


def test_two_sends_without_a_key_never_share_one(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = sent()
    shell("message", "send", "bob", "a")
    shell("message", "send", "bob", "a")
    assert len({request.idempotency_key for _, request in shell.mailbox.asked}) == 2


@pytest.mark.parametrize(("option", "stdin"), [("--stdin", b"a\r\nb\n"), ("--file", b"")])
def test_the_text_may_come_from_standard_input_or_a_file(shell: Shell, option: str, stdin: bytes) -> None:
    shell.as_agent()
    shell.mailbox.answers["request"] = pb.RequestResponse(request_id=ASK)
    Path("body").write_bytes(b"a\r\nb\n")
    done = shell("message", "followup", "bob", option, *([] if stdin else ["body"]), stdin=stdin)
    assert done.code == 0
    assert shell.mailbox.asked[0][1].body == "a\r\nb\n"


@pytest.mark.requirement("cli.a-body-is-checked-before-the-call")
def test_a_body_over_the_limit_is_refused_with_its_size_and_no_call(shell: Shell) -> None:
    shell.as_agent()
    done = shell("message", "send", "bob", "--stdin", "--json", stdin=b"x" * (BODY_BYTES_MAX + 1))
    assert (done.code, done.error["code"]) == (1, "invalid_message")
    assert "65537 bytes" in done.error["message"]
    assert shell.mailbox.asked == []


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "é" * 129])
def test_a_key_that_no_service_would_take_is_refused_before_the_call(shell: Shell, key: str) -> None:
    shell.as_agent()
    done = shell("message", "send", "bob", "hi", "--idempotency-key", key, "--json")
    assert (done.code, done.error["code"]) == (1, "invalid_idempotency_key")
    assert shell.mailbox.asked == []


def test_a_key_of_256_bytes_is_taken(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = sent()
    assert shell("message", "send", "bob", "hi", "--idempotency-key", "é" * 128).code == 0


@pytest.mark.requirement("cli.unknown-outcomes-say-so")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Uncertain("delivery_uncertain", "not known", hint="Do not send it again."), 7),
        (NotWritten("not_running", "nobody there"), 6),
        (NotWritten("not_written", "confirmed", key_spent=True), 1),
    ],
    ids=["uncertain", "not running", "not written"],
)
def test_an_outcome_that_is_no_receipt_names_the_key_and_is_called_what_it_is(
    shell: Shell, error: Any, code: int
) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = error
    done = shell("message", "send", "bob", "a secret", "--json", "--idempotency-key", "k1")
    assert done.code == code
    assert (done.error["outcome"], done.error["state"]["idempotency_key"]) == (error.outcome, "k1")
    assert "a secret" not in done.err
    assert [method for method, _ in shell.mailbox.asked] == ["send"]


@pytest.mark.requirement("cli.near-misses-are-named")
def test_an_unknown_target_that_differs_in_case_gets_the_right_name_as_a_hint(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = Refused("not_found", "no agent is called BOB; nothing was written")
    shell.sessions.answers["list_agents"] = sessions.ListAgentsResponse(agents=[agent("bob")])
    done = shell("message", "send", "BOB", "hi", "--json")
    assert (done.code, done.error["hint"]) == (2, "Names match exactly: did you mean 'bob'?")


def test_a_hint_of_the_service_is_kept_and_a_directory_that_is_down_changes_nothing(shell: Shell) -> None:
    shell.sessions.answers["get_agent"] = Refused("not_found", "none", hint="Theirs.")
    assert shell("agent", "show", "BOB", "--json").error["hint"] == "Theirs."
    shell.sessions.answers["get_agent"] = Refused("not_found", "none")
    shell.sessions.answers["list_agents"] = NotWritten("unreachable", "down")
    done = shell("agent", "show", "BOB", "--json")
    assert (done.code, done.error["hint"]) == (2, "")


def test_a_page_is_shown_whole_with_the_commands_that_continue_and_acknowledge_it(shell: Shell) -> None:
    shell.as_agent()
    sender = common_pb2.AgentRef(name="alice", agent_id=BOB)
    shell.mailbox.answers["receive"] = pb.ReceiveResponse(
        records=[
            pb.Record(
                record_id=ASK, kind=pb.RECORD_KIND_REQUEST, sender=sender, body="do\nit \x1b[2J", possibly_seen=True
            ),
            pb.Record(
                record_id="rep_1",
                kind=pb.RECORD_KIND_REPLY,
                sender=sender,
                body="fine",
                parent_id=ASK,
                reply_status=pb.REPLY_STATUS_DONE,
                origin=pb.ORIGIN_AUTOMATIC,
            ),
            pb.Record(record_id="ntc_1", kind=pb.RECORD_KIND_NOTICE, body="note", parent_id=ASK),
        ],
        ack_cursor="CUR",
        next_cursor="CUR",
        has_more=True,
        open_requests=[pb.OpenRequest(request_id="ask_2", sender=sender)],
    )
    out = shell("message", "receive").out
    for expected in (
        f"{ASK} | request from alice",
        "  | do\n  | it ␛[2J",
        "do not execute it again",
        f"done: {ASK}",
        "published automatically",
        "notice from the host",
        "Open: ask_2 from alice",
        "--cursor CUR",
        "--ack-cursor CUR",
    ):
        assert expected in out


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (pb.ReceiveResponse(), "Nothing new."),
        (pb.ReceiveResponse(wake_reason="draining"), "restarts"),
        (pb.ReceiveResponse(wake_reason="provider_context_available"), "conversation"),
    ],
    ids=["empty", "draining", "context"],
)
def test_an_empty_page_says_why_it_is_empty(shell: Shell, answer: pb.ReceiveResponse, expected: str) -> None:
    shell.as_agent()
    shell.mailbox.answers["receive"] = answer
    assert expected in shell("message", "receive").out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("receive", "--limit", "0"), "invalid_limit"),
        (("receive", "--limit", "101"), "invalid_limit"),
        (("receive", "--timeout-ms", "-1"), "invalid_timeout"),
        (("receive", "--timeout-ms", "60001"), "invalid_timeout"),
        (("wait", "--timeout-ms", "60001"), "invalid_timeout"),
        (("list", "--limit", "101"), "invalid_limit"),
        (("list", "--sent", "--inbox"), "invalid_arguments"),
        (("reply", ASK, "x", "--status", "fine"), "invalid_arguments"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_what_is_out_of_range_is_refused_before_a_call(shell: Shell, arguments: tuple[str, ...], reason: str) -> None:
    shell.as_agent()
    done = shell("message", *arguments, "--json")
    assert (done.code, done.error["code"]) == (1, reason)
    assert shell.acted == []


def test_the_ends_of_the_ranges_are_taken(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["receive"] = pb.ReceiveResponse()
    shell.mailbox.answers["wait"] = pb.WaitResponse(timed_out=True)
    for arguments in (("receive", "--limit", "1", "--timeout-ms", "60000"), ("receive", "--limit", "100"), ("wait",)):
        assert shell("message", *arguments).code == 0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (pb.WaitResponse(timed_out=True), "Nothing came within 60.00 s."),
        (pb.WaitResponse(wake_reason="activity"), "message receive"),
        (pb.WaitResponse(wake_reason="draining"), "draining"),
    ],
    ids=["timed out", "activity", "draining"],
)
def test_a_wait_that_ends_is_never_a_failure(shell: Shell, answer: pb.WaitResponse, expected: str) -> None:
    shell.as_agent()
    shell.mailbox.answers["wait"] = answer
    done = shell("message", "wait")
    assert done.code == 0
    assert expected in done.out


def test_a_reply_carries_its_status_and_names_the_requester(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["reply"] = pb.ReplyResponse(
        request_id=ASK, record_id="rep_1", recipient=common_pb2.AgentRef(agent_id=BOB, name="bob"), duplicate=True
    )
    done = shell("message", "reply", ASK, "cannot", "--status", "blocked")
    assert shell.mailbox.asked[0][1].status == pb.REPLY_STATUS_BLOCKED
    assert "was stored by an earlier call" in done.out


def test_a_listing_of_another_agent_is_the_operators(shell: Shell) -> None:
    shell.as_agent()
    assert shell("message", "list", "--agent", "bob", "--json").error["code"] == "permission_denied"
    shell.monkeypatch.delenv("FENCEPOST_SESSION_ID")
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=agent("bob"))
    record = pb.Record(record_id=INF, kind=pb.RECORD_KIND_INFORMATION, body="x\ny")
    shell.mailbox.answers["list_records"] = pb.ListRecordsResponse(records=[record], next_page_token="T")
    done = shell("message", "list", "--agent", "bob", "--sent", "--open", "--limit", "5", "--page-token", "P")
    assert (INF in done.out, "x⏎y" in done.out, "--page-token T" in done.out) == (True, True, True)
    assert shell.mailbox.asked == [
        (
            "list_records",
            pb.ListRecordsRequest(
                agent_id=BOB, direction=pb.DIRECTION_SENT, page_size=5, page_token="P", open_only=True
            ),
        )
    ]


def test_a_record_is_shown_with_its_text_and_what_is_known_of_it(shell: Shell) -> None:
    record = pb.Record(
        record_id=INF, kind=pb.RECORD_KIND_INFORMATION, body="hi\x07", delivery_state=pb.DELIVERY_STATE_EXPOSED
    )
    shell.mailbox.answers["get_record"] = pb.GetRecordResponse(record=record)
    out = shell("message", "show", INF).out
    assert "delivery: exposed | not acknowledged" in out
    assert out.endswith("hi␇\n")
    assert shell("message", "show", INF, "--json").document["record"]["body"] == "hi\x07"


@pytest.mark.requirement("cli.threads-and-search")
def test_a_message_is_sent_with_attributes_only_where_they_are_given(shell: Shell) -> None:
    shell.as_agent()
    shell.mailbox.answers["send"] = sent()
    shell.mailbox.answers["request"] = pb.RequestResponse(request_id=ASK)
    shell("message", "send", "bob", "hi")
    given = ("--subject", "s", "--thread", INF, "--reply-to", ASK, "--task", "task_1")
    for verb in ("send", "followup"):
        shell("message", verb, "bob", "hi", *given)
    asked = [ask for _, ask in shell.mailbox.asked]
    assert not asked[0].HasField("attributes")
    wanted = pb.Attributes(subject="s", thread_id=INF, reply_to=ASK, task_id="task_1")
    assert [ask.attributes for ask in asked[1:]] == [wanted, wanted]


@pytest.mark.requirement("cli.threads-and-search")
def test_a_subject_and_a_thread_are_shown_and_no_line_of_them_can_pass_for_one_of_ours(shell: Shell) -> None:
    about = pb.Attributes(subject="Plan\nMore: x", thread_id="thr_1", reply_to=INF)
    record = pb.Record(record_id=INF, kind=pb.RECORD_KIND_INFORMATION, body="a\nMore: b", attributes=about)
    shell.mailbox.answers["get_record"] = pb.GetRecordResponse(record=record)
    shown = shell("message", "show", INF).out
    assert "subject: Plan⏎More: x" in shown
    assert f"  thread: thr_1 | answers {INF}\n" in shown
    record.attributes.task_id = "task_1"
    shell.mailbox.answers["get_record"] = pb.GetRecordResponse(record=record)
    assert shell("message", "show", INF).out.count("task: task_1") == 1
    of_a_task = shell("why", "task_1", "--json").error
    assert (of_a_task["code"], "`fencepost task history`" in of_a_task["hint"]) == ("not_found", True)
    shell.mailbox.answers["get_thread"] = pb.GetThreadResponse(
        thread_id="thr_1", subject="Plan\nMore: x", records=[record], next_page_token="T"
    )
    read = shell("message", "thread", INF, "--limit", "5").out.splitlines()
    assert read[0] == "thr_1: Plan⏎More: x"
    assert [line for line in read if line.startswith("More")] == ["More: --page-token T"]
    assert shell.mailbox.asked[-1] == ("get_thread", pb.GetThreadRequest(id=INF, page_size=5))
    found = pb.FoundRecord(record=record, excerpt="a\nMore: b")
    shell.mailbox.answers["search_records"] = pb.SearchRecordsResponse(found=[found], next_page_token="T")
    out = shell("message", "search", "plan b", "--page-token", "P").out
    assert ("Plan⏎More: x" in out, "a⏎More: b" in out) == (True, True)
    assert out.splitlines()[-2:] == ["More: --page-token T", "The newest messages are not searched yet. Search again."]
    ask = pb.SearchRecordsRequest(query="plan b", page_size=50, page_token="P")
    assert shell.mailbox.asked[-1] == ("search_records", ask)
    shell.mailbox.answers["search_records"] = pb.SearchRecordsResponse(complete=True)
    assert shell("message", "search", "word").out == "No messages.\n"
    assert shell("message", "search", "word", "--json").document["complete"]
    assert shell("message", "thread", INF, "--json").document["thread_id"] == "thr_1"


def test_why_as_json_has_the_latencies_beside_the_facts(shell: Shell) -> None:
    facts = [pb.Fact(fact="admitted", at_ms=5), pb.Fact(fact="exposed", at_ms=9)]
    shell.mailbox.answers["explain"] = pb.ExplainResponse(record=pb.Record(record_id=INF), facts=facts, summary="s")
    found = shell("why", INF, "--json").document
    assert [fact["since_previous_ms"] for fact in found["facts"]] == [None, 4]
    assert "the host" in shell("why", INF).out


def creating(shell: Shell) -> None:
    shell.sessions.answers["ensure_project"] = lambda request: sessions.EnsureProjectResponse(
        project=sessions.Project(project_id=PROJECT, name=request.name, location=request.location), created=True
    )
    shell.sessions.answers["create_agent"] = lambda request: sessions.CreateAgentResponse(
        agent=agent(request.name), credential_file=str(shell.home.agent_credential(BOB))
    )


@pytest.mark.requirement("cli.create-says-how-to-connect")
def test_creating_an_agent_says_how_to_connect_it(shell: Shell, tmp_path: Path) -> None:
    creating(shell)
    workspace = tmp_path / "w"
    done = shell(
        "agent", "create", "bob", "--provider", "codex", "--role", "coordinator", "--workspace", str(workspace)
    )
    assert done.code == 0
    for expected in (
        BOB,
        f"export FENCEPOST_HOME={shell.home.text}",
        f"export FENCEPOST_SESSION_ID={BOB}",
        "mcpServers",
    ):
        assert expected in done.out
    project, request = (asked for _, asked in shell.sessions.asked)
    assert (project.kind, project.location) == (sessions.PROJECT_KIND_FOLDER, str(tmp_path.resolve()))
    assert (request.project_id, request.provider, request.role) == (PROJECT, "codex", common_pb2.ROLE_COORDINATOR)
    assert request.workspace == str(workspace)


@pytest.mark.requirement("cli.create-says-how-to-connect")
def test_the_mcp_entry_names_the_installed_script_by_its_absolute_path_and_no_secret(shell: Shell) -> None:
    creating(shell)
    found = shell("agent", "create", "bob", "--json").document
    entry = found["connect"]["mcp"]["mcpServers"]["fencepost"]
    assert entry["env"] == {"FENCEPOST_HOME": shell.home.text, "FENCEPOST_SESSION_ID": BOB}
    assert Path(entry["command"]).is_absolute()
    assert os.access(entry["command"], os.X_OK)
    assert "fp_" not in str(found)


def test_a_role_that_does_not_exist_is_refused_before_a_call(shell: Shell) -> None:
    assert shell("agent", "create", "x", "--role", "operator", "--json").error["code"] == "invalid_arguments"
    assert shell.acted == []


def test_agents_are_listed_with_who_reads_and_without_the_mailbox_all_the_same(shell: Shell) -> None:
    shell.sessions.answers["list_projects"] = sessions.ListProjectsResponse(
        projects=[sessions.Project(project_id=PROJECT, name="shop", location="/shop/.git")]
    )
    pages = {"": sessions.ListAgentsResponse(agents=[agent("bob")], next_page_token="2")}
    pages["2"] = sessions.ListAgentsResponse(agents=[agent("日本", AGENT)])
    shell.sessions.answers["list_agents"] = lambda request: pages[request.page_token]
    shell.mailbox.answers["list_readers"] = pb.ListReadersResponse(readers=[pb.Reader(agent_id=BOB, waiting=True)])
    out = shell("agent", "list").out
    assert all(text in out for text in ("shop", BOB, AGENT, "waiting now"))
    shell.mailbox.answers["list_readers"] = NotWritten("unreachable", "down")
    done = shell("agent", "list", "--json")
    assert [(item["name"], item["reader"]) for item in done.document["agents"]] == [("bob", None), ("日本", None)]


def test_an_empty_listing_says_what_to_do_next(shell: Shell) -> None:
    shell.sessions.answers["list_projects"] = sessions.ListProjectsResponse()
    shell.sessions.answers["list_agents"] = sessions.ListAgentsResponse()
    shell.mailbox.answers["list_records"] = pb.ListRecordsResponse()
    assert "fencepost agent create NAME" in shell("agent", "list").out
    assert "agent create" in shell("project", "list").out
    assert shell("agent", "list", "--project", ".", "--json").document["agents"] == []
    assert "--agent TARGET" in shell("message", "list", "--json").error["hint"]
    shell.as_agent()
    assert shell("message", "list").out == "No messages.\n"


def test_an_agent_is_shown_and_changed_field_by_field(shell: Shell) -> None:
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=agent("bob"), credential_file="/c")
    shell.sessions.answers["update_agent"] = sessions.UpdateAgentResponse(agent=agent("rob"))
    shell.mailbox.answers["list_readers"] = pb.ListReadersResponse()
    assert BOB in shell("agent", "show", "bob").out
    assert shell("agent", "update", "bob", "--name", "rob", "--provider", "").code == 0
    request = shell.sessions.asked[-1][1]
    assert (request.agent_id, request.name, request.provider) == (BOB, "rob", "")
    assert (request.HasField("provider"), request.HasField("role"), request.HasField("workspace")) == (
        True,
        False,
        False,
    )
    assert shell("agent", "update", "bob", "--json").error["code"] == "invalid_arguments"


def test_credentials_are_listed_without_secrets_and_a_revocation_says_whether_it_is_enforced(shell: Shell) -> None:
    shell.sessions.answers["list_credentials"] = sessions.ListCredentialsResponse(
        credentials=[sessions.Credential(credential_id=BOB, role=common_pb2.ROLE_SERVICE, label="mailbox")]
    )
    assert "mailbox" in shell("credential", "list").out
    for enforced, word in ((True, "enforces it"), (False, "has not")):
        shell.sessions.answers["revoke_credential"] = sessions.RevokeCredentialResponse(revision=4, enforced=enforced)
        assert word in shell("credential", "revoke", BOB).out
    assert shell("credential", "revoke", "x", "--json").error["code"] == "invalid_arguments"


@pytest.mark.requirement("cli.retired-verbs-are-refused")
@pytest.mark.parametrize("verb", sorted(RETIRED))
@pytest.mark.parametrize("arguments", [(), ("bob", "hi"), ("--to", "bob", "--until", "reply", "--help")])
def test_retired_verbs_are_refused_with_the_new_one_whatever_their_arguments(
    shell: Shell, verb: str, arguments: tuple[str, ...]
) -> None:
    shell.as_agent()
    done = shell(verb, *arguments, "--json")
    assert (done.code, done.error["code"]) == (1, "retired_command")
    assert "fencepost message" in done.error["hint"]
    assert shell.acted == []


@pytest.mark.requirement("cli.retired-verbs-are-refused")
@pytest.mark.parametrize("option", sorted(RETIRED_OPTIONS))
def test_options_of_retired_verbs_are_refused_with_what_to_do_instead(shell: Shell, option: str) -> None:
    shell.as_agent()
    done = shell("message", "send", "bob", "hi", option, "x", "--json")
    assert (done.code, done.error["code"], done.error["hint"]) == (1, "retired_option", RETIRED_OPTIONS[option])
    assert shell.acted == []


# --- deleting an agent ---


def deletion(*, finished: bool, duplicate: bool = False) -> sessions.DeleteAgentResponse:
    doomed = agent("bob")
    doomed.state = sessions.AGENT_STATE_DELETING
    return sessions.DeleteAgentResponse(agent=doomed, finished=finished, duplicate=duplicate)


@pytest.mark.requirement("cli.deleting-says-what-it-does")
def test_without_the_name_typed_again_a_deletion_only_says_what_it_would_do(shell: Shell) -> None:
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=agent("bob"))
    done = shell("agent", "delete", "bob", "--json")
    assert (done.code, done.error["code"]) == (1, "confirmation_missing")
    assert all(line in done.error["message"] for line in deleting.CONSEQUENCES)
    assert f"agent delete {BOB} --confirm NAME" in done.error["hint"]
    assert [method for method, _ in shell.sessions.asked] == ["get_agent"]


@pytest.mark.requirement("cli.deleting-says-what-it-does")
@pytest.mark.parametrize("as_json", [False, True])
def test_a_deletion_is_begun_and_asked_about_under_one_key_until_it_has_ended(shell: Shell, as_json: bool) -> None:
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=agent("bob"))
    answers = [deletion(finished=False), deletion(finished=True, duplicate=True)]
    shell.sessions.answers["delete_agent"] = lambda _request: answers.pop(0)
    done = shell("agent", "delete", "bob", "--confirm", "bob", *(("--json",) if as_json else ()))
    assert done.code == 0
    asked = [request for method, request in shell.sessions.asked if method == "delete_agent"]
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert (asked[0].agent_id, asked[0].confirm_name) == (BOB, "bob")
    if as_json:
        assert (done.document["finished"], done.document["duplicate"]) == (True, False)
    else:
        assert "is being deleted" in done.out
        assert "closed and erased" in done.out.splitlines()[-1]


@pytest.mark.requirement("cli.deleting-says-what-it-does")
def test_a_deletion_that_does_not_end_in_time_is_told_as_begun_and_not_as_done(shell: Shell) -> None:
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=agent("bob"))
    shell.sessions.answers["delete_agent"] = deletion(finished=False)
    done = shell("agent", "delete", "bob", "--confirm", "bob", "--wait-s", "0")
    assert done.code == 0
    assert "Not ended within 0 s" in done.out
    assert "Deleted" not in done.out


@pytest.mark.parametrize(("seconds", "refused"), [(-1, True), (deleting.DELETION_WAIT_S_MAX + 1, True), (0, False)])
def test_the_wait_for_the_end_of_a_deletion_has_limits(shell: Shell, seconds: int, refused: bool) -> None:
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=agent("bob"))
    shell.sessions.answers["delete_agent"] = deletion(finished=True)
    done = shell("agent", "delete", "bob", "--confirm", "bob", "--wait-s", str(seconds), "--json")
    assert (done.code == 1) is refused


def test_an_agent_that_is_being_deleted_is_shown_so(shell: Shell) -> None:
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=deletion(finished=False).agent)
    shell.sessions.answers["list_agents"] = sessions.ListAgentsResponse(agents=[deletion(finished=False).agent])
    shell.sessions.answers["list_projects"] = sessions.ListProjectsResponse()
    shell.mailbox.answers["list_readers"] = pb.ListReadersResponse()
    assert "deleting" in shell("agent", "show", "bob").out
    assert "deleting" in shell("agent", "list").out


@pytest.mark.requirement("cli.exit-codes-are-stable")
@pytest.mark.parametrize(
    "arguments", [("bogus",), ("message", "send"), ("message", "wait", "--bogus"), ("agent", "show")], ids=" ".join
)
def test_wrong_usage_is_a_general_failure_and_not_the_code_for_not_found(
    shell: Shell, arguments: tuple[str, ...]
) -> None:
    done = shell(*arguments, "--json")
    assert (done.code, done.error["code"], done.out) == (1, "invalid_arguments", "")


def test_errors_for_people_have_the_code_and_the_hint_on_standard_error(shell: Shell) -> None:
    done = shell("message", "wait")
    assert done.out == ""
    assert "(missing_managed_sender)" in done.err
    assert "fencepost agent create" in done.err


@pytest.mark.requirement("cli.status-says-the-next-step")
def test_the_status_of_a_home_that_is_down_exits_6_and_says_how_to_start(shell: Shell) -> None:
    done = shell("status")
    assert (done.code, "Next: fencepost up --detach" in done.out) == (6, True)
    found = shell("status", "--json")
    assert (found.code, found.document["running"], found.document["next_step"]) == (6, False, "fencepost up --detach")


@pytest.mark.requirement("cli.status-says-the-next-step")
def test_the_status_shows_what_answers_and_that_there_are_no_agents_yet(shell: Shell) -> None:
    shell.home.prepare()
    for service in ("sessions", "mailbox"):
        shell.home.address(service).write_text("unix:/nowhere")
    shell.sessions.answers["describe"] = sessions.DescribeResponse(version="1.2", epoch="E1", revision=3)
    shell.mailbox.answers["describe"] = pb.DescribeResponse(version="1.2", epoch="E2")
    shell.sessions.answers["list_agents"] = sessions.ListAgentsResponse()
    done = shell("status")
    assert done.code == 0
    assert all(text in done.out for text in ("E1", "E2", "No agents yet. Next: fencepost agent create NAME"))
    assert shell("status", "--json").document["agents"] == 0
    shell.mailbox.answers["describe"] = NotWritten("unreachable", "down")
    assert [item["name"] for item in shell("status", "--json").document["services"]] == ["sessions"]


def test_going_down_where_nothing_is_up_is_no_failure(shell: Shell) -> None:
    done = shell("down", "--json")
    assert (done.code, done.document["was_running"]) == (0, False)
    assert shell("down", "--timeout-s", "0", "--json").error["code"] == "invalid_timeout"


def test_the_version_is_printed_for_people_and_programs(shell: Shell) -> None:
    from fencepost import __version__

    assert shell("version").out == shell("--version").out == f"fencepost {__version__}\n"
    assert shell("version", "--json").document == {"schema": 1, "version": __version__}


def test_help_is_given_for_either_spelling_and_shows_whole_sentences_where_there_is_room(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert shell("task", "-h").out == shell("task", "--help").out
    assert "Stop the services of the home in order; what is under way ends first." in shell("-h").out


@pytest.mark.requirement("cli.the-shim-loads-no-command-line")
def test_mcp_serve_reaches_the_shim_before_the_command_line_is_loaded() -> None:
    program = (
        "import sys; sys.argv = ['fencepost', 'mcp', 'serve', '--version'];"
        "from fencepost.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted(name for name in ('typer', 'grpc', 'rich', 'fencepost.cli.app') if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


def test_mcp_without_serve_says_what_it_takes(shell: Shell) -> None:
    assert shell("mcp", "start", "--json").error["code"] == "invalid_arguments"


@pytest.mark.requirement("cli.unknown-outcomes-say-so")
def test_an_interrupted_command_says_that_its_call_may_still_be_carried_out(shell: Shell) -> None:
    shell.as_agent()

    def interrupt(_: Any) -> Any:
        raise KeyboardInterrupt

    shell.mailbox.answers["send"] = interrupt
    done = shell("message", "send", "bob", "hi", "--json")
    assert (done.code, done.error["code"], done.error["outcome"]) == (130, "interrupted", "uncertain")
