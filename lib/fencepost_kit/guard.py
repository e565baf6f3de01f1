"""The guard in front of every RPC: who calls, may it, how long, and what its failure means on the wire.

No interceptors: each method is wrapped once, by its own cardinality, when the service is built.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from fencepost_kit import logs
from fencepost_kit.identity import Caller, Role, bearer
from fencepost_kit.refusal import TEXT_BYTES_MAX, Draining, Overloaded, PermissionDenied, Refusal
from fencepost_kit.statuses import DETAILS_KEY, clip, status_details, status_of

CALLS_MAX: Final = 8192
DEADLINE_MS_MIN: Final = 1
# gRPC carries a timeout in few digits, rounded up: one of exactly the longest time arrives up to 2 % longer. gRPC ends
# such a call itself; a timer of the guard's own would cost it as much as everything else that the guard does.
DEADLINE_ROUNDED_UP_MAX: Final = 1.03

_log: Final = logs.get(__name__)

ServicerContext = Any  # grpc.aio.ServicerContext is generic over the messages of one method


class Outcome(enum.Enum):
    """The three outcomes of every operation."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One row per RPC: who may call it, and the longest time that it may take."""

    roles: frozenset[Role]
    deadline_ms_max: int

    def __post_init__(self) -> None:
        if not self.roles or self.deadline_ms_max < DEADLINE_MS_MIN:
            raise ValueError("a rule names at least one role and a positive deadline")


@dataclass(slots=True)
class Call:
    """One admitted call, and the time that it had, in seconds, when it was admitted."""

    caller: Caller
    seconds: float


class Identify(Protocol):
    """How a service knows its callers."""

    def known(self, token: str) -> Caller | None:
        """Return the caller who holds `token` where that takes no waiting, else None."""
        ...

    async def __call__(self, token: str) -> Caller:
        """Return the caller who holds `token`; raises Unauthenticated."""
        ...


class Observe(Protocol):
    """Where durations go. Asked once per method when the guard is built, so that a call costs one bound function."""

    def __call__(self, method: str) -> Mapping[Outcome, Callable[[float], None]]:
        """Return for each outcome of `method` the function that takes its duration in seconds."""
        ...


class Gate:
    """Counts open calls, refuses those over `calls_max`, and refuses all new ones once closed.

    Given to guarded() and to Server, it makes a drain answer "draining" instead of breaking calls.
    """

    __slots__ = ("_empty", "calls_max", "closed", "open_calls")

    def __init__(self, *, calls_max: int = CALLS_MAX) -> None:
        self.calls_max = calls_max
        self.closed = False
        self.open_calls = 0
        self._empty: asyncio.Future[None] | None = None

    def enter(self) -> None:
        """Admit one call; raises Draining or Overloaded, and counts only what it admits."""
        if self.closed or self.open_calls >= self.calls_max:
            raise self._refusal()
        self.open_calls += 1

    def _refusal(self) -> Refusal:
        hint = "Send the same call again shortly."
        if self.closed:
            return Draining("the service is stopping; nothing was written", hint=hint)
        return Overloaded(f"{self.calls_max} calls are open; nothing was written", hint=hint)

    def leave(self) -> None:
        """Count one admitted call as ended."""
        self.open_calls -= 1
        if self._empty is not None and not self.open_calls and not self._empty.done():
            self._empty.set_result(None)

    async def emptied(self) -> None:
        """Return when no call is open."""
        if self.open_calls:
            if self._empty is None or self._empty.done():
                self._empty = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._empty)


class _Capped(Exception):
    """The deadline that the guard set has passed."""


@dataclass(kw_only=True, slots=True)
class _Method:
    """One RPC with everything that was decided when the guard was built."""

    name: str
    path: str
    implementation: Callable[..., Any]
    roles: frozenset[Role]
    seconds_max: float
    identify: Identify
    statuses: Mapping[type[Refusal], grpc.StatusCode]
    gate: Gate
    observe: Mapping[Outcome, Callable[[float], None]] | None

    def let_in(self, caller: Caller, context: ServicerContext) -> tuple[Call, bool]:
        """Return the admitted call, and whether the guard itself must keep its deadline."""
        if caller.role not in self.roles:
            named = caller.role.name.lower()
            raise PermissionDenied(
                f"{self.name} is not open to the role {named}; nothing was written", state={"role": named}
            )
        remaining = context.time_remaining()
        if remaining is None or remaining > self.seconds_max * DEADLINE_ROUNDED_UP_MAX:
            return Call(caller, self.seconds_max), True
        return Call(caller, remaining), False

    def note(self, outcome: Outcome, started: float) -> None:
        if self.observe is not None:
            self.observe[outcome](time.perf_counter() - started)

    async def fail(self, context: ServicerContext, error: Exception, started: float) -> None:
        """End the call with the status that `error` means. Always raises, as the gRPC runtime wants it."""
        if isinstance(error, Refusal):
            try:
                code = status_of(error, self.statuses)
            except LookupError:
                _log.error("refusal_without_status", method=self.path, kind=type(error).__name__)
            else:
                self.note(Outcome.REFUSED, started)
                details = ((DETAILS_KEY, status_details(error, code)),)
                await context.abort(code, clip(error.message, TEXT_BYTES_MAX), details)
        self.note(Outcome.UNKNOWN, started)
        if isinstance(error, _Capped):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the longest time for this call has passed")
        if not isinstance(error, Refusal):
            _log.exception("rpc_failed", error, method=self.path)
        await context.abort(grpc.StatusCode.INTERNAL, "internal error")


