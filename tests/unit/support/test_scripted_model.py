"""The scripted model that real programs are run on: it calls what is offered, in each program's own format."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fencepost_testing.real_programs import run
from fencepost_testing.scripted_model import Heard, Model, decide, last_member

CALLS = [("receive_messages", {}), ("receive_messages", {"ack_cursor": "<last:ack_cursor>"})]
OURS = "mcp__fencepost__receive_messages"
PAGE = json.dumps({"messages": [], "ack_cursor": "c1"})

# A first request, and a second one with the result of the first call, as each format has them.
FORMATS: dict[str, tuple[str, Any, Any]] = {
    "responses": (
        "/v1/responses",
        {"tools": [{"type": "namespace", "name": "mcp__fencepost", "tools": [{"name": "receive_messages"}]}]},
        {"input": [{"type": "function_call_output", "output": PAGE}]},
    ),
    "messages": (
        "/v1/messages?beta=true",
        {"tools": [{"name": OURS}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": PAGE}]}]},
    ),
    "chat": (
        "/v1/chat/completions",
        {"tools": [{"type": "function", "function": {"name": OURS}}]},
        {"messages": [{"role": "tool", "content": PAGE}]},
    ),
    "generate": (
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        {"tools": [{"functionDeclarations": [{"name": "mcp_fencepost_receive_messages"}]}]},
        {"contents": [{"parts": [{"functionResponse": {"response": {"output": PAGE}}}]}]},
    ),
}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with Model(port=0, calls=CALLS, record=tmp_path / "record.jsonl") as served:
        thread = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            served.shutdown()
            thread.join(10)


def asked(model: Model, path: str, body: Any) -> str:
    address = f"http://127.0.0.1:{model.server_port}{path}"
    request = urllib.request.Request(address, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("name", list(FORMATS))
def test_the_next_call_is_made_when_the_result_of_the_one_before_is_there(
    model: Model, name: str, tmp_path: Path
) -> None:
    path, offer, result = FORMATS[name]
    assert "receive_messages" in asked(model, path, offer)
    assert "c1" in asked(model, path, {**offer, **result})
    told = [json.loads(line) for line in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert [bool(fields["called"]) for fields in told] == [True, True]
    assert [len(fields["results"]) for fields in told] == [0, 1]


def test_after_the_last_call_it_says_what_it_was_told() -> None:
    heard = Heard(tools=[("", OURS)], results=["one", "two"])
    assert decide(heard, CALLS, 3).text == "done: two"


def test_without_tools_of_ours_it_makes_no_call() -> None:
    assert decide(Heard(tools=[("", "other_receive_messages")]), CALLS, 1).tool is None


@pytest.mark.parametrize("told", [PAGE, json.dumps(PAGE), json.dumps({"output": json.dumps(PAGE)})])
def test_a_member_is_found_however_often_a_result_was_wrapped(told: str) -> None:
    assert last_member(['{"ack_cursor": "c0"}', told], "ack_cursor") == "c1"


def test_a_program_that_does_not_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    ran = run(["sh", "-c", "echo begun; sleep 60"], env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path, seconds=0.5)
    assert (ran.code, ran.out) == (-9, "begun\n")
    done = run([sys.executable, "-c", "print('x')"], env={}, cwd=tmp_path, seconds=30)
    assert (done.code, done.out) == (0, "x\n")
