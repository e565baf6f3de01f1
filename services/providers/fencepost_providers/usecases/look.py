"""ListProviders, ListModels, GetRuntime, GetCapabilities: what there is, changing nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fencepost_kit import logs
from fencepost_kit.identity import Caller, Role
from fencepost_providers.adapters.base import PROBE_MS_MAX, Adapter
from fencepost_providers.domain.agents import Agent
from fencepost_providers.domain.lifecycle import Phase
from fencepost_providers.domain.refusals import UnknownProvider
from fencepost_providers.domain.runtimes import (
    Activity,
    Capability,
    CapabilityKind,
    Catalogue,
    Installation,
    State,
    Support,
)
from fencepost_providers.usecases.ports import Ports, agent_of

MODELS_MS_MAX: Final = 15_000
PROBE_SLACK_MS: Final = 1_000

_log: Final = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """An adapter with the program that was found for it."""

    name: str
    title: str
    installation: Installation
    capabilities: Mapping[CapabilityKind, Capability]


@dataclass(frozen=True, kw_only=True, slots=True)
class Abilities:
    """What can be done with an agent's conversation."""

    provider: str
    version: str
    capabilities: Mapping[CapabilityKind, Capability]


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """An agent's runtime as it is now."""

    agent_id: str
    provider: str
    phase: Phase
    activity: Activity
    conversation_id: str
    generation: int
    pid: int
    version: str
    problem: str
    attached: bool
    private_home: str
    log_file: str
    since_ms: int


async def probed(adapter: Adapter) -> Installation:
    """Return the installed program of an adapter; whatever goes wrong is its problem."""
    try:
        async with asyncio.timeout((PROBE_MS_MAX + PROBE_SLACK_MS) / 1000):
            return await adapter.probe()
    except TimeoutError:
        return Installation(problem=f"the program did not say its version within {PROBE_MS_MAX} ms")
    except Exception as error:  # noqa: BLE001 - an adapter that breaks its word is reported, like a broken one
        _log.exception("adapter_raised", error, adapter=adapter.name)
        return Installation(problem=f"the adapter failed: {type(error).__name__}")


def none_of_it(reason: str) -> Mapping[CapabilityKind, Capability]:
    """Return that nothing can be done, and why."""
    return {kind: Capability(support=Support.NONE, reason=reason) for kind in CapabilityKind}


async def list_providers(ports: Ports) -> Sequence[Offered]:
    """Return every adapter, a broken one with its problem."""

    async def offered(name: str) -> Offered:
        adapter = ports.adapters.get(name)
        if adapter is None:
            problem = ports.adapters.problem(name)
            return Offered(
                name=name, title=name, installation=Installation(problem=problem), capabilities=none_of_it(problem)
            )
        installation = await probed(adapter)
        return Offered(
            name=name,
            title=adapter.title,
            installation=installation,
            capabilities=adapter.capabilities(installation.version),
        )

    return await asyncio.gather(*map(offered, ports.adapters.names))


async def list_models(ports: Ports, provider: str, *, refresh: bool) -> Catalogue:
    """Return the models of a provider.

    Raises:
        UnknownProvider: there is no such adapter.
    """
    adapter = ports.adapters.get(provider)
    if adapter is None:
        raise UnknownProvider(
            f"{ports.adapters.problem(provider)}; nothing was changed",
            hint="`fencepost provider list` shows what there is.",
        )
    try:
        async with asyncio.timeout(MODELS_MS_MAX / 1000):
            return await adapter.models(refresh=refresh)
    except TimeoutError:
        return Catalogue(problem=f"the program did not answer within {MODELS_MS_MAX} ms")


def runtime_now(ports: Ports, agent: Agent, *, for_operator: bool) -> Runtime:
    """Return an agent's runtime as it is now; paths are for the operator only."""
    keeper = ports.roster.keeper(agent.agent_id)
    adapter = ports.adapters.get(agent.provider)
    life = keeper.life if keeper is not None else None
    running = life.runtime if life is not None and keeper is not None and keeper.phase is Phase.READY else None
    found = Runtime(
        agent_id=agent.agent_id,
        provider=agent.provider,
        phase=keeper.phase if keeper is not None else Phase.OFF,
        activity=keeper.activity if keeper is not None else Activity(state=State.UNKNOWN),
        conversation_id=agent.conversation_id if life is None else life.conversation_id,
        generation=0 if life is None or running is None else life.generation,
        pid=0 if running is None else running.pid,
        version="" if running is None else running.version,
        problem=keeper.failure.text if keeper is not None and keeper.failure is not None else "",
        attached=keeper is not None and keeper.attached,
        private_home="",
        log_file="",
        since_ms=keeper.since_ms if keeper is not None else 0,
    )
    plan = keeper.plan if keeper is not None else None
    if for_operator and adapter is not None and plan is not None:
        return replace(found, private_home=adapter.private_home(plan), log_file=adapter.log_file(plan))
    return found


async def get_runtime(ports: Ports, caller: Caller, agent_id: str) -> Runtime:
    """Return what is known of an agent's runtime. An agent sees itself, the operator everybody."""
    agent = agent_of(ports, caller, agent_id, only_self=True)
    return runtime_now(ports, agent, for_operator=caller.role is Role.OPERATOR)


async def get_capabilities(ports: Ports, caller: Caller, agent_id: str) -> Abilities:
    """Return what can be done with an agent's conversation: of the running version, else of the installed one."""
    agent = agent_of(ports, caller, agent_id)
    adapter = ports.adapters.get(agent.provider)
    if adapter is None:
        return Abilities(provider="", version="", capabilities=none_of_it(ports.adapters.problem(agent.provider)))
    keeper = ports.roster.keeper(agent_id)
    life = keeper.life if keeper is not None else None
    if life is not None and life.runtime is not None:
        return Abilities(provider=agent.provider, version=life.runtime.version, capabilities=life.capabilities)
    installation = await probed(adapter)
    return Abilities(
        provider=agent.provider,
        version=installation.version,
        capabilities=adapter.capabilities(installation.version),
    )
