"""What a person, a script and an agent get from the command line of a running home."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.home import MAILBOX
from fencepost_testing.command import People, Person
from fencepost_testing.processes import environment, short_home

BODY = 'a "quoted" line\r\nESC \x1b[31m 日本語 👩‍💻\n'
LOOKS_MAX = 20
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "word_counter.py"


def times_sent(person: Person, body: str) -> int:
    records = person("message", "list", "--sent", "--limit", "100", "--json").document["records"]
    return [record["body"] for record in records].count(body)


@pytest.mark.requirement("cli.why-shows-every-fact-apart")
def test_two_agents_exchange_information_a_request_and_its_reply(people: People) -> None:
    operator, ada, bob = people.operator, people.ada, people.bob
    sent = ada("message", "send", "bob", "--stdin", "--json", stdin=BODY.encode()).document
    asked = ada("message", "followup", "bob", "How many?", "--json").document
    assert (sent["delivery_state"], sent["recipient_reader"], sent["duplicate"]) == ("admitted", "none", False)
    page = bob("message", "receive", "--json").document
    assert [(item["record_id"], item["kind"]) for item in page["records"]] == [
        (sent["record_id"], "information"),
        (asked["request_id"], "request"),
    ]
    assert page["records"][0]["body"] == BODY
    replied = bob("message", "reply", asked["request_id"], "Three.", "--json").document
    assert ada("message", "wait", "--json").document["wake_reason"] == "activity"
    answer = ada("message", "receive", "--json").document["records"]
    assert [(item["record_id"], item["parent_id"], item["body"]) for item in answer] == [
        (replied["record_id"], asked["request_id"], "Three.")
    ]
    acknowledged = bob("message", "receive", "--ack-cursor", page["ack_cursor"], "--json").document
    assert (acknowledged["records"], acknowledged["unacknowledged"]) == ([], 0)
    told = operator("why", asked["request_id"], "--json").document
    facts = [fact["fact"] for fact in told["facts"] if fact["fact"] != "acknowledged"]
    assert (facts, told["reply_id"]) == (["admitted", "exposed", "replied"], replied["record_id"])
    listed = operator("message", "list", "--agent", "bob").out
    assert all(record_id in listed for record_id in (sent["record_id"], asked["request_id"], replied["record_id"]))
    assert "\x1b" not in listed


@pytest.mark.requirement("mailbox.events-are-told-once-in-commit-order")
def test_tail_tells_the_facts_so_far_one_document_a_line_and_goes_on_from_a_position(people: People) -> None:
    sent = people.ada("message", "send", "bob", "for the tail", "--json").document["record_id"]
    lines = [json.loads(line) for line in people.bob("message", "tail", "--until-now", "--json").out.splitlines()]
    positions = [int(line["position"]) for line in lines]
    assert positions == sorted(set(positions))
    mine = [line for line in lines if line["record"]["record_id"] == sent]
    assert [line["fact"]["fact"] for line in mine] == ["admitted"]
    assert {line["schema"] for line in lines} == {1}
    rest = people.bob("message", "tail", "--until-now", "--after", str(positions[-1]), "--json")
    assert (rest.code, rest.out) == (0, "")
    shown = people.operator("message", "tail", "--agent", "bob", "--until-now")
    assert f"{sent}  information from ada to bob: for the tail" in shown.out
    denied = people.ada("message", "tail", "--agent", "bob", "--until-now", "--json")
    assert (denied.code, denied.error["code"]) == (3, "permission_denied")


def test_the_same_key_answers_the_first_receipt_and_other_content_is_refused(people: People) -> None:
    command = ("message", "send", "bob", "once", "--idempotency-key", "same", "--json")
    first, again = people.ada(*command).document, people.ada(*command).document
    assert (first["record_id"], first["duplicate"]) == (again["record_id"], False)
    assert again["duplicate"]
    other = people.ada("message", "send", "bob", "twice", "--idempotency-key", "same", "--json")
    assert (other.code, other.error["code"]) == (1, "idempotency_conflict")


@pytest.mark.requirement("cli.exit-codes-are-stable")
@pytest.mark.requirement("cli.near-misses-are-named")
def test_each_failure_has_its_exit_code_and_a_reason(people: People, tmp_path: Path) -> None:
    operator, ada = people.operator, people.ada
    unknown = ada("message", "send", "BOB", "x", "--json")
    assert (unknown.code, unknown.error["code"], "bob" in unknown.error["hint"]) == (2, "not_found", True)
    operator.creates("twin", "--project", str(tmp_path))
    operator.creates("twin")
    ambiguous = operator("agent", "show", "twin", "--json")
    assert (ambiguous.code, ambiguous.error["code"]) == (5, "ambiguous_target")
    with short_home() as other:
        elsewhere = {"FENCEPOST_HOME": str(other.path)}
        away = ada("message", "send", "bob", "x", "--json", env=elsewhere)
        assert (away.code, away.error["code"]) == (3, "credential_missing")
        down = operator("agent", "list", "--json", env=elsewhere)
        assert (down.code, down.error["code"]) == (6, "not_running")
        assert not other.path.exists()


def test_bad_input_is_refused_with_a_stable_code_and_changes_nothing(people: People) -> None:
    before = people.operator("message", "list", "--agent", "ada", "--json").out
    for command, reason in (
        (("message", "send", " bob", "x"), "invalid_target"),
        (("message", "send", "all", "x"), "invalid_target"),
        (("message", "followup", "ada", "x"), "self_request"),
        (("message", "receive", "--cursor", "cur_nonsense"), "invalid_cursor"),
        (("message", "reply", "ask_" + "0" * 32, "x"), "not_found"),
    ):
        done = people.ada(*command, "--json")
        assert (done.error["code"], done.code) == (reason, 2 if reason == "not_found" else 1)
    assert people.operator("message", "list", "--agent", "ada", "--json").out == before


@pytest.mark.requirement("identity.expected-generation-is-held-to")
def test_a_process_launched_for_another_generation_sends_nothing(people: People) -> None:
    done = people.ada("message", "send", "bob", "generation", "--json", env={"FENCEPOST_GENERATION": "7"})
    assert (done.code, done.error["code"]) == (3, "stale_generation")
    assert people.ada("message", "send", "bob", "generation", env={"FENCEPOST_GENERATION": "1"}).code == 0
    assert times_sent(people.ada, "generation") == 1


def test_a_revoked_credential_ends_with_code_3_once_it_is_enforced(people: People) -> None:
    eve = people.operator.creates("eve")
    (mine,) = people.operator("credential", "list", "--agent", "eve", "--json").document["credentials"]
    revoke = ("credential", "revoke", mine["credential_id"], "--json")
    assert any(people.operator(*revoke).document["enforced"] for _ in range(LOOKS_MAX))
    done = eve("message", "send", "bob", "x", "--json")
    assert (done.code, done.error["code"]) == (3, "unauthenticated")


def test_an_agent_is_renamed_and_found_by_its_new_name(people: People) -> None:
    made = people.operator.creates("old-name")
    change = ("agent", "update", "old-name", "--name", "new-name", "--provider", "pi", "--json")
    changed = people.operator(*change).document["agent"]
    assert (changed["agent_id"], changed["name"], changed["provider"]) == (made.agent_id, "new-name", "pi")
    listed = {item["name"] for item in people.operator("agent", "list", "--json").document["agents"]}
    assert ("new-name" in listed, "old-name" in listed) == (True, False)


def test_output_is_utf_8_whatever_the_locale_and_a_reader_that_leaves_early_is_no_crash(people: People) -> None:
    people.ada("message", "send", "bob", "日本語")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    assert "日本語" in people.ada("message", "list", env=ascii_only).out
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -P -m fencepost message list --agent bob --json | head -c 1 >/dev/null"],
        env=environment(people.services.home),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == b""


def sees_bob_waiting(person: Person) -> bool:
    """Whether bob is parked in a wait, looked at until he is."""
    for _ in range(LOOKS_MAX):
        agents = person("agent", "list", "--json").document["agents"]
        if any(item["name"] == "bob" and item["reader"] and item["reader"]["waiting"] for item in agents):
            return True
    return False


@pytest.mark.requirement("client.reads-are-asked-again")
def test_an_open_wait_outlives_a_killed_mailbox(people: People) -> None:
    page = people.bob("message", "receive", "--json").document
    while page["ack_cursor"]:
        page = people.bob("message", "receive", "--ack-cursor", page["ack_cursor"], "--json").document
    waiting = people.bob.start("message", "wait", "--timeout-ms", "30000", "--json")
    try:
        assert sees_bob_waiting(people.ada)
        asyncio.run(people.services.restart(MAILBOX))
        assert people.ada("message", "send", "bob", "wake up").code == 0
        out, err = waiting.communicate(timeout=35)
    finally:
        waiting.kill()
        waiting.communicate()
    assert (waiting.returncode, b'"timed_out": false' in out) == (0, True), err


@pytest.mark.requirement("client.no-connection-is-not-written")
def test_a_mailbox_that_is_down_is_not_running_and_nothing_was_written(people: People) -> None:
    people.services.kill(MAILBOX)
    try:
        done = people.ada("message", "send", "bob", "nobody home", "--json")
    finally:
        asyncio.run(people.services.start(MAILBOX))
    assert (done.code, done.error["outcome"]) == (6, "not_written")
    assert times_sent(people.ada, "nobody home") == 0


@pytest.mark.requirement("client.example-works")
def test_the_example_agent_answers_a_request(people: People) -> None:
    counter = people.operator.creates("counter")
    asked = people.ada("message", "followup", "counter", "how many words are these", "--json").document
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLE), "1"],
        env=environment(people.services.home, {"FENCEPOST_SESSION_ID": counter.agent_id}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    reply_id = people.ada("why", asked["request_id"], "--json").document["reply_id"]
    assert people.ada("message", "show", reply_id, "--json").document["record"]["body"] == "5 words"
