"""The guard over a real socket, for every kind of method."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from fencepost.common.v1 import common_pb2
from fencepost_kit import guard
from fencepost_kit.guard import Call, Gate, Outcome, Rule, guarded
from fencepost_kit.identity import Caller, Role, fingerprint, mint_token
from fencepost_kit.metrics import RpcMetrics
from fencepost_kit.refusal import Draining, Overloaded, Refusal, Unauthenticated
from fencepost_kit.statuses import DETAILS_KEY, detail_of
from fencepost_testing import four_kinds
from fencepost_testing.four_kinds import KINDS, Stub, Text
from fencepost_testing.processes import bearer, short_home

DEADLINE_MS_MAX = 2_000
TOKENS = {role: mint_token() for role in Role}
CALLERS = {
    fingerprint(token): Caller(
        credential_id=bytes(16), role=role, agent_id=None, project_id=None, generation=1, label=role.name
    )
    for role, token in TOKENS.items()
}
OPEN = frozenset({Role.AGENT, Role.OPERATOR})

Body = Callable[[str, Call], Any]
Logged = Callable[[], list[dict[str, Any]]]


class Taken(Refusal):
    reason = "name_taken"


STATUSES = {Taken: grpc.StatusCode.ALREADY_EXISTS}


class Identifying:
    """Knows AGENT's token at hand, and has to be waited for with every other."""

    def known(self, token: str) -> Caller | None:
        return CALLERS[fingerprint(token)] if token == TOKENS[Role.AGENT] else None

    async def __call__(self, token: str) -> Caller:
        try:
            return CALLERS[fingerprint(token)]
        except KeyError:
            raise Unauthenticated("the credential is not known; nothing was written") from None


