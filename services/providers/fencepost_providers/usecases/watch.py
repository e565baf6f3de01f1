"""WatchConversation: what happens in a conversation, from a position on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from fencepost_kit.identity import Caller
from fencepost_providers.domain.refusals import AgentOff
from fencepost_providers.rows import Placed
from fencepost_providers.usecases.ports import Ports, agent_of


async def watch_conversation(ports: Ports, caller: Caller, agent_id: str, *, after: int) -> AsyncIterator[Placed]:
    """Yield rows until the agent is deleted or the service stops.

    Raises:
        NotFound: there is no such agent.
        AgentOff: Fencepost has never run this agent in this start of the service: there is nothing to watch.
        WatcherTooSlow, TooManyWatchers: see rows.
    """
    agent = agent_of(ports, caller, agent_id)
    keeper = ports.roster.keeper(agent.agent_id)
    if keeper is None:
        raise AgentOff(
            "Fencepost does not run this agent, so there is nothing to watch; nothing was changed",
            hint="Say so first: `fencepost agent start NAME`.",
        )
    async with aclosing(keeper.rows.watch(after)) as rows:  # type: ignore[type-var]
        async for placed in rows:
            yield placed
