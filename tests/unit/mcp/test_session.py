"""The JSON-RPC session, without a process: lines in, answers out, calls handed on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.mcp import answers
from fencepost.mcp.session import (
    BATCH_MESSAGES_MAX,
    ID_BYTES_MAX,
    LINE_BYTES_MAX,
    Call,
    Ids,
    Session,
    id_text_of,
)

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Client:
    """A session, what it answered, and what it handed on."""

    def __init__(self, ids: Ids | None = None) -> None:
        self.lines: list[bytes] = []
        self.calls: list[Call] = []
        self.cancelled: list[str] = []
        self.session = Session(emit=self._emit, desk=self, ids=ids)

    def _emit(self, line: bytes | None) -> None:
        if line is not None:
            self.lines.append(line)

    def admit(self, call: Call) -> None:
        self.calls.append(call)

    def cancel(self, id_text: str) -> None:
        self.cancelled.append(id_text)

    def say(self, message: object) -> list[Any]:
        """Feed a message and return what was answered to it."""
        self.lines.clear()
        self.session.feed(message if isinstance(message, bytes) else json.dumps(message).encode())
        return [json.loads(line) for line in self.lines]

    def ask(self, method: str, params: object = None, identity: object = 1) -> Any:
        message = {"jsonrpc": "2.0", "id": identity, "method": method}
        (answer,) = self.say(message if params is None else {**message, "params": params})
        return answer

    def code(self, method: str, params: object = None, identity: object = 1) -> Any:
        return self.ask(method, params, identity)["error"]["code"]


@pytest.fixture
def fresh() -> Client:
    return Client()


def greeted(version: str = "2025-06-18") -> Client:
    client = Client()
    client.ask("initialize", {**INITIALIZE, "protocolVersion": version}, 0)
    client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return client


@pytest.fixture
def client() -> Client:
    return greeted()


def call(identity: object = 1, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": {"name": "list_agents"}, **more}


@pytest.mark.requirement("mcp.versions")
@pytest.mark.parametrize("version", answers.VERSIONS)
def test_a_known_version_is_answered_as_asked(fresh: Client, version: str) -> None:
    assert fresh.ask("initialize", {**INITIALIZE, "protocolVersion": version})["result"]["protocolVersion"] == version


@pytest.mark.requirement("mcp.versions")
@pytest.mark.parametrize("version", ["2026-07-28", "1.0", "", "2025-11-25 "])
def test_an_unknown_version_is_answered_by_the_newest_known(fresh: Client, version: str) -> None:
    answer = fresh.ask("initialize", {**INITIALIZE, "protocolVersion": version})
    assert answer["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.requirement("mcp.lifecycle")
@pytest.mark.parametrize(
    "change",
    [
        {"protocolVersion": None},
        {"protocolVersion": 20250618},
        {"capabilities": None},
        {"capabilities": []},
        {"clientInfo": None},
        {"clientInfo": {"name": "x"}},
        {"clientInfo": {"name": "x", "version": 1}},
    ],
)
def test_initialize_without_what_it_needs_is_refused_and_may_be_repeated(fresh: Client, change: dict[str, Any]) -> None:
    assert fresh.code("initialize", {**INITIALIZE, **change}) == -32602
    assert fresh.code("initialize") == -32602
    assert "result" in fresh.ask("initialize", INITIALIZE)


@pytest.mark.requirement("mcp.lifecycle")
def test_a_second_initialize_is_refused(client: Client) -> None:
    assert client.code("initialize", INITIALIZE) == -32600


@pytest.mark.requirement("mcp.lifecycle")
def test_tools_wait_for_both_halves_of_the_handshake_and_ping_for_none(fresh: Client) -> None:
    def only_ping_works() -> None:
        assert fresh.ask("ping")["result"] == {}
        assert fresh.code("tools/list") == -32602
        assert fresh.say(call())[0]["error"]["code"] == -32602

    only_ping_works()
    fresh.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    only_ping_works()
    fresh.ask("initialize", INITIALIZE)
    only_ping_works()
    fresh.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert len(fresh.ask("tools/list")["result"]["tools"]) == 7
    assert fresh.calls == []


@pytest.mark.requirement("mcp.protocol-errors")
@pytest.mark.parametrize("method", ["resources/list", "tools/callx", "", "logging/setLevel", "subscriptions/listen"])
def test_an_unknown_method_is_told_as_such_before_and_after_the_handshake(method: str) -> None:
    assert Client().code(method) == -32601
    assert greeted().code(method) == -32601


@pytest.mark.requirement("mcp.protocol-errors")
@pytest.mark.parametrize("params", [{"cursor": "x"}, {"limit": 1}, [], "x"])
def test_tools_list_takes_nothing_but_meta(client: Client, params: object) -> None:
    assert client.code("tools/list", params) == -32602
    assert "result" in client.ask("tools/list", {"_meta": {"x": 1}})


@pytest.mark.requirement("mcp.protocol-errors")
@pytest.mark.parametrize("method", ["ping", "initialize", "tools/list", "tools/call"])
def test_null_params_are_refused(client: Client, method: str) -> None:
    (answer,) = client.say({"jsonrpc": "2.0", "id": 1, "method": method, "params": None})
    assert answer["error"]["code"] == -32602


@pytest.mark.requirement("mcp.protocol-errors")
@pytest.mark.parametrize(
    "message",
    [
        7,
        "x",
        None,
        {},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        {"jsonrpc": "2.0", "method": None},
    ],
    ids=repr,
)
def test_what_is_no_request_is_answered_once_as_invalid(client: Client, message: object) -> None:
    (answer,) = client.say(message)
    assert answer["error"]["code"] == -32600


@pytest.mark.requirement("mcp.ids-are-used-once")
@pytest.mark.parametrize("identity", [None, True, False, 7.0, 1.5, [], {}], ids=repr)
def test_an_id_is_a_string_or_an_integer(client: Client, identity: object) -> None:
    answer = client.ask("tools/call", {"name": "list_agents"}, identity)
    assert answer["error"]["code"] == -32600
    assert answer["id"] is None
    assert client.calls == []


@pytest.mark.requirement("mcp.ids-are-used-once")
def test_seven_and_its_text_are_two_ids_and_each_serves_once(client: Client) -> None:
    client.say(call(7))
    client.say(call("7"))
    assert [made.id_text for made in client.calls] == ["7", '"7"']
    for identity in (7, "7"):
        (answer,) = client.say(call(identity))
        assert answer["error"]["code"] == -32600
        assert answer["id"] == identity
    assert len(client.calls) == 2


@pytest.mark.requirement("mcp.ids-are-used-once")
def test_an_id_stays_used_where_its_call_failed(client: Client) -> None:
    assert client.code("tools/call", {"name": 5}, 3) == -32602
    assert client.code("tools/call", {"name": "list_agents"}, 3) == -32600
    assert client.code("ping", None, 3) == -32600
    assert client.calls == []


@pytest.mark.requirement("mcp.ids-are-used-once")
def test_an_id_may_fill_its_part_of_the_key_and_no_more(client: Client) -> None:
    longest = "x" * (ID_BYTES_MAX - 2)
    client.say(call(longest))
    assert len(client.calls) == 1
    assert len(f"mcp-{'0' * 32}:{client.calls[0].id_text}") == 256
    (answer,) = client.say(call(longest + "x"))
    assert answer["error"]["code"] == -32600
    assert client.say(call(10**ID_BYTES_MAX))[0]["error"]["code"] == -32600
    assert len(client.calls) == 1


@pytest.mark.requirement("mcp.ids-are-used-once")
@given(used=st.lists(st.integers(-30, 30) | st.sampled_from(["1", "7", "x"]), max_size=80))
def test_ids_are_remembered_exactly(used: list[int | str]) -> None:
    ids, model = Ids(), set[int | str]()
    for identity in used:
        assert (identity in ids) == (identity in model)
        if identity not in model:
            ids.add(identity)
            model.add(identity)
    assert all((number in ids) == (number in model) for number in range(-32, 32))


@pytest.mark.requirement("mcp.ids-are-used-once")
def test_a_client_that_counts_costs_one_entry_and_a_full_memory_refuses_clearly() -> None:
    ids = Ids(entries_max=2)
    for number in range(10_000):
        ids.add(number)
    assert not ids.full
    ids.add("a")
    assert ids.full
    client = Client(ids)
    client.ask("initialize", INITIALIZE, "i")
    client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    answer = client.ask("tools/call", {"name": "list_agents"}, "b")
    assert answer["error"]["code"] == -32600
    assert "start the server again" in answer["error"]["message"]
    assert client.calls == []


@pytest.mark.requirement("mcp.notifications-are-never-dispatched")
def test_a_tool_call_without_an_id_is_not_made(client: Client) -> None:
    message = call()
    del message["id"]
    assert client.say(message) == []
    assert client.calls == []


@pytest.mark.requirement("mcp.notifications-are-never-dispatched")
@pytest.mark.parametrize(
    "message", [{"jsonrpc": "2.0", "id": 9, "result": {}}, {"jsonrpc": "2.0", "id": 9, "error": {}}]
)
def test_answers_to_nothing_are_ignored(client: Client, message: dict[str, Any]) -> None:
    assert client.say(message) == []


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
@pytest.mark.parametrize("line", [b"{", b'{"a":NaN}', b'"\xff"', b"[" * 100_000], ids=lambda line: repr(line[:9]))
def test_a_line_that_is_not_json_is_answered_and_the_stream_goes_on(client: Client, line: bytes) -> None:
    (answer,) = client.say(line)
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    assert client.ask("ping")["result"] == {}


def test_white_space_is_no_message(client: Client) -> None:
    assert client.say(b" \t\r") == []
    assert client.say(b"") == []


@pytest.mark.requirement("mcp.lines-are-bounded")
def test_a_line_of_1_mib_is_read_and_one_byte_more_is_not(client: Client) -> None:
    line = json.dumps(call(1)).encode()
    client.session.feed(line + b" " * (LINE_BYTES_MAX - len(line)))
    assert len(client.calls) == 1
    (answer,) = client.say(json.dumps(call(2)).encode() + b" " * LINE_BYTES_MAX)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    assert len(client.calls) == 1


@pytest.mark.requirement("mcp.call-lines-pass-unchanged")
def test_a_call_is_handed_on_byte_for_byte(client: Client) -> None:
    params = '{"name":"send_message", "arguments":{"message":"漢\\u0000"}}'
    line = f'{{"method":"tools/call","jsonrpc":"2.0",  "params":{params},"id":1}}'
    client.session.feed(b"  " + line.encode() + b"\r")
    assert client.calls[0].line == line.encode()


@pytest.mark.parametrize(
    ("name", "arguments", "wait_ms"),
    [
        ("wait_agent", {}, 60_000),
        ("wait_agent", {"timeout_ms": 5}, 5),
        ("wait_agent", {"timeout_ms": "x"}, 0),
        ("wait_agent", {"timeout_ms": True}, 0),
        ("wait_agent", {"timeout_ms": 10**9}, 0),
        ("receive_messages", {}, 0),
        ("receive_messages", {"timeout_ms": 7.0}, 7),
        ("send_message", {"timeout_ms": 7}, 0),
        ("wait_agent", [], 60_000),
        ("agent_wait", {}, 20_000),
        ("warp_agent_wait", {}, 20_000),
        ("warp_agent_wait", {"timeout_ms": 9}, 9),
        ("warp_task_start", {"timeout_ms": 9}, 0),
    ],
)
def test_how_long_a_call_waits_is_known_without_its_schema(
    client: Client, name: str, arguments: object, wait_ms: int
) -> None:
    client.say(call(1, params={"name": name, "arguments": arguments}))
    assert client.calls[0].wait_ms == wait_ms
    # Whichever name it was called by, one name decides what becomes of a lost answer.
    assert client.calls[0].name == name.removeprefix("warp_")


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
def test_a_cancellation_names_its_call_by_the_same_id(client: Client) -> None:
    for identity in (7, "7"):
        client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": identity}})
    client.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": None}})
    client.say({"jsonrpc": "2.0", "method": "notifications/cancelled"})
    assert client.cancelled == ["7", '"7"']


@pytest.mark.requirement("mcp.batches-only-under-their-version")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_a_batch_is_refused_under_every_other_version(version: str) -> None:
    client = greeted(version)
    (answer,) = client.say([call()])
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
    assert client.calls == []


@pytest.mark.requirement("mcp.batches-only-under-their-version")
def test_a_batch_is_answered_by_one_line_when_its_last_call_is_answered() -> None:
    client = greeted("2025-03-26")
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        call("a"),
        {"jsonrpc": "2.0", "method": "notifications/other"},
        call("b"),
        {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": INITIALIZE},
        5,
    ]
    assert client.say(batch) == []
    first, second = client.calls
    assert json.loads(first.line) == batch[1]
    second.sink(b'{"id":"b"}')
    assert client.lines == []
    first.sink(None)
    (line,) = client.lines
    answered = json.loads(line)
    assert [item["id"] for item in answered] == [1, 2, None, "b"]
    assert [item.get("error", {}).get("code") for item in answered] == [None, -32600, -32600, None]


@pytest.mark.requirement("mcp.batches-only-under-their-version")
def test_a_batch_is_bounded_and_not_empty() -> None:
    client = greeted("2025-03-26")
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert client.say([])[0]["error"]["code"] == -32600
    assert len(client.say([ping] * BATCH_MESSAGES_MAX)[0]) == BATCH_MESSAGES_MAX
    assert client.say([ping] * (BATCH_MESSAGES_MAX + 1))[0]["error"]["code"] == -32600
    assert client.say([{"jsonrpc": "2.0", "method": "notifications/x"}]) == []


@pytest.mark.requirement("mcp.batches-only-under-their-version")
def test_a_message_of_a_batch_is_passed_on_as_a_line_that_the_edge_takes() -> None:
    client = greeted("2025-03-26")
    wide = call(1, params={"name": "send_message", "arguments": {"message": "漢" * 300_000}})
    client.session.feed(json.dumps([wide], ensure_ascii=False).encode())
    assert json.loads(client.calls[0].line) == wide
    assert len(client.calls[0].line) <= LINE_BYTES_MAX
    half = call(2, params={"name": "send_message", "arguments": {"message": "\ud800"}})
    client.say([half])
    assert json.loads(client.calls[1].line) == half


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_no_depth_of_nesting_ends_the_session(version: str) -> None:
    client = greeted(version)
    for depth in [*range(900, 1000), 5_000]:
        deep = b"[" * depth + b"]" * depth
        message = b'{"jsonrpc":"2.0","id":%d,"method":"ping","params":{"x":%b}}' % (depth, deep)
        for line in (message, b"[%b]" % message):
            client.session.feed(line)
    client.lines.clear()
    assert client.ask("ping")["result"] == {}


def test_an_id_is_echoed_as_it_came() -> None:
    assert id_text_of("a\ud800\n") == '"a\\ud800\\n"'
    assert id_text_of(-3) == "-3"
    assert id_text_of(True) is None
