"""`fencepost doctor` as typed, with services that are scripted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.common.v1 import common_pb2
from fencepost.doctor import look
from fencepost.doctor.findings import UNREAD_MS_MIN, Facts, Version
from fencepost.errors import NotWritten, Refused
from fencepost.home import Home
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
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
