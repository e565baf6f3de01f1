"""Which service is killed where and when: decided by the seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS

# After a restart, how long a service lives until it is killed at a random moment.
LIFE_MS: Final = (100, 3_500)
# At which hit of a point its process dies; now and then so early that it falls into the start of the process.
TURN_MAX: Final = MappingProxyType({MAILBOX: 60, SESSIONS: 5, MCP_EDGE: 8})
EARLY_TURN_MAX: Final = 2
EARLY_SHARE: Final = 0.15
# How the random kills are shared out.
WEIGHTS: Final = MappingProxyType({MAILBOX: 5, SESSIONS: 2, MCP_EDGE: 3})
# Reached only by a process that starts while somebody waits to learn of a call that its predecessor lost.
NEEDS_A_LOSS: Final = "mcp_edge.settle.before"
ARMED_SHARE: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """One kill: at the given hit of a fault point, or so long after the service is ready."""

    service: str
    point: str = ""
    turn: int = 1
    life_ms: int = 0

    @property
    def fault(self) -> str:
        """Return what arms it."""
        return f"{self.point}=kill@{self.turn}" if self.point else ""


def plan(*, kills: int, seed: str, points: Mapping[str, Sequence[str]]) -> dict[str, list[Planned]]:
    """Return the kills of each service, in their order.

    Half of them are at fault points, each point in its turn and each at least once where there are kills enough; the
    first of each service comes at a random moment, because the process that is running then has nothing armed.
    """
    dice = random.Random(f"{seed} plan")
    services = sorted(points)
    named = [(service, point) for service in services for point in sorted(points[service])]
    firsts = [_at_random(dice, service) for service in services][:kills]
    left = kills - len(firsts)
    armed_count = min(left, max(len(named), round(kills * ARMED_SHARE)))
    armed = [_at_point(dice, *named[index % len(named)]) for index in range(armed_count)]
    weights = [WEIGHTS[service] for service in services]
    random_ones = [_at_random(dice, dice.choices(services, weights)[0]) for _ in range(left - armed_count)]
    return {
        service: [
            *(first for first in firsts if first.service == service),
            *_mixed(
                dice,
                [one for one in armed if one.service == service],
                [one for one in random_ones if one.service == service],
            ),
        ]
        for service in services
    }


def _at_random(dice: random.Random, service: str) -> Planned:
    return Planned(service=service, life_ms=dice.randint(*LIFE_MS))


def _at_point(dice: random.Random, service: str, point: str) -> Planned:
    early = dice.random() < EARLY_SHARE
    turn = dice.randint(1, EARLY_TURN_MAX if early else TURN_MAX[service])
    if point == NEEDS_A_LOSS:
        turn = 1
    return Planned(service=service, point=point, turn=turn)


def _mixed(dice: random.Random, armed: list[Planned], random_ones: list[Planned]) -> list[Planned]:
    """Put the random kills between the others, which keep their order."""
    mixed = list(armed)
    for one in random_ones:
        place = dice.randint(0, len(mixed))
        if place < len(mixed) and mixed[place].point == NEEDS_A_LOSS:
            place += 1
        mixed.insert(place, one)
    return mixed
