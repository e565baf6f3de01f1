"""Who a process speaks as: found in the environment, never guessed, refused where two sources disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost import Home, Identity, Refused
from fencepost.client import Client
from fencepost.sessions.v1 import sessions_pb2 as sessions

AGENT = "0190f3a2-1111-7222-8333-444455556666"
OTHER = "0190f3a2-1111-7222-8333-777755556666"
TOKEN = "fp_" + "a" * 43
OTHER_TOKEN = "fp_" + "b" * 43


def credential(path: Path, token: str) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(token + "\n")
    path.chmod(0o600)
    return str(path)


class Caller:
    """Stands for sessions: tells who the credential speaks for."""

    def __init__(self, agent_id: str, generation: int) -> None:
        self._credential = sessions.Credential(agent_id=agent_id, generation=generation)

    async def get_caller(self) -> Any:
        return sessions.GetCallerResponse(credential=self._credential)


@pytest.mark.requirement("identity.home-and-session-suffice")
def test_home_and_session_id_suffice(home: Home) -> None:
    credential(home.agent_credential(AGENT), TOKEN)
    identity = Identity.from_environment(home, {"FENCEPOST_SESSION_ID": AGENT})
    assert (identity.token, identity.agent_id, identity.needs_verifying) == (TOKEN, AGENT, False)


@pytest.mark.requirement("identity.none-is-refused")
@pytest.mark.parametrize("env", [{}, {"FENCEPOST_SESSION_ID": ""}, {"FENCEPOST_GENERATION": "3"}])
def test_without_an_identity_nothing_is_guessed_and_nothing_created(home: Home, env: dict[str, str]) -> None:
    credential(home.operator_credential, TOKEN)
    before = sorted(home.path.rglob("*"))
    with pytest.raises(Refused) as caught:
        Identity.from_environment(home, env)
    assert caught.value.reason == "missing_managed_sender"
    assert sorted(home.path.rglob("*")) == before


@pytest.mark.requirement("identity.sources-in-order-and-in-agreement")
def test_the_credential_file_comes_first_and_an_agreeing_session_is_accepted(home: Home) -> None:
    file = credential(home.agent_credential(AGENT), TOKEN)
    for env in (
        {"FENCEPOST_CREDENTIAL_FILE": file},
        {"FENCEPOST_CREDENTIAL_FILE": file, "FENCEPOST_SESSION_ID": AGENT},
    ):
        identity = Identity.from_environment(home, env)
        assert (identity.token, identity.source) == (TOKEN, "FENCEPOST_CREDENTIAL_FILE")
        assert not identity.needs_verifying


@pytest.mark.requirement("identity.sources-in-order-and-in-agreement")
def test_two_sources_that_disagree_are_refused(home: Home) -> None:
    file = credential(home.agent_credential(AGENT), TOKEN)
    credential(home.agent_credential(OTHER), OTHER_TOKEN)
    with pytest.raises(Refused) as caught:
        Identity.from_environment(home, {"FENCEPOST_CREDENTIAL_FILE": file, "FENCEPOST_SESSION_ID": OTHER})
    assert caught.value.reason == "identity_disagreement"


@pytest.mark.requirement("identity.sources-in-order-and-in-agreement")
async def test_where_the_files_cannot_show_agreement_sessions_is_asked(home: Home, tmp_path: Path) -> None:
    env = {"FENCEPOST_CREDENTIAL_FILE": credential(tmp_path / "c", TOKEN), "FENCEPOST_SESSION_ID": AGENT}
    identity = Identity.from_environment(home, env)
    assert identity.needs_verifying
    await identity.verify(Caller(AGENT, 1))  # type: ignore[arg-type]
    with pytest.raises(Refused) as caught:
        await identity.verify(Caller(OTHER, 1))  # type: ignore[arg-type]
    assert caught.value.reason == "identity_disagreement"


@pytest.mark.requirement("identity.expected-generation-is-held-to")
async def test_an_expected_generation_that_does_not_match_is_refused(home: Home) -> None:
    credential(home.agent_credential(AGENT), TOKEN)
    identity = Identity.from_environment(home, {"FENCEPOST_SESSION_ID": AGENT, "FENCEPOST_GENERATION": "2"})
    await identity.verify(Caller(AGENT, 2))  # type: ignore[arg-type]
    for other in (1, 3):
        with pytest.raises(Refused) as caught:
            await identity.verify(Caller(AGENT, other))  # type: ignore[arg-type]
        assert caught.value.reason == "stale_generation"


@pytest.mark.requirement("identity.expected-generation-is-held-to")
@pytest.mark.parametrize("text", ["0", "-1", "1.0", "x", "٣", "1" * 19])
def test_a_generation_that_is_no_number_from_one_on_is_refused(home: Home, text: str) -> None:
    credential(home.agent_credential(AGENT), TOKEN)
    with pytest.raises(Refused):
        Identity.from_environment(home, {"FENCEPOST_SESSION_ID": AGENT, "FENCEPOST_GENERATION": text})


@pytest.mark.parametrize("session", ["../../operator", "x", AGENT + "/.."])
def test_a_session_id_that_is_no_uuid_reads_no_file(home: Home, session: str) -> None:
    with pytest.raises(Refused) as caught:
        Identity.from_environment(home, {"FENCEPOST_SESSION_ID": session})
    assert caught.value.reason == "invalid_session_id"


def test_the_operator_is_the_owner_of_the_home(home: Home) -> None:
    with pytest.raises(Refused):
        Identity.operator(home)
    credential(home.operator_credential, TOKEN)
    assert Identity.operator(home).token == TOKEN


@pytest.mark.requirement("client.errors-hold-no-body-and-no-secret")
def test_an_identity_never_shows_its_token(home: Home) -> None:
    credential(home.operator_credential, TOKEN)
    assert TOKEN not in repr(Identity.operator(home))


async def test_the_small_client_takes_its_identity_from_the_environment(home: Home) -> None:
    credential(home.agent_credential(AGENT), TOKEN)
    env = {"FENCEPOST_HOME": home.text, "FENCEPOST_SESSION_ID": AGENT}
    async with Client.from_environment(env) as client:
        assert client.identity.agent_id == AGENT
