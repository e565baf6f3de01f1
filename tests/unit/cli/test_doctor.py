"""`fencepost doctor` as typed, with services that are scripted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli import managed
from fencepost.common.v1 import common_pb2
from fencepost.doctor import look
from fencepost.doctor.findings import UNREAD_MS_MIN, Facts, Version
from fencepost.errors import NotWritten, Refused
from fencepost.home import Home
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import AGENT, BOB, PROJECT, Shell

V1 = Version(version="1", registry="a")


@pytest.fixture
def well(shell: Shell) -> Shell:
    """A shell in whose home everything runs; what the mailbox holds is the test's."""

    async def facts_of(home: Home, _env: Any) -> Facts:
        now_ms = int(time.time() * 1000)
        return Facts(home=home.text, default_home=home.text, supervised=True, own=V1, edge=V1, now_ms=now_ms)

    shell.monkeypatch.setattr(look, "facts_of", facts_of)
    people = [("ann", AGENT), ("bob", BOB)]
    shell.sessions.answers["list_agents"] = sessions.ListAgentsResponse(
        agents=[sessions.Agent(agent_id=agent, project_id=PROJECT, name=name) for name, agent in people]
    )
    shell.mailbox.answers["list_readers"] = mailbox.ListReadersResponse(
        readers=[mailbox.Reader(agent_id=AGENT, waiting=True), mailbox.Reader(agent_id=BOB)]
    )
    shell.mailbox.answers["list_records"] = mailbox.ListRecordsResponse()
    return shell


def record(state: mailbox.DeliveryState.ValueType, age_ms: int) -> mailbox.Record:
    return mailbox.Record(
        record_id="inf_0190f3a2111172228333444455556666",
        recipient=common_pb2.AgentRef(agent_id=BOB, name="bob"),
        delivery_state=state,
        admitted_at_ms=int(time.time() * 1000) - age_ms,
    )


@pytest.mark.requirement("doctor.each-finding-has-a-code-and-a-remedy")
def test_where_nothing_is_wrong_that_is_said_and_the_exit_is_0(well: Shell) -> None:
    done = well("doctor")
    assert (done.code, done.err) == (0, "")
    assert "Nothing is wrong" in done.out
    assert well("doctor", "--json").document["problems"] == 0


@pytest.mark.requirement("doctor.sees-unread-mail")
def test_mail_that_nobody_reads_is_found_and_nobody_who_waits_is_asked_about(well: Shell) -> None:
    seen = [record(mailbox.DELIVERY_STATE_EXPOSED, 3 * UNREAD_MS_MIN)]
    unseen = [record(mailbox.DELIVERY_STATE_ADMITTED, UNREAD_MS_MIN + 60_000)]
    well.mailbox.answers["list_records"] = mailbox.ListRecordsResponse(records=seen)
    assert "mail_unread" not in well("doctor").out
    well.mailbox.answers["list_records"] = mailbox.ListRecordsResponse(records=seen + unseen)
    done = well("doctor", "--json")
    (found,) = (item for item in done.document["findings"] if item["code"] == "mail_unread")
    assert done.code == 0, "a warning is no failure"
    assert found["what"].startswith("for bob a record waits, the oldest for 11 min")
    asked = [request.agent_id for method, request in well.mailbox.asked if method == "list_records"]
    assert set(asked) == {BOB}


@pytest.mark.requirement("doctor.each-finding-has-a-code-and-a-remedy")
def test_a_problem_makes_the_exit_1(shell: Shell) -> None:
    shell.monkeypatch.setenv("HOME", str(Path.cwd()))
    for path in (shell.home.path, shell.home.agents):
        path.chmod(0o700)
    done = shell("doctor", "--json")
    assert done.code == 1
    assert done.document["findings"][0]["code"] == "services_not_running"
    assert done.document["problems"] == 1
    assert shell.acted == []


@pytest.mark.requirement("doctor.an-agent-sees-itself")
def test_an_agents_own_identity_is_tried_and_nobody_elses_mail_is_looked_at(well: Shell) -> None:
    well.as_agent()
    well.sessions.answers["get_caller"] = sessions.GetCallerResponse()
    assert well("doctor").code == 0
    assert well.mailbox.asked == []
    well.sessions.answers["get_caller"] = Refused("unauthenticated", "the credential is not known")
    done = well("doctor", "--json")
    assert (done.code, done.document["findings"][0]["code"]) == (1, "identity_unusable")
    well.sessions.answers["get_caller"] = NotWritten("unreachable", "nobody answers")
    assert well("doctor").code == 0
    well.home.agent_credential(AGENT).unlink()
    assert well("doctor", "--json").document["findings"][0]["code"] == "identity_unusable"


ON = sessions.DESIRED_STATE_ON


