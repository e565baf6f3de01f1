"""The auditor of the chaos run finds what it is there to find, in histories that are forged one lie at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from fencepost_chaos.auditor import Broken, audit, count, hits
from fencepost_chaos.history import (
    Began,
    Call,
    Claimed,
    Directed,
    Doomed,
    History,
    Kill,
    Mutation,
    Outcome,
    Page,
    Rpc,
    Seen,
    Settled,
    Waited,
    digest,
)
from fencepost_chaos.state import State, Stored, StoredKey

from fencepost_mailbox.domain.deletion import Phase
from fencepost_mailbox.domain.values import Answer, FactKind, Kind, Operation, Origin, ReplyStatus

ANN: Final = "agent-ann"
BOB: Final = "agent-bob"
CY: Final = "agent-cy"
SECOND: Final = 1_000_000_000


def sent(number: int, **changes: Any) -> Mutation:
    """Information of ann for bob, acknowledged; every number is later than the one before."""
    values: dict[str, Any] = {
        "op": f"op-{number}",
        "client": "ann",
        "via": "grpc",
        "call": Call.SEND,
        "key": f"op-{number}",
        "sender": ANN,
        "recipient": BOB,
        "body": digest(f"body {number}"),
        "invoked_ns": number * 100,
        "returned_ns": number * 100 + 50,
        "outcome": Outcome.DONE,
        "record_id": f"inf_{number}",
    }
    return Mutation(**values | changes)


def stored(number: int, **changes: Any) -> Stored:
    """The record of sent(number)."""
    values: dict[str, Any] = {
        "record_id": f"inf_{number}",
        "sequence": number,
        "kind": Kind.INFORMATION,
        "sender": ANN,
        "recipient": BOB,
        "parent": "",
        "body": digest(f"body {number}"),
        "acknowledged": True,
        "exposed": True,
        "answer": Answer.NONE,
    }
    return Stored(**values | changes)


def seen(number: int, **changes: Any) -> Seen:
    """sent(number) as a page shows it."""
    values: dict[str, Any] = {
        "record_id": f"inf_{number}",
        "body": digest(f"body {number}"),
        "sender": ANN,
        "sequence": number,
    }
    return Seen(**values | changes)


def page(number: int, *records: Seen, **changes: Any) -> Page:
    """A page for bob; its ack cursor is named after it."""
    values: dict[str, Any] = {
        "client": "bob",
        "agent": BOB,
        "invoked_ns": 5 * SECOND + number * 100,
        "returned_ns": 5 * SECOND + number * 100 + 50,
        "outcome": Outcome.DONE,
        "ack_cursor": f"ack-{number}" if records else "",
        "records": records,
    }
    return Page(**values | changes)


def asked(number: int) -> tuple[Mutation, Stored, Stored, Mutation]:
    """A request of ann for bob with its reply: both calls and both records."""
    ask, rep = f"ask_{number}", f"rep_{number}"
    request = sent(number, call=Call.REQUEST, record_id=ask)
    kept = stored(number, record_id=ask, kind=Kind.REQUEST, answer=Answer.ANSWERED)
    reply = sent(
        number + 50,
        client="bob",
        call=Call.REPLY,
        sender=BOB,
        recipient=ANN,
        parent=ask,
        record_id=rep,
    )
    answered = stored(number + 50, record_id=rep, kind=Kind.REPLY, sender=BOB, recipient=ANN, parent=ask)
    return request, kept, answered, reply


def history(**parts: Any) -> History:
    return History(
        mutations=parts.pop("mutations", [sent(1), sent(2), sent(3)]),
        pages=parts.pop("pages", [page(1, seen(1), seen(2)), page(2, seen(3), ack="ack-1"), page(3, ack="ack-2")]),
        **parts,
    )


def state(**parts: Any) -> State:
    return State(records=parts.pop("records", (stored(1), stored(2), stored(3))), **parts)


def found(seen_: History, kept: State) -> set[Broken]:
    return {violation.broken for violation in audit(seen_, kept)}


# --- cy, who is deleted at 500 -----------------------------------------------------------------------------------


DOOMED: Final = Doomed(client="op", key="k", agent=CY, name="cy", token="fp_", at_ns=500)


def told(number: int, **changes: Any) -> Mutation:
    """Information for cy, of which nothing is left."""
    return sent(number, recipient=CY, **changes)


def asked_of_cy(number: int, **changes: Any) -> Mutation:
    return told(number, call=Call.REQUEST, **{"record_id": f"ask_{number}", **changes})


def host_reply(number: int, **changes: Any) -> Stored:
    """The host's answer to asked_of_cy(number)."""
    values: dict[str, Any] = {
        "record_id": f"rep_{number}",
        "sequence": 100 + number,
        "kind": Kind.REPLY,
        "sender": "",
        "recipient": ANN,
        "parent": f"ask_{number}",
        "body": digest("what the host says"),
        "origin": Origin.HOST,
        "status": ReplyStatus.FAILED,
    }
    return stored(number, **values | changes)


