"""Turns, notifications and messages of agents that supervise work; rows of the tasks' family."""

from __future__ import annotations

from typing import Final

from fencepost.mcp import profiles
from fencepost.mcp.families.messaging import BODY_BYTES_MAX, CURSOR_CHARS_MAX, PAGE_RECORDS_MAX, REQUEST_ID_CHARS_MAX
from fencepost.mcp.kinds import Agent, Choice, Count, Flag, Problem, Prose, Several, Text, Whole
from fencepost.mcp.tool import Hints, Lost, Tool

NOTIFICATION_WAIT_MS_MAX: Final = 20_000
# The mailbox's own limits, told before anything is asked of it; a test holds both to be the same.
SUBJECT_BYTES_MAX: Final = 256
QUERY_BYTES_MAX: Final = 512
ACKNOWLEDGED_MAX: Final = PAGE_RECORDS_MAX
# Those that write a message, by a key that Fencepost makes.
TALK: Final = frozenset({"agent_send", "agent_reply"})
_TASK_PREFIX: Final = "task_"


class _Id(Text):
    """The id of a message, thread or task, in a short schema."""

    def schema(self) -> dict[str, object]:
        """Return the JSON schema."""
        return {"type": "string"}


_ID: Final = _Id(chars_max=REQUEST_ID_CHARS_MAX)
_BODY: Final = Prose(bytes_max=BODY_BYTES_MAX)
_CURSOR: Final = _Id(chars_max=CURSOR_CHARS_MAX)
_LIMIT: Final = Count(least=1, most=PAGE_RECORDS_MAX)
_READS: Final = Hints(read_only=True, idempotent=True, open_world=False)


def _of_one_kind(arguments: object) -> None:
    # Two services' calls are not one: each kind is acknowledged whole, or not at all.
    ids = arguments.get("ids", ()) if isinstance(arguments, dict) else ()
    if len({str(one).startswith(_TASK_PREFIX) for one in ids}) > 1:
        raise Problem("ids are of messages or of tasks: acknowledge each in a call of its own")


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
        returns=(
            "`notification` (`kind`, `task`, `at`; for `messages`: the oldest `message` and how many `messages`),"
            " `has_more`, `timed_out`, `wake_reason`"
        ),
    ),
    Tool(
        name="agent_register",
        family=profiles.TASKS,
        description="Say who you are and learn your identity; a server without one takes this name.",
        arguments={"name": Agent()},
        required=("name",),
        hints=Hints(destructive=False),
        lost=Lost.ASK_AGAIN,
        returns="`agent`, `project`, `role`, `generation`, `run`",
    ),
    Tool(
        name="agent_list",
        family=profiles.TASKS,
        description="The active agents of your project.",
        hints=_READS,
        lost=Lost.ASK_AGAIN,
        returns="`agents`: `name`, `agent_id`, `role`, `status` (`working`, `idle`, ...), `checkout_root`",
    ),
    Tool(
        name="agent_send",
        family=profiles.TASKS,
        description=(
            "Send a message to an agent. expects_result: it is a request that wants one agent_reply, and you supervise"
            " it until you acknowledge that reply; go on meanwhile."
        ),
        arguments={
            "to": Agent(),
            "body": _BODY,
            "subject": Prose(bytes_max=SUBJECT_BYTES_MAX),
            "thread": _ID,
            "reply_to": _ID,
            "task_id": _ID,
            "expects_result": Flag(),
        },
        required=("to", "body"),
        hints=Hints(destructive=False),
        lost=Lost.SETTLE,
        returns="`message_id`, `delivery` (`delivered`, `queued`), `expects_result`, `thread` if any, the receipt",
    ),
    Tool(
        name="agent_reply",
        family=profiles.TASKS,
        description="Answer a request, once; request_id is the id of its message.",
        arguments={
            "request_id": _ID,
            "outcome": Choice(words=("succeeded", "failed", "blocked")),
            "body": _BODY,
        },
        required=("request_id", "outcome", "body"),
        hints=Hints(destructive=False, idempotent=True),
        lost=Lost.SETTLE,
        returns="`request_id`, `acknowledged`, `message_id`, the receipt",
    ),
    Tool(
        name="agent_inbox",
        family=profiles.TASKS,
        description=(
            "Your pending notifications and unacknowledged messages. Handle them, then agent_ack the messages; a"
            " notification ends with its task's next step."
        ),
        arguments={"cursor": _CURSOR, "limit": _LIMIT},
        hints=Hints(destructive=False),
        lost=Lost.ASK_AGAIN,
        returns=(
            "`notifications`, `more_notifications`, `messages`, `open_requests`, `awaited` (requests of yours without"
            " an acknowledged result), `next_cursor`, `has_more`, `unacknowledged`"
        ),
    ),
    Tool(
        name="agent_ack",
        family=profiles.TASKS,
        description="Acknowledge messages that you were shown, or settled tasks that you supervise.",
        arguments={"ids": Several(of=_ID, least=1, most=ACKNOWLEDGED_MAX)},
        required=("ids",),
        hints=Hints(destructive=False, idempotent=True),
        lost=Lost.ASK_AGAIN,
        returns="`acknowledged`, `pending_count`; for messages `unacknowledged`",
        together=_of_one_kind,
    ),
    Tool(
        name="thread_get",
        family=profiles.TASKS,
        description="A thread in order, by its id or any message of it.",
        arguments={"id": _ID, "cursor": _CURSOR, "limit": _LIMIT},
        required=("id",),
        hints=_READS,
        lost=Lost.ASK_AGAIN,
        returns="`thread`, `subject`, `messages`, `next_cursor`",
    ),
    Tool(
        name="message_search",
        family=profiles.TASKS,
        description='Find messages that you sent or were sent: words, "in this order", begin*. Newest first.',
        arguments={"query": Prose(bytes_max=QUERY_BYTES_MAX), "cursor": _CURSOR, "limit": _LIMIT},
        required=("query",),
        hints=_READS,
        lost=Lost.ASK_AGAIN,
        returns="`messages` with an `excerpt` each, `next_cursor`, `complete`",
    ),
)