def to_run(shell: Shell, *agents: sessions.Agent) -> None:
    shell.sessions.answers["list_agents"] = sessions.ListAgentsResponse(agents=agents)
    shell.providers.answers["list_providers"] = pb.ListProvidersResponse(
        providers=[pb.Provider(name="codex"), pb.Provider(name="other", problem="version 0.1 is too old.")]
    )
    shell.providers.answers["inspect_runtime"] = pb.InspectRuntimeResponse()


def found(shell: Shell) -> tuple[int, dict[str, str]]:
    done = shell("doctor", "--json")
    return done.code, {item["code"]: item["what"] for item in done.document["findings"]}


@pytest.mark.requirement("doctor.looks-at-agents-that-are-run")
def test_where_no_agent_is_to_run_providers_are_not_asked(well: Shell) -> None:
    off = sessions.Agent(agent_id=BOB, name="bob", desired=sessions.DESIRED_STATE_OFF, provider="other")
    gone = sessions.Agent(agent_id=AGENT, name="ann", desired=ON, state=sessions.AGENT_STATE_DELETING)
    to_run(well, off, gone)
    assert well("doctor").code == 0
    assert well.providers.asked == []


@pytest.mark.requirement("doctor.looks-at-agents-that-are-run")
def test_a_program_that_cannot_be_used_is_told_of_once_and_its_agents_are_not_looked_at(well: Shell) -> None:
    paused = sessions.DESIRED_STATE_PAUSED
    to_run(
        well,
        sessions.Agent(agent_id=AGENT, name="ann", desired=ON, provider="other"),
        sessions.Agent(agent_id=BOB, name="bob", desired=paused, provider="other"),
    )
    code, told = found(well)
    assert (code, set(told)) == (1, {"program_unusable"})
    assert told["program_unusable"].startswith("other cannot be used, and ann, bob are to run in it: version 0.1")
    assert [method for method, _ in well.providers.asked] == ["list_providers"]


@pytest.mark.requirement("doctor.looks-at-agents-that-are-run")
def test_what_providers_find_of_an_agent_is_told_by_its_gravity_and_facts_are_left_out(well: Shell) -> None:
    to_run(well, sessions.Agent(agent_id=BOB, name="bob", desired=ON, provider="codex"))
    findings = [
        pb.Finding(
            code="approvals_missing", gravity=pb.GRAVITY_WARNING, text="codex refuses reply", hint="agent tools"
        ),
        pb.Finding(code="codex_home", gravity=pb.GRAVITY_FACT, text="CODEX_HOME is there"),
    ]
    well.providers.answers["inspect_runtime"] = lambda _: pb.InspectRuntimeResponse(findings=findings)
    assert found(well) == (0, {"agent_may_ail": "bob: codex refuses reply [approvals_missing]"})
    findings.append(pb.Finding(code="registration_occupied", gravity=pb.GRAVITY_ERROR, text="the name is taken"))
    code, told = found(well)
    assert (code, told["agent_ails"]) == (1, "bob: the name is taken [registration_occupied]")


@pytest.mark.requirement("doctor.looks-at-agents-that-are-run")
def test_providers_that_do_not_answer_are_a_problem_where_agents_are_to_run(well: Shell) -> None:
    to_run(well, sessions.Agent(agent_id=BOB, name="bob", desired=ON, provider="codex"))
    well.providers.answers["list_providers"] = NotWritten("unreachable", "nobody answers at its address")
    done = well("doctor")
    assert (done.code, "(providers_unreachable)" in done.out) == (1, True)
    assert "nobody answers at its address" in done.out


@pytest.mark.requirement("doctor.looks-at-agents-that-are-run")
@pytest.mark.parametrize("over", [0, 1])
def test_so_many_agents_are_looked_at_and_the_others_are_named(well: Shell, over: int) -> None:
    many = [
        sessions.Agent(agent_id=f"u-{number}", name=f"a{number}", desired=ON, provider="codex")
        for number in range(managed.INSPECTED_MAX + over)
    ]
    to_run(well, *many)
    well.mailbox.answers["list_readers"] = mailbox.ListReadersResponse()
    code, told = found(well)
    assert (code, set(told)) == (0, {"agent_not_inspected"} if over else set())
    assert len(well.providers.asked) == 1 + managed.INSPECTED_MAX


def test_an_agent_that_cannot_be_looked_at_is_named_with_the_reason(well: Shell) -> None:
    to_run(well, sessions.Agent(agent_id=BOB, name="bob", desired=ON, provider="codex"))
    well.providers.answers["inspect_runtime"] = Refused("not_found", "no agent has this UUID")
    assert found(well)[1] == {"agent_not_inspected": "bob is to run and could not be looked at: no agent has this UUID"}
