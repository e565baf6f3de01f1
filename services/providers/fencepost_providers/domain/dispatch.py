"""What to do next for one agent: a pure function over everything that the decision rests on. M069-M081 M015 M092-M094.

Information goes first, up to a high-water mark, so that later information cannot starve a request; it is never shown
into a turn that carries a request, whose final words it would join. A request that must wait for the turn's end does
not hold information up, and held information does not hold up a request that joins a turn.

A wake-up for what waits among an agent's tasks begins a turn of its own, never into one that runs. It and the requests
take turns: neither holds the other up for longer than one. A request to stop a task goes before everything: into the
turn that runs where the program can, else as the next wake-up. Source: DECISIONS M102.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fencepost_providers.domain.agents import Desired, WhenActive
from fencepost_providers.domain.runtimes import State


class Step(enum.Enum):
    """The one thing to do now."""

    NOTHING = "nothing"
    START_OWNER = "start_owner"
    SHOW = "show"
    BEGIN = "begin"
    STEER = "steer"
    WAKE = "wake"
    STOP = "stop"
    WAIT_FOR_IDLE = "wait_for_idle"


@dataclass(frozen=True, kw_only=True, slots=True)
class Able:
    """What the running program can do."""

    begin: bool = True
    steer: bool = True
    show: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """Everything that decides.

    `leased`: the lease of this life stands, as far as was told. `ready`: the runtime runs. `held_back`: a terminal is
    being attached, or the runtime is being stopped. `resting`: a pause after a release is not over. `bound`: the turn
    in progress carries a request. `shut_turn`: a turn that refused work. `after_context`: information was shown up to
    its mark, and a request that waits goes before what came later. `wake`: a turn is to be begun for what waits among
    the agent's tasks; `stop`: one is asked to be stopped, and the turn that runs was not told. `after_request`: the
    newest turn that was begun is a request's.
    """

    desired: Desired
    ready: bool
    leased: bool
    held_back: bool
    resting: bool
    state: State
    turn_id: str
    bound: bool
    requests: bool
    context: bool
    after_context: bool
    when_active: WhenActive
    able: Able
    shut_turn: str = ""
    wake: bool = False
    stop: bool = False
    after_request: bool = False


def decide(now: Situation) -> Step:
    """Return what to do now. NOTHING means: nothing before something changes."""
    if now.desired is not Desired.ON or not (now.requests or now.context or now.wake or now.stop):
        return Step.NOTHING
    if not now.ready:
        # Information obliges nobody and starts nothing.
        return Step.START_OWNER if now.requests or now.wake else Step.NOTHING
    if not now.leased or now.held_back or now.resting:
        return Step.NOTHING
    if now.stop and _joins(now):
        return Step.STOP
    work = _for_work(now)
    may_act = work in {Step.BEGIN, Step.STEER, Step.WAKE}
    if now.context and _may_show(now) and not (now.after_context and may_act):
        return Step.SHOW
    return work


def _for_work(now: Situation) -> Step:
    if now.state is State.IDLE and now.wake and now.able.begin and (now.stop or now.after_request or not now.requests):
        return Step.WAKE
    if now.requests:
        return _for_request(now)
    return Step.WAIT_FOR_IDLE if now.wake and now.state in {State.PROCESSING, State.ACTION_NEEDED} else Step.NOTHING


def _may_show(now: Situation) -> bool:
    if not now.able.show:
        return False
    return now.state is State.IDLE or (now.state is State.PROCESSING and not now.bound)


def _for_request(now: Situation) -> Step:
    if now.state is State.IDLE:
        return Step.BEGIN if now.able.begin else Step.NOTHING
    if now.state is State.UNKNOWN:
        return Step.NOTHING
    return Step.STEER if _joins(now) else Step.WAIT_FOR_IDLE


def _joins(now: Situation) -> bool:
    return (
        now.state is State.PROCESSING
        and now.when_active is WhenActive.STEER
        and now.able.steer
        and now.turn_id not in {"", now.shut_turn}
    )
