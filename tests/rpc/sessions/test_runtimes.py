"""What sessions keeps of an agent's runtime: what a person wants, its conversation, and what was observed."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.common.v1 import common_pb2
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost_kit.identity import mint_token
from fencepost_sessions.domain.limits import CONVERSATION_BYTES_MAX, STATUS_DETAIL_BYTES_MAX, TURN_BYTES_MAX
from fencepost_testing.sessions_service import Running, key, refusal_of

IDLE, OFF, ERROR = pb.OBSERVED_STATE_IDLE, pb.OBSERVED_STATE_OFF, pb.OBSERVED_STATE_ERROR
PROCESSING = pb.OBSERVED_STATE_PROCESSING
BUSY_STATES = [pb.OBSERVED_STATE_STARTING, IDLE, PROCESSING, pb.OBSERVED_STATE_ACTION_NEEDED]
LAUNCH: dict[str, Any] = {
    "class": "reviewers",
    "model": "m-1",
    "effort": "high",
    "sandbox": "workspace-write",
    "approval": "on-request",
    "session_policy": "fresh",
    "custom_arguments": "--search -c 'a b=\"c\"'",
    "include_directories": ["/srv/a", "/srv/b"],
    "checkout_root": "/srv/checkout",
    "capture": "off",
    "tools_profile": "tasks",
    "deliver_when_active": pb.DELIVER_WHEN_ACTIVE_AFTER_TURN,
}


async def acquire(running: Running, agent: pb.Agent, **fields: Any) -> pb.Lease:
    asked = {"idempotency_key": key(), "agent_id": agent.agent_id, "kind": 3, "holder": "the test", **fields}
    return (await running.service("providers")("AcquireLease", pb.AcquireLeaseRequest(**asked))).lease  # type: ignore[no-any-return]


async def release(running: Running, lease: pb.Lease) -> None:
    await running.service("providers")("ReleaseLease", pb.ReleaseLeaseRequest(acquisition_id=lease.acquisition_id))


async def report(running: Running, agent: pb.Agent, lease: pb.Lease | None, **fields: Any) -> bool:
    status = {
        "state": IDLE,
        "evidence": pb.EVIDENCE_KIND_PROVIDER_EVENT,
        "observed_at_ms": running.clock.now_ms(),
        "generation": 1,
        "sequence": 1,
        **fields,
    }
    ask = pb.ReportStatusRequest(
        agent_id=agent.agent_id,
        acquisition_id="" if lease is None else lease.acquisition_id,
        status=pb.AgentStatus(**status),
    )
    return (await running.service("providers")("ReportStatus", ask)).changed  # type: ignore[no-any-return]


async def bind(running: Running, agent: pb.Agent, lease: pb.Lease, talk: str, **fields: Any) -> pb.Agent:
    asked = {
        "agent_id": agent.agent_id,
        "acquisition_id": lease.acquisition_id,
        "generation": 1,
        "conversation_id": talk,
        **fields,
    }
    return (await running.service("providers")("SetConversation", pb.SetConversationRequest(**asked))).agent  # type: ignore[no-any-return]


async def update(running: Running, agent: pb.Agent, **fields: Any) -> pb.Agent:
    ask = pb.UpdateAgentRequest(**{"idempotency_key": key(), "agent_id": agent.agent_id, **fields})
    return (await running.operator("UpdateAgent", ask)).agent  # type: ignore[no-any-return]


async def show(running: Running, agent: pb.Agent) -> pb.Agent:
    shown = (await running.operator("GetAgent", pb.GetAgentRequest(target=agent.agent_id))).agent
    listed = (await running.agent(agent)("ListAgents", pb.ListAgentsRequest())).agents
    assert [one for one in listed if one.agent_id == agent.agent_id] == [shown]
    return shown  # type: ignore[no-any-return]


async def revision_of(running: Running) -> int:
    return int((await running.operator("Describe", pb.DescribeRequest())).revision)


async def followed(running: Running) -> pb.Agent:
    """The one agent as a follower of the directory gets it."""
    call = running.service("providers").watch(pb.WatchDirectoryRequest(follower="providers"))
    agents = []
    while not (step := await call.read()).snapshot_end:
        agents += step.agents
    call.cancel()
    (agent,) = agents
    return agent  # type: ignore[no-any-return]


# --- what a person wants ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.launch-settings-are-kept")
async def test_every_setting_is_kept_shown_and_followed(running: Running) -> None:
    wanted = pb.LaunchSettings(**LAUNCH)
    agent = await running.create("ann", launch=wanted, desired=pb.DESIRED_STATE_ON)
    assert (agent.launch, agent.desired) == (wanted, pb.DESIRED_STATE_ON)
    await running.restart()
    assert await show(running, agent) == await followed(running) == agent
    looked_up = pb.LookupAgentRequest(project_id=agent.project_id, target="ann")
    assert (await running.service("providers")("LookupAgent", looked_up)).agent == agent


@pytest.mark.requirement("sessions.launch-settings-are-kept")
async def test_an_agent_of_which_nothing_was_asked_has_no_setting_and_lives_by_itself(running: Running) -> None:
    agent = await running.create("ann")
    assert (agent.launch, agent.desired, agent.conversation_id) == (pb.LaunchSettings(), 0, "")
    assert not agent.HasField("status")


@pytest.mark.requirement("sessions.launch-settings-are-kept")
async def test_a_change_touches_the_settings_that_it_names_and_an_empty_text_clears(running: Running) -> None:
    agent = await running.create("ann", launch=pb.LaunchSettings(**LAUNCH), desired=pb.DESIRED_STATE_ON)
    changed = await update(running, agent, launch=pb.LaunchSettings(model="", effort="low"))
    expected = pb.LaunchSettings(
        **LAUNCH,
    )
    expected.ClearField("model")
    expected.effort = "low"
    assert (changed.launch, changed.desired) == (expected, pb.DESIRED_STATE_ON)
    changed = await update(running, agent, launch=pb.LaunchSettings(set_include_directories=True))
    expected.ClearField("include_directories")
    assert changed.launch == expected
    changed = await update(running, agent, desired=pb.DESIRED_STATE_PAUSED)
    assert (changed.launch, changed.desired) == (expected, pb.DESIRED_STATE_PAUSED)
    before = await revision_of(running)
    same = await update(running, agent, launch=pb.LaunchSettings(effort="low"), desired=pb.DESIRED_STATE_PAUSED)
    assert (same, await revision_of(running)) == (changed, before)
    directories = pb.LaunchSettings(set_include_directories=True, include_directories=["/srv/c"])
    assert (await update(running, agent, launch=directories)).launch.include_directories == ["/srv/c"]


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"launch": pb.LaunchSettings(custom_arguments="--say 'it")}, "invalid_custom_arguments"),
        ({"launch": pb.LaunchSettings(session_policy="sometimes")}, "invalid_launch_settings"),
        ({"launch": pb.LaunchSettings(include_directories=["/srv/a"])}, "invalid_launch_settings"),
        ({"desired": 9}, "invalid_desired_state"),
    ],
)
async def test_what_no_program_could_take_is_refused_and_changes_nothing(
    running: Running, fields: dict[str, Any], reason: str
) -> None:
    agent = await running.create("ann")
    before = await revision_of(running)
    assert (await refusal_of(update(running, agent, **fields))).reason == reason
    assert await revision_of(running) == before


@pytest.mark.requirement("sessions.unusable-settings-are-refused")
async def test_nothing_is_created_with_settings_that_no_program_could_take(running: Running) -> None:
    project = await running.project()
    refused = await refusal_of(running.create("ann", project, launch=pb.LaunchSettings(custom_arguments='"')))
    assert refused.reason == "invalid_custom_arguments"
    refused = await refusal_of(running.create("ann", project, launch=pb.LaunchSettings(**{"class": "../up"})))
    assert (refused.reason, refused.state) == ("invalid_launch_settings", {"field": "class"})
    assert not (await running.operator("ListAgents", pb.ListAgentsRequest())).agents


@pytest.mark.requirement("sessions.keys-have-one-answer")
async def test_settings_are_part_of_what_a_key_stands_for(running: Running) -> None:
    agent = await running.create("ann")
    first = await update(running, agent, idempotency_key="k", launch=pb.LaunchSettings(model="a"))
    assert await update(running, agent, idempotency_key="k", launch=pb.LaunchSettings(model="a")) == first
    for fields in ({"launch": pb.LaunchSettings(model="b")}, {"desired": pb.DESIRED_STATE_ON}, {}):
        refused = await refusal_of(update(running, agent, idempotency_key="k", **fields))
        assert refused.reason == "idempotency_conflict"


# --- conversations ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.conversations-are-bound-once")
async def test_a_conversation_is_bound_under_the_lease_covered_by_it_and_followed(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    before = await revision_of(running)
    bound = await bind(running, agent, lease, "talk-1")
    assert (bound.conversation_id, bound.revision) == ("talk-1", before + 1)
    assert await bind(running, agent, lease, "talk-1") == bound == await show(running, agent) == await followed(running)
    assert await revision_of(running) == before + 1
    (standing,) = (await running.operator("ListLeases", pb.ListLeasesRequest())).leases
    assert standing.conversation_id == "talk-1"


@pytest.mark.requirement("sessions.conversations-are-bound-once")
async def test_the_bound_conversation_is_left_only_on_purpose(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    await bind(running, agent, lease, "talk-1")
    refused = await refusal_of(bind(running, agent, lease, "talk-2"))
    assert (refused.reason, refused.state) == ("conversation_conflict", {"conversation_id": "talk-1"})
    assert (await show(running, agent)).conversation_id == "talk-1"
    assert (await bind(running, agent, lease, "talk-2", replace=True)).conversation_id == "talk-2"
    assert (await bind(running, agent, lease, "")).conversation_id == ""
    assert (await bind(running, agent, lease, "talk-3")).conversation_id == "talk-3"


@pytest.mark.requirement("sessions.conversations-are-bound-once")
async def test_a_conversation_of_another_agent_is_refused_until_that_one_and_its_lease_let_go(running: Running) -> None:
    project = await running.project()
    ann, bob = await running.create("ann", project), await running.create("bob", project)
    of_ann, of_bob = await acquire(running, ann), await acquire(running, bob)
    await bind(running, ann, of_ann, "talk")
    refused = await refusal_of(bind(running, bob, of_bob, "talk", replace=True))
    assert (refused.reason, refused.state) == ("conversation_conflict", {"agent_id": ann.agent_id})
    await bind(running, ann, of_ann, "")
    # What ran on it may not have ended: the lease of ann goes on covering it.
    refused = await refusal_of(bind(running, bob, of_bob, "talk"))
    assert (refused.reason, refused.state["agent_id"]) == ("lease_held", ann.agent_id)
    await release(running, of_ann)
    assert (await bind(running, bob, of_bob, "talk")).conversation_id == "talk"


@pytest.mark.requirement("sessions.conversations-are-bound-once")
async def test_an_expired_lease_over_a_conversation_does_not_come_back_beside_its_new_owner(running: Running) -> None:
    project = await running.project()
    ann, bob = await running.create("ann", project), await running.create("bob", project)
    of_ann = await acquire(running, ann, term_ms=1000)
    await bind(running, ann, of_ann, "talk")
    await bind(running, ann, of_ann, "")
    await running.clock.advance(1)
    of_bob = await acquire(running, bob)
    await bind(running, bob, of_bob, "talk")
    await running.restart()
    standing = (await running.operator("ListLeases", pb.ListLeasesRequest())).leases
    assert [one.acquisition_id for one in standing] == [of_bob.acquisition_id]


@pytest.mark.requirement("sessions.conversations-are-not-ids-of-ours")
async def test_ids_and_secrets_of_ours_are_no_conversations(running: Running) -> None:
    project = await running.project()
    agent, other = await running.create("ann", project), await running.create("bob", project)
    lease = await acquire(running, agent)
    spelled = [agent.agent_id, agent.agent_id.upper(), agent.agent_id.replace("-", ""), other.agent_id]
    for talk in [*spelled, f"urn:uuid:{agent.agent_id}", running.token_of(agent), running.token_of(other)]:
        refused = await refusal_of(bind(running, agent, lease, talk))
        assert refused.reason == "invalid_conversation"
        assert talk not in refused.message + refused.hint
    for talk in ["x" * (CONVERSATION_BYTES_MAX + 1), " x", "a\nb"]:
        assert (await refusal_of(bind(running, agent, lease, talk))).reason == "invalid_conversation"
    assert (await show(running, agent)).conversation_id == ""
    for talk in ["0197f3a0-0000-7000-8000-000000000000", "x" * CONVERSATION_BYTES_MAX, mint_token()]:
        assert (await bind(running, agent, lease, talk, replace=True)).conversation_id == talk


@pytest.mark.requirement("sessions.conversations-are-bound-once")
async def test_nobody_binds_without_the_lease_that_stands_and_the_life_that_is(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    assert (await refusal_of(bind(running, agent, lease, "talk", generation=2))).reason == "stale_generation"
    await running.begin(agent, acquisition_id=lease.acquisition_id)
    assert (await refusal_of(bind(running, agent, lease, "talk"))).reason == "stale_generation"
    await running.clock.advance(1)
    assert (await refusal_of(bind(running, agent, lease, "talk", generation=2))).reason == "lease_lost"
    await acquire(running, agent)
    assert (await refusal_of(bind(running, agent, lease, "talk", generation=2))).reason == "lease_lost"
    assert (await show(running, agent)).conversation_id == ""


async def test_a_lease_covers_the_conversation_that_is_bound_when_it_is_taken(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    await bind(running, agent, lease, "talk")
    await release(running, lease)
    assert (await acquire(running, agent)).conversation_id == "talk"


# --- what was observed -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("sessions.reports-have-an-order")
async def test_a_report_is_shown_and_changes_no_revision(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    before = await revision_of(running)
    assert await report(running, agent, lease, state=PROCESSING, turn_id="turn-1", detail="waits")
    shown = (await show(running, agent)).status
    assert (shown.state, shown.evidence) == (PROCESSING, pb.EVIDENCE_KIND_PROVIDER_EVENT)
    assert (shown.turn_id, shown.detail) == ("turn-1", "waits")
    assert (shown.generation, shown.sequence, shown.observed_at_ms) == (1, 1, running.clock.now_ms())
    assert await revision_of(running) == before
    assert not (await followed(running)).HasField("status")
    await running.restart()
    assert (await show(running, agent)).status == shown


@pytest.mark.requirement("sessions.reports-have-an-order")
async def test_a_report_that_is_not_newer_is_refused_with_the_one_that_stands(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    assert await report(running, agent, lease, sequence=5)
    assert not await report(running, agent, lease, sequence=5)
    for stale in ({"sequence": 4}, {"sequence": 5, "state": PROCESSING}):
        refused = await refusal_of(report(running, agent, lease, **stale))
        assert refused.reason == "stale_status"
        assert refused.state == {
            "generation": "1",
            "sequence": "5",
            "state": "idle",
            "observed_at_ms": str(running.clock.now_ms()),
        }
    assert (await show(running, agent)).status.state == IDLE
    await running.begin(agent, acquisition_id=lease.acquisition_id)
    assert (await refusal_of(report(running, agent, lease, sequence=6))).reason == "stale_generation"
    assert (await refusal_of(report(running, agent, lease, generation=3))).reason == "stale_generation"
    assert await report(running, agent, lease, generation=2, sequence=1, state=PROCESSING)
    assert (await show(running, agent)).status.generation == 2


@pytest.mark.requirement("sessions.reports-have-an-order")
async def test_a_report_that_was_recorded_is_answered_again_also_once_the_lease_is_gone(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    assert await report(running, agent, lease, state=OFF)
    await release(running, lease)
    assert not await report(running, agent, lease, state=OFF)
    assert (await refusal_of(report(running, agent, lease, state=OFF, sequence=2))).reason == "lease_lost"


@pytest.mark.requirement("sessions.reports-need-a-lease")
@pytest.mark.parametrize("state", BUSY_STATES)
async def test_that_a_runtime_runs_is_said_under_its_lease_only(running: Running, state: int) -> None:
    agent = await running.create("ann")
    assert (await refusal_of(report(running, agent, None, state=state))).reason == "invalid_status"
    assert not (await show(running, agent)).HasField("status")


@pytest.mark.requirement("sessions.reports-need-a-lease")
async def test_the_end_of_a_life_is_said_without_a_lease_while_nobody_has_one(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await report(running, agent, lease)
    refused = await refusal_of(report(running, agent, None, state=OFF, sequence=2))
    assert (refused.reason, refused.state["holder"]) == ("lease_held", "the test")
    await running.clock.advance(1)
    assert (await refusal_of(report(running, agent, lease, sequence=2))).reason == "lease_lost"
    assert await report(running, agent, None, state=ERROR, sequence=2, detail="it ended")
    assert await report(running, agent, None, state=OFF, sequence=3)
    assert (await show(running, agent)).status.state == OFF


@pytest.mark.requirement("sessions.status-claims-no-more-than-is-known")
@pytest.mark.parametrize("state", BUSY_STATES)
async def test_what_nobody_vouches_for_any_more_is_not_shown_as_running(running: Running, state: int) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    seen_at = running.clock.now_ms()
    await report(running, agent, lease, state=state, turn_id="turn-1")
    await running.clock.advance(0.999)
    assert (await show(running, agent)).status.state == state
    await running.clock.advance(2.001)
    shown = (await show(running, agent)).status
    word = pb.ObservedState.Name(state).removeprefix("OBSERVED_STATE_").lower().replace("_", " ")
    assert (shown.state, shown.turn_id, shown.observed_at_ms) == (ERROR, "", seen_at)
    assert f"3 s ago it was {word}" in shown.detail
    assert (shown.generation, shown.sequence, shown.evidence) == (1, 1, pb.EVIDENCE_KIND_PROVIDER_EVENT)


@pytest.mark.requirement("sessions.status-claims-no-more-than-is-known")
async def test_a_successor_does_not_speak_for_what_was_seen_before_it(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await report(running, agent, lease)
    await running.clock.advance(1)
    await acquire(running, agent)
    assert (await show(running, agent)).status.state == ERROR


@pytest.mark.requirement("sessions.status-claims-no-more-than-is-known")
async def test_a_lease_that_was_let_go_without_a_word_means_off(running: Running) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await report(running, agent, lease)
    await release(running, lease)
    for _ in range(2):
        assert (await show(running, agent)).status.state == OFF
        await running.clock.advance(1)


@pytest.mark.requirement("sessions.status-claims-no-more-than-is-known")
@pytest.mark.parametrize("state", [OFF, ERROR])
async def test_that_it_is_off_or_failed_stays_true_without_a_lease(running: Running, state: int) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent, term_ms=1000)
    await report(running, agent, lease, state=state, detail="why")
    await running.clock.advance(1)
    await running.begin(agent)
    shown = (await show(running, agent)).status
    assert (shown.state, shown.detail) == (state, "why")


@pytest.mark.requirement("sessions.reports-have-an-order")
@pytest.mark.parametrize(
    "fields",
    [
        {"state": 0},
        {"state": 7},
        {"evidence": 0},
        {"evidence": 5},
        {"observed_at_ms": 0},
        {"generation": 0},
        {"sequence": 0},
        {"detail": "x" * (STATUS_DETAIL_BYTES_MAX + 1)},
        {"turn_id": "x" * (TURN_BYTES_MAX + 1)},
        {"turn_id": "a\nb"},
    ],
)
async def test_a_report_that_says_too_little_or_too_much_is_refused(running: Running, fields: dict[str, Any]) -> None:
    agent = await running.create("ann")
    lease = await acquire(running, agent)
    assert (await refusal_of(report(running, agent, lease, **fields))).reason == "invalid_status"
    assert await report(
        running, agent, lease, detail="x" * STATUS_DETAIL_BYTES_MAX, turn_id="x" * TURN_BYTES_MAX, sequence=1
    )


async def test_pages_show_each_agent_with_its_own_report(running: Running) -> None:
    project = await running.project()
    names = [f"a{number}" for number in range(5)]
    for name in names:
        agent = await running.create(name, project)
        if name in {"a1", "a3"}:
            await report(running, agent, await acquire(running, agent), detail=name)
    for project_id in ("", project.project_id):
        shown, token = {}, ""
        while token or not shown:
            ask = pb.ListAgentsRequest(project_id=project_id, page_size=2, page_token=token)
            page = await running.operator("ListAgents", ask)
            shown |= {one.name: one.status.detail for one in page.agents}
            token = page.next_page_token
        assert shown == {name: name if name in {"a1", "a3"} else "" for name in names}


@pytest.mark.requirement("sessions.how-others-are-started-is-not-shown-to-agents")
async def test_how_an_agent_is_started_and_which_conversation_it_has_is_shown_to_no_other_agent(
    running: Running,
) -> None:
    project = await running.project()
    secret = await running.create("secret", project, launch=pb.LaunchSettings(**LAUNCH), desired=pb.DESIRED_STATE_ON)
    other = await running.create("other", project)
    chief = await running.create("chief", project, role=common_pb2.ROLE_COORDINATOR)
    lease = await acquire(running, secret)
    await bind(running, secret, lease, "talk-1")
    await report(running, secret, lease)
    whole = await show(running, secret)
    assert (whole.launch.custom_arguments, whole.conversation_id) == (LAUNCH["custom_arguments"], "talk-1")
    for asker in (other, chief):
        ask = running.agent(asker)
        listed = {one.agent_id: one for one in (await ask("ListAgents", pb.ListAgentsRequest())).agents}
        got = (await ask("GetAgent", pb.GetAgentRequest(target="secret"))).agent
        assert listed[secret.agent_id] == got
        assert got.launch == pb.LaunchSettings()
        assert got.conversation_id == ""
        assert (got.name, got.desired, got.status.state) == ("secret", pb.DESIRED_STATE_ON, IDLE)


@pytest.mark.requirement("sessions.another-provider-has-no-conversation-yet")
async def test_another_provider_goes_on_with_no_conversation_of_the_one_before(running: Running) -> None:
    agent = await running.create("ada", provider="codex")
    lease = await acquire(running, agent)
    await bind(running, agent, lease, "talk-1")
    # While it is held a conversation of the old program could still be bound.
    refused = await refusal_of(update(running, agent, provider="other"))
    assert (refused.reason, (await show(running, agent)).provider) == ("lease_held", "codex")
    assert (await update(running, agent, provider="codex", name="eda")).conversation_id == "talk-1"
    await release(running, lease)
    changed = await update(running, agent, provider="other")
    assert (changed.provider, changed.conversation_id) == ("other", "")
    # The name is free again for whoever goes on with it.
    again = await update(running, agent, provider="codex")
    held = await acquire(running, again)
    assert (await bind(running, again, held, "talk-1")).conversation_id == "talk-1"
