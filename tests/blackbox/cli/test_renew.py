"""A new life of an agent, from the shell, in a running home."""

from __future__ import annotations

import pytest

from fencepost_testing.command import People


@pytest.mark.requirement("cli.a-new-life-from-the-shell")
def test_a_renewed_agent_acts_with_its_new_credential_and_the_old_one_is_fenced(people: People) -> None:
    credential = people.services.home.agent_credential(people.bob.agent_id)
    asked = people.ada("message", "followup", "bob", "Still there?", "--json").document
    assert people.bob("message", "receive", "--json").code == 0
    old = people.services.home.path / "old.credential"
    old.write_text(credential.read_text())
    old.chmod(0o600)
    before = {"FENCEPOST_SESSION_ID": "", "FENCEPOST_CREDENTIAL_FILE": str(old)}
    assert people.operator("message", "receive", "--json", env=before).code == 0
    renewed = people.operator("agent", "renew", "bob", "--idempotency-key", "once", "--json").document
    assert (renewed["generation"], renewed["floor"]) == (2, 2)
    assert [item["request_id"] for item in renewed["open_requests"]] == [asked["request_id"]]
    fenced = people.operator("message", "receive", "--json", env=before)
    assert (fenced.code, fenced.error["code"] in {"unauthenticated", "stale_generation"}) == (3, True)
    assert people.bob("message", "reply", asked["request_id"], "Yes.", "--json").code == 0
    again = people.operator("agent", "renew", "bob", "--idempotency-key", "once", "--json").document
    assert (again["generation"], again["duplicate"]) == (2, True)


def test_an_operator_revokes_its_own_credential_and_goes_on_with_the_one_that_replaced_it(people: People) -> None:
    listed = people.operator("credential", "list", "--json").document["credentials"]
    own = next(item["credential_id"] for item in listed if item["role"] == "operator")
    path = people.services.home.operator_credential
    before = path.read_text()
    path.chmod(0o644)
    refused = people.operator("agent", "list", "--json")
    assert (refused.error["code"], "chmod 600" in refused.error["hint"]) == ("credential_unsafe", True)
    path.chmod(0o600)
    assert people.operator("credential", "revoke", own, "--json").document["enforced"]
    assert path.read_text() != before
    assert people.operator("agent", "list", "--json").code == 0


def test_a_revocation_is_said_to_be_enforced_once_it_is(people: People) -> None:
    listed = people.operator("credential", "list", "--agent", "ada", "--json").document["credentials"]
    revoked = people.operator("credential", "revoke", listed[0]["credential_id"], "--json").document
    assert revoked["enforced"]
    assert people.ada("message", "list", "--json").code == 3
