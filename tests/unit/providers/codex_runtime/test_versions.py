"""Which versions are dealt with."""

from __future__ import annotations

import pytest

from fencepost_providers.adapters.codex import versions
from fencepost_providers.domain.runtimes import CapabilityKind, Support


@pytest.mark.requirement("codex.version-gate")
@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("codex-cli 0.171.0", True),
        ("0.154.0", True),
        ("0.154.0-alpha.6", True),
        ("1.0.0", True),
        ("0.153.9", False),
        ("0.154.0-alpha.5", False),
        ("0.154.0-alpha.60", False),
        ("0.172.0-alpha.1", False),
        ("codex", False),
        ("", False),
    ],
)
def test_stable_versions_from_the_first_that_shares_and_one_exception_are_taken(text: str, taken: bool) -> None:
    assert (versions.refusal(text) == "") is taken


@pytest.mark.requirement("codex.version-gate")
@pytest.mark.parametrize(("text", "able"), [("0.159.1", False), ("0.159.2", True), ("0.154.0-alpha.6", False)])
def test_only_versions_that_can_be_steered_take_work_into_a_turn(text: str, able: bool) -> None:
    found = versions.capabilities(text)
    assert versions.steers(text) is able
    assert (found[CapabilityKind.MID_TURN].support is not Support.NONE) is able
    assert found[CapabilityKind.IDLE_START].support is not Support.NONE
    assert able or "0.159.2" in found[CapabilityKind.MID_TURN].reason


@pytest.mark.requirement("codex.version-gate")
def test_what_was_tried_is_certified_and_what_was_not_says_so() -> None:
    for text in versions.CERTIFIED:
        assert {one.support for one in versions.capabilities(text).values()} == {Support.CERTIFIED}
    newer = versions.capabilities("0.999.0")
    assert {one.support for one in newer.values()} == {Support.UNCERTIFIED}
    assert all(one.reason for one in newer.values())
    assert {one.support for one in versions.capabilities("").values()} == {Support.NONE}


@pytest.mark.parametrize(
    ("agent", "version"),
    [
        ("fencepost/0.171.0 (Debian 12.0.0; x86_64) xterm (fencepost; 1)", "0.171.0"),
        ("fencepost/0.154.0-alpha.6 (x)", "0.154.0-alpha.6"),
        ("0.171.0", ""),
        ("a name/0.171.0", ""),
        ("", ""),
    ],
)
def test_the_version_in_a_user_agent_is_the_products(agent: str, version: str) -> None:
    assert versions.of_user_agent(agent) == version
