"""What a conversation does, folded from what app-server says about it. No I/O. Source: M083-M092 R131 R132.

Verified on 0.159.2, 0.169.0, 0.171.0: a thread becomes idle BEFORE its turn is completed; the completed turn carries at
most its last message; a failed turn leaves the status "systemError", from which the next turn starts as from idle; work
that meets a running turn becomes an item of that turn, behind the items that it had.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost_providers.domain.runtimes import (
    DETAIL_BYTES_MAX,
    FINAL_BYTES_MAX,
    ROW_BYTES_MAX,
    Activity,
    Row,
    RowKind,
    State,
    TurnEnd,
    TurnStatus,
)

Json = Mapping[str, Any]

NAMESPACE: Final = "fencepost"
TASK_ITEM: Final = "fencepost_task_delivery"
INBOX_ITEM: Final = "fencepost_inbox_delivery"
TURNS_MAX: Final = 64
WAITING_MAX: Final = 64
# Of one turn: what is told apart below needs the newest only.
MESSAGES_MAX: Final = 4_096

_ENDS: Final = {
    "completed": TurnStatus.COMPLETED,
    "interrupted": TurnStatus.INTERRUPTED,
    "failed": TurnStatus.FAILED,
}
# These come before what a turn was started with, whoever started it.
_BEFORE_INPUT: Final = frozenset({"contextCompaction", "hookPrompt"})
_RESTING: Final = frozenset({"idle", "systemError"})

Heard = Activity | TurnEnd | Row


def cut(text: str, bytes_max: int) -> tuple[str, bool]:
    """Return at most so many bytes of a text, whole characters only, and whether something is missing."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return text, False
    return encoded[:bytes_max].decode("utf-8", "ignore"), True


@dataclass(slots=True)
class Turn:
    """What is known of one turn."""

    turn_id: str
    started: bool = False
    # The record that the turn was started with; None while nothing came, "" where it was something else.
    opened_by: str | None = None
    shown: set[str] = field(default_factory=set)
    # Steers that the program accepted and has not shown yet.
    owed: set[str] = field(default_factory=set)
    messages: OrderedDict[str, None] = field(default_factory=OrderedDict)
    answer: str | None = None
    unphased: str | None = None
    end: TurnEnd | None = None

    @property
    def final(self) -> str:
        """The final words so far: the last of phase "final_answer", else the last without a phase."""
        return self.answer if self.answer is not None else (self.unphased or "")


