"""Calls in progress under a clock that stands still until it is moved: losses, budgets, bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.mcp import calls as module
from fencepost.mcp.calls import BrokenEdge, Calls
from fencepost.mcp.session import Call


class Table:
    """The table of calls, with an edge that the test plays."""

    def __init__(self) -> None:
        self.emitted: list[bytes] = []
        self.answers: dict[str, Any] = {}
        self.silenced: list[str] = []
        self.withdrawn: list[int] = []
        self.wrong: set[str] = set()
        self.calls = Calls(emit=self.emitted.append, examine=self._examine)
        self.calls.withdraw = lambda call: self.withdrawn.append(call.number)
        self._ids = 0

    def _examine(self, call: Call) -> bytes | None:
        return b'{"wrong":true}' if call.name in self.wrong else None

    def admit(
        self, name: str = "send_message", *, wait_ms: int = 0, token: str | None = None, line: bytes = b""
    ) -> str:
        self._ids += 1
        id_text = str(self._ids)

        def sink(answer: bytes | None) -> None:
            assert id_text not in self.answers
            if answer is None:
                self.silenced.append(id_text)
            else:
                self.answers[id_text] = json.loads(answer)

        call = Call(
            id_text=id_text,
            name=name,
            line=line or b'{"line":%d}' % self._ids,
            wait_ms=wait_ms,
            progress_token=token,
            sink=sink,
        )
        self.calls.admit(call)
        return id_text

    def send(self, *, deliver: bool = True) -> list[bytes]:
        """Take the frames that are due; where `deliver`, the system has taken them."""
        frames = self.calls.frames()
        for call, _ in frames:
            if call is not None and deliver:
                self.calls.written(call)
        return [frame.removesuffix(b"\n") for _, frame in frames]

    def pass_ms(self, milliseconds: float) -> None:
        self.calls.now += milliseconds / 1000
        self.calls.tick()

    def told(self, id_text: str) -> tuple[str, object]:
        told = self.answers[id_text]["result"]["structuredContent"]
        return told["code"], told["written"]


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def open_table(table: Table) -> Table:
    table.calls.opened("E1")
    return table


def test_a_call_goes_to_the_edge_as_it_came_and_its_answer_back(open_table: Table) -> None:
    name = open_table.admit()
    assert open_table.send() == [b'1 {"line":1}']
    assert open_table.send() == []
    open_table.calls.answered(b'1 {"ok":1}')
    assert open_table.answers == {name: {"ok": 1}}
    assert len(open_table.calls) == 0


@pytest.mark.requirement("mcp.lost-edge-settles")
def test_a_mutation_whose_answer_was_lost_is_settled_and_never_called_again(open_table: Table) -> None:
    for name in ("send_message", "followup_task", "reply"):
        open_table.admit(name)
    open_table.send()
    open_table.calls.lost()
    open_table.calls.opened("E2")
    assert open_table.send() == [f'{n} settle E1 {{"line":{n}}}'.encode() for n in (1, 2, 3)]
    open_table.calls.lost()
    open_table.calls.opened("E3")
    assert open_table.send()[0] == b'1 settle E1 {"line":1}'
    open_table.calls.answered(b'1 {"receipt":1}')
    assert open_table.answers["1"] == {"receipt": 1}


@pytest.mark.requirement("mcp.lost-edge-settles")
def test_an_epoch_told_after_the_call_left_is_the_one_it_is_settled_under(table: Table) -> None:
    table.calls.opened("")
    table.admit()
    table.send()
    table.calls.answered(b"0 epoch E7")
    table.calls.answered(b"0 epoch E8")
    table.calls.lost()
    table.calls.opened("E9")
    assert table.send() == [b'1 settle E7 {"line":1}']


@pytest.mark.requirement("mcp.lost-edge-settles")
def test_a_call_that_no_edge_told_an_epoch_for_is_settled_under_none(table: Table) -> None:
    table.calls.opened("")
    table.admit()
    table.send()
    table.calls.lost()
    table.calls.opened("E1")
    assert table.send() == [b'1 settle - {"line":1}']


@pytest.mark.requirement("mcp.lost-edge-settles")
def test_a_frame_that_the_system_did_not_take_whole_is_sent_again_as_it_was(open_table: Table) -> None:
    open_table.admit()
    open_table.send(deliver=False)
    open_table.calls.lost()
    open_table.calls.opened("E2")
    assert open_table.send() == [b'1 {"line":1}']


@pytest.mark.requirement("mcp.lost-edge-settles")
def test_a_mutation_that_cannot_be_settled_is_uncertain_and_not_to_be_replayed(open_table: Table) -> None:
    name = open_table.admit()
    open_table.send()
    open_table.calls.lost()
    open_table.pass_ms(module.SETTLE_MS_MAX - 1)
    assert open_table.answers == {}
    open_table.pass_ms(2)
    assert open_table.told(name) == ("delivery_uncertain", "unknown")
    assert "Do not send it again" in open_table.answers[name]["result"]["structuredContent"]["hint"]


@pytest.mark.requirement("mcp.calls-are-bounded")
@pytest.mark.parametrize("name", ["send_message", "wait_agent", "list_agents"])
def test_a_call_that_finds_no_edge_was_not_written(table: Table, name: str) -> None:
    identity = table.admit(name)
    table.pass_ms(module.RECONNECT_MS_MAX - 1)
    assert table.answers == {}
    table.pass_ms(2)
    assert table.told(identity) == ("not_written", False)
    assert "fencepost up" in table.answers[identity]["result"]["structuredContent"]["hint"]


@pytest.mark.requirement("mcp.calls-are-bounded")
@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("send_message", ("delivery_uncertain", "unknown")),
        ("receive_messages", ("control_transport_error", "unknown")),
        ("list_agents", ("control_transport_error", False)),
    ],
)
def test_a_call_that_the_edge_never_answers_ends_with_its_budget(
    open_table: Table, name: str, outcome: tuple[str, object]
) -> None:
    identity = open_table.admit(name)
    open_table.send()
    open_table.pass_ms(module.CALL_MS_MAX - 1)
    assert open_table.answers == {}
    open_table.pass_ms(2)
    assert open_table.told(identity) == outcome
    open_table.calls.answered(b'1 {"late":1}')


@pytest.mark.requirement("tools.lost-writes-are-settled")
def test_a_lost_write_of_a_task_is_settled_and_told_by_its_request_id_where_that_fails(open_table: Table) -> None:
    identity = open_table.admit("task_submit")
    open_table.send()
    open_table.calls.lost()
    open_table.calls.opened("E1")
    assert open_table.send() == [b'1 settle E1 {"line":1}']
    open_table.pass_ms(module.SETTLE_MS_MAX + module.CALL_MS_MAX)
    assert open_table.told(identity) == ("delivery_uncertain", "unknown")
    hint = open_table.answers[identity]["result"]["structuredContent"]["hint"]
    assert "the same call with the same request_id is carried out once at most" in hint
    assert "message list" not in hint


@pytest.mark.requirement("mcp.calls-are-bounded")
def test_a_call_whose_frame_was_never_taken_is_withdrawn_and_was_not_written(open_table: Table) -> None:
    identity = open_table.admit()
    open_table.send(deliver=False)
    open_table.pass_ms(module.CALL_MS_MAX + 1)
    assert open_table.told(identity) == ("not_written", False)
    assert open_table.withdrawn == [1]


@pytest.mark.requirement("mcp.reads-are-asked-again")
def test_a_wait_is_asked_again_for_what_is_left_of_it(open_table: Table) -> None:
    open_table.admit("wait_agent", wait_ms=60_000)
    open_table.admit("receive_messages", wait_ms=10_000)
    open_table.admit("list_agents")
    open_table.send()
    open_table.pass_ms(12_000)
    open_table.calls.lost()
    open_table.calls.opened("E1")
    assert open_table.send() == [b'1 within 48000 {"line":1}', b'2 within 0 {"line":2}', b'3 {"line":3}']


@pytest.mark.requirement("mcp.reads-are-asked-again")
def test_a_wait_waits_for_the_edge_too_as_long_as_it_would_have_waited(open_table: Table) -> None:
    identity = open_table.admit("wait_agent", wait_ms=40_000)
    open_table.send()
    open_table.pass_ms(5_000)
    open_table.calls.lost()
    open_table.pass_ms(34_000)
    assert open_table.answers == {}
    open_table.pass_ms(2_000)
    assert open_table.told(identity) == ("control_transport_error", False)


@pytest.mark.requirement("mcp.drain-is-invisible")
def test_what_a_stopping_edge_gives_back_goes_to_the_next(open_table: Table) -> None:
    open_table.admit("wait_agent", wait_ms=60_000)
    open_table.admit("send_message")
    open_table.send()
    open_table.calls.answered(b"0 draining")
    open_table.admit("send_message")
    assert open_table.send() == []
    open_table.pass_ms(1_000)
    open_table.calls.answered(b"1 again")
    open_table.calls.answered(b"2 again")
    open_table.calls.lost()
    open_table.calls.opened("E1")
    assert open_table.send() == [b'1 within 59000 {"line":1}', b'2 {"line":2}', b'3 {"line":3}']


@pytest.mark.requirement("mcp.drain-is-invisible")
def test_a_mutation_that_was_given_back_unbegun_and_finds_no_edge_was_not_written(open_table: Table) -> None:
    identity = open_table.admit()
    open_table.send()
    open_table.calls.answered(b"1 again")
    open_table.calls.lost()
    open_table.pass_ms(module.RECONNECT_MS_MAX + 1)
    assert open_table.told(identity) == ("not_written", False)


@pytest.mark.requirement("mcp.drain-is-invisible")
def test_a_settlement_that_was_given_back_is_still_a_settlement(open_table: Table) -> None:
    open_table.admit()
    open_table.send()
    open_table.calls.lost()
    open_table.calls.opened("E1")
    open_table.send()
    open_table.calls.answered(b"1 again")
    open_table.calls.lost()
    open_table.calls.opened("E1")
    assert open_table.send() == [b'1 settle E1 {"line":1}']


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
def test_a_cancelled_wait_is_ended_and_a_cancelled_mutation_completes_unheard(open_table: Table) -> None:
    wait = open_table.admit("wait_agent", wait_ms=60_000)
    sent = open_table.admit("send_message")
    open_table.send()
    open_table.calls.cancel(wait)
    open_table.calls.cancel(sent)
    open_table.calls.cancel("999")
    assert open_table.send() == [b"1 cancel"]
    open_table.calls.answered(b'1 {"late":1}')
    open_table.calls.answered(b'2 {"late":1}')
    assert open_table.answers == {}
    assert open_table.silenced == [wait, sent]


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
def test_a_call_cancelled_before_it_left_never_leaves(table: Table) -> None:
    table.calls.cancel(table.admit("send_message"))
    table.calls.opened("E1")
    assert table.send() == []


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
def test_the_end_of_input_ends_waits_at_once_and_the_rest_within_its_bound(open_table: Table) -> None:
    wait = open_table.admit("receive_messages", wait_ms=1)
    sent, read = open_table.admit("send_message"), open_table.admit("receive_messages")
    open_table.send()
    open_table.calls.end_of_input()
    assert open_table.silenced == [wait]
    assert open_table.send() == [b"1 cancel"]
    open_table.calls.answered(b'3 {"page":1}')
    assert open_table.answers == {read: {"page": 1}}
    open_table.pass_ms(module.EOF_MS_MAX + 1)
    assert open_table.told(sent) == ("delivery_uncertain", "unknown")


@pytest.mark.requirement("mcp.calls-are-bounded")
def test_as_many_calls_as_fit_are_taken_and_no_more(open_table: Table) -> None:
    for _ in range(module.CALLS_IN_FLIGHT_MAX):
        open_table.admit("wait_agent", wait_ms=1)
    assert open_table.answers == {}
    over = open_table.admit()
    assert open_table.told(over) == ("overloaded", False)
    open_table.send()
    open_table.calls.answered(b'1 {"ok":1}')
    assert open_table.admit() not in open_table.answers


@pytest.mark.requirement("mcp.calls-are-bounded")
def test_as_many_bytes_as_fit_are_remembered_and_no_more(open_table: Table) -> None:
    size = module.REMEMBERED_BYTES_MAX // 8
    for _ in range(8):
        open_table.admit(line=b"x" * size)
    assert open_table.told(open_table.admit(line=b"x")) == ("overloaded", False)
    open_table.send()
    open_table.calls.answered(b'1 {"ok":1}')
    assert open_table.admit(line=b"x" * size) not in open_table.answers


@pytest.mark.requirement("mcp.arguments-come-first")
def test_wrong_arguments_are_told_as_soon_as_no_edge_answers(table: Table) -> None:
    table.wrong.add("reply")
    wrong, right = table.admit("reply"), table.admit("send_message")
    table.calls.unreachable()
    assert table.answers == {wrong: {"wrong": True}}
    table.calls.absent()
    assert table.told(right) == ("not_written", False)


def test_a_refusing_edge_is_told_to_every_call_that_waits(table: Table) -> None:
    identity = table.admit()
    table.calls.refused(code="incompatible_edge", message="m", hint="h")
    assert table.told(identity) == ("incompatible_edge", False)


@pytest.mark.requirement("mcp.progress")
def test_a_client_that_asked_for_it_hears_that_its_call_goes_on(open_table: Table) -> None:
    open_table.admit("wait_agent", wait_ms=60_000, token='"tok"')
    open_table.admit("wait_agent", wait_ms=60_000)
    open_table.send()
    open_table.pass_ms(module.PROGRESS_MS - 1)
    assert open_table.emitted == []
    open_table.pass_ms(1)
    open_table.pass_ms(module.PROGRESS_MS)
    first, second = (json.loads(line) for line in open_table.emitted)
    assert first["method"] == "notifications/progress"
    assert first["params"]["progressToken"] == "tok"
    assert first["params"]["progress"] < second["params"]["progress"]


@pytest.mark.parametrize("frame", [b"", b"x {}", b"1 [", b"-1 {}", b"0 what", b"0", b"1" * 30 + b" {}", b"1 nonsense"])
def test_what_no_edge_sends_breaks_the_connection(open_table: Table, frame: bytes) -> None:
    open_table.admit()
    open_table.send()
    with pytest.raises(BrokenEdge):
        open_table.calls.answered(frame)


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
def test_a_request_that_the_edge_cannot_read_is_answered_under_its_own_id(open_table: Table) -> None:
    identity = open_table.admit()
    open_table.send()
    open_table.calls.answered(b"1 unreadable")
    assert open_table.answers[identity]["error"]["code"] == -32600
    assert open_table.answers[identity]["id"] == int(identity)


def test_the_next_moment_to_act_is_known(table: Table) -> None:
    assert table.calls.next_due_s() is None
    table.admit()
    assert table.calls.next_due_s() == module.RECONNECT_MS_MAX / 1000
    table.calls.opened("E")
    assert table.calls.next_due_s() == module.CALL_MS_MAX / 1000
    table.admit("wait_agent", wait_ms=60_000, token="1")
    assert table.calls.next_due_s() == module.PROGRESS_MS / 1000


EVENTS = st.lists(
    st.sampled_from(["send", "wait", "open", "write", "half", "lost", "answer", "again", "drain", "cancel"])
    | st.integers(1, 30_000),
    max_size=40,
)


@pytest.mark.requirement("mcp.lost-edge-settles")
@given(events=EVENTS)
def test_whatever_happens_no_mutation_is_called_twice_and_every_call_ends_once(events: list[str | int]) -> None:
    table = Table()
    begun: set[bytes] = set()
    given_back: set[bytes] = set()
    connected = False

    def write(*, deliver: bool) -> None:
        for frame in table.send(deliver=deliver):
            number, _, rest = frame.partition(b" ")
            if deliver and table.calls._calls[int(number)].name == "send_message" and rest.startswith(b"{"):
                assert number not in begun - given_back
                begun.add(number)
                given_back.discard(number)

    for event in [*events, "lost", 70_000]:
        if isinstance(event, int):
            table.pass_ms(event)
        elif event in ("send", "wait"):
            table.admit("send_message" if event == "send" else "wait_agent", wait_ms=0 if event == "send" else 60_000)
        elif event == "open" and not connected:
            connected = True
            table.calls.opened("E")
        elif event in ("write", "half") and connected:
            write(deliver=event == "write")
        elif event == "lost" and connected:
            connected = False
            table.calls.lost()
        elif event in ("answer", "again") and connected and len(table.calls):
            call = next(iter(table.calls._calls.values()))
            if call.written:
                number = b"%d" % call.number
                table.calls.answered(number + (b' {"ok":1}' if event == "answer" else b" again"))
                given_back.add(number)
        elif event == "drain" and connected:
            table.calls.answered(b"0 draining")
        elif event == "cancel" and len(table.calls):
            table.calls.cancel(next(iter(table.calls._calls.values())).id_text)
    assert len(table.calls) == 0
    assert len(table.answers) + len(table.silenced) == table._ids


@pytest.mark.requirement("mcp.lost-interruption-is-told")
def test_an_interruption_whose_answer_was_lost_is_told_at_once_and_never_asked_again(open_table: Table) -> None:
    name = open_table.admit("interrupt_agent")
    open_table.send()
    open_table.calls.lost()
    assert open_table.told(name) == ("delivery_uncertain", "unknown")
    hint = open_table.answers[name]["result"]["structuredContent"]["hint"]
    assert "list_agents" in hint
    assert "message list" not in hint
    open_table.calls.opened("E2")
    assert open_table.send() == []


@pytest.mark.requirement("mcp.lost-interruption-is-told")
def test_an_interruption_that_an_edge_had_not_begun_is_sent_to_the_next(open_table: Table) -> None:
    open_table.admit("interrupt_agent")
    first = open_table.send()
    open_table.calls.answered(b"1 again")
    open_table.calls.lost()
    open_table.calls.opened("E2")
    assert open_table.send() == first
    open_table.calls.lost()
    assert open_table.told("1") == ("delivery_uncertain", "unknown")


@pytest.mark.requirement("mcp.lost-interruption-is-told")
def test_an_interruption_that_never_left_was_not_written(open_table: Table) -> None:
    name = open_table.admit("interrupt_agent")
    open_table.send(deliver=False)
    open_table.calls.lost()
    assert open_table.answers == {}
    open_table.pass_ms(module.RECONNECT_MS_MAX + 1)
    assert open_table.told(name) == ("not_written", False)


@pytest.mark.requirement("mcp.lost-interruption-is-told")
def test_an_interruption_without_an_answer_in_time_is_not_known(open_table: Table) -> None:
    name = open_table.admit("interrupt_agent")
    open_table.send()
    open_table.pass_ms(module.CALL_MS_MAX + 1)
    assert open_table.told(name) == ("delivery_uncertain", "unknown")


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
def test_a_cancelled_interruption_is_silenced_and_not_taken_back(open_table: Table) -> None:
    name = open_table.admit("interrupt_agent")
    open_table.send()
    open_table.calls.cancel(name)
    assert (open_table.send(), open_table.silenced) == ([], [name])
