"""The acceptance judges rightly on small inputs, refuses without a person's word, and reports no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost_testing.acceptance import APPROVED, PLANTED
from fencepost_testing.acceptance_evidence import UNVERIFIED, read
from fencepost_testing.acceptance_model import played, plays_of
from fencepost_testing.acceptance_report import NOTES, Leaked, Report, conversation, counted, page
from fencepost_testing.acceptance_run import ROOT, script
from fencepost_testing.acceptance_scenes import AGAIN, ASK, EXPLICITLY, INFORM, LONG, STOP, WORK, plays
from fencepost_testing.codex_model import Told

CHILD_S_MAX: Final = 30
TURN: Final = "turn-1"


def said(tmp_path: Path, **changes: str) -> dict[str, str]:
    """What a person says for a real run, as far as it is not left out."""
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "home").mkdir(exist_ok=True)
    whole = {
        "FENCEPOST_E2E_REAL": "1",
        "FENCEPOST_E2E_CODEX": str(program),
        "FENCEPOST_E2E_CODEX_HOME": str(tmp_path / "home"),
        "FENCEPOST_E2E_CODEX_VERSION": "0.171.0",
    }
    return {**whole, **changes}


@pytest.mark.requirement("acceptance.real-is-opt-in")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"FENCEPOST_E2E_REAL": ""}, "FENCEPOST_E2E_REAL=1"),
        ({"FENCEPOST_E2E_REAL": "yes"}, "and not 1"),
        ({"FENCEPOST_E2E_CODEX": ""}, "FENCEPOST_E2E_CODEX="),
        ({"FENCEPOST_E2E_CODEX": "codex"}, "absolute path of a program"),
        ({"FENCEPOST_E2E_CODEX_HOME": ".codex"}, "absolute path of a folder"),
        ({"FENCEPOST_E2E_CODEX_VERSION": ""}, "FENCEPOST_E2E_CODEX_VERSION="),
    ],
)
def test_a_real_run_without_a_persons_whole_word_is_refused(
    tmp_path: Path, changes: Mapping[str, str], words: str
) -> None:
    module = script()
    with pytest.raises(module.Refused) as refused:
        module.real(said(tmp_path, **changes))
    assert words in str(refused.value)
    assert "othing was started" in str(refused.value)


@pytest.mark.requirement("acceptance.real-is-opt-in")
def test_the_command_for_a_real_run_says_what_it_takes_and_starts_nothing() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "acceptance.py"), "--real"],
        env=env,
        capture_output=True,
        text=True,
        timeout=CHILD_S_MAX,
        check=False,
    )
    assert (done.returncode, done.stdout) == (script().REFUSED, "")
    assert all(name in done.stderr for name in script().REAL)


@pytest.mark.requirement("acceptance.real-is-opt-in")
@pytest.mark.parametrize("approve", ["", "1"])
def test_the_plan_of_a_real_run_names_all_that_it_uses_and_writes(tmp_path: Path, approve: str) -> None:
    module = script()
    word = module.real(said(tmp_path, FENCEPOST_E2E_APPROVE_TOOLS=approve, FENCEPOST_E2E_MODEL="some-model"))
    plan = module.plan(word, APPROVED)
    for told in (str(word.codex), str(word.codex_home), "0.171.0", "some-model", "real.json", "sessions"):
        assert told in plan
    assert all((tool in plan) == bool(approve) for tool in APPROVED)
    assert max(map(len, plan.splitlines())) <= 200


def line(kind: str, **payload: Any) -> str:
    return json.dumps({"type": kind, "ordinal": payload.pop("ordinal", 0), "payload": payload})


def rollout(tmp_path: Path, **context: Any) -> Path:
    delivery = json.dumps({"interaction_id": "ask_1", "body": "work"})
    lines = [
        line("session_meta", id="thread-1", cwd="/w", cli_version="0.171.0", model_provider="p"),
        # Put in beside a turn: it bears the name of one that never is.
        line("turn_context", turn_id="never", model="m"),
        line(
            "response_item",
            type="function_call_output",
            name="fencepost_inbox_delivery",
            output='{"interaction_id":"i"}',
        ),
        line("event_msg", type="task_started", turn_id=TURN),
        line("turn_context", turn_id=TURN, model="m", **context),
        line("response_item", type="function_call_output", name="fencepost_task_delivery", output=delivery),
        line(
            "response_item", type="function_call", name="reply", namespace="mcp__fencepost", call_id="c", arguments="{}"
        ),
        line("response_item", type="function_call_output", call_id="c", output='Output:\n{"interaction_id":"rep_1"}'),
        line("response_item", type="message", role="assistant", phase="final_answer", content=[{"text": "two words"}]),
        line("event_msg", type="task_complete", turn_id=TURN, last_agent_message="two words"),
    ]
    path = tmp_path / "rollout-1-thread-1.jsonl"
    path.write_text("\n".join(lines) + '\n{"type":"resp', encoding="utf-8")
    return path


def test_a_rollout_is_read_turn_by_turn_and_what_is_beside_turns_starts_none(tmp_path: Path) -> None:
    found = read(rollout(tmp_path))
    (turn,) = found.turns.values()
    assert (found.thread, turn.turn_id, turn.end, turn.final) == ("thread-1", TURN, "completed", "two words")
    assert [item.record for item in found.between] == ["i"]
    assert (turn.records, found.executions("ask_1"), found.executions("i"), found.shown("i")) == (["ask_1"], 1, 0, 1)
    ((_, result),) = turn.calls("reply")
    assert result is not None
    assert result.document == {"interaction_id": "rep_1"}


@pytest.mark.requirement("acceptance.report-without-secrets")
@pytest.mark.parametrize(("context", "effort"), [({}, UNVERIFIED), ({"effort": "high"}, "high")])
def test_an_effort_that_codex_does_not_tell_is_unverified(
    tmp_path: Path, context: Mapping[str, str], effort: str
) -> None:
    found = read(rollout(tmp_path, **context))
    (turn,) = conversation(found, found.turns.values())["turns"]
    assert (turn["model"], turn["effort"]) == ("m", effort)
    assert turn["tools"] == [{"call": "c", "tool": "reply", "receipt": {"interaction_id": "rep_1"}}]


@pytest.mark.requirement("acceptance.report-without-secrets")
def test_counts_are_labelled_and_said_not_to_be_of_tokens(tmp_path: Path) -> None:
    report = Report(artifacts={"wheel": {"name": "w.whl", "bytes": 1, "sha256": "00"}})
    report.add("exchange", input=counted("three small words"), request="ask_1")
    told = json.loads(report.write(tmp_path, "report").read_text(encoding="utf-8"))
    assert told["scenes"]["exchange"]["input"] == {"text": "three small words", "characters": 17, "words": 3}
    text = page(told)
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == text
    assert "17 characters, 3 words" in text
    assert "not counts of tokens" in text
    assert told["notes"] == list(NOTES)


@pytest.mark.requirement("acceptance.report-without-secrets")
@pytest.mark.parametrize("secret", [PLANTED, "fp_" + "a" * 43, '"refresh_token"', "eyJhbGciOiJIUzI1NiIs.x"])
def test_a_report_with_a_secret_is_not_written(tmp_path: Path, secret: str) -> None:
    report = Report(artifacts={})
    report.add("exchange", output=secret)
    with pytest.raises(Leaked) as leaked:
        report.write(tmp_path, "report")
    assert secret not in str(leaked.value)
    assert list(tmp_path.iterdir()) == []


def test_the_plays_know_what_the_scenes_say() -> None:
    known = plays_of(plays())
    peer = "peer-one"
    work = [WORK, WORK + EXPLICITLY, AGAIN, LONG, INFORM.format(peer=peer), STOP.format(peer=peer)]
    firsts = [played([Told(who="person", text=text, record="ask_1")], known)[0] for text in work]
    assert [verb for verb, _ in firsts] == ["SAY", "CALL", "RECALL", "ASIDE", "CALL", "CALL"]
    assert '"ask_1"' in firsts[1][1]
    asking = Told(who="person", text=ASK.format(peer=peer, work=WORK))
    (verb, rest) = played([asking], known)[0]
    assert (verb, json.loads(rest.partition(" ")[2])) == ("CALL", {"target": peer, "message": WORK})
    results = [Told(who="result", text='{"message": "KESTREL-42"}')] * 4
    assert played([asking, *results], known) == [("SAY", "The answer is: KESTREL-42")]
