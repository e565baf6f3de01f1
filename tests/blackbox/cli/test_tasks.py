"""Supervised tasks from the shell, against running services: from assignment to archive, and an override."""

from __future__ import annotations

import json
import uuid

import pytest

from fencepost_testing.command import People, Person


def given(issuer: Person, to: str, text: str = "Port the parser.") -> str:
    made = issuer("task", "assign", to, text, "--acceptance", "Its tests pass.", "--json").document
    task_id: str = made["change"]["task_id"]
    return task_id


def state(person: Person, task_id: str) -> str:
    found: str = person("task", "show", task_id, "--json").document["task"]["state"]
    return found


@pytest.mark.requirement("cli.tasks-go-their-whole-way")
def test_work_is_given_done_sent_back_accepted_and_integrated(people: People) -> None:
    lead = people.operator.creates("lead", "--role", "coordinator")
    task_id = given(lead, "bob")
    assert task_id in people.bob("task", "list").out
    begun = people.bob("task", "start", task_id)
    assert f"{task_id}: running (revision 1, version 2)." in begun.out
    noted = people.bob("task", "progress", task_id, "--stdin", "--percent", "40", "--json", stdin=b"half\n")
    assert noted.document["change"]["version"] == 3
    assert people.bob("task", "submit", task_id, "Done.", "--evidence", "make test: 12 passed").code == 0
    back = lead("task", "review", task_id, "Names, please.", "--reject", "--json").document["change"]
    assert (back["state"], back["revision"]) == ("queued", 2)
    assert people.bob("task", "start", task_id, "--revision", "1", "--json").error["code"] == "stale_revision"
    people.bob("task", "start", task_id)
    people.bob("task", "submit", task_id, "Done.", "--evidence", "make test: 13 passed")
    shown = lead("task", "show", task_id).out
    assert "for bob; given by lead, reviewed by lead" in shown
    assert "Evidence\n  | make test: 13 passed" in shown
    assert lead("task", "review", task_id, "--accept").code == 0
    assert lead("task", "integrate", task_id, "--record-only").code == 0
    history = people.bob("task", "history", task_id, "--json").document["events"]
    assert [event["action"] for event in history] == [
        *("assign", "start", "progress", "submit", "reject", "start", "submit", "accept", "integrate")
    ]
    assert "reject: submitted -> queued, revision 2, by lead (" in lead("task", "history", task_id).out
    told = people.bob("task", "watch", task_id, "--until-settled", "--after", str(history[-2]["sequence"]), "--json")
    assert [json.loads(line)["action"] for line in told.out.splitlines()] == ["integrate"]
    tail = people.bob("message", "tail", "--tasks", "--until-now", "--after", str(history[-2]["sequence"])).out
    assert f"{task_id}  integrate: accepted -> integrated" in tail
    assert lead("task", "archive", task_id).code == 0
    assert task_id not in lead("task", "list").out
    assert "integrated (archived)" in people.operator("task", "list", "--archived", "--state", "integrated").out


@pytest.mark.requirement("cli.an-override-says-what-it-fences")
def test_the_operator_overrides_work_of_which_nobody_knows(people: People) -> None:
    task_id = given(people.operator, "bob", "Wander off.")
    attempt = people.bob("task", "start", task_id, "--json").document["change"]["attempt_id"]
    assert people.operator("task", "override", task_id, "x", "--cancel", "--previous-stopped").code == 1
    asked = people.operator("task", "cancel", task_id, "No more.")
    assert "was asked to stop" in asked.out
    only_says = people.operator("task", "override", task_id, "--cancel", "--json")
    assert only_says.error["code"] == "confirmation_missing"
    assert attempt in only_says.error["message"]
    assert state(people.operator, task_id) == "cancel_requested"
    command = ("task", "override", task_id, "It may still write.", "--cancel", "--previous-unknown")
    done = people.operator(*command, "--json").document
    assert (done["change"]["state"], done["fenced"]["attempt_id"]) == ("cancelled", attempt)
    last = people.operator("task", "history", task_id, "--json").document["events"][-1]
    assert last["text"] == "The operator does not know whether the previous execution has stopped. It may still write."
    late = people.bob("task", "submit", task_id, "Done.", "--evidence", "e", "--json")
    assert late.error["code"] in {"stale_attempt", "invalid_state"}
    assert people.bob("task", "override", task_id, "x", "--retry", "--json").error["code"] == "permission_denied"


@pytest.mark.requirement("cli.tasks-are-repeated-by-request-id")
def test_a_pool_task_is_claimed_once_and_a_command_repeated_under_its_id_does_nothing_more(people: People) -> None:
    ident = str(uuid.uuid4())
    command = ("task", "pool", "Sweep.", "--acceptance", "Clean.", "--request-id", ident, "--json")
    first = people.ada(*command).document["change"]
    again = people.ada(*command).document["change"]
    assert (again["task_id"], first["duplicate"], again["duplicate"]) == (first["task_id"], False, True)
    claimed = people.bob("task", "claim", first["task_id"])
    assert claimed.code == 0, claimed.err
    lost = people.bob("task", "claim", first["task_id"], "--json")
    assert (lost.code, lost.error["code"]) == (1, "unauthorized")
    moved = people.bob("task", "progress", first["task_id"], "n", "--expected-version", "1", "--json")
    assert (moved.error["code"], moved.error["state"]["version"]) == ("version_conflict", "2")
    assert people.bob("task", "fail", first["task_id"], "No broom.").code == 0


@pytest.mark.requirement("cli.projects-are-shown-and-made")
def test_a_project_is_shown_with_its_agents_and_work_and_made_without_any(people: People) -> None:
    given(people.ada, "bob", "Count me.")
    shown = people.operator("project", "show", "--json").document
    assert {"ada", "bob"} <= {agent["name"] for agent in shown["agents"]}
    assert shown["tasks"]["queued"] >= 1
    own = people.ada("project", "show", "--json").document
    assert (own["project"], own["tasks"]) == (shown["project"], None)
    folder = people.services.home.path.parent / "elsewhere"
    folder.mkdir()
    made = people.operator("project", "create", str(folder), "--name", "Elsewhere", "--json").document
    assert (made["created"], made["project"]["name"]) == (True, "Elsewhere")
    assert "was a project already" in people.operator("project", "create", str(folder)).out
    assert "agents: none" in people.operator("project", "show", made["project"]["project_id"]).out
    assert people.operator("project", "show", str(uuid.uuid4()), "--json").code == 2
    assert people.ada("project", "show", str(folder)).code == 1
