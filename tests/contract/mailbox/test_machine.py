"""Random histories of the whole mailbox over a real store, judged against a model that fits on a page.

The model knows nothing of the code's tables: what may happen is written out again, in its own words. After every step
the store must say of every record, key, claim, floor and page what the model says.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost_kit.refusal import Refusal
from fencepost_kit.sqlite import SqliteDatabase
from fencepost_mailbox.domain import inbox
from fencepost_mailbox.domain.answers import Resolution
from fencepost_mailbox.domain.bindings import BindingState, TurnOutcome
from fencepost_mailbox.domain.claims import Outcome
from fencepost_mailbox.domain.deletion import HOST_NOTICE, HOST_REPLY, host_record_id
from fencepost_mailbox.domain.values import (
    Answer,
    Completion,
    Delivery,
    Inbox,
    Kind,
    Operation,
    Origin,
    Record,
    ReplyStatus,
)
from fencepost_mailbox.usecases import admit, reply
from fencepost_mailbox.usecases.claim import ClaimKind
from fencepost_mailbox.usecases.outcome import publish_left
from fencepost_mailbox.waits import Wake
from fencepost_testing.histories import ends_before_it_began
from fencepost_testing.mailboxes import Desk, a_turn, id16

# There are no tasks here, so no wake-ups: tests/contract/mailbox/tasks has those.
CARRIED = (ClaimKind.REQUEST, ClaimKind.CONTEXT)
AGENTS = ("ann", "bob", "cyd")
DISPATCHERS = ("d1", "d2")
TERM_MS = 5_000
# A request with these words wants an explicit reply.
EXPLICIT_BODY = "two"
FINALS = ("the end", "another end", "")
RELEASES = 8
HOPS = 16

WORDS = {
    Delivery.PENDING: "new",
    Delivery.STORED: "new",
    Delivery.RECEIVER: "read",
    Delivery.EXPOSED: "read",
    Delivery.CLAIMED: "claimed",
    Delivery.ACCEPTED: "accepted",
    Delivery.VISIBLE: "visible",
    Delivery.UNCERTAIN: "uncertain",
    Delivery.FAILED: "failed",
}
TURNS = {
    BindingState.BOUND: "bound",
    BindingState.OUTCOME_RECORDED: "ended",
    BindingState.PUBLISHED: "published",
    BindingState.UNCERTAIN: "uncertain",
}
PLACES = {Inbox.FRESH: "fresh", Inbox.SEEN: "seen", Inbox.AWAY: "away"}


class Refused(Exception):
    """What the model says of a call that must be refused."""


def completion_of(body: str) -> Completion:
    """What may answer a request with these words."""
    return Completion.EXPLICIT if body == EXPLICIT_BODY else Completion.AUTOMATIC


def latest(things: Sequence[Any], pick: int) -> Any:
    """One of the latest of these."""
    return things[-1 - pick % len(things)]


@dataclass(eq=False)
class Item:
    """A record in the model."""

    request: bool
    sender: str | None
    recipient: str
    body: str
    record_id: bytes = b""
    place: int = 0
    state: str = "new"
    open: bool = False
    answer: Item | None = None
    explicit: bool = False
    status: ReplyStatus = ReplyStatus.NONE
    exposed: bool = False
    acked: bool = False
    releases: int = 0
    taken_back: bool = False
    erased: bool = False
    # A person's prompt: work without a sender, that takes no reply.
    prompt: bool = False
    closed: bool = False
    hops: int = 0

    def automatic(self) -> bool:
        """Whether the end of its turn answers it."""
        return self.prompt or self.body != EXPLICIT_BODY

    def close(self) -> None:
        """End a prompt without final words."""
        self.open, self.closed = False, True

    def where(self) -> str:
        """In which part of the inbox it stands."""
        if self.state not in ("new", "read", "uncertain"):
            return "away"
        if self.prompt and self.state == "read":
            return "seen" if self.acked else "fresh"
        if self.request and not self.open:
            return "seen" if self.exposed else "away"
        if self.state == "new":
            return "fresh"
        return "seen" if self.acked else "fresh"


@dataclass(eq=False)
class Hold:
    """A claim in the model."""

    item: Item
    dispatcher: str
    incarnation: int
    generation: int
    token: bytes
    ends_ms: int
    state: str = "held"
    real: Any = None
    # Its turn: bound, ended, published or uncertain; and how it ended.
    turn: str = ""
    end: tuple[TurnOutcome, str] = (TurnOutcome.NONE, "")


@dataclass
class Model:
    """Everything that the mailbox has to know."""

    now_ms: int
    items: list[Item] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    keys: dict[tuple[str, Operation, str], tuple[Any, Item | Hold | None]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(AGENTS, 1))
    incarnations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DISPATCHERS, 0))
    moved: list[Item] = field(default_factory=list)
    # Deleted agents, and whether nothing is left of their mail.
    deleted: dict[str, bool] = field(default_factory=dict)

    def fence(self, agent: str, generation: int) -> None:
        if agent in self.deleted:
            raise Refused("agent_deleted")
        if generation < self.floors[agent]:
            raise Refused("stale_generation")
        if generation > self.floors[agent]:
            self.floors[agent] = generation
            self.lose([hold for hold in self.holds if hold.item.recipient == agent and hold.generation < generation])

    def lose(self, holds: list[Hold]) -> list[Item]:
        known = ("ended", "published")
        lost = [
            hold
            for hold in holds
            if hold.state == "held" or (hold.state == "accepted" and hold.item.open and hold.turn not in known)
        ]
        for hold in lost:
            hold.state = hold.item.state = "uncertain"
            self.moved.append(hold.item)
        for hold in holds:
            if hold.turn == "bound" and not hold.item.erased:
                hold.turn = "uncertain"
        return [hold.item for hold in lost]

    def hops(self, agent: str) -> int:
        """One more than the most of the requests that an agent works on."""
        busy = [
            item.hops
            for item in self.items
            if item.recipient == agent
            and item.request
            and not item.prompt
            and item.open
            and not item.erased
            and item.state in ("read", "accepted")
        ]
        return max(busy, default=-1) + 1

    def repeat(self, who: str, operation: Operation, key: str, content: Any) -> Item | Hold | None:
        """What an earlier call under the key stands for; None where the key is new."""
        known = self.keys.get((who, operation, key))
        if known is None:
            return None
        if known[0] != content:
            raise Refused("idempotency_conflict")
        if known[1] is None:
            raise Refused("key_cancelled")
        if isinstance(known[1], Item) and known[1].erased:
            raise Refused("agent_deleted")
        return known[1]

    def inbox(self, agent: str, places: tuple[str, ...], after: int = -1) -> list[Item]:
        found = [item for item in self.items if item.recipient == agent and item.where() in places and not item.erased]
        return sorted((item for item in found if item.place > after), key=lambda item: item.place)

    def by_id(self, record_id: bytes) -> Item:
        return next(item for item in self.items if item.record_id == record_id)


def quick(database: SqliteDatabase) -> sqlite3.Connection:
    """The store's own connection, not waiting for the disk: what is tested here is not the disk."""
    connection = database.connect_writer()
    connection.execute("PRAGMA synchronous = OFF")
    return connection


