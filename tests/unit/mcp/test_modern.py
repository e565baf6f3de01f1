"""Requests that name their version of the protocol: each is answered for itself, beside the era of initialize."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost import __version__
from fencepost.mcp import answers, wire
from fencepost.mcp.registry import DISCOVERY_TTL_MS, INSTRUCTIONS, TOOLS_LIST_BYTES_MAX
from fencepost.mcp.session import ID_BYTES_MAX, VERSION_CHARS_MAX, Call, Session

VERSION = "2026-07-28"
META: dict[str, Any] = {wire.VERSION_KEY: VERSION, wire.CAPABILITIES_KEY: {}}
SERVER = {"io.modelcontextprotocol/serverInfo": {"name": "fencepost-local", "version": __version__}}
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Client:
    """A session without a handshake, what it answered, and what it handed on."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.calls: list[Call] = []
        self.session = Session(emit=self._emit, desk=self)

    def _emit(self, line: bytes | None) -> None:
        if line is not None:
            self.lines.append(line)

    def admit(self, call: Call) -> None:
        self.calls.append(call)

    def cancel(self, id_text: str) -> None:
        for call in self.calls:
            if call.id_text == id_text:
                call.sink(None)

    def say(self, message: object) -> list[Any]:
        self.lines.clear()
        self.session.feed(json.dumps(message).encode())
        return [json.loads(line) for line in self.lines]

    def ask(self, method: str, meta: object = None, identity: object = 1, **params: Any) -> Any:
        """Make a request with `meta` in place of the usual one, and return its answer."""
        message = {"jsonrpc": "2.0", "id": identity, "method": method}
        (answer,) = self.say({**message, "params": {**params, "_meta": META if meta is None else meta}})
        return answer

    def code(self, method: str, meta: object = None, **params: Any) -> Any:
        return self.ask(method, meta, **params)["error"]["code"]

    def call(self, identity: object = 1, **meta: Any) -> list[Any]:
        params = {"name": "list_agents", "_meta": {**META, **meta}}
        return self.say({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params})


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.mark.requirement("mcp.modern-discovery")
def test_discovery_tells_versions_instructions_and_how_long_to_keep_them(client: Client) -> None:
    assert client.ask("server/discover")["result"] == {
        "resultType": "complete",
        "_meta": SERVER,
        "ttlMs": DISCOVERY_TTL_MS,
        "cacheScope": "private",
        "supportedVersions": [VERSION],
        "capabilities": {"tools": {}},
        "instructions": INSTRUCTIONS,
    }


@pytest.mark.requirement("mcp.modern-discovery")
def test_the_tool_list_needs_no_handshake_and_is_that_of_the_other_era(client: Client) -> None:
    listed = client.ask("tools/list")["result"]
    assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", DISCOVERY_TTL_MS, "private")
    assert listed["tools"] == json.loads(answers.TOOLS_LIST)["tools"]


@pytest.mark.requirement("mcp.tools-list-is-small")
def test_the_tool_list_costs_at_most_8_kib_in_this_era_too(client: Client) -> None:
    client.ask("tools/list")
    assert len(client.lines[0]) <= TOOLS_LIST_BYTES_MAX


@pytest.mark.requirement("mcp.modern-requests-stand-alone")
@pytest.mark.parametrize(
    "meta",
    [
        {},
        [],
        "x",
        {wire.VERSION_KEY: VERSION},
        {wire.CAPABILITIES_KEY: {}},
        {**META, wire.CAPABILITIES_KEY: None},
        {**META, wire.CAPABILITIES_KEY: []},
        {**META, wire.VERSION_KEY: None},
        {**META, wire.VERSION_KEY: 20260728},
    ],
    ids=repr,
)
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
def test_a_request_that_lacks_what_it_must_say_of_itself_is_malformed(
    client: Client, method: str, meta: object
) -> None:
    assert client.code(method, meta) == -32602
    assert client.calls == []


@pytest.mark.requirement("mcp.modern-requests-stand-alone")
@pytest.mark.parametrize("version", ["2099-01-01", "2025-11-25", "", "2026-07-28 "])
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "ping"])
def test_an_unknown_version_is_told_with_the_known_ones(client: Client, method: str, version: str) -> None:
    error = client.ask(method, {wire.VERSION_KEY: version})["error"]
    assert (error["code"], error["data"]) == (-32022, {"supported": [VERSION], "requested": version})
    assert client.calls == []


@pytest.mark.requirement("mcp.modern-requests-stand-alone")
def test_of_an_endless_version_only_its_beginning_is_repeated(client: Client) -> None:
    error = client.ask("tools/list", {wire.VERSION_KEY: "9" * 10_000})["error"]
    assert error["data"]["requested"] == "9" * VERSION_CHARS_MAX


@pytest.mark.requirement("mcp.versions")
def test_initialize_is_never_answered_by_that_error_whatever_its_meta_says(client: Client) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    params = {**INITIALIZE, "protocolVersion": "2099-01-01", "_meta": {wire.VERSION_KEY: "2099-01-01"}}
    (answer,) = client.say({**message, "params": params})
    assert answer["result"]["protocolVersion"] == "2025-11-25"
    assert "resultType" not in answer["result"]


