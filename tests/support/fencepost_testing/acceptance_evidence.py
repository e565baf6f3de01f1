"""What Codex itself wrote down of a conversation: its rollout, turn by turn. Nothing else counts (M172 M173)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Json = Any
TASK: Final = "fencepost_task_delivery"
INBOX: Final = "fencepost_inbox_delivery"
UNVERIFIED: Final = "unverified"


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something of a conversation, in the order in which Codex wrote it.

    `kind` is "call", "result", "task", "inbox", "said" or "steered"; `record` is the record that it carries.
    """

    kind: str
    ordinal: int
    name: str = ""
    call_id: str = ""
    text: str = ""
    phase: str = ""
    record: str = ""
    namespace: str = ""

    @property
    def document(self) -> Json:
        """The JSON in a text, which may stand behind a line of the program's own; None where there is none."""
        at = self.text.find("{")
        try:
            return json.JSONDecoder().raw_decode(self.text[at:])[0] if at >= 0 else None
        except ValueError:
            return None


@dataclass(kw_only=True)
class Turn:
    """One turn: what it ran with, what was in it, and how it ended: "completed", "interrupted" or ""."""

    turn_id: str
    model: str = ""
    effort: str = UNVERIFIED
    items: list[Item] = field(default_factory=list)
    end: str = ""
    final: str = ""

    def calls(self, name: str) -> list[tuple[Item, Item | None]]:
        """Return the calls of a tool of ours, each with its result."""
        results = {item.call_id: item for item in self.items if item.kind == "result"}
        return [
            (item, results.get(item.call_id))
            for item in self.items
            if item.kind == "call" and item.name == name and "fencepost" in item.namespace
        ]

    @property
    def records(self) -> list[str]:
        """The work that came into this turn."""
        return [item.record for item in self.items if item.kind in {"task", "steered"} and item.record]


@dataclass(kw_only=True)
class Rollout:
    """One conversation."""

    path: Path
    thread: str = ""
    cwd: str = ""
    version: str = ""
    provider: str = ""
    turns: dict[str, Turn] = field(default_factory=dict)
    # What was put in while no turn ran.
    between: list[Item] = field(default_factory=list)

    def executions(self, record: str) -> int:
        """Count how often a record came in as work, in any turn or beside one."""
        items = [*self.between, *(item for turn in self.turns.values() for item in turn.items)]
        return sum(item.record == record and item.kind in {"task", "steered"} for item in items)

    def shown(self, record: str) -> int:
        """Count how often a record was shown."""
        items = [*self.between, *(item for turn in self.turns.values() for item in turn.items)]
        return sum(item.record == record and item.kind == "inbox" for item in items)


def rollout_at(sessions: Path, thread: str) -> Rollout:
    """Read the rollout of a conversation below a `sessions` folder; there must be exactly one."""
    (path,) = sessions.resolve().rglob(f"rollout-*-{thread}.jsonl")
    return read(path)


def read(path: Path) -> Rollout:
    """Read a rollout; a last line that is being written is left out."""
    found, current = Rollout(path=path), ""
    for line in _lines(path):
        kind, payload = line.get("type"), line.get("payload") or {}
        if kind == "session_meta":
            found.thread, found.cwd = str(payload.get("id")), str(payload.get("cwd"))
            found.version, found.provider = str(payload.get("cli_version")), str(payload.get("model_provider"))
        elif kind == "turn_context":
            _context(found, payload)
        elif kind == "event_msg":
            current = _event(found, payload, current, int(line.get("ordinal", 0)))
        elif kind == "response_item" and (item := _item(payload, int(line.get("ordinal", 0)))) is not None:
            # By the turn that runs, not by the id that an item bears: see _context.
            _place(found, current, item)
    return found


def _lines(path: Path) -> Iterator[Json]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def _place(found: Rollout, turn_id: str, item: Item) -> None:
    if turn_id:
        found.turns.setdefault(turn_id, Turn(turn_id=turn_id)).items.append(item)
    else:
        found.between.append(item)


def _context(found: Rollout, payload: Json) -> None:
    turn = found.turns.get(str(payload.get("turn_id")))
    if turn is None:
        # What is put into a new conversation beside a turn comes with a context, and the id of a turn that never is.
        return
    turn.model = str(payload.get("model") or "")
    settings = (payload.get("collaboration_mode") or {}).get("settings") or {}
    turn.effort = str(payload.get("effort") or settings.get("reasoning_effort") or UNVERIFIED)


def _event(found: Rollout, payload: Json, current: str, ordinal: int) -> str:
    """Take an event; return the turn that runs after it."""
    kind, turn_id = payload.get("type"), str(payload.get("turn_id") or "")
    if kind == "task_started":
        found.turns.setdefault(turn_id, Turn(turn_id=turn_id))
        return turn_id
    if kind in {"task_complete", "turn_aborted"}:
        turn = found.turns.setdefault(turn_id or current, Turn(turn_id=turn_id or current))
        turn.end = "completed" if kind == "task_complete" else "interrupted"
        turn.final = str(payload.get("last_agent_message") or "")
        return ""
    item = payload.get("item") or {}
    if kind == "item_completed" and item.get("type") == "UserMessage" and item.get("client_id"):
        text = "".join(str(part.get("text", "")) for part in item.get("content", []))
        _place(found, turn_id, Item(kind="steered", ordinal=ordinal, text=text, record=str(item["client_id"])))
    return current


def _item(payload: Json, ordinal: int) -> Item | None:
    kind = payload.get("type")
    if kind == "function_call":
        return Item(
            kind="call",
            ordinal=ordinal,
            name=str(payload.get("name")),
            namespace=str(payload.get("namespace") or ""),
            call_id=str(payload.get("call_id")),
            text=str(payload.get("arguments")),
        )
    if kind == "function_call_output":
        text, name = _text(payload.get("output")), str(payload.get("name") or "")
        if name in {TASK, INBOX}:
            carried = Item(kind="task" if name == TASK else "inbox", ordinal=ordinal, name=name, text=text)
            record = str((carried.document or {}).get("interaction_id", ""))
            return Item(kind=carried.kind, ordinal=ordinal, name=name, text=text, record=record)
        return Item(kind="result", ordinal=ordinal, call_id=str(payload.get("call_id")), text=text)
    if kind == "message" and payload.get("role") == "assistant":
        text = _text(payload.get("content"))
        return Item(kind="said", ordinal=ordinal, text=text, phase=str(payload.get("phase") or ""))
    return None


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return json.dumps(content)
