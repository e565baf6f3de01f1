"""InterruptTurn: the exact turn that was observed; the conversation stays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from fencepost_kit import logs
from fencepost_kit.identity import Caller
from fencepost_providers.adapters.base import INTERRUPT_MS_MAX
from fencepost_providers.domain.refusals import StaleTurn
from fencepost_providers.domain.runtimes import CapabilityKind, Interrupted, Interruption, State
from fencepost_providers.life import Life
from fencepost_providers.usecases.ports import Ports, project_of

INTERRUPT_SLACK_MS: Final = 2_000
_log: Final = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What came of it, and of what."""

    interrupted: Interrupted
    agent_id: str
    generation: int
    conversation_id: str


async def interrupt_turn(ports: Ports, caller: Caller, *, target: str, turn_id: str) -> Done:
    """Interrupt the turn in progress, or exactly the one that the caller observed.

    Raises:
        NotFound, AmbiguousTarget: the target is not one agent that the caller may see.
        StaleTurn: another turn is in progress than the one that was observed; nothing was interrupted.
    """
    agent = ports.directory.find(target, project_id=project_of(caller))
    keeper = ports.roster.keeper(agent.agent_id)
    life = keeper.life if keeper is not None else None
    if life is None or life.runtime is None or life.gone:
        nothing = Interrupted(result=Interruption.NOTHING, detail="Fencepost runs no runtime of this agent now")
        return Done(interrupted=nothing, agent_id=agent.agent_id, generation=0, conversation_id=agent.conversation_id)
    interrupted = await _interrupted(life, turn_id)
    _log.info(
        "interrupted",
        agent=agent.agent_id,
        generation=life.generation,
        turn=interrupted.turn_id,
        result=interrupted.result.name.lower(),
        by=caller.label,
    )
    return Done(
        interrupted=interrupted,
        agent_id=agent.agent_id,
        generation=life.generation,
        conversation_id=life.conversation_id,
    )


async def _interrupted(life: Life, observed: str) -> Interrupted:
    current = await life.look()
    if current.state is State.IDLE:
        return Interrupted(result=Interruption.NOTHING, turn_id=observed, detail="no turn is in progress")
    if observed and current.turn_id and current.turn_id != observed:
        raise StaleTurn(
            "another turn is in progress than the one that was observed; nothing was interrupted",
            hint="Look again, and name the turn that is in progress.",
            state={"turn_id": current.turn_id},
        )
    turn_id = current.turn_id
    if not life.can(CapabilityKind.INTERRUPT) or not turn_id or life.runtime is None:
        return Interrupted(
            result=Interruption.UNSUPPORTED,
            turn_id=turn_id,
            detail="this program cannot interrupt an exact turn" if turn_id else "no exact turn is known",
        )
    try:
        async with asyncio.timeout((INTERRUPT_MS_MAX + INTERRUPT_SLACK_MS) / 1000):
            return await life.runtime.interrupt(turn_id)
    except TimeoutError:
        detail = "the program did not answer; the interruption may have reached it and is not repeated"
    except Exception as error:  # noqa: BLE001 - whatever went wrong, it may have been after the first byte
        _log.exception("adapter_raised", error, agent=life.agent_id)
        detail = "the adapter failed on the way; the interruption may have reached the program and is not repeated"
    return Interrupted(result=Interruption.UNCERTAIN, turn_id=turn_id, detail=detail)