def seen_by_ann(number: int) -> Seen:
    """host_reply(number) as a page shows it."""
    return seen(100 + number, record_id=f"rep_{number}", body=digest("what the host says"), sender="")


def deleted(*mutations: Mutation, records: tuple[Stored, ...] = (), **kept: Any) -> tuple[History, State]:
    """cy's deletion: what was sent to it, and what is there at its end beside what is always there."""
    seen_ = history(
        mutations=[*history().mutations, *mutations], doomed=[DOOMED], pages=[*history().pages, *kept.pop("pages", [])]
    )
    kept = {"tombstones": {CY: Phase.FINISHED}} | kept
    return seen_, state(records=(*state().records, *records), **kept)


LATE: Final[dict[str, Any]] = {"outcome": Outcome.REFUSED, "reason": "agent_deleted", "record_id": ""}


def test_an_honest_deletion_is_not_complained_of() -> None:
    mutations = [
        told(4, again="agent_deleted"),
        asked_of_cy(5),
        asked_of_cy(6),
        asked_of_cy(7, settled=Settled.ERASED, **LATE),
        asked_of_cy(8, **LATE),
        sent(9, sender=CY, client="op"),
        cancelled(10, sender=CY, client="op"),
        told(11, sender=CY),
    ]
    records = (host_reply(5), host_reply(6), host_reply(7), stored(9, sender=CY))
    pages = [
        page(9, seen(9, sender=CY)),
        page(10, ack="ack-9"),
        # What cy read of its own notes, and what ann reads of the host.
        page(11, seen(11, sender=CY), client="op", agent=CY),
        page(12, *(seen_by_ann(number) for number in (5, 6, 7)), client="ann", agent=ANN),
        page(13, client="ann", agent=ANN, ack="ack-12"),
    ]
    assert not audit(*deleted(*mutations, records=records, pages=pages))


def test_an_honest_history_is_not_complained_of() -> None:
    request, kept, answered, reply = asked(4)
    mutations = [sent(1), sent(2), sent(3), request, reply]
    pages = [
        page(1, seen(1), seen(2)),
        page(2, seen(3), seen(4, record_id="ask_4"), ack="ack-1"),
        page(3, seen(54, record_id="rep_4", sender=BOB), client="ann", agent=ANN),
        page(4, ack="ack-2"),
        page(5, client="ann", agent=ANN, ack="ack-3"),
    ]
    records = (stored(1), stored(2), stored(3), kept, answered)
    facts = {("ask_4", FactKind.EXPOSED): 1}
    assert not audit(history(mutations=mutations, pages=pages), state(records=records, facts=facts))


