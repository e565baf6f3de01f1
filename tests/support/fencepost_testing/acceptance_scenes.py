"""The scenes of the acceptance, the same for a scripted model and a real one: only plain English is said (M169-M186).

A scene says something, waits, and binds what came of it to both agents' own rollouts. It returns evidence for the
report. What a scripted model does then stands in plays().
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fencepost_testing.acceptance import Stage
from fencepost_testing.acceptance_evidence import Item, Rollout, Turn
from fencepost_testing.acceptance_report import conversation, counted

Json = Any
CODE: Final = re.compile(r"[A-Z]{3,}-\d{2}")
WORK: Final = (
    "Think of a code name for our next release: the name of a bird in capital letters, a hyphen, and a number of two"
    " digits. Tell me the code name."
)
ASK: Final = (
    "Please have {peer} do the following, wait until the answer is there, and then tell me what was chosen: {work}"
)
EXPLICITLY: Final = " Send the answer as a reply to this request."
INFORM: Final = "Please let {peer} know, only for information, that the freeze begins at noon. No answer is needed."
AGAIN: Final = "Which code name did you choose earlier? Say nothing but the code name."
LONG: Final = "Count slowly from 1 to 4000, and write each number as a word on a line of its own. Do it yourself."
STOP: Final = "Please interrupt what {peer} is doing right now, once, and tell me how that went."


def plays() -> list[Json]:
    """What a scripted model does with what the scenes say."""
    hand_on = [
        [["CALL", 'followup_task {"target":"<match:1>","message":"<match:2>"}']],
        [["CALL", 'wait_agent {"timeout_ms":60000}']],
        [["CALL", "receive_messages {}"]],
        [["CALL", 'receive_messages {"ack_cursor":"<last:ack_cursor>"}']],
        [["SAY", "The answer is: <last:message>"]],
    ]
    told = [
        [["CALL", 'send_message {"target":"<match:1>","message":"The freeze begins at noon."}']],
        [["SAY", "Sent."]],
    ]
    stop = [[["CALL", 'interrupt_agent {"target":"<match:1>"}']], [["SAY", "It says: <last:interruption>"]]]
    reply = 'reply {"request_id":"<asked>","status":"done","message":"I choose KESTREL-42."}'
    return [
        {"when": r"Please have (\S+) do the following, wait [^:]*: ([^\n]*)", "steps": hand_on},
        {"when": r"Please let (\S+) know", "steps": told},
        {"when": r"Please interrupt what (\S+) is", "steps": stop},
        {
            "when": r"code name for our next.*Send the answer as a reply",
            "steps": [[["CALL", reply]], [["SAY", "Sent."]]],
        },
        {"when": r"code name for our next", "steps": [[["SAY", "I choose KESTREL-42."]]]},
        {"when": r"Which code name did you", "steps": [[["RECALL", CODE.pattern]]]},
        {"when": r"Count slowly", "steps": [[["ASIDE", "one"], ["HOLD", "never"], ["SAY", "done"]]]},
    ]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What an exchange has left."""

    request_id: str
    reply_id: str
    code: str
    evidence: dict[str, Json]


def cast(stage: Stage, *names: str) -> None:
    """Create and start fresh agents."""
    for name in names:
        stage.create(name)
        runtime = stage.start(name)
        assert runtime["state"] == "ready", runtime


def the_turn(rollout: Rollout, turn_id: str) -> Turn:
    assert turn_id in rollout.turns, (turn_id, list(rollout.turns))
    return rollout.turns[turn_id]


def one_call(turn: Turn, name: str) -> tuple[Item, Json]:
    """Return the one call of a tool in a turn and its receipt."""
    ((call, result),) = turn.calls(name)
    assert result is not None, f"{name} has no result"
    assert isinstance(result.document, dict), result.text
    return call, result.document


def exchange(stage: Stage, sender: str, receiver: str, *, explicit: bool) -> Exchange:
    """A person asks the sender, who assigns work, waits, receives the reply, and then answers (M168-M172)."""
    work = WORK + (EXPLICITLY if explicit else "")
    said = stage.prompt(sender, text := ASK.format(peer=receiver, work=work))
    sending, receiving = stage.rollout(sender), stage.rollout(receiver)
    assert (sending.thread, said.outcome) == (said.thread, "completed")
    turn = the_turn(sending, said.turn_id)
    assert said.record_id in turn.records, "the person's words are not in the turn that is said to answer them"
    call, receipt = one_call(turn, "followup_task")
    request_id = receipt["request_id"]
    why = stage.why(request_id)
    binding = why["binding"]
    assert binding["provider_session_id"] == receiving.thread
    done = the_turn(receiving, binding["provider_turn_id"])
    assert done.records == [request_id], "the work did not come into this turn, or not alone"
    assert receiving.executions(request_id) == 1
    reply_id = why["reply_id"]
    reply = stage.told("message", "show", reply_id)["record"]
    assert (reply["parent_id"], reply["sender"]["name"], reply["reply_status"]) == (request_id, receiver, "done")
    replied(done, reply, request_id)
    consumed(turn, call, reply_id)
    (code,) = set(CODE.findall(reply["body"]))
    assert code in said.final, "the sender answered with something else than it received"
    evidence = {
        "input": counted(text),
        "visible output": counted(said.final),
        "request": request_id,
        "reply": f"{reply_id}, {'explicit' if reply['origin'] == 'agent' else reply['origin']}",
        "person's record": said.record_id,
        "delivery": [fact["fact"] for fact in why["facts"]],
        "sender": conversation(sending, [turn]),
        "receiver": conversation(receiving, [done]),
    }
    return Exchange(request_id=request_id, reply_id=reply_id, code=code, evidence=evidence)