class Conversation:
    """One thread. `fold` takes what the program says, in its order, and returns what that means."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.status = "notLoaded"
        self.flags: tuple[str, ...] = ()
        self.turn_id = ""
        # Counts what concerned activity: who saw it stand still knows that nothing happened meanwhile.
        self.changes = 0
        self.turns: OrderedDict[str, Turn] = OrderedDict()
        self._waiting: OrderedDict[str, str] = OrderedDict()

    # --- what it is asked --------------------------------------------------------------------------------------------

    def activity(self) -> Activity:
        """What the conversation does, as far as was said."""
        if self.status in _RESTING and not self.turn_id:
            return Activity(state=State.IDLE)
        if self._waiting or self.flags:
            detail = next(reversed(self._waiting.values())) if self._waiting else _FLAGS.get(self.flags[0], "")
            return Activity(state=State.ACTION_NEEDED, turn_id=self.turn_id, detail=detail)
        if self.status == "active" or self.turn_id:
            return Activity(state=State.PROCESSING, turn_id=self.turn_id)
        return Activity(state=State.UNKNOWN)

    @property
    def resting(self) -> bool:
        """Whether a turn can be started."""
        return self.status in _RESTING and not self.turn_id

    def turn(self, turn_id: str) -> Turn:
        """Return a turn, unheard of until now or not; the newest TURNS_MAX are kept."""
        known = self.turns.get(turn_id)
        if known is None:
            known = self.turns[turn_id] = Turn(turn_id)
            while len(self.turns) > TURNS_MAX:
                self.turns.popitem(last=False)
        return known

    def end_of(self, turn_id: str) -> TurnEnd | None:
        """Return how a turn ended, where it is known."""
        known = self.turns.get(turn_id)
        return known.end if known else None

    def shown_in(self, record_id: str) -> str:
        """Return the turn in which a record of ours was shown; empty where none was."""
        return next((turn.turn_id for turn in reversed(self.turns.values()) if record_id in turn.shown), "")

    # --- what it is told ---------------------------------------------------------------------------------------------

    def observe(self, status: Json) -> None:
        """Take a status that was asked for."""
        self.status = str(status.get("type", ""))
        flags = status.get("activeFlags")
        self.flags = tuple(str(flag) for flag in flags) if isinstance(flags, list) else ()
        if self.status in _RESTING:
            self._waiting.clear()

    def running(self, turn_id: str) -> None:
        """Take the turn that runs, where it was asked for."""
        self.turn(turn_id).started = True
        self.turn_id = turn_id

    def fold(self, message: Json) -> list[Heard]:
        """Take a notification or request of the program; return what it means, in order."""
        params = message.get("params")
        if not isinstance(params, dict) or self._of_another(params):
            return []
        method = str(message.get("method", ""))
        if "id" in message:
            return self._asked(str(message["id"]), method, params)
        handler = _HANDLERS.get(method)
        return list(handler(self, params)) if handler else []

    def ended(self, told: Json) -> list[Heard]:
        """Take a turn that ended, told by an event or found in the history. The first telling counts."""
        turn_id = str(told.get("id", ""))
        turn = self.turn(turn_id)
        if self.turn_id == turn_id:
            self.turn_id = ""
        if turn.end is not None:
            return []
        for item in told.get("items") or ():
            self._message(turn, item)
        turn.end = _end(turn, told)
        self._waiting.clear()
        self.changes += 1
        words = {TurnStatus.COMPLETED: "The turn is complete.", TurnStatus.INTERRUPTED: "The turn was interrupted."}
        text = words.get(turn.end.status, f"The turn failed: {turn.end.detail}")
        heard: list[Heard] = [_row(RowKind.STATUS, text, turn_id=turn_id), turn.end]
        if self.status in _RESTING:
            heard.append(self.activity())
        return heard

    # --- events ------------------------------------------------------------------------------------------------------

    def _of_another(self, params: Json) -> bool:
        thread = params.get("threadId", params.get("conversationId"))
        return thread is not None and thread != self.thread_id

    def _asked(self, request_id: str, method: str, params: Json) -> list[Heard]:
        self._waiting[request_id] = cut(_question(method, params), DETAIL_BYTES_MAX)[0]
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
        self.changes += 1
        return [self.activity()]

    def _resolved(self, params: Json) -> Iterator[Heard]:
        if self._waiting.pop(str(params.get("requestId")), None) is not None:
            # The status says so too, a little later.
            self.flags = self.flags if self._waiting else ()
            self.changes += 1
            yield self.activity()

    def _status(self, params: Json) -> Iterator[Heard]:
        status = params.get("status")
        if not isinstance(status, dict):
            return
        self.observe(status)
        self.changes += 1
        # Idle is said before the turn is completed, and holds once that was said too; active is said before the turn is
        # named, and that it waits for a person before what for: each tells something once that was said.
        untold = bool(self.flags) and not self._waiting
        if (self.status in _RESTING) != bool(self.turn_id) and not untold:
            yield self.activity()

    def _started(self, params: Json) -> Iterator[Heard]:
        told = params.get("turn")
        turn_id = str(told.get("id", "")) if isinstance(told, dict) else ""
        if not turn_id or self.end_of(turn_id) is not None:
            return
        self.running(turn_id)
        self.status = "active"
        self.changes += 1
        yield self.activity()

    def _completed(self, params: Json) -> Iterator[Heard]:
        told = params.get("turn")
        if isinstance(told, dict) and told.get("id"):
            yield from self.ended(told)

    def _closed(self, _: Json) -> Iterator[Heard]:
        self.status = "notLoaded"
        self.changes += 1
        yield self.activity()

    def _item_started(self, params: Json) -> Iterator[Heard]:
        item, turn_id = params.get("item"), str(params.get("turnId", ""))
        if isinstance(item, dict):
            self._opened(item, turn_id)
            yield from _call_rows(item, turn_id)

    def _item_completed(self, params: Json) -> Iterator[Heard]:
        item, turn_id = params.get("item"), str(params.get("turnId", ""))
        if not isinstance(item, dict) or not turn_id:
            return
        turn = self._opened(item, turn_id)
        if record_id := record_of(item):
            turn.shown.add(record_id)
            turn.owed.discard(record_id)
        if item.get("type") == "agentMessage" and not self._message(turn, item):
            return
        yield from _result_rows(item, turn_id)

    def _opened(self, item: Json, turn_id: str) -> Turn:
        turn = self.turn(turn_id)
        if turn.opened_by is None and item.get("type") not in _BEFORE_INPUT:
            turn.opened_by = record_of(item)
        return turn

    def _message(self, turn: Turn, item: Json) -> bool:
        """Take a message of the assistant once; return whether it was new."""
        identity = str(item.get("id", ""))
        if item.get("type") != "agentMessage" or identity in turn.messages:
            return False
        turn.messages[identity] = None
        while len(turn.messages) > MESSAGES_MAX:
            turn.messages.popitem(last=False)
        text, phase = str(item.get("text", "")), item.get("phase")
        if phase == "final_answer":
            turn.answer = text
        elif phase is None:
            turn.unphased = text
        return True

    def _error(self, params: Json) -> Iterator[Heard]:
        error = params.get("error")
        text = str(error.get("message", "")) if isinstance(error, dict) else ""
        again = " It is tried again." if params.get("willRetry") else ""
        yield _row(RowKind.STATUS, f"Error: {text}{again}", turn_id=str(params.get("turnId", "")))

    def _mcp(self, params: Json) -> Iterator[Heard]:
        if params.get("status") == "failed":
            text = f"The MCP server {params.get('name')} did not start: {params.get('error')}"
            yield _row(RowKind.STATUS, text)


_HANDLERS: Final = {
    "thread/status/changed": Conversation._status,
    "thread/closed": Conversation._closed,
    "turn/started": Conversation._started,
    "turn/completed": Conversation._completed,
    "item/started": Conversation._item_started,
    "item/completed": Conversation._item_completed,
    "serverRequest/resolved": Conversation._resolved,
    "error": Conversation._error,
    "mcpServer/startupStatus/updated": Conversation._mcp,
}

_FLAGS: Final = {
    "waitingOnApproval": "It waits for an approval.",
    "waitingOnUserInput": "It waits for an answer.",
}


def record_of(item: Json) -> str:
    """Return the record that an item shows, as it was given with it; empty where it is none of ours."""
    kind = item.get("type")
    if kind == "userMessage":
        return str(item.get("clientId") or "")
    if kind != "functionCallOutput" or item.get("namespace") != NAMESPACE or item.get("name") != TASK_ITEM:
        return ""
    framed = framed_of(item.get("output"))
    return str(framed.get("interaction_id") or "") if framed else ""


def framed_of(output: object) -> Json | None:
    """Return the object that an output of ours holds, or None."""
    try:
        framed = json.loads(output) if isinstance(output, str) else None
    except ValueError:
        return None
    return framed if isinstance(framed, dict) else None


def _end(turn: Turn, told: Json) -> TurnEnd:
    said = str(told.get("status", ""))
    status = _ENDS.get(said, TurnStatus.LOST)
    detail = ""
    if status is TurnStatus.FAILED:
        error = told.get("error")
        detail = str(error.get("message", "")) if isinstance(error, dict) else ""
    elif status is TurnStatus.LOST:
        detail = f"the program says {said[:40]!r} of the turn, which is no known end"
    elif status is TurnStatus.COMPLETED and turn.owed:
        # Its final words cannot be an answer to what the model was never shown.
        status = TurnStatus.LOST
        detail = f"the program accepted {', '.join(sorted(turn.owed))} into the turn and never showed it there"
    final = turn.final if status is TurnStatus.COMPLETED else ""
    size = len(final.encode("utf-8", "replace"))
    return TurnEnd(
        turn_id=turn.turn_id,
        status=status,
        final_text=final if size <= FINAL_BYTES_MAX else "",
        final_bytes=size,
        detail=cut(detail, DETAIL_BYTES_MAX)[0],
    )


def _question(method: str, params: Json) -> str:
    """Return what a person is asked for by a request of the program."""
    reason = str(params.get("reason") or "")
    match method:
        case "item/commandExecution/requestApproval" | "execCommandApproval":
            asked = f"May it run {params.get('command')}?"
        case "item/fileChange/requestApproval" | "applyPatchApproval":
            asked = "May it change files?"
        case "item/permissions/requestApproval":
            asked = "May it have more permissions?"
        case "mcpServer/elicitation/request":
            asked = str(params.get("message") or "An MCP server asks something.")
        case "item/tool/requestUserInput":
            questions = params.get("questions")
            texts = [str(each.get("question", "")) for each in questions or () if isinstance(each, dict)]
            asked = " ".join(text for text in texts if text) or "It asks something."
        case _:
            asked = f"It asks for {method}."
    return f"{asked} ({reason})" if reason else asked


def _row(kind: RowKind, text: str, *, name: str = "", turn_id: str = "") -> Row:
    kept, was_cut = cut(text, ROW_BYTES_MAX)
    return Row(kind=kind, text=kept, cut=was_cut, name=name, turn_id=turn_id)


def _tool(item: Json) -> tuple[str, str, str] | None:
    """Return name, call and result of an item that is the use of a tool, or None."""
    match item.get("type"):
        case "commandExecution":
            return "shell", str(item.get("command", "")), str(item.get("aggregatedOutput") or "")
        case "mcpToolCall":
            result = item.get("error") or item.get("result")
            return f"{item.get('server')}.{item.get('tool')}", _compact(item.get("arguments")), _compact(result)
        case "dynamicToolCall":
            return str(item.get("tool", "")), _compact(item.get("arguments")), _compact(item.get("contentItems"))
        case "fileChange":
            return "edit", _compact(item.get("changes")), str(item.get("status", ""))
        case "webSearch":
            return "web search", str(item.get("query", "")), ""
        case _:
            return None


def _compact(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _call_rows(item: Json, turn_id: str) -> Iterator[Row]:
    used = _tool(item)
    if used is not None:
        yield _row(RowKind.TOOL_CALL, used[1], name=used[0], turn_id=turn_id)


def _result_rows(item: Json, turn_id: str) -> Iterator[Row]:
    used = _tool(item)
    if used is not None:
        yield _row(RowKind.TOOL_RESULT, used[2], name=used[0], turn_id=turn_id)
        return
    match item.get("type"):
        case "userMessage":
            parts = item.get("content") or ()
            text = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
            yield _row(RowKind.USER, text, turn_id=turn_id)
        case "agentMessage":
            phase = item.get("phase")
            name = phase if isinstance(phase, str) and phase != "final_answer" else ""
            yield _row(RowKind.ASSISTANT, str(item.get("text", "")), name=name, turn_id=turn_id)
        case "functionCallOutput":
            framed = framed_of(item.get("output")) if item.get("namespace") == NAMESPACE else None
            text = str(framed.get("body", "")) if framed else _compact(item.get("output"))
            yield _row(RowKind.USER, text, name=str(item.get("name") or ""), turn_id=turn_id)
        case "plan":
            yield _row(RowKind.STATUS, str(item.get("text", "")), name="plan", turn_id=turn_id)
        case "contextCompaction":
            yield _row(RowKind.STATUS, "The context was compacted.", turn_id=turn_id)
        case _:
            return