async def _within(seconds: float, work: Awaitable[Any]) -> Any:
    """Await `work`, at most for `seconds`."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise _Capped from None
        raise


def _answers_once(method: _Method) -> Callable[[Any, ServicerContext], Awaitable[Any]]:
    """Wrap unary-unary and stream-unary: the implementation is a coroutine function."""
    implementation, gate, identify, clock = method.implementation, method.gate, method.identify, time.perf_counter
    done = method.observe[Outcome.DONE] if method.observe is not None else None

    async def handle(request: Any, context: ServicerContext) -> Any:
        started = clock()
        failure: Exception
        try:
            gate.enter()
            try:
                token = bearer(context.invocation_metadata())
                call, capped = method.let_in(identify.known(token) or await identify(token), context)
                work = implementation(request, call)
                answer = await (_within(call.seconds, work) if capped else work)
            finally:
                gate.leave()
        except asyncio.CancelledError:
            method.note(Outcome.UNKNOWN, started)
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: everything becomes a status
            failure = error
        else:
            if done is not None:
                done(clock() - started)
            return answer
        return await method.fail(context, failure, started)

    return handle


def _answers_many(method: _Method) -> Callable[[Any, ServicerContext], Awaitable[None]]:
    """Wrap unary-stream and stream-stream: the implementation is an async generator function, closed in every case."""
    implementation, gate, identify = method.implementation, method.gate, method.identify

    async def pump(answers: AsyncIterator[Any], context: ServicerContext) -> None:
        async with contextlib.aclosing(answers):  # type: ignore[type-var]
            async for answer in answers:
                await context.write(answer)

    async def handle(request: Any, context: ServicerContext) -> None:
        started = time.perf_counter()
        failure: Exception
        try:
            gate.enter()
            try:
                token = bearer(context.invocation_metadata())
                call, capped = method.let_in(identify.known(token) or await identify(token), context)
                work = pump(implementation(request, call), context)
                await (_within(call.seconds, work) if capped else work)
            finally:
                gate.leave()
        except asyncio.CancelledError:
            method.note(Outcome.UNKNOWN, started)
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: everything becomes a status
            failure = error
        else:
            method.note(Outcome.DONE, started)
            return
        await method.fail(context, failure, started)

    return handle


class _Guarded:
    """What is given to the generated add_<X>ServiceServicer_to_server: one attribute per RPC."""


def _check_names(servicer: object, names: set[str], rules: Mapping[str, Rule]) -> None:
    implemented = {
        name
        for name in dir(servicer)
        if name[:1].isupper() and callable(getattr(servicer, name)) and not isinstance(getattr(servicer, name), type)
    }
    wrong = [
        *(f"{name} has no rule" for name in sorted(names - set(rules))),
        *(f"{name} has a rule and is no RPC" for name in sorted(set(rules) - names)),
        *(f"{name} has no implementation" for name in sorted(names - implemented)),
        *(f"{name} is implemented and is no RPC" for name in sorted(implemented - names)),
    ]
    if wrong:
        raise TypeError(f"{type(servicer).__name__}: {'; '.join(wrong)}")


def guarded(
    servicer: object,
    *,
    descriptor: ServiceDescriptor,
    rules: Mapping[str, Rule],
    identify: Identify,
    statuses: Mapping[type[Refusal], grpc.StatusCode],
    observe: Observe | None = None,
    gate: Gate | None = None,
) -> Any:
    """Return an object that answers every RPC of `descriptor` through the guard.

    Each call is authenticated, checked against its rule's roles, given a deadline (a missing one, or one that is larger
    by more than gRPC's own rounding, becomes deadline_ms_max, at which the guard cancels the call and answers
    DEADLINE_EXCEEDED: outcome unknown), and handed to
    servicer.<Method>(request, call): a coroutine function, or an async generator function where the answer is a stream.
    A Refusal becomes its status with the detail; a cancellation passes; any other exception is INTERNAL without text on
    the wire, with its frames in the log.

    Raises:
        TypeError: an RPC has no rule or no implementation, or the reverse, or an implementation of the wrong kind.
    """
    _check_names(servicer, {method.name for method in descriptor.methods}, rules)
    shared = gate if gate is not None else Gate()
    built = _Guarded()
    for method in descriptor.methods:
        implementation = getattr(servicer, method.name)
        _check_kind(method, implementation)
        bound = _Method(
            name=method.name,
            path=f"{descriptor.full_name}/{method.name}",
            implementation=implementation,
            roles=rules[method.name].roles,
            seconds_max=rules[method.name].deadline_ms_max / 1000,
            identify=identify,
            statuses=statuses,
            gate=shared,
            observe=observe(method.name) if observe is not None else None,
        )
        setattr(built, method.name, _answers_many(bound) if method.server_streaming else _answers_once(bound))
    return built


def _check_kind(method: MethodDescriptor, implementation: Callable[..., Any]) -> None:
    import inspect  # noqa: PLC0415 - once, when a service is built

    fits = inspect.isasyncgenfunction if method.server_streaming else inspect.iscoroutinefunction
    if not fits(implementation):
        kind = "an async generator function" if method.server_streaming else "a coroutine function"
        raise TypeError(f"{method.full_name} must be implemented by {kind}")
