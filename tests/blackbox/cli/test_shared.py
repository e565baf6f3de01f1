"""Contexts, memory and files from the shell, against running services."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from fencepost_testing.command import People


@pytest.mark.requirement("cli.contexts-and-memory")
def test_a_context_is_published_listed_and_shown(people: People) -> None:
    key = f"api/{uuid.uuid4().hex[:8]}"
    made = people.ada("context", "publish", key, "first", "--pinned", "--json").document
    assert (made["key"], made["version"]) == (key, 1)
    again = people.ada("context", "publish", key, "first", "--pinned", "--request-id", made["request_id"])
    assert "by an earlier call" in again.out
    assert people.bob("context", "publish", key, "--stdin", stdin="zwéi\n".encode()).code == 0
    shown = people.ada("context", "show", key)
    assert "version 2 of 2, pinned, by bob" in shown.out
    assert "  | zwéi" in shown.out
    assert people.ada("context", "show", key, "--version", "1", "--json").document["context"]["content"] == "first"
    listed = people.ada("context", "list", "--prefix", key, "--json").document["contexts"]
    assert [(one["key"], one["version"], one["pinned"]) for one in listed] == [(key, 2, True)]
    assert key in people.ada("context", "list", "--pinned").out
    history = people.ada("context", "show", key, "--history", "--json").document["contexts"]
    assert [one["version"] for one in history] == [2, 1]
    late = people.ada("context", "publish", key, "x", "--expected-version", "1", "--json")
    assert (late.code, late.error["code"], late.error["state"]["version"]) == (1, "version_conflict", "2")
    assert people.ada("context", "show", "nothing/such").code == 2
    wrong = people.ada("context", "publish", key, "x", "--stdin", "--json")
    assert wrong.error["code"] == "invalid_arguments"


@pytest.mark.requirement("cli.contexts-and-memory")
def test_memory_is_changed_by_who_has_read_it(people: People) -> None:
    standing = people.ada("memory", "show", "--json").document["memory"]["version"]
    refused = people.ada("memory", "update", "build with make", "--json")
    assert refused.error["code"] == "invalid_arguments"
    done = people.ada("memory", "update", "build with make", "--expected-version", str(standing), "--json").document
    assert done["version"] == standing + 1
    late = people.bob("memory", "update", "mine", "--expected-version", str(standing), "--json")
    assert late.error["code"] == "version_conflict"
    assert "  | build with make" in people.bob("memory", "show").out
    assert str(standing + 1) in people.bob("memory", "show", "--history").out
    versions = people.bob("memory", "show", "--history", "--json").document["versions"]
    assert versions[0]["author"]["name"] == "ada"


@pytest.mark.requirement("cli.contexts-and-memory")
def test_the_operator_names_a_project_and_an_agent_has_its_own(people: People, tmp_path: Path) -> None:
    key = f"op/{uuid.uuid4().hex[:8]}"
    assert people.operator("context", "publish", key, "by a person").code == 0
    assert "by the operator" in people.ada("context", "show", key).out
    nowhere = people.operator("context", "list", "--project", str(tmp_path), "--json")
    assert (nowhere.code, nowhere.error["code"]) == (2, "not_found")
    assert people.ada("context", "list", "--project", str(tmp_path)).code == 1


@pytest.mark.requirement("cli.files")
def test_a_file_is_reserved_checked_renewed_and_released(people: People) -> None:
    folder = uuid.uuid4().hex[:8]
    names = (f"{folder}/a.py", f"{folder}/../{folder}/docs/*.md")
    held = people.ada("file", "reserve", *names, "--reason", "why", "--json")
    assert held.document["reserved"] is True
    refused = people.bob("file", "reserve", folder, "--json")
    assert refused.code == 8
    document = json.loads(refused.out)
    assert [(one["path"], one["held"]["holder"]["name"]) for one in document["conflicts"]] == [(folder, "ada")] * 2
    told = people.bob("file", "check", f"./{folder}/a.py")
    assert told.code == 8
    assert "held by ada until" in told.out
    assert "why: why" in told.out
    assert people.bob("file", "check", f"{folder}/b.py").code == 0
    assert people.ada("file", "check", folder).code == 0
    assert "Renewed 1 path" in people.ada("file", "renew", f"{folder}/a.py", "--seconds", "600").out
    listed = people.operator("file", "list", folder, "--json").document["reservations"]
    assert [one["path"] for one in listed] == [f"{folder}/a.py", f"{folder}/docs/*.md"]
    assert people.operator("file", "check", folder, "--json").code == 8
    assert "Released 1 path" in people.ada("file", "release", f"{folder}/docs/*.md").out
    assert "Nothing of that was held" in people.bob("file", "release", f"{folder}/a.py").out
    assert "Released 1 path" in people.operator("file", "release", "--agent", "ada", "--all").out
    lost = people.ada("file", "renew", "--id", held.document["reservation_id"], "--json")
    assert lost.error["code"] == "reservation_lost"


@pytest.mark.requirement("cli.files")
def test_what_lies_outside_the_checkout_and_what_is_another_agents_is_refused(people: People) -> None:
    outside = people.ada("file", "reserve", "/etc/passwd", "--json")
    assert outside.error["code"] == "outside_checkout"
    assert people.bob("file", "release", "--agent", "ada", "--all", "--json").error["code"] == "permission_denied"
    assert people.operator("file", "reserve", "a", "--json").error["code"] == "missing_managed_sender"
    assert people.ada("file", "release", "--id", "x", "--json").code == 1
    assert people.ada("file", "reserve", "a", "--request-id", "x", "--json").error["code"] == "invalid_arguments"
