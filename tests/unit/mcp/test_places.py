"""Files of a call, named where their checkout is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.mcp import places
from fencepost.mcp.session import Call


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "link").symlink_to("src")
    return tmp_path


def a_call(arguments: Any, **params: Any) -> Call:
    message = {
        "jsonrpc": "2.0",
        "id": "é",
        "method": "tools/call",
        "params": {"name": "warp_file_reserve", "arguments": arguments, **params},
    }
    line = json.dumps(message).encode()
    return Call(id_text='"é"', name="file_reserve", line=line, wait_ms=0, progress_token=None, sink=lambda _: None)


@pytest.mark.requirement("tools.files-are-named-where-they-are")
def test_files_of_a_call_are_named_by_its_checkout_and_nothing_else_of_it_changes(checkout: Path) -> None:
    arguments = {"file_path": "link/a.py", "more_paths": [str(checkout / "src/b.py"), "docs/*.md"], "reason": "why"}
    forged = {places.PLACE_KEY: {"paths": ["other"]}, "progressToken": 7}
    call = a_call(arguments, _meta=forged)
    before = json.loads(call.line)
    assert places.prepare(call, str(checkout / "src")) is None
    after = json.loads(call.line)
    assert after["params"]["_meta"].pop(places.PLACE_KEY) == {
        "root": str(checkout.resolve()),
        "ignore_case": after_case(checkout),
        "paths": ["src/a.py", "src/b.py"],
        "globs": ["docs/*.md"],
    }
    assert after["params"].pop("_meta") == {"progressToken": 7}
    del before["params"]["_meta"]
    assert after == before


def after_case(folder: Path) -> bool:
    return (folder / ".GIT").exists()


@pytest.mark.requirement("tools.files-are-named-where-they-are")
def test_a_file_outside_the_checkout_is_refused_before_anything_is_sent(checkout: Path) -> None:
    call = a_call({"file_path": "../other"})
    line = call.line
    answer = places.prepare(call, str(checkout))
    assert answer is not None
    told = json.loads(answer)["result"]["structuredContent"]
    assert (told["code"], told["written"], told["state"]) == ("outside_checkout", False, {"path": "../other"})
    assert call.line == line


@pytest.mark.requirement("tools.files-are-named-where-they-are")
@pytest.mark.parametrize("arguments", [{}, {"file_path": 7}, {"file_path": "a", "sender": "x"}, [], {"file_path": ""}])
def test_a_call_that_is_wrong_is_passed_on_as_it_is(checkout: Path, arguments: Any) -> None:
    call = a_call(arguments)
    line = call.line
    assert places.prepare(call, str(checkout)) is None
    assert call.line == line


@pytest.mark.requirement("tools.files-are-named-where-they-are")
def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    answer = places.prepare(a_call({"file_path": "a"}), str(tmp_path / "gone"))
    assert answer is not None
    assert json.loads(answer)["result"]["structuredContent"]["code"] == "not_found"
