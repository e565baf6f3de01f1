"""AttachTerminal: a conversation in a person's terminal for as long as the stream is read. M138-M150."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from fencepost_kit.identity import Caller
from fencepost_providers.adapters.base import Terminal
from fencepost_providers.domain.refusals import CannotStart, StillBusy, UnsupportedCapability
from fencepost_providers.domain.runtimes import CapabilityKind, Permits
from fencepost_providers.orders import Attach, HasEnded, HasJoined, LaunchNow, WaitingFor
from fencepost_providers.usecases.look import Runtime, runtime_now
from fencepost_providers.usecases.ports import Ports, agent_of, keeper_of
from fencepost_providers.usecases.restart import check_wait

WAIT_IDLE_MS_MAX: Final = 600_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn is in progress."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this in the terminal now."""

    terminal: Terminal


@dataclass(frozen=True, slots=True)
class Joined:
    """The terminal was seen on the conversation."""

    runtime: Runtime


@dataclass(frozen=True, slots=True)
class Ended:
    """It is over."""

    why: str


Step = Waiting | Launch | Joined | Ended


async def attach_terminal(
    ports: Ports, caller: Caller, agent_id: str, *, wait_idle_ms: int, permits: Permits
) -> AsyncIterator[Step]:
    """Yield the steps of an attachment until it ends; whoever stops reading ends it.

    Raises:
        AgentOff, NotFound: see there.
        UnsupportedCapability: the running version cannot.
        StillBusy: the turn did not end in time; nothing was changed.
        CannotStart: the runtime that a terminal can join could not be started; the one before is started again.
    """
    check_wait(wait_idle_ms, WAIT_IDLE_MS_MAX)
    agent = agent_of(ports, caller, agent_id)
    keeper = keeper_of(ports, agent)
    if keeper.life is not None and not keeper.life.can(CapabilityKind.ATTACH):
        found = keeper.life.capabilities.get(CapabilityKind.ATTACH)
        raise UnsupportedCapability(
            "this program cannot be attached to in this version; nothing was changed",
            hint=found.reason if found is not None else "",
        )
    order = Attach(wait_idle_ms=wait_idle_ms, permits=permits)
    keeper.order(order)
    try:
        while True:
            match await order.steps.get():
                case WaitingFor(turn_id=turn_id):
                    yield Waiting(turn_id)
                case LaunchNow(terminal=terminal):
                    yield Launch(terminal)
                case HasJoined():
                    yield Joined(runtime_now(ports, keeper.agent, for_operator=True))
                case HasEnded(why=why, failed=failed, busy=busy):
                    if busy:
                        raise StillBusy(why, hint="Wait longer, or interrupt the turn.")
                    if failed:
                        raise CannotStart(why, hint="`fencepost agent doctor NAME` says what is wrong.")
                    yield Ended(why)
                    return
    finally:
        order.gone = True
        keeper.wake()
