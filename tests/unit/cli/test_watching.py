"""A person beside a conversation: watching, prompting, interrupting."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.cli import watching
from fencepost.common.v1 import common_pb2
from fencepost.errors import NotWritten, Refused, Uncertain
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import BOB, PROJECT, Shell

PRM = "prm_0190f3a2111172228333444455556666"
ROWS = [
    pb.WatchConversationResponse(
        position=1, kind=pb.ROW_KIND_ASSISTANT, text="fine\nroger \x1b[2J", at_ms=1, turn_id="t", cut=True
    ),
    pb.WatchConversationResponse(position=2, kind=pb.ROW_KIND_TOOL_CALL, name="send_message\n", at_ms=2),
]


@pytest.fixture
def managed(shell: Shell) -> Shell:
    """A shell whose agent bob is run by Fencepost."""
    bob = sessions.Agent(agent_id=BOB, project_id=PROJECT, name="bob", desired=sessions.DESIRED_STATE_ON)
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=bob)
    shell.monkeypatch.setattr(watching, "LOOK_AGAIN_MS", 0)
    shell.monkeypatch.setattr(watching, "WATCH_POLL_MS", 0)
    return shell


DELETED = Refused("not_found", "there is no such agent")
AWAY = NotWritten("not_running", "providers does not run")
LOST = NotWritten("connection_lost", "the connection was lost")
DRAINING = Refused("draining", "it stops", may_resend=True)
NOT_YET = Refused("agent_off", "it was not run yet")


def a_row(position: int, at_ms: int = 1) -> pb.WatchConversationResponse:
    return pb.WatchConversationResponse(position=position, kind=pb.ROW_KIND_USER, text=f"row {position}", at_ms=at_ms)


def streams(managed: Shell, *each: list[Any]) -> None:
    """Let one stream after another be answered; each list's last item ends it, the last list says that all is over."""
    left = iter(each)
    managed.providers.answers["watch_conversation"] = lambda _: next(left)


def positions(managed: Shell, *options: str) -> tuple[list[int], list[int]]:
    """Watch to the end; return which rows were told, and behind which position each stream was asked for."""
    done = managed("agent", "watch", "bob", "--json", *options)
    assert done.code == 0
    return (
        [json.loads(text)["position"] for text in done.out.splitlines()],
        [ask.after for _, ask in managed.providers.asked],
    )


@pytest.mark.requirement("cli.watches-a-conversation")
def test_a_conversation_is_shown_row_by_row_and_nothing_in_it_moves_the_terminal(managed: Shell) -> None:
    streams(managed, ROWS, [DELETED])
    done = managed("agent", "watch", "bob")
    assert done.code == 0
    assert "assistant\n  | fine\n  | roger ␛[2J [cut]" in done.out
    assert "tool call send_message⏎" in done.out
    assert managed.providers.asked[0][1] == pb.WatchConversationRequest(agent_id=BOB, after=-1)


@pytest.mark.requirement("cli.watches-a-conversation")
def test_as_json_a_conversation_is_one_document_a_line(managed: Shell) -> None:
    hostile = pb.WatchConversationResponse(position=3, kind=pb.ROW_KIND_USER, text="a\u202eb\x9bc")
    streams(managed, [*ROWS, hostile], [DELETED])
    out = managed("agent", "watch", "bob", "--after", "0", "--json").out
    found = [json.loads(text) for text in out.splitlines()]
    assert [(row["schema"], row["position"], row["kind"]) for row in found] == [
        (1, 1, "assistant"),
        (1, 2, "tool_call"),
        (1, 3, "user"),
    ]
    assert found[2]["text"] == hostile.text
    assert not {"\u202e", "\x9b"} & set(out)
    assert managed.providers.asked[0][1].after == 0


@pytest.mark.requirement("cli.watching-rides-out-a-restart")
@pytest.mark.parametrize("loss", [[LOST], [DRAINING], []], ids=["lost", "draining", "ended"])
def test_a_watch_goes_on_behind_its_last_row_when_providers_comes_back(managed: Shell, loss: list[Any]) -> None:
    streams(managed, [a_row(7), *loss], [AWAY], [NOT_YET], [a_row(9), a_row(12)], [DELETED])
    assert positions(managed) == ([7, 9, 12], [-1, 7, 7, 7, 12])


@pytest.mark.requirement("cli.watching-rides-out-a-restart")
def test_a_watch_that_had_told_nothing_tells_what_has_happened_since_it_began(
    managed: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "time", SimpleNamespace(time=lambda: 5.0, monotonic=lambda: 0.0))
    before, since = a_row(3, at_ms=4_999), a_row(4, at_ms=5_000)
    streams(managed, [LOST], [before, since], [DELETED])
    assert positions(managed) == ([4], [-1, 0, 4])


def test_rows_from_before_are_told_where_they_are_asked_for(managed: Shell) -> None:
    streams(managed, [a_row(3)], [DELETED])
    assert positions(managed, "--after", "0") == ([3], [0, 3])