LIES: Final[dict[str, tuple[Broken, Callable[[], tuple[History, State]]]]] = {
    "an acknowledged record is not there": (
        Broken.LOST,
        lambda: (history(), state(records=(stored(1), stored(3)))),
    ),
    "a record that was shown is not there": (
        Broken.LOST,
        lambda: (history(mutations=[sent(1), sent(3)]), state(records=(stored(1), stored(3)))),
    ),
    "a body was changed on disk": (
        Broken.CHANGED,
        lambda: (history(), state(records=(stored(1), stored(2, body=digest("other")), stored(3)))),
    ),
    "a body was changed on its way to the reader": (
        Broken.CHANGED,
        lambda: (history(pages=[page(1, seen(1), seen(2, body=digest("other")), seen(3))]), state()),
    ),
    "another sender is named": (
        Broken.CHANGED,
        lambda: (history(), state(records=(stored(1), stored(2, sender=BOB), stored(3)))),
    ),
    "one call left two records": (
        Broken.DOUBLED,
        lambda: (history(), state(records=(stored(1), stored(2), stored(3), stored(4, body=digest("body 3"))))),
    ),
    "a key gave two receipts": (
        Broken.DOUBLED,
        lambda: (history(mutations=[sent(1), sent(2, again="inf_9"), sent(3)]), state()),
    ),
    "a request has two replies": (
        Broken.DOUBLED,
        lambda: (
            history(),
            state(
                records=(
                    *state().records,
                    stored(8, record_id="rep_8", kind=Kind.REPLY, parent="ask_1"),
                    stored(9, record_id="rep_9", kind=Kind.REPLY, parent="ask_1"),
                )
            ),
        ),
    ),
    "what was refused is there": (
        Broken.UNASKED,
        lambda: (
            history(mutations=[sent(1), sent(2), sent(3, outcome=Outcome.REFUSED, reason="draining")]),
            state(),
        ),
    ),
    "nobody sent what is there": (
        Broken.UNASKED,
        lambda: (history(mutations=[sent(1), sent(2)]), state()),
    ),
    "a cancelled call arrived after all": (
        Broken.LATE_ARRIVAL,
        lambda: (
            history(mutations=[sent(1), sent(2), sent(3, outcome=Outcome.NOT_WRITTEN, settled=Settled.CANCELLED)]),
            state(),
        ),
    ),
    "a cancellation is not on disk": (
        Broken.LATE_ARRIVAL,
        lambda: (
            history(mutations=[*history().mutations, cancelled(4)]),
            state(),
        ),
    ),
    "a cancelled key did not refuse": (
        Broken.LATE_ARRIVAL,
        lambda: (
            history(mutations=[*history().mutations, cancelled(4, again="inf_4")]),
            state(keys=(cancelled_key(4),)),
        ),
    ),
    "a lost answer was never settled": (
        Broken.UNSETTLED,
        lambda: (history(mutations=[*history().mutations, sent(4, outcome=Outcome.UNCERTAIN, record_id="")]), state()),
    ),
    "a later call stands before an earlier one": (
        Broken.DISORDER,
        lambda: (
            history(pages=[page(1, seen(1, sequence=0), seen(3, sequence=0), seen(2, sequence=0))]),
            state(records=(stored(1), stored(3, sequence=2), stored(2, sequence=3))),
        ),
    ),
    "a page is out of order": (
        Broken.DISORDER,
        lambda: (history(pages=[page(1, seen(1), seen(3), seen(2))]), state()),
    ),
    "a later record was shown before an earlier one": (
        Broken.DISORDER,
        lambda: (history(pages=[page(1, seen(1), seen(3)), page(2, seen(2))]), state()),
    ),
    "a page tells another number than the record has": (
        Broken.DISORDER,
        lambda: (history(pages=[page(1, seen(1), seen(2, sequence=7), seen(3))]), state()),
    ),
    "a request was exposed and claimed": (
        Broken.EXPOSED_TWICE,
        lambda: with_request(facts={("ask_4", FactKind.EXPOSED): 1, ("ask_4", FactKind.CLAIMED): 1}),
    ),
    "a request was exposed twice": (
        Broken.EXPOSED_TWICE,
        lambda: with_request(facts={("ask_4", FactKind.EXPOSED): 2}),
    ),
    "two dispatchers hold a request": (
        Broken.EXPOSED_TWICE,
        lambda: with_request(claims=[claimed("ask_4", "one"), claimed("ask_4", "two")]),
    ),
    "what a dispatcher holds was also received": (
        Broken.EXPOSED_TWICE,
        lambda: with_request(claims=[claimed("ask_4", "one")]),
    ),
    "a record was never shown": (
        Broken.UNDELIVERED,
        lambda: (history(pages=[page(1, seen(1), seen(2))]), state()),
    ),
    "a request was never answered": (
        Broken.UNDELIVERED,
        lambda: with_request(answer=Answer.OPEN),
    ),
    "a cursor expired": (
        Broken.CURSOR_LOST,
        lambda: (
            history(pages=[*history().pages, page(4, outcome=Outcome.REFUSED, reason="expired_cursor")]),
            state(),
        ),
    ),
    "an acknowledged record came back": (
        Broken.ACK_LOST,
        lambda: (history(pages=[*history().pages, page(4, seen(2))]), state()),
    ),
    "an acknowledgement is not on disk": (
        Broken.ACK_LOST,
        lambda: (history(), state(records=(stored(1), stored(2, acknowledged=False), stored(3)))),
    ),
    "a wait slept through a message": (
        Broken.MISSED_WAKE,
        lambda: (history(waits=[waited(400, 9_000)]), state()),
    ),
    "a call was refused without a cause": (
        Broken.UNEXPECTED,
        lambda: (
            history(mutations=[*history().mutations, sent(4, outcome=Outcome.REFUSED, reason="unauthenticated")]),
            state(),
        ),
    ),
    "a message reached nobody": (
        Broken.UNEXPECTED,
        lambda: (
            history(mutations=[sent(1), sent(2), sent(3, recipient="")]),
            state(records=(stored(1), stored(2), stored(3, recipient=""))),
        ),
    ),
    "a reading was refused without a cause": (
        Broken.UNEXPECTED,
        lambda: (
            history(pages=[*history().pages, page(4, outcome=Outcome.REFUSED, reason="permission_denied")]),
            state(),
        ),
    ),
    "a change of the directory got no answer": (
        Broken.DIRECTORY,
        lambda: (
            history(directed=[Directed(client="op", call="begin", key="k", subject=ANN, outcome=Outcome.UNCERTAIN)]),
            state(),
        ),
    ),
    "mail for a deleted agent is left": (
        Broken.NOT_ERASED,
        lambda: deleted(told(4), records=(stored(4, recipient=CY),)),
    ),
    "a key of a deleted agent is left": (
        Broken.NOT_ERASED,
        lambda: deleted(keys=(StoredKey(caller=CY, operation=Operation.SEND, key="k", cancelled=False),)),
    ),
    "a life of a deleted agent is left": (
        Broken.NOT_ERASED,
        lambda: deleted(lives=frozenset({(CY, "generation_floor")})),
    ),
    "a fact of an erased record is left": (
        Broken.NOT_ERASED,
        lambda: deleted(told(4), facts={("inf_4", FactKind.EXPOSED): 1}),
    ),
    "a deletion stands still": (Broken.UNDEAD, lambda: deleted(tombstones={CY: Phase.ERASED})),
    "a deletion is not known": (Broken.UNDEAD, lambda: deleted(tombstones={})),
    "somebody is deleted whom nobody deleted": (
        Broken.UNDEAD,
        lambda: deleted(tombstones={CY: Phase.FINISHED, ANN: Phase.ERASING}),
    ),
    "a request to a deleted agent has no answer": (Broken.UNANSWERED, lambda: deleted(asked_of_cy(5))),
    "a request to a deleted agent has two answers": (
        Broken.UNANSWERED,
        lambda: deleted(asked_of_cy(5), records=(host_reply(5), host_reply(5, record_id="rep_9", sequence=109))),
    ),
    "the host answered another than who asked": (
        Broken.UNANSWERED,
        lambda: deleted(asked_of_cy(5), records=(host_reply(5, recipient=BOB),)),
    ),
    "the host says that a deleted agent did it": (
        Broken.UNANSWERED,
        lambda: deleted(asked_of_cy(5), records=(host_reply(5, status=ReplyStatus.DONE),)),
    ),
    "a deleted agent answered for itself": (
        Broken.UNANSWERED,
        lambda: deleted(asked_of_cy(5), records=(host_reply(5, origin=Origin.AGENT, sender=CY),)),
    ),
    "the host answered what nobody asked": (Broken.UNANSWERED, lambda: deleted(records=(host_reply(5),))),
    "a request was refused and answered": (
        Broken.UNANSWERED,
        lambda: deleted(asked_of_cy(5, **LATE), records=(host_reply(5),)),
    ),
    "a request was written and erased without an answer": (
        Broken.UNANSWERED,
        lambda: deleted(asked_of_cy(5, settled=Settled.ERASED, **LATE)),
    ),
    "the host's answer reached nobody": (
        Broken.UNDELIVERED,
        lambda: deleted(asked_of_cy(5), records=(host_reply(5),), pages=[page(1, client="ann", agent=ANN)]),
    ),
    "the host wrote a notice to nobody's request": (
        Broken.UNASKED,
        lambda: deleted(records=(host_reply(5, kind=Kind.NOTICE),)),
    ),
    "what a deleted agent sent to others is gone": (Broken.LOST, lambda: deleted(sent(9, sender=CY))),
    "an agent was called deleted before it was": (
        Broken.UNEXPECTED,
        lambda: deleted(asked_of_cy(4, **LATE)),
    ),
    "an agent was called deleted that lives": (
        Broken.UNEXPECTED,
        lambda: deleted(sent(9, **LATE)),
    ),
    "the database is damaged": (Broken.DAMAGED, lambda: (history(), state(integrity="row 7 missing from index"))),
}


