"""The phases of a runtime and what is to be done about it."""

from __future__ import annotations

import itertools

import pytest

from fencepost_providers.domain.agents import Desired
from fencepost_providers.domain.lifecycle import (
    RESTART_MS_MAX,
    RESTART_MS_MIN,
    TABLE,
    Command,
    Event,
    IllegalTransition,
    Phase,
    Standing,
    advance,
    command,
    pause_ms,
)

BOOLEANS = (False, True)
pytestmark = [pytest.mark.requirement("providers.what-runs-follows-what-a-person-wants")]


def test_only_the_transitions_of_the_table_are_possible() -> None:
    for phase, event in itertools.product(Phase, Event):
        if (phase, event) in TABLE:
            assert advance(phase, event) is TABLE[phase, event]
        else:
            with pytest.raises(IllegalTransition):
                advance(phase, event)


def test_every_phase_can_be_left_and_comes_back_to_off() -> None:
    reached = {Phase.OFF}
    while more := {after for (phase, _), after in TABLE.items() if phase in reached} - reached:
        reached |= more
    assert reached == set(Phase)
    for phase in Phase:
        seen = {phase}
        while more := {after for (before, _), after in TABLE.items() if before in seen} - seen:
            seen |= more
        assert Phase.OFF in seen


def test_every_standing_keeps_every_rule() -> None:
    seen = set()
    for phase, desired, deleting, requests, resting, changed in itertools.product(
        Phase, Desired, BOOLEANS, BOOLEANS, BOOLEANS, BOOLEANS
    ):
        now = Standing(
            phase=phase, desired=desired, deleting=deleting, requests=requests, resting=resting, changed=changed
        )
        what = command(now)
        seen.add(what)
        if what is Command.START:
            assert desired is Desired.ON
            assert not deleting
            assert not resting
            assert phase is Phase.OFF or (phase is Phase.FAILED and (requests or changed))
        if what is Command.STOP:
            assert phase in {Phase.READY, Phase.FAILED}
            assert deleting or desired is Desired.OFF
        if desired in {Desired.PAUSED, Desired.UNSPECIFIED} and not deleting:
            assert what is Command.NOTHING
        if phase is Phase.READY and desired is Desired.OFF:
            assert what is Command.STOP
        if phase is Phase.OFF and desired is Desired.ON and not deleting and not resting:
            assert what is Command.START
    assert seen == set(Command)


def test_pauses_grow_to_their_limit() -> None:
    assert pause_ms(0) == 0
    assert pause_ms(1) == RESTART_MS_MIN
    grown = [pause_ms(number) for number in range(1, 12)]
    assert grown == sorted(grown)
    assert pause_ms(1_000_000) == RESTART_MS_MAX
