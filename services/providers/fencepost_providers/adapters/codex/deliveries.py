"""How a record is written for Codex: its routing and its body, never one text. Source: M077 M079 M106.

Codex shows its model a tool's output only up to a limit, and cuts out the middle of what is longer: 10,000 bytes for a
model that it does not know, 10,000 tokens for others. Nothing of a record may be lost so. What is shown goes in parts;
work is the item of a tool while it is short, and else a message like the work for a running turn, which is never cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from fencepost_providers.adapters.codex.events import INBOX_ITEM, NAMESPACE, TASK_ITEM
from fencepost_providers.domain.runtimes import Delivery

SCHEMA_VERSION: Final = 1
ROUTE: Final = "fencepost_route"
PROMPT: Final = "prompt"
OUTPUT_BYTES_MAX: Final = 8_000
# What a part may have of the body, written as JSON; the rest of OUTPUT_BYTES_MAX is for the routing.
PART_BYTES_MAX: Final = 6_500

Json = dict[str, Any]


def routing(work: Delivery) -> Json:
    """Return everything of a record but its body."""
    asks = work.kind in {"request", PROMPT}
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": work.kind,
        "interaction_id": work.record_id,
        "request_id": work.record_id if asks else (work.parent_id or None),
        "parent_interaction_id": work.parent_id or None,
        "sender": work.sender or None,
        "sender_id": work.sender_id or None,
        "reply_status": work.status or None,
        "possibly_seen": work.possibly_seen,
    }


def shown(context: Delivery) -> list[Json]:
    """Return the items that show a record, in their order: one, or as many as its body has parts."""
    pieces = list(parts(context.body))
    return [
        {
            "type": "function_call_output",
            "call_id": None,
            "name": INBOX_ITEM,
            "namespace": NAMESPACE,
            "output": _one(context, piece, part=number, of=len(pieces)),
        }
        for number, piece in enumerate(pieces, start=1)
    ]


def started(work: Delivery) -> Json:
    """Return what a turn is started with. A person's own words stand in the conversation as such."""
    if work.kind == PROMPT:
        return {"input": [_text(work.body)], "clientUserMessageId": work.record_id}
    output = _one(work, work.body)
    if len(output.encode("utf-8", "replace")) > OUTPUT_BYTES_MAX:
        return steered(work)
    return {"input": [], "toolOutput": {"name": TASK_ITEM, "namespace": NAMESPACE, "output": output}}


def steered(work: Delivery) -> Json:
    """Return what a running turn is given: the body as it is, the routing beside it."""
    route = {"kind": "application", "value": json.dumps(routing(work), ensure_ascii=False)}
    return {
        "input": [_text(work.body)],
        "clientUserMessageId": work.record_id,
        "additionalContext": {ROUTE: route},
    }


def parts(body: str, bytes_max: int = PART_BYTES_MAX) -> Iterator[str]:
    """Cut a body into pieces that take at most so many bytes as JSON, between characters; an empty one has one."""
    start = size = 0
    for at, char in enumerate(body):
        cost = _cost(char)
        if size + cost > bytes_max and at > start:
            yield body[start:at]
            start, size = at, 0
        size += cost
    yield body[start:]


def _cost(char: str) -> int:
    if char in '"\\\n\r\t\b\f':
        return 2
    if char < " ":
        return 6
    return len(char.encode("utf-8", "replace"))


def _one(work: Delivery, body: str, *, part: int = 1, of: int = 1) -> str:
    numbered = {"part": part, "parts": of} if of > 1 else {}
    return json.dumps({**routing(work), **numbered, "body": body}, ensure_ascii=False)


def _text(body: str) -> Json:
    return {"type": "text", "text": body}