def replied(turn: Turn, reply: Json, request_id: str) -> None:
    """Hold that a reply came from this turn: by its own call, or as its final words."""
    if reply["origin"] == "agent":
        _, receipt = one_call(turn, "reply")
        assert (receipt["request_id"], receipt["interaction_id"]) == (request_id, reply["record_id"])
    else:
        assert reply["origin"] == "automatic"
        assert turn.calls("reply") == []
        assert reply["body"] == turn.final


def consumed(turn: Turn, assigned: Item, reply_id: str) -> None:
    """Hold that the sender was shown the reply after it assigned the work, and before it answered (M170 M171)."""
    shown = [
        result.ordinal for _, result in turn.calls("receive_messages") if result is not None and reply_id in result.text
    ]
    spoken = [item.ordinal for item in turn.items if item.kind == "said" and item.phase != "commentary"]
    assert shown, "the reply was never shown to the sender"
    assert assigned.ordinal < min(shown) < max(spoken), "the sender answered before it had the reply"


def information(stage: Stage, sender: str, receiver: str) -> dict[str, Json]:
    """Information reaches an idle agent and starts no turn (M183)."""
    before = stage.rollout(receiver)
    said = stage.prompt(sender, text := INFORM.format(peer=receiver))
    turn = the_turn(stage.rollout(sender), said.turn_id)
    _, receipt = one_call(turn, "send_message")
    told = receipt["interaction_id"]
    stage.until(lambda: stage.why(told)["record"]["delivery_state"] == "visible", "the information being shown")
    after = stage.rollout(receiver)
    assert after.shown(told) == 1
    assert [item.record for item in after.between if item.kind == "inbox"][-1:] == [told], "it came into a turn"
    assert list(after.turns) == list(before.turns), "information has started a turn"
    if stage.model is not None:
        asked = [one for one in stage.asked() if one["thread"] == after.thread]
        assert len(asked) == len(before.turns), "information has asked the model"
    return {
        "input": counted(text),
        "information": told,
        "turns before and after": len(after.turns),
        "delivery": [fact["fact"] for fact in stage.why(told)["facts"]],
        "sender": conversation(stage.rollout(sender), [turn]),
        "receiver": conversation(after, []),
    }


def interruption(stage: Stage, sender: str, receiver: str) -> dict[str, Json]:
    """One interrupt ends exactly the turn that was observed, and the session stays (M184)."""
    before = stage.ready(receiver)
    request_id = stage.acting(sender, "message", "followup", receiver, LONG)["request_id"]
    turn_id = stage.bound(request_id)["provider_turn_id"]
    stage.until(lambda: stage.runtime(receiver)["turn_id"] == turn_id, "the turn being observed")
    wrong = stage.command("agent", "interrupt", receiver, "--turn", "01a00000-0000-7000-8000-000000000000", "--json")
    assert wrong.code != 0, "a turn that is not in progress was interrupted"
    assert stage.runtime(receiver)["turn_id"] == turn_id
    said = stage.prompt(sender, text := STOP.format(peer=receiver))
    turn = the_turn(stage.rollout(sender), said.turn_id)
    _, receipt = one_call(turn, "interrupt_agent")
    assert (receipt["interruption"], receipt["provider_turn_id"]) == ("confirmed", turn_id), receipt
    reply = stage.answer(request_id)
    assert (reply["origin"], reply["reply_status"]) == ("host", "blocked"), reply
    rollout = stage.rollout(receiver)
    assert [one.turn_id for one in rollout.turns.values() if one.end == "interrupted"] == [turn_id]
    after = stage.runtime(receiver)
    for name in ("pid", "generation", "conversation_id"):
        assert after[name] == before[name], f"the session did not stay: {name}"
    return {
        "input": counted(text),
        "interrupted turn": turn_id,
        "outcome": receipt,
        "request": request_id,
        "reply": f"{reply['record_id']}, {reply['origin']}, {reply['reply_status']}",
        "sender": conversation(stage.rollout(sender), [turn]),
        "receiver": conversation(rollout, [rollout.turns[turn_id]]),
    }


