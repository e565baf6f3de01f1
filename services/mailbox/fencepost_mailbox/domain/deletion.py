"""What becomes of an agent's mail when the agent is deleted (ARCHITECTURE "Identity and fences").

Closing is one transaction: whoever waits for the agent has its answer, whoever may work for it is told, and from then
on nothing is taken for it or from it. Erasing follows in bounded chunks and can be gone on with at any time.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.answers import AnswerEvent
from fencepost_mailbox.domain.refusals import AgentDeleted
from fencepost_mailbox.domain.values import Delivery, Record

# Open requests that are settled in the transaction that closes an agent's mail. There are hardly ever as many; what is
# beyond is settled by the erasure, chunk by chunk, before anything is removed: nobody waits long for one transaction.
CLOSED_REQUESTS_MAX: Final = 2000
# Tasks that are taken from the agent in that transaction; the rest follows in the same way.
CLOSED_TASKS_MAX: Final = 500
# Rows (records with their facts and claims, or keys) that one transaction of the erasure removes.
ERASED_ROWS_MAX: Final = 200
# Between two chunks, so that whoever sends meanwhile waits for one chunk at most.
ERASURE_PAUSE_MS: Final = 5

HOST_REPLY: Final = (
    "The agent that you asked was deleted before it answered. Whether it had begun the work is not known here. "
    "Ask another agent, or look at what was done before the work is done again."
)
HOST_NOTICE: Final = (
    "The agent that sent you this request was deleted, so the request is closed. Stop working on it: "
    "a reply would reach nobody and is refused."
)
ANSWERED_FOR: Final = "the agent was deleted before it answered"
TAKEN_BACK: Final = "its sender was deleted before anybody was shown it"
ABANDONED: Final = "its sender was deleted"
SIGHT_LOST: Final = "the recipient was deleted while the claim stood"


class Phase(enum.IntEnum):
    """How far a deletion has come here. Values are stored."""

    ERASING = 1
    ERASED = 2
    FINISHED = 3


@value(frozen=True, kw_only=True, slots=True)
class Tombstone:
    """What is left of a deleted agent."""

    agent_id: bytes
    project_id: bytes
    phase: Phase
    closed_at_ms: int
    # The newest step's place in the commit order.
    sequence: int


def check_lives(*, deleted: bool, who: str = "this agent") -> None:
    """Let a call go on that is made by an agent or for one.

    Raises:
        AgentDeleted: the agent is being deleted, or was.
    """
    if deleted:
        raise AgentDeleted(
            f"{who} was deleted; nothing was written", hint="list_agents shows the agents that there are."
        )


def end_of_sent(request: Record) -> AnswerEvent:
    """Return how an open request ends whose sender is deleted: taken back where nobody was shown it, else abandoned."""
    return AnswerEvent.WITHDRAW if request.delivery is Delivery.PENDING else AnswerEvent.ABANDON


def wants_notice(event: AnswerEvent) -> bool:
    """Tell whether the recipient of a request that ended so is told: it may have begun to work."""
    return event is AnswerEvent.ABANDON


def host_record_id(seed: bytes, request_id: bytes) -> bytes:
    """Return the id of what the host writes about a request: another for each request and deletion, the same again."""
    return hashlib.blake2b(request_id, key=seed, digest_size=16).digest()
