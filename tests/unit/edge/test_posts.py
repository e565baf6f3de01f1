"""The head of an HTTP request, and the head against the body: tables of what is taken and what is turned away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost_mcp_edge.domain.posts import VERSION_ASSUMED, Head, Turned, admitted, read
from fencepost_testing.posting import BASE, META, VERSION, modern, request, routing


def head(method: str = "POST", path: str = "/mcp", **headers: str | None) -> Head:
    told = {**BASE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    pairs = [(name, value) for name, value in told.items() if value is not None]
    return Head(method=method, path=path, headers=pairs)


def turned(head: Head, message: Any = None) -> tuple[int, int]:
    with pytest.raises(Turned) as caught:
        _ = admitted(head) if message is None else read(head, message)
    return caught.value.status, json.loads(caught.value.line)["error"]["code"]


@pytest.mark.requirement("http.web-pages-are-kept-out")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:80", "[::1]"])
def test_this_machine_may_be_asked_for_by_its_own_names(host: str) -> None:
    assert admitted(head(host=host)) == BASE["authorization"].removeprefix("Bearer ")


@pytest.mark.requirement("http.web-pages-are-kept-out")
@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.", "127.0.0.1:x", "192.0.2.1"],
)
def test_another_host_is_refused(host: str | None) -> None:
    assert turned(head(host=host))[0] == 403


@pytest.mark.requirement("http.web-pages-are-kept-out")
def test_two_hosts_are_refused() -> None:
    both = [*head().headers, ("host", "localhost")]
    assert turned(Head(method="POST", path="/mcp", headers=both))[0] == 403


@pytest.mark.requirement("http.web-pages-are-kept-out")
@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:5"])
def test_pages_of_this_machine_are_let_in(origin: str) -> None:
    assert admitted(head(origin=origin))


@pytest.mark.requirement("http.web-pages-are-kept-out")
@pytest.mark.parametrize("origin", ["null", "", "http://evil.example", "https://localhost.evil.example", "localhost"])
def test_pages_of_other_machines_are_refused_before_their_credential_is_looked_at(origin: str) -> None:
    assert turned(head(origin=origin, authorization=None))[0] == 403


@pytest.mark.requirement("http.every-request-brings-a-credential")
@pytest.mark.parametrize("value", [None, "", "Bearer", "Bearer x", "Basic fp_" + "T" * 43, "Bearer fp_" + "T" * 44])
def test_no_credential_or_none_of_the_right_form_is_told_how_to_send_one(value: str | None) -> None:
    with pytest.raises(Turned) as caught:
        admitted(head(authorization=value))
    assert caught.value.status == 401
    assert caught.value.headers[0] == "www-authenticate"
    assert b"fp_" not in caught.value.line


@pytest.mark.requirement("http.one-endpoint")
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"path": "/"}, 404),
        ({"path": "/mcp/"}, 404),
        ({"method": "GET"}, 405),
        ({"method": "DELETE"}, 405),
        ({"method": "OPTIONS"}, 405),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": None}, 415),
        ({"accept": "text/html"}, 406),
        ({"accept": None}, 406),
    ],
)
def test_what_is_no_post_of_json_is_answered_by_its_status(change: dict[str, Any], status: int) -> None:
    assert turned(head(**change))[0] == status


@pytest.mark.requirement("http.one-endpoint")
@pytest.mark.parametrize(
    ("accept", "events"),
    [
        ("application/json", False),
        ("*/*", True),
        ("Application/JSON;q=0.9 , text/event-stream", True),
        ("application/*", False),
    ],
)
def test_an_answer_comes_as_events_only_where_they_are_accepted(accept: str, events: bool) -> None:
    told = head(accept=accept, content_type="Application/Json; charset=utf-8")
    assert admitted(told)
    assert told.takes_events is events


LIST = modern("tools/list")
CALL = modern("tools/call", name="list_agents")


@pytest.mark.requirement("http.headers-agree-with-the-body")
@pytest.mark.parametrize("message", [LIST, CALL, modern("server/discover"), modern("tools/call", name="\u00e9")])
def test_headers_that_say_what_the_body_says_are_taken(message: dict[str, Any]) -> None:
    told = routing(message)
    if told.get("mcp_name") == "\u00e9":
        told["mcp_name"] = "=?base64?w6k=?="
    assert read(head(**told), message).assumed is None


@pytest.mark.requirement("http.headers-agree-with-the-body")
@pytest.mark.parametrize(
    ("message", "change"),
    [
        (LIST, {"mcp_protocol_version": None}),
        (LIST, {"mcp_protocol_version": "2025-11-25"}),
        (LIST, {"mcp_protocol_version": "2099-01-01"}),
        (LIST, {"mcp_method": None}),
        (LIST, {"mcp_method": "tools/call"}),
        (LIST, {"mcp_method": "TOOLS/LIST"}),
        (CALL, {"mcp_name": None}),
        (CALL, {"mcp_name": "reply"}),
        (CALL, {"mcp_name": "=?base64?bGlzdF9hZ2VudHM?="}),
        (CALL, {"mcp_name": "=?base64?/w==?="}),
    ],
)
def test_headers_that_are_missing_or_say_something_else_are_refused(
    message: dict[str, Any], change: dict[str, Any]
) -> None:
    assert turned(head(**{**routing(message), **change}), message) == (400, -32020)


@pytest.mark.requirement("http.headers-agree-with-the-body")
def test_a_header_that_is_there_twice_is_refused() -> None:
    for name in ("mcp-protocol-version", "mcp-method", "mcp-name"):
        told = head(**routing(CALL))
        doubled = Head(method="POST", path="/mcp", headers=[*told.headers, (name, told.one(name) or "")])
        assert turned(doubled, CALL) == (400, -32020)


@pytest.mark.requirement("http.headers-agree-with-the-body")
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "ping", "server/discover"])
@pytest.mark.parametrize("version", [VERSION, "2099-01-01"])
def test_a_request_whose_header_alone_names_a_later_version_is_malformed(method: str, version: str) -> None:
    assert turned(head(mcp_protocol_version=version), request(method)) == (400, -32602)


@pytest.mark.requirement("http.keeps-nothing-between-requests")
@pytest.mark.parametrize(
    ("version", "assumed"), [(None, VERSION_ASSUMED), ("2025-11-25", "2025-11-25"), ("2024-11-05", "2024-11-05")]
)
def test_without_a_handshake_of_its_own_a_request_is_taken_under_the_version_that_it_tells(
    version: str | None, assumed: str
) -> None:
    assert read(head(mcp_protocol_version=version), request("tools/list")).assumed == assumed
    assert read(head(mcp_protocol_version=version), [request("tools/list")]).assumed == assumed


@pytest.mark.requirement("mcp.versions")
@pytest.mark.parametrize("version", [None, VERSION, "2099-01-01", "2025-06-18"])
def test_initialize_begins_whatever_its_header_says(version: str | None) -> None:
    assert read(head(mcp_protocol_version=version), request("initialize", {})).assumed is not None
    if version != VERSION:
        message = request("initialize", {"_meta": META})
        assert read(head(mcp_protocol_version=version), message).assumed is not None


@pytest.mark.requirement("http.both-eras")
def test_initialize_of_an_era_that_has_none_is_an_unknown_method() -> None:
    message = modern("initialize")
    assert turned(head(**routing(message)), message) == (404, -32601)


@pytest.mark.requirement("http.keeps-nothing-between-requests")
def test_a_notification_is_taken_under_every_version_that_is_served_and_no_other() -> None:
    told = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    assert read(head(mcp_protocol_version=VERSION), told).assumed is None
    assert read(head(), told).assumed == VERSION_ASSUMED
    assert turned(head(mcp_protocol_version="2099-01-01"), told)[0] == 400
