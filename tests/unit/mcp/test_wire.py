"""JSON-RPC lines without a JSON library."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.mcp import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)

NOT_JSON = [
    b"",
    b"{",
    b"}",
    b"nul",
    b'{"a":1} {"b":2}',
    b"[1,]",
    b"NaN",
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b"\xef\xbb\xbf{}",
    b'{"a":"raw\ttab"}',
    b'"raw\x00nul"',
    b"{'a':1}",
    b"[" * 200_000,
    b"-",
    b"1" * 5000,
]


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
@pytest.mark.parametrize("line", NOT_JSON, ids=lambda line: repr(line[:24]))
def test_what_is_not_one_json_value_is_refused(line: bytes) -> None:
    with pytest.raises(wire.NotJson):
        wire.decode(line)


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
@pytest.mark.parametrize("line", NOT_JSON, ids=lambda line: repr(line[:24]))
def test_the_bare_scanner_refuses_it_too_where_json_was_never_imported(line: bytes) -> None:
    code = (
        "import sys; from fencepost.mcp import wire; assert 'json' not in sys.modules\n"
        "try: wire.decode(sys.stdin.buffer.read())\n"
        "except wire.NotJson: sys.exit(7)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=line, check=False, timeout=20)
    assert done.returncode == 7


@given(value=JSON)
def test_what_json_writes_is_read_back(value: object) -> None:
    assert wire.decode(json.dumps(value).encode()) == value
    assert wire.decode(f" \t{json.dumps(value, ensure_ascii=False)}\r".encode()) == value


@given(text=st.text(), code=st.sampled_from([wire.PARSE_ERROR, wire.UNSUPPORTED_VERSION]))
def test_answers_are_lines_of_json(text: str, code: int) -> None:
    line = wire.failure('"x"', code, text)
    assert b"\n" not in line
    assert json.loads(line) == {"jsonrpc": "2.0", "id": "x", "error": {"code": code, "message": text}}


@pytest.mark.requirement("mcp.result-is-encoded-once")
@given(text=st.text())
def test_a_result_stands_in_the_answer_twice_and_is_the_same(text: str) -> None:
    payload = json.dumps({"message": text}, ensure_ascii=False)
    line = wire.tool_result("7", payload)
    assert b"\n" not in line
    result = json.loads(line)["result"]
    assert result["structuredContent"] == {"message": text}
    assert json.loads(result["content"][0]["text"]) == {"message": text}
    assert result["isError"] is False


@pytest.mark.requirement("mcp.errors-say-what-was-written")
@pytest.mark.parametrize(("uncertain", "written"), [(False, False), (True, "unknown")])
def test_an_error_says_whether_anything_was_written(uncertain: bool, written: object) -> None:
    line = wire.tool_error("7", code="c", message="m", hint="h", uncertain=uncertain)
    result = json.loads(line)["result"]
    assert result["structuredContent"] == {"code": "c", "message": "m", "hint": "h", "written": written}
    assert result["isError"] is True