def resumption(stage: Stage, sender: str, receiver: str, *, killed: str) -> dict[str, Json]:
    """After the owner's exit later work resumes the same conversation under a new generation, and it is remembered."""
    found = exchange(stage, sender, receiver, explicit=False)
    before = stage.ready(receiver)
    if killed == "codex":
        os.kill(before["pid"], signal.SIGKILL)
    else:
        services = {one["name"]: one["pid"] for one in stage.told("status")["services"]}
        os.kill(services[killed], signal.SIGKILL)
    assert found.code not in AGAIN
    request_id = stage.acting(sender, "message", "followup", receiver, AGAIN)["request_id"]
    reply = stage.answer(request_id)
    assert CODE.findall(reply["body"]) == [found.code], reply
    after = stage.ready(receiver, after_generation=before["generation"])
    assert (after["conversation_id"], after["pid"] != before["pid"]) == (before["conversation_id"], True)
    rollout = stage.rollout(receiver)
    binding = stage.why(request_id)["binding"]
    assert binding["provider_session_id"] == rollout.thread
    turn = the_turn(rollout, binding["provider_turn_id"])
    assert turn.records == [request_id]
    assert rollout.executions(found.request_id) == 1, "the earlier work was done once more"
    if stage.model is not None:
        remembered(stage, rollout.thread, request_id, found.code)
    return {
        "input": counted(AGAIN),
        "visible output": counted(reply["body"]),
        "killed": killed,
        "generations": [before["generation"], after["generation"]],
        "earlier request": found.request_id,
        "request": request_id,
        "reply": reply["record_id"],
        "receiver": conversation(rollout, rollout.turns.values()),
    }


def remembered(stage: Stage, thread: str, request_id: str, code: str) -> None:
    """Hold that the model was told the earlier result by its own history, and not by what asks (M186)."""
    told = next(
        one["history"]
        for one in stage.asked()
        if one["thread"] == thread and any(told["record"] == request_id for told in one["history"])
    )
    assert any(one["who"] == "model" and code in one["text"] for one in told), "the conversation has forgotten it"
    assert all(code not in one["text"] for one in told if one["record"] == request_id)


def sharing(stage: Stage, sender: str, receiver: str) -> dict[str, Json]:
    """Several requests enter one turn, and each gets its final words (M078 M091). Takes a model that holds."""
    ask = ("message", "followup", receiver)
    first = stage.acting(sender, *ask, f"HOLD {receiver}\nSAY first")["request_id"]
    turn_id = stage.bound(first)["provider_turn_id"]
    more = [stage.acting(sender, *ask, f"SAY answer {number} for all")["request_id"] for number in (1, 2)]
    ids = [first, *more]
    bound = [stage.bound(one) for one in ids]
    stage.release(receiver)
    assert [one["provider_turn_id"] for one in bound] == [turn_id] * 3
    assert [one["admission_mode"] for one in bound] == ["start", "steer", "steer"]
    replies = [stage.answer(one) for one in ids]
    rollout = stage.rollout(receiver)
    turn = the_turn(rollout, turn_id)
    assert [reply["body"] for reply in replies] == [turn.final] * 3
    assert turn.records == ids
    assert [rollout.executions(one) for one in ids] == [1, 1, 1]
    return {
        "requests": ids,
        "replies": [reply["record_id"] for reply in replies],
        "visible output": counted(turn.final),
        "receiver": conversation(rollout, [turn]),
    }


def attachment(stage: Stage, sender: str, receiver: str) -> dict[str, Json]:
    """Both in a terminal of their person: they stay on the same owned sessions, and show what goes on (M138 M182)."""
    names = (sender, receiver)
    before = {name: stage.ready(name) for name in names}
    with stage.attach(sender) as one, stage.attach(receiver) as two:
        terminals = {sender: one, receiver: two}

        def attached(name: str) -> Json:
            """The runtime of an agent to whom a terminal is attached."""
            ended = terminals[name].child.poll()
            assert ended is None, f"the terminal ended with {ended}: {terminals[name].text[-2000:]}"
            found = stage.runtime(name)
            return found if found["attached"] else None

        joined = {name: stage.until(partial(attached, name), f"{name} being attached") for name in names}
        found = exchange(stage, sender, receiver, explicit=False)
        for name, terminal in terminals.items():
            stage.until(partial(terminal.shows, found.code), f"{name}'s terminal showing the exchange")
            after = attached(name)
            assert after is not None, f"{name}'s terminal was left"
            for fact in ("pid", "generation", "conversation_id"):
                assert after[fact] == joined[name][fact], f"{name} did not stay: {fact}"
            assert after["conversation_id"] == before[name]["conversation_id"]
    back = {name: stage.ready(name, after_generation=joined[name]["generation"]) for name in names}
    assert all(not one["attached"] for one in back.values())
    assert [back[name]["conversation_id"] for name in names] == [before[name]["conversation_id"] for name in names]
    generations = {name: [one[name]["generation"] for one in (before, joined, back)] for name in names}
    return {**found.evidence, "generations before, attached, after": generations}
