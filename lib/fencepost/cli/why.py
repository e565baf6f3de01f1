"""`fencepost why ID`: every fact known of a record, with its time, what it rests on, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from fencepost.cli import acting, screen
from fencepost.cli.options import AsJson, RecordId
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.errors import Refused
from fencepost.mailbox.v1 import mailbox_pb2 as pb


def why(record_id: RecordId, *, as_json: AsJson = False) -> None:
    """Show every fact known of a record: when, how long after the one before, and on what evidence."""
    who = acting.as_whoever()
    if record_id.startswith("task_"):
        raise Refused(
            "not_found",
            "a task is no record; nothing was read",
            hint="`fencepost task history` tells what happened to it, `fencepost task show` how it stands.",
        )
    told = acting.call(who, lambda services: services.mailbox.explain(record_id))
    if as_json:
        screen.put_json(explained(told))
        return
    screen.put("\n".join(ladder(told)))


def explained(told: pb.ExplainResponse) -> dict[str, Any]:
    """Return the JSON document of an explanation: its fields, and how long each fact came after the one before."""
    fields = plain(told)
    for fact, since_ms in zip(fields["facts"], latencies(told.facts), strict=True):
        fact["since_previous_ms"] = since_ms
    return fields


def latencies(facts: Sequence[pb.Fact]) -> list[int | None]:
    """Return, for each fact, the milliseconds since the one before; None for the first."""
    times = [fact.at_ms for fact in facts]
    return [None, *(later - earlier for earlier, later in pairwise(times))] if times else []


def ladder(told: pb.ExplainResponse) -> Iterator[str]:
    """Yield the lines that people see."""
    record = told.record
    kind = enum_word(record.DESCRIPTOR.fields_by_name["kind"], record.kind)
    sender = one_line(record.sender.name) if record.HasField("sender") else "the host"
    yield f"{record.record_id}  {kind} from {sender} to {one_line(record.recipient.name)}"
    yield ""
    columns = [screen.Column(title="FACT"), screen.Column(title="AT"), screen.Column(title="AFTER", right=True)]
    rows = []
    for fact, since_ms in zip(told.facts, latencies(told.facts), strict=True):
        evidence = one_line(fact.evidence) + (f" (generation {fact.generation})" if fact.generation else "")
        after = "" if since_ms is None else f"+{screen.span(since_ms)}" if since_ms >= 0 else screen.span(since_ms)
        rows.append([fact.fact.replace("_", " "), screen.instant(fact.at_ms), after, evidence])
    yield screen.table([*columns, screen.Column(title="EVIDENCE", text=True)], rows)
    yield ""
    if told.reply_id:
        yield f"Its reply is {told.reply_id}."
    yield one_line(told.summary)
