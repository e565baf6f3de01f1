"""The decision of what to do next, over every situation there is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from fencepost_providers.domain.agents import Desired, WhenActive
from fencepost_providers.domain.dispatch import Able, Situation, Step, decide
from fencepost_providers.domain.runtimes import State

BOOLEANS = (False, True)
pytestmark = [pytest.mark.requirement("providers.one-table-decides-what-is-carried")]


def situations() -> Iterator[Situation]:
    for (
        desired,
        ready,
        (leased, held_back, resting),
        (state, turn_id),
        bound,
        requests,
        context,
        after_context,
        when_active,
        (begin, steer, show),
        shut_turn,
        (wake, stop, after_request),
    ) in itertools.product(
        # The two others decide as PAUSED does: test_the_order_of_information_and_work has them.
        (Desired.ON, Desired.PAUSED),
        BOOLEANS,
        ((True, False, False), (False, False, False), (True, True, False), (True, False, True), (False, True, True)),
        (
            (State.UNKNOWN, ""),
            (State.IDLE, ""),
            (State.PROCESSING, "t"),
            (State.PROCESSING, ""),
            (State.ACTION_NEEDED, "t"),
        ),
        BOOLEANS,
        BOOLEANS,
        BOOLEANS,
        BOOLEANS,
        WhenActive,
        ((True, True, True), (False, True, True), (True, False, True), (True, True, False)),
        ("", "t"),
        # Whether a wake-up waits, a stop, and whose the newest turn was; the last counts only where a wake-up waits.
        ((False, False, False), (True, False, False), (True, False, True), (False, True, False), (True, True, False)),
    ):
        yield Situation(
            desired=desired,
            ready=ready,
            leased=leased,
            held_back=held_back,
            resting=resting,
            state=state,
            turn_id=turn_id,
            bound=bound,
            requests=requests,
            context=context,
            after_context=after_context,
            when_active=when_active,
            able=Able(begin=begin, steer=steer, show=show),
            shut_turn=shut_turn,
            wake=wake,
            stop=stop,
            after_request=after_request,
        )


def check_what_is_done(now: Situation, step: Step) -> None:
    free = now.ready and now.leased and not now.held_back and not now.resting and now.desired is Desired.ON
    if free and (now.requests or now.wake) and now.state is State.IDLE and now.able.begin:
        assert step in {Step.SHOW, Step.BEGIN, Step.WAKE}
    if free and now.context and now.state is State.IDLE and now.able.show:
        assert step in {Step.SHOW, Step.BEGIN, Step.WAKE}
    if now.desired is Desired.ON and not now.ready and (now.requests or now.wake):
        assert step is Step.START_OWNER


def test_every_situation_keeps_every_rule_and_what_can_be_done_is_done() -> None:
    seen: set[Step] = set()
    for now in situations():
        step = decide(now)
        seen.add(step)
        check_what_is_done(now, step)
        acts = step in {Step.SHOW, Step.BEGIN, Step.STEER, Step.WAKE, Step.STOP}
        if now.desired is not Desired.ON:
            assert step is Step.NOTHING
        if acts:
            # Nothing is carried without authority, into what is not ready, or while something else has to come first.
            assert now.ready
            assert now.leased
            assert not now.held_back
            assert not now.resting
            assert now.state in {State.IDLE, State.PROCESSING}
        if step is Step.START_OWNER:
            assert now.requests or now.wake
            assert not now.ready
        if step is Step.SHOW:
            assert now.context
            assert now.able.show
            assert now.state is State.IDLE or not now.bound
        if step is Step.BEGIN:
            assert now.requests
            assert now.able.begin
            assert now.state is State.IDLE
        if step is Step.WAKE:
            # A turn of its own, and behind a request unless that had its turn, or something is to be stopped.
            assert now.wake
            assert now.able.begin
            assert now.state is State.IDLE
            assert not now.requests or now.after_request or now.stop
        if step in {Step.STEER, Step.STOP}:
            assert now.requests if step is Step.STEER else now.stop
            assert now.able.steer
            assert now.state is State.PROCESSING
            assert now.when_active is WhenActive.STEER
            assert now.turn_id not in {"", now.shut_turn}
        if step is Step.WAIT_FOR_IDLE:
            assert now.requests or now.wake
            assert now.state in {State.PROCESSING, State.ACTION_NEEDED}
    assert seen == set(Step)


def a_situation(**facts: object) -> Situation:
    given: dict[str, object] = {
        "desired": Desired.ON,
        "ready": True,
        "leased": True,
        "held_back": False,
        "resting": False,
        "state": State.IDLE,
        "turn_id": "",
        "bound": False,
        "requests": True,
        "context": True,
        "after_context": False,
        "when_active": WhenActive.STEER,
        "able": Able(),
    }
    return Situation(**{**given, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        ({}, Step.SHOW),
        ({"after_context": True}, Step.BEGIN),
        ({"after_context": True, "requests": False}, Step.SHOW),
        ({"context": False}, Step.BEGIN),
        ({"state": State.PROCESSING, "turn_id": "t"}, Step.SHOW),
        ({"state": State.PROCESSING, "turn_id": "t", "bound": True}, Step.STEER),
        ({"state": State.PROCESSING, "turn_id": "t", "bound": True, "shut_turn": "t"}, Step.WAIT_FOR_IDLE),
        ({"state": State.PROCESSING, "turn_id": "u", "bound": True, "shut_turn": "t"}, Step.STEER),
        ({"state": State.PROCESSING, "turn_id": "t", "bound": True, "requests": False}, Step.NOTHING),
        (
            {"state": State.PROCESSING, "turn_id": "t", "bound": True, "when_active": WhenActive.AFTER_TURN},
            Step.WAIT_FOR_IDLE,
        ),
        ({"state": State.ACTION_NEEDED, "turn_id": "t"}, Step.WAIT_FOR_IDLE),
        ({"state": State.UNKNOWN}, Step.NOTHING),
        # A request that must wait for the turn's end holds no information up.
        (
            {"state": State.PROCESSING, "turn_id": "t", "after_context": True, "shut_turn": "t"},
            Step.SHOW,
        ),
        ({"able": Able(show=False)}, Step.BEGIN),
        ({"ready": False, "requests": False}, Step.NOTHING),
        ({"ready": False}, Step.START_OWNER),
        # Wake-ups and requests take turns; a request that waited goes first.
        ({"context": False, "wake": True}, Step.BEGIN),
        ({"context": False, "wake": True, "after_request": True}, Step.WAKE),
        ({"context": False, "requests": False, "wake": True}, Step.WAKE),
        ({"wake": True, "requests": False}, Step.SHOW),
        ({"after_context": True, "requests": False, "wake": True}, Step.WAKE),
        # Nothing of it joins a turn that runs, but a request to stop: before everything else.
        (
            {"state": State.PROCESSING, "turn_id": "t", "bound": True, "requests": False, "wake": True},
            Step.WAIT_FOR_IDLE,
        ),
        ({"state": State.PROCESSING, "turn_id": "t", "stop": True}, Step.STOP),
        ({"state": State.PROCESSING, "turn_id": "t", "stop": True, "able": Able(steer=False)}, Step.SHOW),
        ({"context": False, "stop": True, "wake": True}, Step.WAKE),
        ({"context": False, "stop": True}, Step.BEGIN),
        ({"context": False, "requests": False, "stop": True}, Step.NOTHING),
        ({"ready": False, "requests": False, "wake": True}, Step.START_OWNER),
        ({"desired": Desired.PAUSED, "wake": True, "stop": True}, Step.NOTHING),
        ({"desired": Desired.OFF, "ready": False, "wake": True}, Step.NOTHING),
        ({"desired": Desired.OFF}, Step.NOTHING),
        ({"desired": Desired.UNSPECIFIED, "stop": True, "wake": True}, Step.NOTHING),
    ],
)
def test_the_order_of_information_and_work(facts: dict[str, object], step: Step) -> None:
    assert decide(a_situation(**facts)) is step
