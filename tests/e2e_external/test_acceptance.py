"""The acceptance of the specification, from the built wheel and with the real Codex; build/acceptance has the report.

Nothing an agent says counts by itself: the records, each agent's own rollout and the model's record have to agree. With
a person's own Codex and account (`make e2e-real`) the same scenes run; what takes a scripted model is left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost_testing import acceptance_scenes as scenes
from fencepost_testing.acceptance import APPROVED, PLANTED, Stage
from fencepost_testing.acceptance_report import Report
from fencepost_testing.acceptance_run import Judged

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def stage(judged: Judged, acceptance: Report) -> Iterator[Stage]:
    """`fencepost up` from the wheel, once: every test has agents of its own."""
    with judged.stage() as made, made.up():
        yield made
        if made.model is not None and (made.model / "schema.json").exists():
            acceptance.schema = made.schema()
            acceptance.others = made.asked()[-1]["others"]


@pytest.mark.requirement("acceptance.native-exchange")
@pytest.mark.parametrize("how", ["explicit", "automatic"])
def test_two_fresh_agents_exchange_work_and_the_sender_answers_with_what_it_received(
    stage: Stage, acceptance: Report, how: str
) -> None:
    sender, receiver = f"sender-{how}", f"receiver-{how}"
    scenes.cast(stage, sender, receiver)
    found = scenes.exchange(stage, sender, receiver, explicit=how == "explicit")
    if stage.model is not None:
        assert how in found.evidence["reply"]
    acceptance.add(f"exchange, {how} reply", **found.evidence)


@pytest.mark.requirement("acceptance.information-starts-nothing")
def test_information_to_an_idle_agent_is_shown_and_starts_no_turn(stage: Stage, acceptance: Report) -> None:
    scenes.cast(stage, "teller", "told")
    acceptance.add("information", **scenes.information(stage, "teller", "told"))


@pytest.mark.requirement("acceptance.interrupts-the-observed-turn")
def test_one_interrupt_ends_exactly_the_observed_turn(stage: Stage, acceptance: Report) -> None:
    scenes.cast(stage, "stopper", "stopped")
    acceptance.add("interruption", **scenes.interruption(stage, "stopper", "stopped"))


@pytest.mark.requirement("acceptance.resumes-and-remembers")
@pytest.mark.parametrize("killed", ["codex", "providers"])
def test_after_the_owners_exit_the_same_conversation_goes_on_and_remembers(
    stage: Stage, acceptance: Report, killed: str
) -> None:
    sender, receiver = f"asks-{killed}", f"recalls-{killed}"
    scenes.cast(stage, sender, receiver)
    acceptance.add(f"resumption, {killed} killed", **scenes.resumption(stage, sender, receiver, killed=killed))


@pytest.mark.requirement("acceptance.attached")
def test_two_attached_terminals_stay_on_the_owned_sessions_and_show_the_exchange(
    stage: Stage, acceptance: Report
) -> None:
    scenes.cast(stage, "typing", "watching")
    for name in ("typing", "watching"):
        stage.trust(name)
    acceptance.add("attached terminals", **scenes.attachment(stage, "typing", "watching"))


@pytest.mark.requirement("acceptance.shared-final")
def test_requests_that_enter_one_turn_each_get_its_final_words(stage: Stage, acceptance: Report) -> None:
    if stage.model is None:
        pytest.skip("it takes a model that holds until it is let go")
    scenes.cast(stage, "many", "busy")
    acceptance.add("sharing", **scenes.sharing(stage, "many", "busy"))


@pytest.mark.requirement("acceptance.approves-what-is-named")
def test_only_the_named_tools_are_approved_and_the_persons_own_home_is_left_alone(
    stage: Stage, acceptance: Report
) -> None:
    stage.create("approved")
    before = stage.native_files()
    assert stage.start("approved")["state"] == "ready"
    approved = stage.approvals("approved")
    assert approved == dict.fromkeys(APPROVED if stage.approved else (), "approve")
    after = stage.native_files()
    assert {name: after[name] for name in before} == before
    acceptance.add("approvals", tools=sorted(approved), native_files_unchanged=sorted(before))


@pytest.mark.requirement("acceptance.report-without-secrets")
def test_no_login_and_no_credential_is_in_what_was_gathered(stage: Stage, acceptance: Report) -> None:
    text = str(acceptance.document())
    assert PLANTED not in text
    for path in stage.home.path.glob("agents/*/credential"):
        assert path.read_text().strip() not in text
