"""Histories come out of their files as they went in."""

from __future__ import annotations

from pathlib import Path

from fencepost_chaos.history import (
    Began,
    Call,
    Claimed,
    Directed,
    Doomed,
    Event,
    History,
    Kill,
    Log,
    Mutation,
    Outcome,
    Page,
    Rpc,
    Seen,
    Settled,
    Waited,
    digest,
    read,
)

EVENTS: tuple[Event, ...] = (
    Began(op="o", client="c", body=digest("b"), at_ns=1),
    Mutation(
        op="o",
        client="c",
        via="grpc",
        call=Call.REPLY,
        key="o",
        sender="s",
        recipient="r",
        parent="ask_1",
        body=digest("b"),
        invoked_ns=1,
        returned_ns=2,
        outcome=Outcome.NOT_WRITTEN,
        settled=Settled.CANCELLED,
        again="key_cancelled",
    ),
    Page(
        client="c",
        agent="a",
        invoked_ns=1,
        returned_ns=2,
        outcome=Outcome.DONE,
        records=(Seen(record_id="inf_1", body=digest("b"), sender="s", sequence=4),),
    ),
    Waited(client="c", agent="a", invoked_ns=1, returned_ns=2, outcome=Outcome.DONE, timed_out=True),
    Claimed(client="d", key="k", token="t", record_id="ask_1", at_ns=1),
    Directed(client="d", call="begin", key="k", subject="a", outcome=Outcome.DONE, result="2"),
    Doomed(client="d", key="k", agent="a", name="n", token="t", at_ns=1),
    Rpc(client="c", services=("mailbox", "mcp_edge"), method="Send", began_ns=1, ended_ns=2, lost=True),
    Kill(service="mailbox", at_ns=5, point="mailbox.commit.after", ready=False),
)


def written(path: Path) -> Path:
    with path.open("w", encoding="utf-8") as file:
        log = Log(file)
        for event in EVENTS:
            log.add(event)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert tuple(read([written(tmp_path / "a.jsonl")])) == EVENTS


def test_a_line_that_the_end_of_its_writer_cut_off_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes()[:-10])
    assert tuple(read([path])) == EVENTS[:-1]


def test_a_history_has_each_event_in_its_place(tmp_path: Path) -> None:
    history = History.of(read([written(tmp_path / "a.jsonl")]))
    kinds = (
        history.began,
        history.mutations,
        history.pages,
        history.waits,
        history.claims,
        history.directed,
        history.doomed,
        history.rpcs,
        history.kills,
    )
    assert tuple(event for kind in kinds for event in kind) == EVENTS
