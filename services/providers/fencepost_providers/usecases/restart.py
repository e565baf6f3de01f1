"""RestartRuntime and BeginConversation: another life, on the same conversation or a new one. Nothing is replayed."""

from __future__ import annotations

import asyncio
from typing import Final

from fencepost_kit.identity import Caller
from fencepost_kit.refusal import Malformed
from fencepost_providers.domain.refusals import CannotStart, ConversationConflict
from fencepost_providers.orders import Restart
from fencepost_providers.usecases.look import Runtime, runtime_now
from fencepost_providers.usecases.ports import Ports, agent_of, keeper_of

WAIT_READY_MS_MAX: Final = 120_000


def check_wait(wait_ms: int, most: int) -> None:
    """Refuse a wait out of its range.

    Raises:
        Malformed: it is.
    """
    if not 0 <= wait_ms <= most:
        raise Malformed(f"the wait must be 0 to {most} ms; nothing was changed")


async def restart_runtime(ports: Ports, caller: Caller, agent_id: str, *, wait_ms: int) -> Runtime:
    """Stop a runtime and start it again under a new generation on the same conversation.

    Raises:
        AgentOff, NotFound, CannotStart: see there.
    """
    return await _again(ports, caller, agent_id, fresh=False, wait_ms=wait_ms)


async def begin_conversation(
    ports: Ports, caller: Caller, agent_id: str, *, expected_conversation_id: str, wait_ms: int
) -> Runtime:
    """Leave an agent's conversation and begin a new one under a new generation.

    Raises:
        ConversationConflict: the agent has another conversation than the caller believes.
        AgentOff, NotFound, CannotStart: see there.
    """
    agent = agent_of(ports, caller, agent_id)
    keeper = ports.roster.keeper(agent_id)
    known = agent if keeper is None else keeper.agent
    if expected_conversation_id and known.conversation_id != expected_conversation_id:
        raise ConversationConflict(
            "the agent has another conversation than that; nothing was changed",
            hint="Look at it again, and repeat the call with the conversation that is current.",
            state={"conversation_id": known.conversation_id},
        )
    return await _again(ports, caller, agent_id, fresh=True, wait_ms=wait_ms)


async def _again(ports: Ports, caller: Caller, agent_id: str, *, fresh: bool, wait_ms: int) -> Runtime:
    check_wait(wait_ms, WAIT_READY_MS_MAX)
    agent = agent_of(ports, caller, agent_id)
    keeper = keeper_of(ports, agent)
    order = Restart(fresh=fresh)
    keeper.order(order)
    if wait_ms:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                why = await asyncio.shield(order.result)
        except TimeoutError:
            why = None
        if why is not None:
            raise CannotStart(
                f"the runtime was stopped, and could not be started again: {why}",
                hint="`fencepost agent doctor NAME` says what is wrong.",
            )
    return runtime_now(ports, agent, for_operator=True)