def cancelled(number: int, **changes: Any) -> Mutation:
    values: dict[str, Any] = {
        "outcome": Outcome.NOT_WRITTEN,
        "settled": Settled.CANCELLED,
        "record_id": "",
        "again": "key_cancelled",
    }
    return sent(number, **values | changes)


def cancelled_key(number: int) -> StoredKey:
    return StoredKey(caller=ANN, operation=Operation.SEND, key=f"op-{number}", cancelled=True)


def claimed(record_id: str, token: str) -> Claimed:
    return Claimed(client="d", key=token, token=token, record_id=record_id, at_ns=1)


def waited(invoked_ns: int, returned_ns: int) -> Waited:
    return Waited(
        client="bob",
        agent=BOB,
        invoked_ns=invoked_ns,
        returned_ns=returned_ns,
        outcome=Outcome.DONE,
        timed_out=True,
    )


def with_request(
    *, facts: dict[tuple[str, FactKind], int] | None = None, answer: Answer = Answer.ANSWERED, **parts: Any
) -> tuple[History, State]:
    request, kept, answered, reply = asked(4)
    pages = [page(1, seen(4, record_id="ask_4"))]
    records = (replace(kept, answer=answer), answered)
    return history(mutations=[request, reply], pages=pages, **parts), state(records=records, facts=facts or {})