class Servicer:
    """Every method does `body`: what it returns is the answer; what it raises is raised."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.calls: list[Call] = []
        self.closed_streams = 0

    async def _do(self, text: str, call: Call) -> str:
        self.calls.append(call)
        done = self.body(text, call)
        return str(await done if asyncio.iscoroutine(done) else done)

    async def One(self, request: Any, call: Call) -> Any:
        return Text(value=await self._do(request.value, call))

    async def Many(self, request: Any, call: Call) -> AsyncIterator[Any]:
        try:
            yield Text(value="first")
            yield Text(value=await self._do(request.value, call))
        finally:
            self.closed_streams += 1

    async def Collect(self, requests: Any, call: Call) -> Any:
        texts = [request.value async for request in requests]
        return Text(value=await self._do("".join(texts), call))

    async def Talk(self, requests: Any, call: Call) -> AsyncIterator[Any]:
        async for request in requests:
            yield Text(value=await self._do(request.value, call))


def rules(*, roles: frozenset[Role] = OPEN, deadline_ms_max: int = DEADLINE_MS_MAX) -> dict[str, Rule]:
    return {name: Rule(roles=roles, deadline_ms_max=deadline_ms_max) for name in KINDS}


@asynccontextmanager
async def serving(servicer: Servicer, **options: Any) -> AsyncIterator[Stub]:
    built = guarded(
        servicer,
        **{
            "descriptor": four_kinds.DESCRIPTOR,
            "rules": rules(),
            "identify": Identifying(),
            "statuses": STATUSES,
            **options,
        },
    )
    server = grpc.aio.server()
    four_kinds.add_to_server(built, server)
    with short_home() as home:
        Path(home.path).mkdir()
        address = f"unix:{home.path}/s"
        server.add_insecure_port(address)
        await server.start()
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                yield Stub(channel)
        finally:
            await server.stop(None)


def as_role(role: Role = Role.AGENT) -> dict[str, Any]:
    return {"metadata": bearer(TOKENS[role]), "timeout": 5}


async def failure(stub: Stub, name: str, text: str = "hello", **options: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.call(name, text, **options)
    return caught.value


@pytest.mark.parametrize("role", [Role.AGENT, Role.OPERATOR], ids=["known at hand", "waited for"])
@pytest.mark.parametrize("name", KINDS)
async def test_an_admitted_call_reaches_its_method_with_its_caller(name: str, role: Role) -> None:
    servicer = Servicer(lambda text, _: text.upper())
    async with serving(servicer) as stub:
        assert (await stub.call(name, "hello", **as_role(role)))[-1] == "HELLO"
    (call,) = servicer.calls
    assert call.caller.role is role


@pytest.mark.requirement("kit.every-call-is-authenticated")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", TOKENS[Role.AGENT]),),
        (("authorization", f"Basic {TOKENS[Role.AGENT]}"),),
        (("authorization", "Bearer "),),
        (("authorization", f"Bearer {TOKENS[Role.AGENT]}x"),),
        (("authorization", f"Bearer {mint_token()}"),),
        (*bearer(TOKENS[Role.AGENT]), *bearer(TOKENS[Role.OPERATOR])),
    ],
    ids=["none", "no scheme", "other scheme", "empty", "longer", "unknown", "two"],
)
async def test_no_kind_of_method_answers_without_one_known_credential(name: str, metadata: Any) -> None:
    servicer = Servicer(lambda text, _: text)
    async with serving(servicer) as stub:
        error = await failure(stub, name, metadata=metadata, timeout=5, silent=True)
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    detail = detail_of(error)
    assert detail is not None
    assert detail.reason == "unauthenticated"
    assert detail.effect == common_pb2.EFFECT_NOT_WRITTEN
    assert "fp_" not in (error.details() or "")
    assert not servicer.calls


@pytest.mark.requirement("kit.a-role-outside-the-rule-is-refused")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("role", Role)
async def test_every_kind_of_method_is_open_to_exactly_the_roles_of_its_rule(name: str, role: Role) -> None:
    servicer = Servicer(lambda text, _: text)
    async with serving(servicer) as stub:
        if role in OPEN:
            assert (await stub.call(name, "hello", **as_role(role)))[-1] == "hello"
            return
        error = await failure(stub, name, silent=True, **as_role(role))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    detail = detail_of(error)
    assert detail is not None
    assert (detail.reason, dict(detail.state)) == ("permission_denied", {"role": role.name.lower()})
    assert not servicer.calls


@pytest.mark.requirement("kit.a-refusal-travels-with-its-proof")
@pytest.mark.parametrize("name", KINDS)
async def test_a_refusal_becomes_its_status_with_the_detail(name: str) -> None:
    def refuse(text: str, _: Call) -> str:
        raise Taken("the name is taken; nothing was written", hint="Choose another.", state={"generation": "4"})

    async with serving(Servicer(refuse)) as stub:
        error = await failure(stub, name, **as_role())
    assert error.code() is grpc.StatusCode.ALREADY_EXISTS
    assert error.details() == "the name is taken; nothing was written"
    detail = detail_of(error)
    assert detail == common_pb2.Refusal(
        reason="name_taken",
        effect=common_pb2.EFFECT_NOT_WRITTEN,
        hint="Choose another.",
        state={"generation": "4"},
    )


@pytest.mark.requirement("kit.internals-stay-in-the-log")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kind", [KeyError, ValueError, RuntimeError, TimeoutError, StopAsyncIteration])
async def test_any_other_exception_is_internal_without_its_text_or_a_proof(
    name: str, kind: type[Exception], logged: Logged
) -> None:
    def fail(text: str, _: Call) -> str:
        raise kind("the secret of the house")

    async with serving(Servicer(fail)) as stub:
        error = await failure(stub, name, **as_role())
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "internal error"
    assert detail_of(error) is None
    assert DETAILS_KEY not in dict(error.trailing_metadata() or ())
    (line,) = [line for line in logged() if line["event"] == "rpc_failed"]
    assert line["method"] == f"{four_kinds.FULL_NAME}/{name}"
    frames = [frame for error in (line, *line["causes"]) for frame in error["frames"]]
    assert any("test_guard.py" in frame and frame.endswith(" fail") for frame in frames)


@pytest.mark.parametrize("name", KINDS)
async def test_a_refusal_without_a_status_is_a_bug_and_proves_nothing(name: str, logged: Logged) -> None:
    class Unlisted(Refusal):
        reason = "unlisted"

    def refuse(text: str, _: Call) -> str:
        raise Unlisted("no")

    async with serving(Servicer(refuse)) as stub:
        error = await failure(stub, name, **as_role())
    assert error.code() is grpc.StatusCode.INTERNAL
    assert detail_of(error) is None
    assert [line["kind"] for line in logged() if line["event"] == "refusal_without_status"] == ["Unlisted"]


@pytest.mark.requirement("kit.every-call-has-a-deadline")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("timeout", "expected_ms"), [(None, 2_000), (60, 2_000), (1, 1_000)])
async def test_a_missing_or_larger_deadline_becomes_the_rules_own(
    name: str, timeout: float | None, expected_ms: int
) -> None:
    async with serving(Servicer(lambda _, call: str(int(call.seconds * 1000)))) as stub:
        (*_, remaining) = await stub.call(name, "hello", metadata=bearer(TOKENS[Role.AGENT]), timeout=timeout)
    # gRPC carries deadlines on the wall clock and rounds them up: some milliseconds more are its own.
    assert expected_ms * 0.5 < int(remaining) <= expected_ms + 100


@pytest.mark.requirement("kit.every-call-has-a-deadline")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("timeout", [None, 60])
async def test_the_guard_ends_a_call_at_the_rules_deadline_as_unknown(name: str, timeout: float | None) -> None:
    cancelled = asyncio.Event()

    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    async with serving(Servicer(lambda *_: hang()), rules=rules(deadline_ms_max=100)) as stub:
        error = await failure(stub, name, metadata=bearer(TOKENS[Role.AGENT]), timeout=timeout)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert detail_of(error) is None
    assert cancelled.is_set()


@pytest.mark.requirement("kit.every-call-has-a-deadline")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("timeout", "timed"), [(1.9, False), (2.0, False), (2.2, True)])
async def test_a_deadline_that_grpc_has_rounded_up_is_kept_by_grpc_alone(
    name: str, timeout: float, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    within = guard._within

    def counted(seconds: float, work: Any) -> Any:
        times.append(seconds)
        return within(seconds, work)

    monkeypatch.setattr(guard, "_within", counted)
    async with serving(Servicer(lambda _, call: str(int(call.seconds * 1000)))) as stub:
        (*_, remaining) = await stub.call(name, "hello", metadata=bearer(TOKENS[Role.AGENT]), timeout=timeout)
    assert bool(times) is timed
    assert int(remaining) <= DEADLINE_MS_MAX * guard.DEADLINE_ROUNDED_UP_MAX


@pytest.mark.parametrize("name", KINDS)
async def test_a_caller_that_leaves_cancels_its_method(name: str) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    gate = Gate()
    outcomes: list[Outcome] = []
    servicer = Servicer(lambda *_: hang())

    def observe(_: str) -> dict[Outcome, Callable[[float], None]]:
        return {one: lambda _, one=one: outcomes.append(one) for one in Outcome}

    async with serving(servicer, gate=gate, observe=observe) as stub:
        call = stub.start(name, "hello", **as_role())
        reading = asyncio.ensure_future(_drain(call) if KINDS[name][1] else _await(call))
        async with asyncio.timeout(5):
            await begun.wait()
            call.cancel()
            await cancelled.wait()
            await gate.emptied()
        with pytest.raises(asyncio.CancelledError):
            await reading
    assert outcomes == [Outcome.UNKNOWN]
    assert servicer.closed_streams == (1 if name == "Many" else 0)


async def _await(call: Any) -> Any:
    return await call


async def _drain(call: Any) -> list[Any]:
    return [answer async for answer in call]


@pytest.mark.parametrize("name", KINDS)
async def test_each_outcome_is_observed_once_with_its_duration(name: str) -> None:
    def act(text: str, _: Call) -> str:
        if text == "refuse":
            raise Taken("no")
        if text == "break":
            raise KeyError("bug")
        return text

    registry = CollectorRegistry()
    async with serving(Servicer(act), observe=RpcMetrics(service="testing", registry=registry)) as stub:
        await stub.call(name, "hello", **as_role())
        for text in ("refuse", "break"):
            await failure(stub, name, text, **as_role())
        await failure(stub, name, metadata=(), timeout=5, silent=True)

    def count(outcome: str) -> float | None:
        labels = {"service": "testing", "method": name, "outcome": outcome}
        return registry.get_sample_value("fencepost_rpc_seconds_count", labels)

    assert (count("done"), count("refused"), count("unknown")) == (1, 2, 1)


@pytest.mark.requirement("kit.a-drain-refuses-new-calls-as-not-written")
@pytest.mark.parametrize("name", KINDS)
async def test_a_closed_gate_refuses_every_kind_of_method_as_draining(name: str) -> None:
    gate = Gate()
    gate.closed = True
    servicer = Servicer(lambda text, _: text)
    async with serving(servicer, gate=gate) as stub:
        error = await failure(stub, name, silent=True, **as_role())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    detail = detail_of(error)
    assert detail is not None
    assert (detail.reason, detail.may_resend) == ("draining", True)
    assert not servicer.calls
    assert gate.open_calls == 0


async def test_a_gate_admits_as_many_calls_as_its_limit_and_refuses_one_more() -> None:
    gate = Gate(calls_max=2)
    gate.enter()
    gate.enter()
    with pytest.raises(Overloaded):
        gate.enter()
    assert gate.open_calls == 2
    gate.leave()
    gate.enter()
    gate.closed = True
    with pytest.raises(Draining):
        gate.enter()


async def test_an_emptied_gate_wakes_everybody_who_waits_for_it() -> None:
    gate = Gate()
    await gate.emptied()
    gate.enter()
    waits = [asyncio.ensure_future(gate.emptied()) for _ in range(2)]
    await asyncio.sleep(0)
    waits[0].cancel()
    gate.leave()
    await asyncio.wait_for(waits[1], 5)
    with pytest.raises(asyncio.CancelledError):
        await waits[0]


class Incomplete:
    async def One(self, request: Any, call: Call) -> Any: ...


class Talkative(Servicer):
    async def Extra(self, request: Any, call: Call) -> Any: ...


class WrongKind(Servicer):
    async def Many(self, request: Any, call: Call) -> Any: ...  # type: ignore[override]


class AlsoWrongKind(Servicer):
    def One(self, request: Any, call: Call) -> Any: ...  # type: ignore[override]


@pytest.mark.requirement("kit.no-method-without-a-rule")
@pytest.mark.parametrize(
    ("servicer", "table", "words"),
    [
        (Servicer(str), {name: rule for name, rule in rules().items() if name != "Talk"}, "Talk has no rule"),
        (Servicer(str), {**rules(), "Ghost": rules()["One"]}, "Ghost has a rule and is no RPC"),
        (Incomplete(), rules(), "Many has no implementation"),
        (Talkative(str), rules(), "Extra is implemented and is no RPC"),
        (WrongKind(str), rules(), "Many must be implemented by an async generator"),
        (AlsoWrongKind(str), rules(), "One must be implemented by a coroutine function"),
    ],
    ids=["no rule", "rule too many", "no implementation", "method too many", "no generator", "no coroutine"],
)
def test_the_guard_refuses_to_build_where_rules_methods_and_descriptor_differ(
    servicer: object, table: dict[str, Rule], words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        guarded(servicer, descriptor=four_kinds.DESCRIPTOR, rules=table, identify=Identifying(), statuses={})


@pytest.mark.parametrize(("roles", "deadline_ms_max"), [(frozenset(), 1), (OPEN, 0)])
def test_a_rule_without_roles_or_time_is_refused(roles: frozenset[Role], deadline_ms_max: int) -> None:
    with pytest.raises(ValueError, match="at least one role"):
        Rule(roles=roles, deadline_ms_max=deadline_ms_max)
