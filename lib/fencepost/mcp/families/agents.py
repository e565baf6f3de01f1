"""Turns and notifications of agents that supervise tasks; rows of the tasks' family."""

from __future__ import annotations

from typing import Final

from fencepost.mcp import profiles
from fencepost.mcp.kinds import Whole
from fencepost.mcp.tool import Hints, Lost, Tool

NOTIFICATION_WAIT_MS_MAX: Final = 20_000

TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="agent_ready",
        family=profiles.TASKS,
        description=(
            "End your turn: the last action, when nothing immediate remains. Refused while you run a task or have"
            " unread notifications. What you supervise stays supervised."
        ),
        hints=Hints(read_only=True, idempotent=True, open_world=False),
        lost=Lost.ASK_AGAIN,
        returns="`acknowledged`, `pending_count`",
    ),
    Tool(
        name="agent_wait",
        family=profiles.TASKS,
        description=(
            "Wait for the next notification that you were not given in this run. Then look at task_list again before"
            " you wait once more or call agent_ready. timed_out is no failure."
        ),
        arguments={"timeout_ms": Whole(least=0, most=NOTIFICATION_WAIT_MS_MAX, default=NOTIFICATION_WAIT_MS_MAX)},
        hints=Hints(destructive=False, open_world=False),
        lost=Lost.ASK_AGAIN,
        returns="`notification` (`kind`, `task`, `at`), `has_more`, `timed_out`, `wake_reason`",
    ),
)