@pytest.mark.requirement("chaos.the-auditor-finds-each-broken-promise")
@pytest.mark.parametrize("lie", LIES)
def test_the_auditor_finds_that(lie: str) -> None:
    broken, forged = LIES[lie]
    assert broken in found(*forged())


def test_every_kind_of_violation_is_forged() -> None:
    assert {broken for broken, _ in LIES.values()} == set(Broken)


def test_a_cancelled_call_that_stays_away_is_not_complained_of() -> None:
    mutations = [*history().mutations, cancelled(4)]
    assert not found(history(mutations=mutations), state(keys=(cancelled_key(4),)))


def test_a_key_of_a_shim_is_known_by_the_id_in_it() -> None:
    over_mcp = cancelled(4, via="mcp", key='"op-4"', settled=Settled.NOT_ASKED, again="")
    kept = state(keys=(replace(cancelled_key(4), key='mcp-0123:"op-4"'),))
    seen_ = history(mutations=[*history().mutations, over_mcp])
    assert count(seen_, kept, []).settled_cancelled == 1


def test_what_a_client_began_when_it_ended_may_be_there_or_not() -> None:
    began = [Began(op="op-3", client="ann", body=digest("body 3"), at_ns=300)]
    assert not found(history(mutations=[sent(1), sent(2)], began=began), state())
    pages = [page(1, seen(1), seen(2))]
    assert not found(
        history(mutations=[sent(1), sent(2)], began=began, pages=pages), state(records=(stored(1), stored(2)))
    )