@pytest.mark.requirement("cli.watching-rides-out-a-restart")
@pytest.mark.parametrize(
    ("each", "reason"),
    [
        ([[NOT_YET]], "agent_off"),
        ([[AWAY]], "not_running"),
        ([[DELETED]], "not_found"),
        ([[a_row(1), Refused("watcher_too_slow", "it was ended")]], "watcher_too_slow"),
        ([[a_row(1), LOST], *[[AWAY]] * 999], "not_running"),
        ([[a_row(1)], *[[]] * 999], "connection_lost"),
    ],
)
def test_a_watch_that_cannot_be_had_or_is_away_for_too_long_says_why(
    managed: Shell, monkeypatch: pytest.MonkeyPatch, each: list[list[Any]], reason: str
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(watching, "time", SimpleNamespace(time=lambda: 5.0, monotonic=lambda: float(next(seconds))))
    streams(managed, *each)
    done = managed("agent", "watch", "bob", "--json")
    assert (done.code != 0, done.error["code"]) == (True, reason)
    assert len(managed.providers.asked) <= watching.WATCH_AWAY_MS_MAX // 1000


def test_a_position_below_0_is_refused(managed: Shell) -> None:
    assert managed("agent", "watch", "bob", "--after", "-1", "--json").error["code"] == "invalid_limit"
    assert managed.acted == []


def stored(**fields: Any) -> mailbox.PromptResponse:
    return mailbox.PromptResponse(record_id=PRM, recipient=common_pb2.AgentRef(agent_id=BOB, name="bob"), **fields)


def told(answer: Any, delivery: Any, *, final: str = "") -> mailbox.ExplainResponse:
    record = mailbox.Record(record_id=PRM, answer_state=answer, delivery_state=delivery)
    binding = mailbox.Binding(final_text=final) if final else None
    return mailbox.ExplainResponse(record=record, summary="What is known.", binding=binding)


OPEN, ACCEPTED = mailbox.ANSWER_STATE_OPEN, mailbox.DELIVERY_STATE_ACCEPTED


@pytest.mark.requirement("cli.prompts-as-a-person")
@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (mailbox.RECIPIENT_READER_NATIVE, "carried into bob's running conversation"),
        (mailbox.RECIPIENT_READER_OFF, "fencepost agent start bob"),
        (mailbox.RECIPIENT_READER_MANUAL, "its words stay in its own conversation"),
        (mailbox.RECIPIENT_READER_NONE, "waits until somebody does"),
    ],
)
def test_a_prompt_is_stored_and_says_what_to_expect(managed: Shell, reader: Any, expected: str) -> None:
    managed.mailbox.answers["prompt"] = stored(recipient_reader=reader)
    done = managed("agent", "prompt", "bob", "hello", "--idempotency-key", "k")
    assert done.code == 0
    for part in (f"Prompt for bob is stored: {PRM}", expected, f"fencepost delivery show {PRM}"):
        assert part in done.out
    assert managed.mailbox.asked == [("prompt", mailbox.PromptRequest(target=BOB, body="hello", idempotency_key="k"))]
    found = managed("agent", "prompt", "bob", "hello", "--json").document
    assert (found["record_id"], found["explained"]) == (PRM, None)
    assert found["idempotency_key"].startswith("cli-")


@pytest.mark.requirement("cli.prompts-as-a-person")
def test_a_prompt_that_waits_shows_the_assistants_words_and_nothing_of_them_is_ours(managed: Shell) -> None:
    managed.mailbox.answers["prompt"] = stored(duplicate=True)
    answers = [told(OPEN, ACCEPTED), told(mailbox.ANSWER_STATE_ANSWERED, ACCEPTED, final="a\nb")]
    managed.mailbox.answers["explain"] = lambda _: answers.pop(0)
    done = managed("agent", "prompt", "bob", "hello", "--wait-s", "5")
    assert done.code == 0
    assert "was stored by an earlier call with this key" in done.out
    assert "  | a\n  | b\n" in done.out


@pytest.mark.requirement("cli.prompts-as-a-person")
@pytest.mark.parametrize(
    ("answer", "delivery", "code"),
    [
        (OPEN, mailbox.DELIVERY_STATE_UNCERTAIN, 7),
        (mailbox.ANSWER_STATE_CLOSED, ACCEPTED, 1),
        (mailbox.ANSWER_STATE_CLOSED, mailbox.DELIVERY_STATE_FAILED, 1),
    ],
    ids=["uncertain", "without words", "failed"],
)
def test_a_prompt_without_an_answer_says_why_and_is_no_success(
    managed: Shell, answer: Any, delivery: Any, code: int
) -> None:
    managed.mailbox.answers["prompt"] = stored()
    managed.mailbox.answers["explain"] = told(answer, delivery)
    done = managed("agent", "prompt", "bob", "hello", "--wait-s", "5")
    assert done.code == code
    assert "What is known." in done.out
    assert "No answer within" not in done.out
    assert managed("agent", "prompt", "bob", "x", "--wait-s", "5", "--json").document["explained"]["summary"]


