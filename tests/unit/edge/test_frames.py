"""What a shim's bytes mean to the edge."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mcp_edge.domain.frames import (
    Ask,
    BadFrame,
    Cancel,
    Hello,
    HelloRefused,
    Settle,
    parse_frame,
    parse_hello,
    parse_request,
)

HELLO = {"fencepost": 1, "shim": "0", "token": "fp_x", "nonce": "a" * 32}


def hello(**change: object) -> bytes:
    return json.dumps({name: value for name, value in {**HELLO, **change}.items() if value is not ...}).encode()


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
def test_a_greeting_names_the_caller_and_what_is_to_be_confirmed() -> None:
    assert parse_hello(hello()) == Hello(token="fp_x", nonce="a" * 32)
    assert parse_hello(hello(agent="u", generation=3, more="ignored")).generation == 3


@pytest.mark.requirement("tools.profiles")
def test_a_greeting_may_say_what_the_server_was_started_to_offer() -> None:
    who = "01234567-89ab-cdef-0123-456789abcdef"
    said = parse_hello(hello(tools="tasks,later", names="warp", who=who))
    assert (said.tools, said.warp, said.who) == ({"tasks"}, True, who)
    assert parse_hello(hello(tools="all")).tools == {"messaging", "tasks", "context", "files"}
    assert parse_hello(hello(tools="off")).tools == frozenset()
    silent = parse_hello(hello(names="other", who="../../etc"))
    assert (silent.tools, silent.warp, silent.who) == (None, False, None)


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
@pytest.mark.parametrize(
    "change",
    [
        {"fencepost": 2},
        {"fencepost": "1"},
        {"token": ""},
        {"token": ...},
        {"token": 7},
        {"token": "x" * 257},
        {"token": "a b\n"},
        {"token": "ü"},
        {"nonce": "A" * 32},
        {"nonce": "a" * 31},
        {"nonce": ...},
        {"agent": 1},
        {"generation": True},
        {"generation": "3"},
    ],
    ids=str,
)
def test_a_greeting_of_another_version_or_with_unusable_fields_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(HelloRefused) as refused:
        parse_hello(hello(**change))
    assert "nothing was done" in refused.value.message
    assert "x" * 20 not in refused.value.message


@pytest.mark.parametrize("line", [b"", b"GET / HTTP/1.1", b"[]", b"{}", b'{"jsonrpc":"2.0"}', b"\xff"])
def test_what_is_no_greeting_ends_the_connection(line: bytes) -> None:
    with pytest.raises(BadFrame):
        parse_hello(line)


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
def test_each_kind_of_frame_is_read() -> None:
    assert parse_frame(b'7 {"a":"b c"}') == Ask(number=7, line=b'{"a":"b c"}')
    assert parse_frame(b'7 within 500 {"a":1}') == Ask(number=7, line=b'{"a":1}', within_ms=500)
    assert parse_frame(b'7 settle E-1 {"a":1}') == Settle(number=7, line=b'{"a":1}', epoch="E-1")
    assert parse_frame(b'7 settle - {"a":1}') == Settle(number=7, line=b'{"a":1}', epoch="")
    assert parse_frame(b"7 cancel") == Cancel(number=7)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"7",
        b"7 ",
        b"0 {}",
        b"-1 {}",
        b"x {}",
        b"99999999999999999999 {}",
        b"7 []",
        b"7 cancel now",
        b"7 within {}",
        b"7 within x {}",
        b"7 within 60001 {}",
        b"7 settle {}",
        b"7 settle E",
        b"7 settle " + b"e" * 65 + b" {}",
        b"7 settle \xff {}",
        b"7 send {}",
    ],
)
def test_what_is_no_frame_ends_the_connection(line: bytes) -> None:
    with pytest.raises(BadFrame):
        parse_frame(line)


@given(line=st.binary(max_size=60))
def test_no_bytes_make_the_reader_fail_in_another_way(line: bytes) -> None:
    for parse in (parse_frame, parse_hello, parse_request):
        with contextlib.suppress(BadFrame, HelloRefused):
            parse(line)


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"id":1,"params":{}}',
        b'{"method":"tools/list","id":1,"params":{}}',
        b'{"method":"tools/call","params":{}}',
        b'{"method":"tools/call","id":null,"params":{}}',
        b'{"method":"tools/call","id":true,"params":{}}',
        b'{"method":"tools/call","id":1.0,"params":{}}',
        b'{"method":"tools/call","id":1,"params":[]}',
    ],
)
def test_a_request_that_no_shim_passes_on_ends_the_connection(line: bytes) -> None:
    with pytest.raises(BadFrame):
        parse_request(line)


@pytest.mark.requirement("mcp.ids-are-used-once")
def test_seven_and_its_text_make_two_keys() -> None:
    for raw in ("7", '"7"', '"\\ud800"'):
        request = parse_request(f'{{"method":"tools/call","id":{raw},"params":{{}}}}'.encode())
        assert request is not None
        assert request.id_text == raw


@pytest.mark.requirement("edge.shims-are-held-to-the-protocol")
@pytest.mark.parametrize("line", [b"{", b'{"a":1e999,"b":NaN}', b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}"], ids=len)
def test_a_request_that_cannot_be_read_here_is_none(line: bytes) -> None:
    assert parse_request(line) is None