@pytest.mark.requirement("mcp.modern-requests-stand-alone")
@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "subscriptions/listen", "resources/list", ""])
def test_what_this_era_does_not_have_is_an_unknown_method(client: Client, method: str) -> None:
    assert client.code(method) == -32601


@pytest.mark.requirement("mcp.modern-requests-stand-alone")
@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
def test_discovery_takes_nothing_but_meta(client: Client, method: str) -> None:
    assert client.code(method, cursor="x") == -32602


@pytest.mark.requirement("mcp.modern-results-are-complete")
def test_a_result_says_that_it_is_complete_and_an_error_is_left_alone(client: Client) -> None:
    assert client.call("a\u00e9") == []
    client.calls[0].sink(wire.tool_result(client.calls[0].id_text, '{"ok":true}'))
    answer = json.loads(client.lines[0])
    assert answer["id"] == "a\u00e9"
    assert answer["result"] == {
        "resultType": "complete",
        "_meta": SERVER,
        "content": [{"type": "text", "text": '{"ok":true}'}],
        "structuredContent": {"ok": True},
        "isError": False,
    }
    client.call(2)
    error = wire.failure("2", wire.INVALID_PARAMS, "x")
    client.calls[1].sink(error)
    assert client.lines == [error]


@pytest.mark.requirement("mcp.modern-results-are-complete")
def test_the_other_era_hears_nothing_of_it_on_the_same_connection(client: Client) -> None:
    client.call(1)
    client.say({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": INITIALIZE})
    client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    client.say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_agents"}})
    client.lines.clear()
    for call in client.calls:
        call.sink(wire.tool_result(call.id_text, "{}"))
    assert ["resultType" in json.loads(line)["result"] for line in client.lines] == [True, False]
    (listed,) = client.say({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
    assert set(listed["result"]) == {"tools"}
    assert client.ask("tools/list")["result"]["resultType"] == "complete"


@pytest.mark.requirement("mcp.modern-ids-are-free-again")
def test_an_id_is_refused_while_its_call_is_open_and_free_when_it_is_answered(client: Client) -> None:
    client.call(7)
    (refused,) = client.call(7)
    assert (refused["id"], refused["error"]["code"]) == (7, -32600)
    assert client.call("7") == []
    client.calls[0].sink(wire.tool_result("7", "{}"))
    assert client.call(7) == []
    assert [call.id_text for call in client.calls] == ["7", '"7"', "7"]


@pytest.mark.requirement("mcp.modern-ids-are-free-again")
def test_an_id_of_a_cancelled_call_is_free_again_and_nothing_was_sent_for_it(client: Client) -> None:
    client.call(7)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    assert client.say(cancelled) == []
    assert client.call(7) == []
    assert len(client.calls) == 2


@pytest.mark.requirement("mcp.modern-ids-are-free-again")
def test_an_id_that_is_open_in_one_era_is_not_taken_in_the_other(client: Client) -> None:
    client.call(7)
    client.say({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": INITIALIZE})
    client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    legacy = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "list_agents"}}
    assert client.say(legacy)[0]["error"]["code"] == -32600
    client.calls[0].sink(wire.tool_result("7", "{}"))
    assert client.say(legacy) == []
    assert client.call(7)[0]["error"]["code"] == -32600
    assert len(client.calls) == 2


@pytest.mark.requirement("mcp.modern-ids-are-free-again")
def test_an_id_may_be_as_long_as_in_the_other_era_and_no_longer(client: Client) -> None:
    assert client.call("x" * (ID_BYTES_MAX - 2)) == []
    assert client.call("x" * (ID_BYTES_MAX - 1))[0]["error"]["code"] == -32600


@pytest.mark.requirement("mcp.progress")
def test_the_token_for_progress_is_kept_with_the_call(client: Client) -> None:
    client.call(1, progressToken="t")
    assert client.calls[0].progress_token == '"t"'


@pytest.mark.requirement("mcp.batches-only-under-their-version")
def test_a_request_that_names_its_version_is_no_part_of_a_batch(client: Client) -> None:
    initialize = {**INITIALIZE, "protocolVersion": "2025-03-26"}
    client.say({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": initialize})
    listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    (answer,) = client.say([listed])
    assert [item["error"]["code"] for item in answer] == [-32600]


@pytest.mark.requirement("mcp.notifications-are-never-dispatched")
def test_a_call_without_an_id_is_not_made(client: Client) -> None:
    params = {"name": "list_agents", "_meta": META}
    assert client.say({"jsonrpc": "2.0", "method": "tools/call", "params": params}) == []
    assert client.calls == []


@pytest.mark.requirement("mcp.modern-requests-stand-alone")
def test_an_assumed_version_stands_for_a_handshake_and_leaves_initialize_free() -> None:
    client = Client()
    client.session = Session(emit=client._emit, desk=client, assumed="2025-06-18")
    for identity in (1, 2):
        (answer,) = client.say({"jsonrpc": "2.0", "id": identity, "method": "initialize", "params": INITIALIZE})
        assert answer["result"]["protocolVersion"] == "2025-06-18"
    (listed,) = client.say({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
    assert set(listed["result"]) == {"tools"}