# Little of everything, so that calls meet: most concern one agent, and what is picked is picked from the latest.
agents = st.sampled_from(("bob", "bob", "bob", "ann", "cyd"))
senders = st.sampled_from(("ann", "ann", "ann", "bob", "cyd"))
bodies = st.sampled_from(("one", "one", "two"))
keys = st.sampled_from(("", "", "k1", "k2"))
generations = st.sampled_from((0, 0, 0, 0, 0, -1, 1, 1))
picks = st.sampled_from((0, 0, 1, 2, 3, 4, 5, 6, 7))
statuses = st.sampled_from((ReplyStatus.DONE, ReplyStatus.FAILED))


class MailboxMachine(RuleBasedStateMachine):
    """A mailbox, its model, and everything that anybody may do to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="fp", ignore_cleanup_errors=True))
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.desk = Desk(Path(folder) / "mailbox.db", *AGENTS, open_writer=quick)
        self.model = Model(now_ms=self.desk.clock.now_ms())
        self.cursors: dict[str, list[tuple[str, int]]] = {agent: [] for agent in AGENTS}
        # From outside only: how often each request was given to somebody as new work, and what was ever uncertain.
        self.given: Counter[bytes] = Counter()
        self.returned: set[bytes] = set()
        self.uncertain: set[bytes] = set()
        self.newest = 0
        # Calls as they were made, to be made again.
        self.calls: list[tuple[str, dict[str, Any]]] = []

    @initialize()
    def start(self) -> None:
        self.run(self.desk.start())
        self.stack.callback(lambda: self.run(self.desk.stop()))
        for request in (True, False, True):
            self.send("ann", "bob", "one", "", 0, request)

    def teardown(self) -> None:
        self.stack.close()
        assert self.desk.deaths == []

    def run(self, call: Awaitable[Any]) -> Any:
        async def within() -> Any:
            async with asyncio.timeout(10):
                return await call

        return self.runner.run(within())

    def both(self, expected: Callable[[], Any], call: Awaitable[Any]) -> tuple[Any, Any]:
        """What the model and the mailbox say of one call: both refuse it for the same reason, or neither does."""
        before = self._copy()
        reason, wanted = "", None
        try:
            wanted = expected()
        except Refused as refused:
            self._restore(before)
            reason = str(refused)
        if not reason:
            return wanted, self.run(call)
        with pytest.raises(Refusal) as answer:
            self.run(call)
        assert answer.value.reason == reason
        return None, None

    def _copy(self) -> tuple[Any, ...]:
        model = self.model
        return (
            dict(model.keys),
            dict(model.floors),
            dict(model.incarnations),
            list(model.moved),
            [(item, dict(vars(item))) for item in model.items],
            [(hold, dict(vars(hold))) for hold in model.holds],
        )

    def _restore(self, before: tuple[Any, ...]) -> None:
        model = self.model
        model.keys, model.floors, model.incarnations, model.moved = before[:4]
        model.items = [item for item, _ in before[4]]
        model.holds = [hold for hold, _ in before[5]]
        for thing, facts in (*before[4], *before[5]):
            vars(thing).update(facts)

    def generation(self, agent: str, step: int) -> int:
        return max(1, self.model.floors[agent] + step)

    def key(self, key: str) -> str:
        return key or self.desk.key()

    def adopt(self, item: Item, record: Record) -> None:
        """Take over the numbers that the store gave."""
        if item not in self.model.items:
            self.model.items.append(item)
        item.record_id, item.place = record.record_id, record.position

    # --- sending ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(pick=picks)
    def make_a_call_again(self, pick: int) -> None:
        name, arguments = latest(self.calls, pick)
        getattr(self, name)(**arguments)

    @precondition(lambda self: any(name in ("send", "settle") for name, _ in self.calls))
    @rule(pick=picks)
    def settle_a_call_or_make_a_settled_one(self, pick: int) -> None:
        name, made = latest([call for call in self.calls if call[0] in ("send", "settle")], pick)
        if name == "send":
            operation = Operation.REQUEST if made["request"] else Operation.SEND
            self.settle(
                who=made["sender"],
                recipient=made["recipient"],
                body=made["body"],
                key=made["key"],
                operation=operation,
                pick=0,
                status=ReplyStatus.DONE,
                here=True,
            )
        elif made["operation"] is not Operation.REPLY:
            self.send(
                sender=made["who"],
                recipient=made["recipient"],
                body=made["body"],
                key=made["key"],
                step=0,
                request=made["operation"] is Operation.REQUEST,
            )

    @rule(sender=senders, recipient=agents, body=bodies, key=keys, step=generations, request=st.booleans())
    def send(self, sender: str, recipient: str, body: str, key: str, step: int, request: bool) -> None:
        model, key, generation = self.model, self.key(key), self.generation(sender, step)
        self.calls.append(
            (
                "send",
                {
                    "sender": sender,
                    "recipient": recipient,
                    "body": body,
                    "key": key,
                    "step": step,
                    "request": request,
                },
            )
        )
        operation = Operation.REQUEST if request else Operation.SEND
        content = (recipient, body)

        def expected() -> tuple[Item, bool]:
            if request and sender == recipient:
                raise Refused("self_request")
            model.fence(sender, generation)
            known = model.repeat(sender, operation, key, content)
            if known is not None:
                assert isinstance(known, Item)
                return known, True
            if recipient in model.deleted:
                raise Refused("agent_deleted")
            hops = model.hops(sender) if request else 0
            if hops > HOPS:
                raise Refused("hop_limit")
            item = Item(request=request, sender=sender, recipient=recipient, body=body, open=request, hops=hops)
            model.items.append(item)
            model.keys[sender, operation, key] = (content, item)
            return item, False

        kind = Kind.REQUEST if request else Kind.INFORMATION
        wanted, receipt = self.both(
            expected,
            self.desk.send(
                sender, recipient, body, kind=kind, key=key, generation=generation, completion=completion_of(body)
            ),
        )
        if wanted is not None:
            item, duplicate = wanted
            assert receipt.duplicate is duplicate
            if duplicate:
                assert receipt.record.record_id == item.record_id
            else:
                self.adopt(item, receipt.record)

    @precondition(lambda self: any(item.request and not item.erased for item in self.model.items))
    @rule(
        pick=picks,
        caller=st.sampled_from((None, None, None, *AGENTS)),
        body=bodies,
        status=statuses,
        key=keys,
        step=generations,
    )
    def reply(self, pick: int, caller: str | None, body: str, status: ReplyStatus, key: str, step: int) -> None:
        model = self.model
        requests = [item for item in model.items if item.request and not item.erased]
        if not requests:  # a call made again after everything was erased
            return
        request = latest(requests, pick)
        who, key = caller or request.recipient, self.key(key)
        self.calls.append(
            (
                "reply",
                {"pick": pick, "caller": caller, "body": body, "status": status, "key": key, "step": step},
            )
        )
        generation, content = self.generation(who, step), (request.record_id, status, body)

        def expected() -> tuple[Item, bool]:
            model.fence(who, generation)
            known = model.repeat(who, Operation.REPLY, key, content)
            if known is not None:
                assert isinstance(known, Item)
                return known, True
            if who not in (request.sender, request.recipient):
                raise Refused("not_found")
            if request.prompt:
                raise Refused("invalid_task")
            if who != request.recipient:
                raise Refused("unauthorized")
            if request.taken_back:
                raise Refused("withdrawn")
            if request.answer is not None:
                if request.answer.erased:
                    raise Refused("conflicting_reply")
                same = (request.explicit, request.answer.status, request.answer.body) == (True, status, body)
                if not same:
                    raise Refused("conflicting_reply")
                model.keys[who, Operation.REPLY, key] = (content, request.answer)
                return request.answer, True
            answer = self._answered(request, who, body, status)
            assert answer is not None
            request.explicit = True
            model.keys[who, Operation.REPLY, key] = (content, answer)
            return answer, False

        record = self.desk.store.read.record(request.record_id)
        assert record is not None
        wanted, receipt = self.both(
            expected, self.desk.reply(who, record, body, status=status, key=key, generation=generation)
        )
        if wanted is not None:
            answer, duplicate = wanted
            assert receipt.duplicate is duplicate
            if duplicate:
                assert receipt.record.record_id == answer.record_id
            else:
                self.adopt(answer, receipt.record)

    def _answered(self, request: Item, who: str | None, body: str, status: ReplyStatus) -> Item | None:
        if request.sender is None:
            request.close()
            return None
        answer = Item(request=False, sender=who, recipient=request.sender, body=body, status=status)
        request.open, request.answer = False, answer
        self.model.items.append(answer)
        return answer

    @rule(
        who=senders,
        recipient=agents,
        body=bodies,
        key=st.sampled_from(("k1", "k2", "k3")),
        operation=st.sampled_from((Operation.SEND, Operation.REQUEST, Operation.REPLY)),
        pick=picks,
        status=statuses,
        here=st.sampled_from((True, True, True, False)),
    )
    def settle(
        self,
        who: str,
        recipient: str,
        body: str,
        key: str,
        operation: Operation,
        pick: int,
        status: ReplyStatus,
        here: bool,
    ) -> None:
        model = self.model
        made = {"who": who, "recipient": recipient, "body": body, "key": key, "operation": operation}
        self.calls.append(("settle", {**made, "pick": pick, "status": status, "here": here}))
        content: Any = (recipient, body)
        if operation is Operation.REPLY:
            requests = [item.record_id for item in model.items if item.request] or [id16("none")]
            content = (latest(requests, pick), status, body)
            command: Any = reply.Command(request_id=content[0], status=status, body=body, key=key)
        else:
            request = operation is Operation.REQUEST
            command = admit.Command(
                kind=Kind.REQUEST if request else Kind.INFORMATION,
                target=recipient,
                body=body,
                key=key,
                completion=completion_of(body) if request else Completion.NONE,
            )

        def expected() -> Any:
            if not here:
                return "unknown"
            if who in model.deleted:
                raise Refused("agent_deleted")
            try:
                known = model.repeat(who, operation, key, content)
            except Refused as refused:
                if str(refused) != "key_cancelled":
                    raise
                return "cancelled"
            if known is None:
                model.keys[who, operation, key] = (content, None)
                return "cancelled"
            return known

        epoch = None if here else "another store"
        wanted, settled = self.both(expected, self.desk.settle(who, operation, key, command.content(), epoch=epoch))
        if isinstance(wanted, Item):
            assert settled.receipt.record.record_id == wanted.record_id
        elif wanted is not None:
            assert settled.receipt is None
            assert (settled.verdict is None) is (wanted == "unknown")

    # --- reading ------------------------------------------------------------------------------------------------------

    @rule(
        agent=agents,
        step=generations,
        limit=st.sampled_from((0, 1, 2)),
        from_cursor=st.none() | picks,
        ack=st.none() | picks,
    )
    def receive(self, agent: str, step: int, limit: int, from_cursor: int | None, ack: int | None) -> None:
        model, issued = self.model, self.cursors[agent]
        generation = self.generation(agent, step)
        if generation > model.floors[agent]:
            # What an earlier life held returns to the inbox at places that only the store knows.
            self.wait(agent, step)
            self.every_record_is_what_the_model_says()
        self._publish_left(agent)
        cursor, after = latest(issued, from_cursor) if issued and from_cursor is not None else ("", -1)
        ack_cursor, up_to = latest(issued, ack) if issued and ack is not None else ("", -1)

        def expected() -> tuple[list[Item], bool]:
            model.fence(agent, generation)
            for item in model.items:
                shown = item.exposed or item.state in ("visible", "accepted")
                if item.recipient == agent and item.place <= up_to and shown:
                    item.acked = True
            standing = model.inbox(agent, ("fresh", "seen") if cursor else ("fresh",), after)
            page = standing[: limit or len(standing)]
            for item in page:
                item.exposed = True
                if item.prompt and item.state == "new":
                    item.close()
                item.state = "read" if item.state == "new" else item.state
            return page, len(standing) > len(page)

        wanted, page = self.both(
            expected,
            self.desk.receive(agent, generation=generation, limit=limit, cursor=cursor, ack=ack_cursor),
        )
        if wanted is None:
            return
        items, more = wanted
        assert [record.record_id for record in page.records] == [item.record_id for item in items]
        assert [WORDS[record.delivery] for record in page.records] == [item.state for item in items]
        assert [record.body.decode() for record in page.records] == [item.body for item in items]
        assert page.has_more is more
        assert page.unacknowledged == len(model.inbox(agent, ("fresh",)))
        owed = [item.record_id for item in self._owed(agent) if item not in items]
        assert [record.record_id for record in page.open_requests] == owed[:20]
        assert page.high_water <= self.desk.store.read.newest_sequence()
        for record in page.records:
            if record.delivery is Delivery.RECEIVER and record.record_id not in self.returned:
                self._give(record.record_id)
            self.returned.add(record.record_id)
        if page.records:
            issued.append((page.ack_cursor, page.records[-1].position))
            assert page.next_cursor == page.ack_cursor

    def _owed(self, agent: str) -> list[Item]:
        found = [item for item in self.model.items if item.recipient == agent and item.open and item.state != "new"]
        found = [item for item in found if not item.prompt]
        assert not any(item.erased for item in found)
        return sorted(found, key=lambda item: item.place)

    def _give(self, record_id: bytes) -> None:
        self.given[record_id] += 1
        assert self.given[record_id] == 1, "a request was given to two as new work"
        assert record_id not in self.uncertain, "an uncertain request was given as new work"

    @rule(agent=agents, step=generations)
    def wait(self, agent: str, step: int) -> None:
        model, generation = self.model, self.generation(agent, step)

        def expected() -> Wake:
            model.fence(agent, generation)
            return Wake.ACTIVITY if model.inbox(agent, ("fresh",)) else Wake.TIMED_OUT

        wanted, wake = self.both(expected, self.desk.wait(agent, generation=generation))
        assert wanted is None or wake is wanted

    # --- carrying -----------------------------------------------------------------------------------------------------

    @rule(
        agent=agents,
        dispatcher=st.sampled_from(("d1", "d1", "d2")),
        step=generations,
        start=st.sampled_from((0, 0, 0, 0, 0, 0, -1, 1)),
        kind=st.sampled_from(CARRIED),
        key=keys,
    )
    def claim(self, agent: str, dispatcher: str, step: int, start: int, kind: ClaimKind, key: str) -> None:
        model, key, generation = self.model, self.key(key), self.generation(agent, step)
        made = {"agent": agent, "dispatcher": dispatcher, "step": step, "start": start, "kind": kind, "key": key}
        self.calls.append(("claim", made))
        incarnation = max(1, model.incarnations[dispatcher] + start)
        content = (agent, dispatcher, generation, incarnation, kind)

        def expected() -> tuple[Hold | None, bool]:
            model.fence(agent, generation)
            if incarnation < model.incarnations[dispatcher]:
                raise Refused("stale_incarnation")
            if incarnation > model.incarnations[dispatcher]:
                model.incarnations[dispatcher] = incarnation
                model.lose([hold for hold in model.holds if hold.dispatcher == dispatcher])
            known = model.repeat("service", Operation.CLAIM, key, content)
            if known is not None:
                assert isinstance(known, Hold)
                if known.state == "released":
                    raise Refused("stale_claim")
                return known, True
            wanted = [
                item
                for item in model.inbox(agent, ("fresh",))
                if item.state == "new" and item.request is (kind is ClaimKind.REQUEST)
            ]
            if not wanted:
                return None, False
            wanted[0].state = "claimed"
            hold = Hold(
                item=wanted[0],
                dispatcher=dispatcher,
                incarnation=incarnation,
                generation=generation,
                token=b"",
                ends_ms=model.now_ms + TERM_MS,
            )
            model.holds.append(hold)
            model.keys["service", Operation.CLAIM, key] = (content, hold)
            return hold, False

        wanted, taken = self.both(
            expected,
            self.desk.claim(
                agent,
                dispatcher=dispatcher,
                incarnation=incarnation,
                generation=generation,
                kind=kind,
                term_ms=TERM_MS,
                key=key,
            ),
        )
        if wanted is None:
            return
        hold, duplicate = wanted
        assert (taken is None) is (hold is None)
        if hold is None:
            return
        assert taken.duplicate is duplicate
        assert taken.record.record_id == hold.item.record_id
        if duplicate:
            assert taken.claim.token == hold.token
        else:
            hold.token, hold.real = taken.claim.token, taken.claim
            if hold.item.request:
                self._give(hold.item.record_id)
            assert hold.item.record_id not in self.uncertain

    @rule(
        kind=st.sampled_from(CARRIED),
        outcome=st.sampled_from((None, Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.UNCERTAIN)),
        turn=st.sampled_from((True, True, True, False)),
    )
    def carry(self, kind: ClaimKind, outcome: Outcome | None, turn: bool) -> None:
        """Take something and tell of it: the way into the deeper states, gone often."""
        self.claim("bob", "d1", 0, 0, kind, "")
        if outcome is not None and self.model.holds:
            self.finish(0, outcome, 0, turn)

    @precondition(lambda self: self.model.holds)
    @rule(pick=picks, off=st.sampled_from((0, 0, 0, 0, 1)))
    def release(self, pick: int, off: int) -> None:
        model = self.model
        hold = latest(model.holds, pick)
        item = hold.item

        def expected() -> tuple[str, bool]:
            self._check_told_in_time(hold, off)
            if hold.state == "released":
                return item.state, True
            if hold.state != "held":
                raise Refused("conflicting_outcome")
            item.releases += 1
            if item.open and item.releases >= RELEASES:
                item.state = hold.state = "failed"
                self._answered(item, None, "", ReplyStatus.FAILED)
                return "failed", False
            item.state, hold.state = "new", "released"
            model.moved.append(item)
            return "new", False

        wanted, settled = self.both(expected, self.desk.release(hold.real, generation=hold.generation + off))
        if wanted is not None:
            state, duplicate = wanted
            assert (WORDS[settled.record.delivery], settled.duplicate) == (state, duplicate)
            self._host_answer(settled.reply_id if not duplicate else None, item)
            if state == "new" and not duplicate:
                self.given[item.record_id] -= 1

    def _check_told_in_time(self, hold: Hold, off: int) -> None:
        if off or hold.item.erased:
            raise Refused("stale_claim")
        if hold.item.recipient in self.model.deleted:
            raise Refused("agent_deleted")

    def _host_answer(self, reply_id: bytes | None, request: Item) -> None:
        if reply_id is not None:
            record = self.desk.store.read.record(reply_id)
            assert record is not None
            assert request.answer is not None
            request.answer.body = record.body.decode()
            self.adopt(request.answer, record)

    @precondition(lambda self: self.model.holds)
    @rule(
        pick=picks,
        outcome=st.sampled_from((*Outcome, Outcome.ACCEPTED)),
        off=st.sampled_from((0, 0, 0, 0, 1)),
        bind=st.booleans(),
    )
    def finish(self, pick: int, outcome: Outcome, off: int, bind: bool) -> None:
        model = self.model
        hold = latest(model.holds, pick)
        item, said = hold.item, outcome.name.lower()
        turn = a_turn() if bind and outcome is Outcome.ACCEPTED else None

        def expected() -> tuple[str, bool]:
            self._check_told_in_time(hold, off)
            fits = {"accepted": item.request, "failed": item.request, "visible": not item.request}
            if not fits.get(said, True):
                raise Refused("invalid_state")
            if hold.turn and (said == "failed" or (said == "accepted" and turn is None)):
                raise Refused("conflicting_outcome")
            if hold.turn and said == "uncertain" and hold.turn in ("ended", "published"):
                raise Refused("conflicting_outcome")
            if hold.turn and (said == "accepted" or (said, hold.turn) == ("uncertain", "uncertain")):
                return item.state, True
            if hold.state == said:
                if turn is not None:
                    raise Refused("conflicting_outcome")
                return item.state, True
            if hold.state == "released":
                raise Refused("stale_claim")
            late = hold.state == "uncertain" and said != "uncertain"
            lost = hold.state == "accepted" and said == "uncertain" and item.open
            if hold.state != "held" and not late and not lost:
                raise Refused("conflicting_outcome")
            item.state = hold.state = said
            if turn is not None:
                hold.turn = "bound"
            if said == "uncertain":
                hold.turn = hold.turn and "uncertain"
                model.moved.append(item)
            if said == "failed" and item.open:
                self._answered(item, None, "", ReplyStatus.FAILED)
            return said, False

        wanted, settled = self.both(
            expected, self.desk.finish(hold.real, outcome, generation=hold.generation + off, turn=turn)
        )
        if wanted is not None:
            state, duplicate = wanted
            assert (WORDS[settled.record.delivery], settled.duplicate) == (state, duplicate)
            self._host_answer(settled.reply_id if not duplicate else None, item)

    # --- how turns end ------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(hold.turn for hold in self.model.holds))
    @rule(
        pick=picks,
        how=st.sampled_from((TurnOutcome.COMPLETED, *(how for how in TurnOutcome if how is not TurnOutcome.NONE))),
        final=st.sampled_from(FINALS),
        off=st.sampled_from((0, 0, 0, 0, 0, 1)),
        dies=st.sampled_from((False, False, True)),
    )
    def end(self, pick: int, how: TurnOutcome, final: str, off: int, dies: bool) -> None:
        """A turn ends. Where the process dies, it does so between the record of that and its publication."""
        model = self.model
        hold = latest([hold for hold in model.holds if hold.turn], pick)
        item, final = hold.item, final if how is TurnOutcome.COMPLETED else ""
        dies = dies and off == 0

        def expected() -> tuple[str, bool]:
            self._check_told_in_time(hold, off)
            if how is TurnOutcome.LOST:
                if hold.turn in ("ended", "published"):
                    raise Refused("conflicting_outcome")
                duplicate, hold.turn = hold.turn == "uncertain", "uncertain"
                if not duplicate and item.open:
                    hold.state = item.state = "uncertain"
                    model.moved.append(item)
                return hold.turn, duplicate
            duplicate = hold.turn in ("ended", "published")
            if duplicate and hold.end != (how, final):
                raise Refused("conflicting_outcome")
            if not duplicate:
                hold.end = (how, final)
                if hold.state == "uncertain":
                    hold.state = item.state = "accepted"
                hold.turn = "published" if item.automatic() and not item.open else "ended"
            if hold.turn == "ended" and item.automatic() and not dies:
                self._publish(hold)
            return hold.turn, duplicate

        tell = (
            self.desk.recorded(hold.real, how, final)
            if dies
            else self.desk.ended(hold.real, how, final, generation=hold.generation + off)
        )
        wanted, recorded = self.both(expected, tell)
        if wanted is not None:
            assert (TURNS[recorded.binding.state], recorded.duplicate) == wanted
            self._adopt_answer(item)

    @rule(
        prompt=st.booleans(),
        lost=st.sampled_from(("", "", "told", "life", "start")),
        answered=st.sampled_from(("", "", "before", "behind")),
        how=st.sampled_from((TurnOutcome.COMPLETED, TurnOutcome.COMPLETED, TurnOutcome.FAILED)),
        final=st.sampled_from(FINALS),
        dies=st.booleans(),
    )
    def a_whole_turn(self, prompt: bool, lost: str, answered: str, how: TurnOutcome, final: str, dies: bool) -> None:
        """Work is bound, perhaps lost from sight, perhaps answered, and ends: the way into the deepest states."""
        if prompt:
            self.prompt("bob", "one")
        else:
            self.send("ann", "bob", "one", "", 0, request=True)
        before = len(self.model.holds)
        self.claim("bob", "d1", 0, 0, ClaimKind.REQUEST, "")
        if len(self.model.holds) == before:
            return
        hold = self.model.holds[-1]
        self.finish(0, Outcome.ACCEPTED, 0, bind=True)
        if answered == "before":
            self._reply_to(hold.item)
        if lost == "told":
            self.end(0, TurnOutcome.LOST, "", 0, dies=False)
        elif lost == "life":
            self.open_generation("bob", 1)
        elif lost == "start":
            self.claim("cyd", "d1", 0, 1, ClaimKind.REQUEST, "")
        self.end(0, how, final, 0, dies)
        if answered == "behind":
            self._reply_to(hold.item)

    def _reply_to(self, item: Item) -> None:
        if item.recipient in self.model.deleted:
            return
        requests = [one for one in self.model.items if one.request and not one.erased]
        self.reply(len(requests) - 1 - requests.index(item), None, "one", ReplyStatus.DONE, "", 0)

    @rule(agent=agents, recipient=agents)
    def work_leads_to_work(self, agent: str, recipient: str) -> None:
        """An agent reads what it was sent and asks another."""
        self.receive(agent, 0, 0, None, None)
        self.send(agent, recipient, "one", "", 0, request=True)

    def _publish(self, hold: Hold) -> None:
        """What a recorded end answers, in the model."""
        item, (how, final) = hold.item, hold.end
        hold.turn = "published"
        if not item.open:
            return
        if item.prompt:
            item.open, item.closed = False, not final
            return
        status = ReplyStatus.DONE if final else ReplyStatus.BLOCKED
        status = ReplyStatus.FAILED if how is TurnOutcome.FAILED else status
        self._answered(item, item.recipient if final else None, final, status)

    def _adopt_answer(self, item: Item) -> None:
        """Take over what the store answered, where the model has just answered too, and hold it to that."""
        if item.answer is None or item.answer.record_id:
            return
        settled = self.desk.store.read.settled(item.record_id)
        assert settled is not None
        record = self.desk.store.read.record(settled.reply_id)
        assert record is not None
        sender = None if item.answer.sender is None else id16(item.answer.sender)
        assert (record.sender, record.status) == (sender, item.answer.status)
        assert record.origin is (Origin.HOST if sender is None else Origin.AUTOMATIC)
        if sender is None:
            item.answer.body = record.body.decode()
        self.adopt(item.answer, record)

    @rule(agent=st.none() | agents)
    def publish_left(self, agent: str | None) -> None:
        self._publish_left(agent)

    def _publish_left(self, agent: str | None) -> None:
        due = self._due(agent)
        requester = None if agent is None else id16(agent)
        assert self.run(publish_left(self.desk.ports, requester=requester)) == len(due)
        self._published(due)

    def _due(self, agent: str | None) -> list[Hold]:
        return [
            hold
            for hold in self.model.holds
            if hold.turn == "ended"
            and hold.item.automatic()
            and not hold.item.erased
            and agent in (None, hold.item.sender)
        ]

    def _published(self, due: list[Hold]) -> None:
        for hold in due:
            self._publish(hold)
            self._adopt_answer(hold.item)

    # --- people -------------------------------------------------------------------------------------------------------

    @rule(recipient=agents, body=bodies)
    def prompt(self, recipient: str, body: str) -> None:
        def expected() -> Item:
            if recipient in self.model.deleted:
                raise Refused("agent_deleted")
            item = Item(request=True, sender=None, recipient=recipient, body=body, open=True, prompt=True)
            self.model.items.append(item)
            return item

        wanted, receipt = self.both(expected, self.desk.prompt(recipient, body))
        if wanted is not None:
            self.adopt(wanted, receipt.record)

    @precondition(lambda self: any(item.request and not item.erased for item in self.model.items))
    @rule(pick=picks, caller=st.sampled_from((None, None, *AGENTS)), step=generations)
    def withdraw(self, pick: int, caller: str | None, step: int) -> None:
        request = latest([item for item in self.model.items if item.request and not item.erased], pick)
        who = caller or request.sender or request.recipient
        generation = self.generation(who, step)

        def expected() -> bool:
            self.model.fence(who, generation)
            if who not in (request.sender, request.recipient):
                raise Refused("not_found")
            if request.prompt:
                raise Refused("invalid_task")
            if who != request.sender:
                raise Refused("unauthorized")
            if request.taken_back:
                return True
            if not request.open or request.state != "new":
                raise Refused("not_pending")
            request.open, request.taken_back = False, True
            return False

        record = self.desk.store.read.record(request.record_id)
        assert record is not None
        wanted, duplicate = self.both(expected, self.desk.withdraw(who, record, generation=generation))
        assert wanted is None or duplicate is wanted

    @precondition(lambda self: any(item.request and not item.erased for item in self.model.items))
    @rule(pick=picks, resolution=st.sampled_from(Resolution))
    def resolve(self, pick: int, resolution: Resolution) -> None:
        # What is uncertain comes first: it is what a person would look at.
        requests = [item for item in self.model.items if item.request and not item.erased]
        requests.sort(key=lambda item: item.state == "uncertain" and item.open)
        request = latest(requests, pick)

        def expected() -> Item | None:
            if request.state != "uncertain" or not request.open:
                raise Refused("invalid_state")
            status = ReplyStatus.DONE if resolution is Resolution.DONE else ReplyStatus.FAILED
            self._answered(request, None, "", status)
            if resolution is not Resolution.AS_NEW:
                return None
            again = Item(
                request=True,
                sender=request.sender,
                recipient=request.recipient,
                body=request.body,
                open=True,
                prompt=request.prompt,
                hops=request.hops,
            )
            self.model.items.append(again)
            return again

        record = self.desk.store.read.record(request.record_id)
        assert record is not None
        before = len(self.model.items)
        again, resolved = self.both(expected, self.desk.resolve(record, resolution))
        if resolved is None:
            assert len(self.model.items) == before
            return
        self._host_answer(resolved.reply_id, request)
        assert (resolved.new_record_id is None) is (again is None)
        if again is not None:
            stored = self.desk.store.read.record(resolved.new_record_id)
            assert stored is not None
            self.adopt(again, stored)

    @rule(agent=agents, step=st.sampled_from((0, 1, 1, 1, -1)))
    def open_generation(self, agent: str, step: int) -> None:
        model, generation = self.model, self.generation(agent, step)

        def expected() -> set[bytes]:
            before = len(model.moved)
            model.fence(agent, generation)
            return {item.record_id for item in model.moved[before:]}

        wanted, opened = self.both(expected, self.desk.open(agent, generation))
        if wanted is not None:
            assert {record.record_id for record in opened.uncertain} == wanted
            assert opened.floor == model.floors[agent]
            assert {record.record_id for record in opened.open_requests} == {
                item.record_id for item in self._owed(agent)
            }

    @rule(ms=st.sampled_from((1, 1, TERM_MS - 1, TERM_MS)))
    def time_passes(self, ms: int) -> None:
        model = self.model
        model.now_ms += ms
        over = [hold for hold in model.holds if hold.state == "held" and hold.ends_ms <= model.now_ms]
        assert self.run(self.desk.expire(ms)) == len(model.lose(over))

    @rule()
    def restart(self) -> None:
        due = self._due(None)
        self.run(self.desk.restart())
        self._published(due)
        for hold in self.model.holds:
            if hold.state == "held":
                hold.ends_ms = max(hold.ends_ms, self.model.now_ms + TERM_MS)

    # --- deleting -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.items) > 6)
    @rule(agent=st.sampled_from(("cyd", "cyd", "cyd", "bob", "ann")), sure=st.booleans())
    def delete(self, agent: str, sure: bool) -> None:
        model = self.model
        if agent in model.deleted or not sure or len(model.deleted) == len(AGENTS) - 1:
            return
        (closing,) = self.run(self.desk.delete(agent))
        for hold in model.holds:
            if hold.item.recipient == agent and hold.state == "held":
                hold.state = hold.item.state = "uncertain"
                model.moved.append(hold.item)
        for item in [item for item in model.items if item.open]:
            said: Item | None = None
            if item.recipient == agent:
                # A prompt is closed with its agent, and nobody is told.
                said = self._answered(item, None, HOST_REPLY, ReplyStatus.FAILED)
            elif item.sender == agent:
                item.open, item.taken_back = False, True
                if item.state != "new":
                    said = Item(request=False, sender=None, recipient=item.recipient, body=HOST_NOTICE)
            if said is not None:
                record = self.desk.store.read.record(host_record_id(closing.seed, item.record_id))
                assert record is not None, "whoever waits is told"
                assert (record.origin, record.parent_id) == (Origin.HOST, item.record_id)
                assert (record.body.decode(), record.status) == (said.body, said.status)
                self.adopt(said, record)
        model.deleted[agent] = False

    @precondition(lambda self: self.model.deleted)
    @rule(pick=picks, rows=st.sampled_from((1, 3, 200)))
    def erase(self, pick: int, rows: int) -> None:
        model, queries = self.model, self.desk.store.read
        agent = latest(list(model.deleted), pick)
        if model.deleted[agent]:
            return
        ended = self.run(self.desk.erase(agent, rows))
        gone = [item for item in model.items if not item.erased and queries.record(item.record_id) is None]
        assert all(item.recipient == agent for item in gone), "mail of others stays"
        mine = [key for key in model.keys if key[0] == agent]
        dropped = [key for key in mine if queries.key(id16(agent), key[1], key[2].encode()) is None]
        assert len(gone) + len(dropped) <= rows
        assert ended == (len(gone) + len(dropped) < rows)
        for item in gone:
            item.erased = True
        for key in dropped:
            del model.keys[key]
        if ended:
            assert not [item for item in model.items if item.recipient == agent and not item.erased]
            assert len(dropped) == len(mine)
            model.deleted[agent], model.floors[agent] = True, 1

    # --- what holds after every step ----------------------------------------------------------------------------------

    def _settled(self) -> bool:
        return hasattr(self.desk, "store")

    @precondition(_settled)
    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        self.every_record_is_what_the_model_says()
        self.every_inbox_is_what_the_model_says()
        self.every_claim_floor_and_key_is_what_the_model_says()

    def every_record_is_what_the_model_says(self) -> None:
        queries, model = self.desk.store.read, self.model
        numbers = set()
        for item in model.items:
            record = queries.record(item.record_id)
            if item.erased:
                assert (record, queries.facts(item.record_id, 1)) == (None, [])
                continue
            assert record is not None, "a record is lost"
            if item in model.moved:
                assert record.position > self.newest, "what returns takes a fresh number"
                item.place = record.position
            assert (WORDS[record.delivery], PLACES[record.inbox]) == (item.state, item.where())
            assert record.inbox is inbox.place(
                kind=record.kind,
                delivery=record.delivery,
                answer=record.answer,
                exposed=record.exposed,
                acknowledged=record.acknowledged,
            )
            assert (record.exposed, record.acknowledged, record.releases) == (item.exposed, item.acked, item.releases)
            assert (record.answer is Answer.OPEN) is item.open
            assert (record.position, record.body.decode()) == (item.place, item.body)
            numbers |= {record.sequence, *(fact.sequence for fact in queries.facts(item.record_id, 1000))}
            if record.delivery is Delivery.UNCERTAIN:
                self.uncertain.add(record.record_id)
            settled = queries.settled(item.record_id)
            answer = None if item.answer is None or item.answer.erased else item.answer.record_id
            assert (settled.reply_id if settled else None) == answer
            assert (record.answer is Answer.WITHDRAWN) is item.taken_back
            assert (record.answer is Answer.CLOSED) is item.closed
            assert record.hops == item.hops
        model.moved.clear()
        standing = [item for item in model.items if not item.erased]
        facts = sum(len(queries.facts(item.record_id, 1000)) for item in standing)
        assert len(numbers) == len(standing) + facts, "a number was given twice"
        newest = queries.newest_sequence()
        assert newest >= self.newest
        assert newest >= max(numbers, default=0)
        assert model.deleted or newest == max(numbers, default=0)
        self.newest = newest

    def every_inbox_is_what_the_model_says(self) -> None:
        queries = self.desk.store.read
        for agent in AGENTS:
            fresh = [item.record_id for item in self.model.inbox(agent, ("fresh",))]
            page = queries.page(id16(agent), (Inbox.FRESH,), 0, 1000)
            assert [record.record_id for record in page] == fresh
            assert queries.has_fresh(id16(agent)) is bool(fresh)
            received = queries.received(id16(agent), 2**62, 1000)
            own = sorted(
                (item for item in self.model.items if item.recipient == agent and not item.erased),
                key=lambda item: -item.place,
            )
            assert [record.record_id for record in received] == [item.record_id for item in own]
            work = [item for item in self.model.inbox(agent, ("fresh",)) if item.state == "new"]
            assert queries.deleted(id16(agent)) is (agent in self.model.deleted)
            if agent in self.model.deleted:
                work = []
            assert queries.work_of(id16(agent)) == (
                any(item.request for item in work),
                any(not item.request for item in work),
            )

    def every_claim_floor_and_key_is_what_the_model_says(self) -> None:
        queries = self.desk.store.read
        for hold in self.model.holds:
            claim = queries.claim(hold.token)
            assert (claim is None) is hold.item.erased
            if claim is None:
                continue
            assert claim.state.name.lower() == hold.state
            binding = queries.binding(hold.token)
            assert ("" if binding is None else TURNS[binding.state]) == hold.turn
            if binding is not None and hold.turn in ("ended", "published"):
                assert (binding.outcome, binding.final_bytes) == (hold.end[0], len(hold.end[1]))
                kept = hold.item.prompt or (hold.turn == "ended" and hold.item.automatic())
                assert binding.final.decode() == (hold.end[1] if kept else "")
            assert (claim.generation, claim.expires_at_ms) == (hold.generation, hold.ends_ms)
        for agent in AGENTS:
            assert queries.floor(id16(agent)) == self.model.floors[agent]
        for (who, operation, key), (_, stands) in self.model.keys.items():
            caller = id16("credential of service") if who == "service" else id16(who)
            row = queries.key(caller, operation, key.encode())
            assert row is not None
            wanted = None if stands is None else stands.token if isinstance(stands, Hold) else stands.record_id
            assert row.record_id == wanted


TestMailboxMachine = pytest.mark.requirement(
    "mailbox.one-reader-at-most",
    "mailbox.uncertain-is-never-work-again",
    "mailbox.settled-once",
    "mailbox.inbox-is-what-receive-shows",
    "mailbox.acknowledges-only-what-was-shown",
    "mailbox.same-key-same-receipt",
    "mailbox.cancelled-keys-stay-cancelled",
    "mailbox.stale-generation-gets-no-authority",
    "mailbox.receipt-means-on-disk",
    "mailbox.deleting-answers-whoever-waits",
    "mailbox.deleted-agents-get-nothing-and-write-nothing",
    "mailbox.erasure-leaves-nothing-and-touches-nobody-else",
    "mailbox.binding-and-acceptance-are-one",
    "mailbox.a-turn-ends-once",
    "mailbox.an-explicit-reply-wins",
    "mailbox.late-evidence-settles",
    "mailbox.a-recorded-end-is-published",
    "mailbox.prompts-are-answered-by-their-turn",
    "mailbox.only-pending-requests-are-withdrawn",
    "mailbox.a-person-settles-only-what-is-uncertain",
    "mailbox.chains-of-requests-end",
)(MailboxMachine.TestCase)
TestMailboxMachine.settings = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def test_a_history_that_never_began_leaves_nothing_behind() -> None:
    ends_before_it_began(MailboxMachine)
