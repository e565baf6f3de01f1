"""What to do next for one agent: a pure function over everything that the decision rests on. M069-M081 M015 M092-M094.

Information goes first, up to a high-water mark, so that later information cannot starve a request; it is never shown
into a turn that carries a request, whose final words it would join. A request that must wait for the turn's end does
not hold information up, and held information does not hold up a request that joins a turn.
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
    its mark, and a request that waits goes before what came later.
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


def decide(now: Situation) -> Step:
    """Return what to do now. NOTHING means: nothing before something changes."""
    if now.desired is not Desired.ON or not (now.requests or now.context):
        return Step.NOTHING
    if not now.ready:
        # Information obliges nobody and starts nothing.
        return Step.START_OWNER if now.requests else Step.NOTHING
    if not now.leased or now.held_back or now.resting:
        return Step.NOTHING
    request = _for_request(now) if now.requests else Step.NOTHING
    may_act = request in {Step.BEGIN, Step.STEER}
    if now.context and _may_show(now) and not (now.after_context and may_act):
        return Step.SHOW
    return request


def _may_show(now: Situation) -> bool:
    if not now.able.show:
        return False
    return now.state is State.IDLE or (now.state is State.PROCESSING and not now.bound)


def _for_request(now: Situation) -> Step:
    if now.state is State.IDLE:
        return Step.BEGIN if now.able.begin else Step.NOTHING
    if now.state is State.UNKNOWN:
        return Step.NOTHING
    joins = (
        now.state is State.PROCESSING
        and now.when_active is WhenActive.STEER
        and now.able.steer
        and now.turn_id not in {"", now.shut_turn}
    )
    return Step.STEER if joins else Step.WAIT_FOR_IDLE