def test_a_wait_for_an_answer_ends_in_time_and_takes_nothing_back(managed: Shell) -> None:
    managed.monkeypatch.setattr(watching.time, "monotonic", iter(range(100)).__next__)
    managed.mailbox.answers["prompt"] = stored()
    managed.mailbox.answers["explain"] = told(OPEN, ACCEPTED)
    done = managed("agent", "prompt", "bob", "hello", "--wait-s", "1")
    assert (done.code, "No answer within 1 s; nothing was taken back." in done.out) == (7, True)


@pytest.mark.parametrize("wait_s", ["-1", str(watching.PROMPT_WAIT_S_MAX + 1)])
def test_a_wait_for_an_answer_has_its_range(managed: Shell, wait_s: str) -> None:
    done = managed("agent", "prompt", "bob", "x", "--wait-s", wait_s, "--json")
    assert (done.error["code"], managed.acted) == ("invalid_arguments", [])


@pytest.mark.requirement("cli.unknown-outcomes-say-so")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Uncertain("connection_lost", "not known"), 7),
        (NotWritten("unreachable", "nobody there"), 6),
        (Refused("invalid_message", "blank"), 1),
    ],
)
def test_a_prompt_that_has_no_receipt_names_its_key(managed: Shell, error: Any, code: int) -> None:
    managed.mailbox.answers["prompt"] = error
    done = managed("agent", "prompt", "bob", "a secret", "--json", "--idempotency-key", "k1")
    assert (done.code, done.error["outcome"], "a secret" in done.err) == (code, error.outcome, False)
    assert isinstance(error, Refused) or done.error["state"]["idempotency_key"] == "k1"
    assert [method for method, _ in managed.mailbox.asked] == ["prompt"]


COMMANDS = [("agent", "interrupt", "bob"), ("message", "interrupt", "bob")]


@pytest.mark.requirement("cli.interrupts-honestly")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("result", "word", "text"),
    [
        (pb.INTERRUPTION_REQUESTED, "requested", "asked for; the turn has not ended yet (turn t1)."),
        (pb.INTERRUPTION_CONFIRMED, "confirmed", "the turn ended, interrupted (turn t1)."),
        (pb.INTERRUPTION_NOTHING, "nothing", "no turn was in progress (turn t1)."),
    ],
)
def test_an_interruption_says_what_came_of_it(
    managed: Shell, command: tuple[str, ...], result: Any, word: str, text: str
) -> None:
    managed.as_agent()
    managed.providers.answers["interrupt_turn"] = pb.InterruptTurnResponse(
        interruption=result, turn_id="t1", detail="so it was\nsaid"
    )
    done = managed(*command, "--turn", "t1")
    assert (done.code, done.out) == (0, f"Interruption: {text}\n  so it was⏎said\n")
    assert managed.providers.asked[-1][1] == pb.InterruptTurnRequest(target=BOB, turn_id="t1")
    assert managed(*command, "--json").document["interruption"] == word


@pytest.mark.requirement("cli.interrupts-honestly")
@pytest.mark.parametrize(
    ("answer", "exit_code", "reason", "outcome"),
    [
        (pb.InterruptTurnResponse(interruption=pb.INTERRUPTION_UNSUPPORTED), 1, "unsupported_capability", "refused"),
        (pb.InterruptTurnResponse(interruption=pb.INTERRUPTION_UNCERTAIN), 7, "delivery_uncertain", "uncertain"),
        (pb.InterruptTurnResponse(), 7, "delivery_uncertain", "uncertain"),
        (Uncertain("connection_lost", "lost"), 7, "delivery_uncertain", "uncertain"),
        (Refused("stale_turn", "another turn"), 1, "stale_turn", "refused"),
    ],
    ids=["unsupported", "uncertain", "senseless", "lost", "stale"],
)
def test_an_interruption_that_was_none_or_is_not_known_is_no_success_and_is_not_repeated(
    managed: Shell, answer: Any, exit_code: int, reason: str, outcome: str
) -> None:
    managed.providers.answers["interrupt_turn"] = answer
    done = managed("agent", "interrupt", "bob", "--json")
    assert (done.code, done.error["code"], done.error["outcome"]) == (exit_code, reason, outcome)
    assert len(managed.providers.asked) == 1


@pytest.mark.requirement("cli.interrupts-honestly")
def test_an_agent_that_lives_by_itself_cannot_be_interrupted_and_providers_are_not_asked(managed: Shell) -> None:
    managed.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=sessions.Agent(agent_id=BOB, name="bob"))
    done = managed("message", "interrupt", "bob", "--json")
    assert (done.code, done.error["code"], managed.providers.asked) == (1, "unsupported_capability", [])
