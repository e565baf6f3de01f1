"""Every call of providers over the wire: who may, what it answers, what it refuses and with which reason."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any

import grpc
import pytest

from fencepost.errors import FencepostError, Refused
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost_kit.identity import Role
from fencepost_kit.statuses import detail_of
from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.domain.agents import Desired, Launch
from fencepost_providers.domain.integration import NOTE_BYTES_MAX
from fencepost_providers.domain.runtimes import (
    NOTHING_PERMITTED,
    Activity,
    CapabilityKind,
    Interruption,
    Permits,
    Row,
    RowKind,
    State,
)
from fencepost_providers.domain.verification import FileClaim
from fencepost_providers.servicer import RULES
from fencepost_providers.wiring import SERVICE
from fencepost_testing.carrier_fakes import OTHER_PROJECT, TASK, closed, until, uuid_of
from fencepost_testing.served_carrier import Served

EVIDENCE = "evi_" + "1" * 32
OTHER_TASK = "task_" + "2" * 32
REQUEST = "0190f3a2-1111-4222-8333-00000000cccc"
ANN = uuid_of("ann")
CALLERS = {Role.AGENT: "ann", Role.COORDINATOR: "cyd", Role.OPERATOR: "operator", Role.SERVICE: "service"}
READERS = ("agent", "coordinator", "operator")
# Written out here a second time, from the comments of the contract.
MAY: Mapping[str, tuple[str, ...]] = {
    "Describe": (*READERS, "service"),
    "ListProviders": READERS,
    "ListModels": READERS,
    "GetRuntime": READERS,
    "GetCapabilities": READERS,
    "RestartRuntime": ("operator",),
    "BeginConversation": ("operator",),
    "InterruptTurn": READERS,
    "AttachTerminal": ("operator",),
    "WatchConversation": ("operator",),
    "InspectRuntime": ("operator",),
    "ApproveTools": ("operator",),
    "IntegrateTask": ("coordinator",),
    "VerifyEvidence": READERS,
}


async def called(served: Served, who: str, method: str, request: Any) -> Any:
    """Call a method as somebody; of a stream, its first answer."""
    service = served.by(who)
    stub = await service._stub(5_000)
    call = getattr(stub, method)(request, metadata=service._metadata, timeout=10)
    if not hasattr(call, "__aiter__"):
        return await call
    try:
        return await call.read()
    finally:
        call.cancel()


@pytest.mark.requirement("providers.roles")
@pytest.mark.parametrize("method", sorted(MAY))
async def test_only_the_named_roles_may_call(served: Served, method: str) -> None:
    assert set(MAY) == set(RULES) == {one.name for one in SERVICE.methods}
    request = getattr(pb, f"{method}Request")()
    for role, who in CALLERS.items():
        try:
            await called(served, who, method, request)
            reason = ""
        except grpc.aio.AioRpcError as error:
            detail = detail_of(error)
            reason = "no detail" if detail is None else detail.reason
        assert reason != "no detail"
        assert (reason == "permission_denied") is (role.name.lower() not in MAY[method]), (who, reason)
    with pytest.raises(Refused) as stranger:
        await served.by("nobody at all").describe()
    assert stranger.value.reason == "unauthenticated"


async def test_it_says_what_it_is_and_what_there_is(served: Served) -> None:
    operator = served.by("operator")
    described = await operator.describe()
    assert (described.incarnation, described.outbox, described.swept, described.schema_version) == (1, 0, 0, 2)
    assert described.dispatcher_id
    assert described.version
    broken, fake = (await operator.list_providers()).providers
    assert (broken.name, broken.problem) == ("broken", "it cannot be loaded")
    assert {one.support for one in broken.capabilities} == {pb.SUPPORT_NONE}
    assert (fake.name, fake.title, fake.version, fake.program, fake.problem) == ("fake", "Fake", "1", "/bin/fake", "")
    assert {one.kind for one in fake.capabilities} == {kind.value for kind in CapabilityKind}
    models = await served.by("ann").list_models("fake", refresh=True)
    assert ([one.model for one in models.models], models.source, models.asked_at_ms) == (["m"], "live", 1)
    for name in ("broken", "unheard of"):
        with pytest.raises(Refused) as unknown:
            await operator.list_models(name)
        assert unknown.value.reason == "unknown_provider"


@pytest.mark.requirement("providers.an-agent-sees-itself")
async def test_an_agent_sees_its_own_runtime_and_the_operator_everything_of_everybodys(served: Served) -> None:
    runtime = await served.bench.kept("ann")
    served.bench.sessions.tell(served.bench.agent("bob", desired=Desired.UNSPECIFIED))
    await until(lambda: served.bench.carrying.directory.agent(uuid_of("bob")))
    own = (await served.by("ann").get_runtime(ANN)).runtime
    assert (own.state, own.activity, own.generation) == (pb.RUNTIME_STATE_READY, pb.ACTIVITY_IDLE, 2)
    assert (own.conversation_id, own.version) == (runtime.conversation_id, "1")
    assert (own.private_home, own.log_file) == ("", "")
    seen = (await served.by("operator").get_runtime(ANN)).runtime
    assert seen.private_home.endswith("/habitat")
    assert seen.log_file.endswith("/logs/fake.log")
    for who in ("bob", "cyd", "eve"):
        with pytest.raises(Refused) as hidden:
            await served.by(who).get_runtime(ANN)
        assert hidden.value.reason == "not_found"
    off = (await served.by("bob").get_runtime(uuid_of("bob"))).runtime
    assert (off.state, off.generation, off.pid) == (pb.RUNTIME_STATE_OFF, 0, 0)


@pytest.mark.requirement("providers.an-agent-sees-itself")
async def test_capabilities_are_seen_in_ones_own_project(served: Served) -> None:
    served.bench.adapter.none[CapabilityKind.MID_TURN] = "too old"
    await served.bench.kept("ann")
    served.bench.sessions.tell(served.bench.agent("bob", provider="broken", desired=Desired.OFF))
    await until(lambda: served.bench.carrying.directory.agent(uuid_of("bob")))
    found = await served.by("bob").get_capabilities(ANN)
    (mid_turn,) = [one for one in found.capabilities if one.kind == pb.CAPABILITY_KIND_MID_TURN]
    assert (mid_turn.support, mid_turn.reason) == (pb.SUPPORT_NONE, "too old")
    none = await served.by("operator").get_capabilities(uuid_of("bob"))
    assert none.provider == ""
    assert {one.support for one in none.capabilities} == {pb.SUPPORT_NONE}
    with pytest.raises(Refused) as hidden:
        await served.by("eve").get_capabilities(ANN)
    assert hidden.value.reason == "not_found"


@pytest.mark.requirement("providers.a-restart-replays-nothing-and-keeps-the-conversation")
async def test_restarts_are_refused_where_nobody_wants_the_agent_to_run(served: Served) -> None:
    bench, operator = served.bench, served.by("operator")
    for desired in (Desired.OFF, Desired.UNSPECIFIED):
        bench.sessions.tell(bench.agent("ann", desired=desired))
        await until(lambda: (a := bench.carrying.directory.agent(ANN)) and a.desired is desired)  # noqa: B023
        with pytest.raises(Refused) as refused:
            await operator.restart_runtime(pb.RestartRuntimeRequest(agent_id=ANN))
        assert (refused.value.reason, refused.value.state["desired"]) == ("agent_off", desired.name.lower())
    await bench.kept("ann")
    for wait_ms in (-1, 120_001):
        with pytest.raises(Refused) as malformed:
            await operator.restart_runtime(pb.RestartRuntimeRequest(agent_id=ANN, wait_ms=wait_ms))
        assert malformed.value.reason == "invalid_argument"
    bench.adapter.failures.append(StartFailed("no_login", "nobody is logged in", hint="Log in."))
    with pytest.raises(Refused) as failed:
        await operator.restart_runtime(pb.RestartRuntimeRequest(agent_id=ANN, wait_ms=10_000))
    assert failed.value.reason == "cannot_start"
    assert "no_login" in failed.value.message
    assert bench.adapter.runtimes[0].stopped
    again = await operator.restart_runtime(pb.RestartRuntimeRequest(agent_id=ANN, wait_ms=10_000))
    assert again.runtime.state == pb.RUNTIME_STATE_READY
    with pytest.raises(Refused) as conflict:
        await operator.begin_conversation(
            pb.BeginConversationRequest(agent_id=ANN, expected_conversation_id="another", wait_ms=0)
        )
    assert conflict.value.reason == "conversation_conflict"
    assert conflict.value.state["conversation_id"] == again.runtime.conversation_id
    with pytest.raises(Refused) as nobody:
        await operator.restart_runtime(pb.RestartRuntimeRequest(agent_id=uuid_of("nobody")))
    assert nobody.value.reason == "not_found"


@pytest.mark.requirement("providers.an-interruption-hits-the-exact-observed-turn")
async def test_an_interruption_names_its_turn_and_never_reaches_another_projects_agent(served: Served) -> None:
    bench = served.bench
    nothing = None
    bench.sessions.tell(bench.agent("bob", desired=Desired.OFF))
    bench.sessions.tell(bench.agent("eve", project_id=OTHER_PROJECT, desired=Desired.OFF))
    runtime = await bench.kept("ann")
    nothing = await served.by("cyd").interrupt_turn(pb.InterruptTurnRequest(target="bob"))
    assert nothing.interruption == pb.INTERRUPTION_NOTHING
    idle = await served.by("bob").interrupt_turn(pb.InterruptTurnRequest(target="ann"))
    assert idle.interruption == pb.INTERRUPTION_NOTHING
    runtime.say(Activity(state=State.PROCESSING, turn_id="t7"))
    with pytest.raises(Refused) as stale:
        await served.by("bob").interrupt_turn(pb.InterruptTurnRequest(target="ann", turn_id="t6"))
    assert (stale.value.reason, stale.value.state["turn_id"]) == ("stale_turn", "t7")
    with pytest.raises(Refused) as other:
        await served.by("eve").interrupt_turn(pb.InterruptTurnRequest(target=ANN, turn_id="t7"))
    assert other.value.reason == "not_found"
    assert runtime.interrupts == []
    done = await served.by("bob").interrupt_turn(pb.InterruptTurnRequest(target="ann", turn_id="t7"))
    assert (done.interruption, done.turn_id, done.generation) == (pb.INTERRUPTION_CONFIRMED, "t7", 2)
    assert (done.agent_id, done.conversation_id) == (ANN, runtime.conversation_id)
    assert runtime.interrupts == ["t7"]


@pytest.mark.requirement("providers.an-interruption-hits-the-exact-observed-turn")
@pytest.mark.parametrize("how", ["unsupported", "unnamed", "raises"])
async def test_an_interruption_that_cannot_be_exact_or_known_says_so(served: Served, how: str) -> None:
    if how == "unsupported":
        served.bench.adapter.none[CapabilityKind.INTERRUPT] = "it cannot"
    runtime = await served.bench.kept("ann")
    runtime.say(Activity(state=State.PROCESSING, turn_id="" if how == "unnamed" else "t"))

    async def raises(turn_id: str) -> Any:
        raise RuntimeError("a bug of the adapter")

    runtime.interrupt = raises  # type: ignore[method-assign]
    done = await served.by("operator").interrupt_turn(pb.InterruptTurnRequest(target="ann"))
    expected = Interruption.UNCERTAIN if how == "raises" else Interruption.UNSUPPORTED
    assert done.interruption == expected.value
    assert done.detail


@pytest.mark.requirement("providers.an-interruption-hits-the-exact-observed-turn")
async def test_a_name_of_two_projects_is_ambiguous_to_the_operator(served: Served) -> None:
    bench = served.bench
    bench.sessions.tell(bench.agent("ann", desired=Desired.OFF))
    bench.sessions.tell(bench.agent("eve", project_id=OTHER_PROJECT, desired=Desired.OFF, name="ann"))
    await until(lambda: bench.carrying.directory.agent(uuid_of("eve")))
    with pytest.raises(Refused) as ambiguous:
        await served.by("operator").interrupt_turn(pb.InterruptTurnRequest(target="ann"))
    assert ambiguous.value.reason == "ambiguous_target"
    assert (await served.by("bob").interrupt_turn(pb.InterruptTurnRequest(target="ann"))).agent_id == ANN


@pytest.mark.requirement("providers.nothing-is-carried-before-a-terminal-was-seen")
async def test_a_terminal_is_told_what_to_start_and_when_it_is_there(served: Served) -> None:
    bench = served.bench
    await bench.kept("ann")
    ask = pb.AttachTerminalRequest(agent_id=ANN, wait_idle_ms=1_000, trust_workspace=True)
    steps = served.by("operator").attach_terminal(ask)
    launch = await asyncio.wait_for(anext(steps), 10)
    assert list(launch.launch.argv) == ["tui"]
    assert bench.adapter.runtimes[-1].permits == Permits(trust_workspace=True)
    bench.adapter.runtimes[-1].attachment.has_joined.set()
    joined = await asyncio.wait_for(anext(steps), 10)
    assert (joined.attached.attached, joined.attached.generation) == (True, 3)
    bench.adapter.runtimes[-1].attachment.has_left.set()
    ended = await asyncio.wait_for(anext(steps), 10)
    assert ended.ended == "the terminal has left"
    await steps.aclose()
    await bench.next_runtime(2, "ann")
    # A reader that goes away ends it as well.
    left = served.by("operator").attach_terminal(pb.AttachTerminalRequest(agent_id=ANN))
    await asyncio.wait_for(anext(left), 10)
    assert bench.adapter.runtimes[-1].permits == NOTHING_PERMITTED
    await left.aclose()
    await bench.next_runtime(4, "ann")
    assert bench.adapter.runtimes[3].stopped


@pytest.mark.requirement("providers.a-terminal-waits-for-the-turns-end")
async def test_an_attachment_that_cannot_be_is_refused_with_its_reason(served: Served) -> None:
    bench, operator = served.bench, served.by("operator")
    runtime = await bench.kept("ann")

    async def refused(**facts: Any) -> str:
        with pytest.raises(FencepostError) as caught:
            async for _ in operator.attach_terminal(pb.AttachTerminalRequest(agent_id=ANN, **facts)):
                pass
        return caught.value.reason

    assert await refused(wait_idle_ms=600_001) == "invalid_argument"
    runtime.say(Activity(state=State.PROCESSING, turn_id="t"))
    assert await refused() == "agent_busy"
    assert not runtime.stopped
    runtime.end("t")
    bench.adapter.failures.append(StartFailed("too_old", "this version cannot", again=True))
    assert await refused() == "cannot_start"
    await bench.next_runtime(1, "ann")
    bench.adapter.none[CapabilityKind.ATTACH] = "no terminal"
    bench.adapter.runtimes[-1].listener.closed(closed())
    await bench.next_runtime(2, "ann")
    assert await refused() == "unsupported_capability"
    bench.change("ann", desired=Desired.OFF)
    await until(lambda: bench.keeper("ann").life is None)
    assert await refused() == "agent_off"


@pytest.mark.requirement("providers.a-watch-shows-a-conversation-in-one-shape")
async def test_a_watch_is_ended_with_may_resend_when_the_service_stops(served: Served) -> None:
    runtime = await served.bench.kept("ann")
    runtime.listener.row(Row(kind=RowKind.TOOL_CALL, text="{}", name="reply", turn_id="t"))
    rows = served.by("operator").watch_conversation(pb.WatchConversationRequest(agent_id=ANN))
    status = await asyncio.wait_for(anext(rows), 10)
    assert (status.kind, status.name) == (pb.ROW_KIND_STATUS, "idle")
    call = await asyncio.wait_for(anext(rows), 10)
    assert (call.kind, call.name, call.text, call.turn_id, call.generation) == (
        pb.ROW_KIND_TOOL_CALL,
        "reply",
        "{}",
        "t",
        2,
    )
    await served.bench.carrying.drain()
    with pytest.raises(Refused) as draining:
        await asyncio.wait_for(anext(rows), 10)
    assert (draining.value.reason, draining.value.may_resend) == ("draining", True)


async def test_an_agent_that_was_never_run_has_nothing_to_watch(served: Served) -> None:
    served.bench.sessions.tell(served.bench.agent("ann", desired=Desired.UNSPECIFIED))
    await until(lambda: served.bench.carrying.directory.agent(ANN))
    with pytest.raises(Refused) as refused:
        async for _ in served.by("operator").watch_conversation(pb.WatchConversationRequest(agent_id=ANN)):
            pass
    assert refused.value.reason == "agent_off"


@pytest.mark.requirement("providers.tools-are-approved-by-name")
async def test_tools_are_approved_one_by_one_and_inspection_tells_what_a_restart_would_change(served: Served) -> None:
    bench, operator = served.bench, served.by("operator")
    await bench.kept("ann", launch=Launch(custom_arguments="--first"))
    for tools in ([], ["reply", "no_such_tool"], ["reply"] * 65):
        with pytest.raises(Refused) as refused:
            await operator.approve_tools(pb.ApproveToolsRequest(agent_id=ANN, tools=tools))
        assert refused.value.reason == "invalid_tools"
    assert bench.adapter.approved == []
    done = await operator.approve_tools(pb.ApproveToolsRequest(agent_id=ANN, tools=["reply", "send_message", "reply"]))
    assert (list(done.approved), done.restart_required) == (["reply", "send_message"], True)
    found = await operator.inspect_runtime(ANN)
    assert (list(found.launch_arguments), found.restart_required) == (["fake", "--first"], False)
    bench.change("ann", launch=Launch(custom_arguments="--second"))
    await until(lambda: bench.keeper("ann").agent.launch.custom_arguments == "--second")
    changed = await operator.inspect_runtime(ANN)
    assert (list(changed.launch_arguments), changed.restart_required) == (["fake", "--second"], True)
    bench.change("ann", launch=Launch(custom_arguments="'"))
    await until(lambda: bench.keeper("ann").agent.launch.custom_arguments == "'")
    assert [one.code for one in (await operator.inspect_runtime(ANN)).findings] == ["invalid_arguments"]


@pytest.mark.requirement("integration.rights-before-git")
async def test_a_coordinator_integrates_tasks_of_its_own_project_and_no_others(served: Served) -> None:
    bench = served.bench
    bench.sessions.tell(bench.agent("cyd", desired=Desired.UNSPECIFIED))
    await until(lambda: bench.carrying.directory.agent(uuid_of("cyd")))
    bench.tasks.add()
    bench.tasks.add(OTHER_TASK, project_id=OTHER_PROJECT)
    cyd = served.by("cyd")
    facts = {"task_id": TASK, "note": "words", "request_id": REQUEST}
    for changes, reason in (
        ({"task_id": OTHER_TASK}, "not_found"),
        ({"task_id": "task_" + "3" * 32}, "not_found"),
        ({"task_id": "task_1"}, "invalid_argument"),
        ({"request_id": ""}, "invalid_argument"),
        ({"request_id": REQUEST.upper()}, "invalid_argument"),
        ({"expected_version": -1}, "invalid_argument"),
        ({"expected_version": 6}, "version_conflict"),
        ({"note": "x" * (NOTE_BYTES_MAX + 1)}, "invalid_argument"),
        ({"commit": "main"}, "invalid_commit"),
        ({"commit": "--upload-pack=evil"}, "invalid_commit"),
        ({"commit": "A" * 40}, "invalid_commit"),
        ({"commit": "a" * 41}, "invalid_commit"),
        ({"commit": "a" * 40}, "no_main_checkout"),
    ):
        with pytest.raises(Refused) as refused:
            await cyd.integrate_task(pb.IntegrateTaskRequest(**{**facts, **changes}))
        assert refused.value.reason == reason
    done = await cyd.integrate_task(pb.IntegrateTaskRequest(**{**facts, "note": "x" * NOTE_BYTES_MAX}))
    assert (done.integration, done.task_id, done.branch) == (pb.INTEGRATION_KIND_RECORDED, TASK, "")
    assert "nothing was merged" in done.detail


@pytest.mark.requirement("evidence.only-who-has-a-part-has-it-checked")
async def test_who_has_a_part_in_the_task_has_its_evidence_checked_and_nobody_else(served: Served) -> None:
    bench = served.bench
    for name in ("ann", "bob", "cyd"):
        bench.sessions.tell(bench.agent(name, desired=Desired.UNSPECIFIED))
    await until(lambda: bench.carrying.directory.agent(uuid_of("cyd")))
    bench.tasks.add(issuer_id="", reviewer_id="")
    bench.tasks.reports[EVIDENCE] = FileClaim(path="a", sha256=hashlib.sha256(b"x").hexdigest())
    workspace = bench.home.path / "work" / "ann"
    (workspace / "a").write_text("x")
    ask = pb.VerifyEvidenceRequest(task_id=TASK, evidence_ids=[EVIDENCE])
    for who in ("ann", "cyd", "operator"):
        (checked,) = (await served.by(who).verify_evidence(ask)).evidence
        assert (checked.verdict, checked.checkout) == (pb.EVIDENCE_VERDICT_VERIFIED, str(workspace.resolve()))
    assert [asked_by for _, asked_by in bench.tasks.findings] == [uuid_of("ann"), uuid_of("cyd"), ""]
    for who in ("bob", "eve"):
        with pytest.raises(Refused) as refused:
            await served.by(who).verify_evidence(ask)
        assert refused.value.reason == "not_found"
    for part in ("issuer_id", "reviewer_id"):
        bench.tasks.add(**{part: uuid_of("bob")})
        assert (await served.by("bob").verify_evidence(ask)).evidence
    for changes, reason in (
        ({"evidence_ids": []}, "invalid_argument"),
        ({"evidence_ids": ["evi_" + "2" * 32]}, "task_refused"),
        ({"task_id": OTHER_TASK}, "not_found"),
    ):
        with pytest.raises(Refused) as refused:
            await served.by("ann").verify_evidence(
                pb.VerifyEvidenceRequest(**{"task_id": TASK, "evidence_ids": [EVIDENCE], **changes})
            )
        assert refused.value.reason == reason