def test_calls_that_overlap_may_stand_in_either_order() -> None:
    mutations = [sent(1, returned_ns=900), sent(2), sent(3)]
    records = (stored(2, sequence=1), stored(1, sequence=2), stored(3))
    pages = [page(1, seen(2, sequence=1), seen(1, sequence=2), seen(3))]
    assert not found(history(mutations=mutations, pages=pages), state(records=records))


def test_a_page_that_was_not_acknowledged_may_come_again() -> None:
    pages = [page(1, seen(1), seen(2)), page(2, seen(1), seen(2), seen(3)), page(3, ack="ack-2")]
    assert not found(history(pages=pages), state())


def test_a_wait_may_sleep_where_everything_was_read() -> None:
    pages = [page(1, seen(1), seen(2), seen(3), invoked_ns=360, returned_ns=370)]
    assert not found(history(pages=pages, waits=[waited(400, 9_000)]), state())


def test_a_wait_that_ends_while_a_message_comes_in_missed_nothing() -> None:
    assert not found(history(waits=[waited(100, 360)]), state())
    assert found(history(waits=[waited(100, 360 + SECOND)]), state()) == {Broken.MISSED_WAKE}


def kill(at_ns: int, point: str = "") -> Kill:
    return Kill(service="mailbox", at_ns=at_ns, point=point)


def call(began_ns: int, ended_ns: int, **changes: Any) -> Rpc:
    values: dict[str, Any] = {"client": "ann", "services": ("mailbox",), "method": "Send"}
    return Rpc(began_ns=began_ns, ended_ns=ended_ns, **values | changes)


@pytest.mark.parametrize(
    ("rpc", "killed", "expected"),
    [
        (call(5, 20), kill(10), 1),
        (call(5, 9), kill(10), 0),
        (call(11, 20), kill(10), 0),
        (call(5, 20, services=("sessions",)), kill(10), 0),
        (call(5, 20, parked=True), kill(10), 0),
        # At a fault point the end is noticed after the calls that it cut have failed.
        (call(5, 9, lost=True), kill(10, "mailbox.commit.after"), 1),
        (call(5, 9), kill(10, "mailbox.commit.after"), 0),
        (call(5, 9, lost=True), kill(2 * SECOND, "mailbox.commit.after"), 0),
        # At a random moment the time is that of the signal: what ended before it was not cut by it.
        (call(5, 9, lost=True), kill(10), 0),
    ],
)
def test_a_call_is_cut_by_a_kill_where_it_was_open_then(rpc: Rpc, killed: Kill, expected: int) -> None:
    (hit,) = hits(history(rpcs=[rpc], kills=[killed]))
    assert hit.calls == expected


def test_the_figures_tell_losses_doubles_and_disorder_apart() -> None:
    seen_ = history(
        mutations=[sent(1), sent(2, settled=Settled.WRITTEN), sent(3), cancelled(4)],
        pages=[page(1, seen(1), seen(3)), page(2, seen(2))],
        rpcs=[call(5, 20)],
        kills=[kill(10), kill(100)],
    )
    kept = state(keys=(cancelled_key(4),))
    counts = count(seen_, kept, audit(seen_, kept))
    assert (counts.kills, counts.kills_while_a_call_was_open, counts.acknowledged) == (2, 1, 3)
    assert (counts.lost_answers, counts.settled_written, counts.settled_cancelled, counts.uncertain) == (2, 1, 1, 0)
    assert (counts.lost, counts.doubled, counts.out_of_order, counts.other) == (0, 0, 1, 0)
