"""What `fencepost doctor` asks providers about the agents that are to run. Changes nothing."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fencepost.client import Providers
from fencepost.doctor.findings import Ailment, Facts, Program, Severity
from fencepost.errors import FencepostError
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions

# Agents that are looked at one by one: each may cost the start of a program.
INSPECTED_MAX: Final = 16
INSPECT_ALL_MS_MAX: Final = 40_000
_TO_RUN: Final = frozenset({sessions.DESIRED_STATE_ON, sessions.DESIRED_STATE_PAUSED})
_SEVERITIES: Final = {pb.GRAVITY_ERROR: Severity.PROBLEM, pb.GRAVITY_WARNING: Severity.WARNING}


async def looked_at(providers: Providers, facts: Facts, agents: Sequence[sessions.Agent]) -> Facts:
    """Return the facts with what is wrong with programs and with agents that are to run in them. Raises nothing."""
    to_run = [agent for agent in agents if agent.desired in _TO_RUN]
    if not to_run:
        return facts
    facts = replace(facts, runs_agents=True)
    try:
        found = await providers.list_providers()
    except FencepostError as error:
        return replace(facts, unattended=[agent.name for agent in to_run], providers_problem=error.message)
    programs = _programs(found, to_run)
    broken = {program.name for program in programs}
    usable = [agent for agent in to_run if agent.provider not in broken]
    ailments, uninspected = await _inspected(providers, usable)
    return replace(facts, programs=programs, ailments=ailments, uninspected=uninspected)


def _programs(found: pb.ListProvidersResponse, to_run: Sequence[sessions.Agent]) -> list[Program]:
    """Return the programs that cannot be used, each once however many agents are to run in it."""
    of_program: dict[str, list[str]] = defaultdict(list)
    for agent in to_run:
        of_program[agent.provider].append(agent.name)
    return [
        Program(name=item.name, problem=item.problem, agents=of_program[item.name])
        for item in found.providers
        if item.problem and item.name in of_program
    ]


async def _inspected(providers: Providers, agents: Sequence[sessions.Agent]) -> tuple[list[Ailment], dict[str, str]]:
    ailments: list[Ailment] = []
    uninspected = {agent.name: f"no more than {INSPECTED_MAX} are looked at here" for agent in agents[INSPECTED_MAX:]}

    async def inspect(agent: sessions.Agent) -> None:
        try:
            async with asyncio.timeout(INSPECT_ALL_MS_MAX / 1000):
                found = await providers.inspect_runtime(agent.agent_id)
        except FencepostError as error:
            uninspected[agent.name] = error.message
        except TimeoutError:
            uninspected[agent.name] = f"no answer within {INSPECT_ALL_MS_MAX // 1000} s"
        else:
            ailments.extend(
                Ailment(
                    agent=agent.name,
                    severity=_SEVERITIES[item.gravity],
                    code=item.code,
                    text=item.text,
                    hint=item.hint,
                )
                for item in found.findings
                if item.gravity in _SEVERITIES
            )

    await asyncio.gather(*map(inspect, agents[:INSPECTED_MAX]))
    order = {agent.name: at for at, agent in enumerate(agents)}
    return sorted(ailments, key=lambda one: order[one.agent]), uninspected
