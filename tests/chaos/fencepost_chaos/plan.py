"""Which service is killed where and when: decided by the seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from fencepost.home import MAILBOX, MCP_EDGE, SESSIONS

# After a restart, how long a service lives until it is killed at a random moment.
LIFE_MS: Final = (100, 3_500)
# Now and then a process dies so early that it falls into its start.
EARLY_TURN_MAX: Final = 2
EARLY_SHARE: Final = 0.15
# How the random kills are shared out.
WEIGHTS: Final = MappingProxyType({MAILBOX: 5, SESSIONS: 2, MCP_EDGE: 3})
ARMED_SHARE: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """How the workload comes by a fault point, and at which of its hits, at most, a process may be planned to die.

    A point that is reached a few times a second bears no high turn: its process would be waited for.
    """

    by: str
    turn_max: int


_MAIL: Final = Reach(by="every send, request, reply, acknowledgement and claim", turn_max=60)
_DIRECTORY: Final = Reach(by="every creation, life, update and deletion of an agent", turn_max=5)
_TOKEN: Final = Reach(by="every creation and life of an agent", turn_max=5)
_TOOL: Final = Reach(by="every tool call of the two shims that writes", turn_max=8)
_DELETION: Final = Reach(by="every deletion of an agent", turn_max=2)
# Reached only by a process that starts while somebody waits to learn of a call that its predecessor lost.
NEEDS_A_LOSS: Final = "mcp_edge.settle.before"
LEAVES_A_LOSS: Final = "mcp_edge.call.after"
# Every fault point of the services: a new one needs a workload that reaches it.
REACHED: Final = MappingProxyType(
    {
        "mailbox.answer.before": _MAIL,
        "mailbox.begin.after": _MAIL,
        "mailbox.commit.after": _MAIL,
        "mailbox.commit.before": _MAIL,
        "mailbox.deletion.closed": _DELETION,
        "mailbox.deletion.told": _DELETION,
        "mailbox.erasure.chunk": Reach(by="the deletion of an agent that wrote much to itself", turn_max=1),
        "mailbox.erasure.ended": _DELETION,
        "mailbox.outcome.recorded": Reach(by="every end of a turn that the dispatcher tells", turn_max=3),
        LEAVES_A_LOSS: _TOOL,
        "mcp_edge.call.before": _TOOL,
        NEEDS_A_LOSS: Reach(by="the first start after a kill during a tool call that writes", turn_max=1),
        "sessions.answer.before": _DIRECTORY,
        "sessions.begin.after": _DIRECTORY,
        "sessions.commit.after": _DIRECTORY,
        "sessions.commit.before": _DIRECTORY,
        "sessions.credential.committed": _TOKEN,
        "sessions.credential.offered": _TOKEN,
        "sessions.credential.placed": _TOKEN,
        "sessions.deletion.begun": _DELETION,
        "sessions.deletion.finished": _DELETION,
        "sessions.lease.lost": Reach(by="every lease that an operator lets expire", turn_max=1),
    }
)
# Each is planned right behind the one before it: what kills there leaves the loss that the last one needs.
TOGETHER: Final = frozenset({LEAVES_A_LOSS, "mcp_edge.call.before", NEEDS_A_LOSS})


class Unreachable(Exception):
    """A service has a fault point that no workload is known to reach."""


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

    Half of them are at fault points, each point in its turn and each at least once where there are kills enough; where
    there are not, the seed decides which are left out. The first of each service comes at a random moment, because the
    process that is running then has nothing armed.

    Raises:
        Unreachable: nothing would ever come by a point, and its kill be waited for in vain.
    """
    dice = random.Random(f"{seed} plan")
    services = sorted(points)
    named = _in_some_order(dice, [(service, point) for service in services for point in sorted(points[service])])
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


def once_more(item: Planned) -> list[Planned]:
    """Return the kills by which a point that was not reached is tried again: at its first hit."""
    again = replace(item, turn=1)
    if item.point != NEEDS_A_LOSS:
        return [again]
    return [Planned(service=item.service, point=LEAVES_A_LOSS), again]


def _in_some_order(dice: random.Random, named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Shuffle points; those that belong together stay so."""
    unknown = sorted(point for _, point in named if point not in REACHED)
    if unknown:
        raise Unreachable(f"no workload is known to reach the fault point {', '.join(unknown)}: see plan.REACHED")
    together = [pair for pair in named if pair[1] in TOGETHER]
    groups = [[pair] for pair in named if pair[1] not in TOGETHER] + ([together] if together else [])
    dice.shuffle(groups)
    return [pair for group in groups for pair in group]


def _at_random(dice: random.Random, service: str) -> Planned:
    return Planned(service=service, life_ms=dice.randint(*LIFE_MS))


def _at_point(dice: random.Random, service: str, point: str) -> Planned:
    turn_max = REACHED[point].turn_max
    early = dice.random() < EARLY_SHARE
    return Planned(
        service=service, point=point, turn=dice.randint(1, min(turn_max, EARLY_TURN_MAX) if early else turn_max)
    )


def _mixed(dice: random.Random, armed: list[Planned], random_ones: list[Planned]) -> list[Planned]:
    """Put the random kills between the others, which keep their order."""
    mixed = list(armed)
    for one in random_ones:
        place = dice.randint(0, len(mixed))
        if place < len(mixed) and mixed[place].point == NEEDS_A_LOSS:
            place += 1
        mixed.insert(place, one)
    return mixed
