"""The shim's constant answers are what the registry says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost import __version__
from fencepost.mcp import answers, generate, registry
from fencepost.mcp.registry import TOOLS_LIST_BYTES_MAX
from fencepost.mcp.session import Told


@pytest.mark.requirement("mcp.answers-are-generated")
def test_the_committed_module_is_what_would_be_generated() -> None:
    assert generate.main(["--check"]) == 0


@pytest.mark.requirement("mcp.answers-are-generated")
def test_an_outdated_module_is_reported_and_only_rewritten_when_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "answers.py"
    target.write_text("VERSION = 'old'\n", encoding="utf-8")
    monkeypatch.setattr(generate, "TARGET", target)
    assert generate.main(["--check"]) == 1
    assert "fencepost.mcp.generate" in capsys.readouterr().err
    assert target.read_text(encoding="utf-8") == "VERSION = 'old'\n"
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


@pytest.mark.requirement("mcp.answers-are-generated")
def test_the_hash_follows_what_a_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert generate.registry_hash() == answers.REGISTRY_HASH
    monkeypatch.setattr(registry, "INSTRUCTIONS", "other words")
    assert generate.registry_hash() != answers.REGISTRY_HASH


@pytest.mark.requirement("mcp.tools-list-is-small")
def test_the_tool_list_costs_a_model_at_most_8_kib() -> None:
    assert len(answers.TOOLS_LIST) <= TOOLS_LIST_BYTES_MAX
    assert len(json.loads(answers.TOOLS_LIST)["tools"]) == 7


@pytest.mark.requirement("mcp.answers-are-generated")
def test_the_answer_to_initialize_is_whole_around_any_version() -> None:
    whole = json.loads(Told().initialize("2025-06-18"))
    assert whole == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "fencepost-local", "version": __version__},
        "instructions": registry.INSTRUCTIONS,
    }
