"""InspectRuntime and ApproveTools: an agent's private home, looked at and, on a person's word, changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fencepost.mcp.registry import EVERY_OF
from fencepost_kit import logs
from fencepost_kit.identity import Caller
from fencepost_providers.adapters.base import Adapter, StartFailed
from fencepost_providers.domain.agents import Agent
from fencepost_providers.domain.refusals import CannotStart, InvalidTools, UnknownProvider
from fencepost_providers.domain.runtimes import Finding, Gravity, LaunchPlan
from fencepost_providers.plans import plan_of
from fencepost_providers.usecases.look import Runtime, runtime_now
from fencepost_providers.usecases.ports import Ports, agent_of

INSPECT_MS_MAX: Final = 15_000
TOOLS_MAX: Final = 64
_log: Final = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """What was found."""

    runtime: Runtime
    findings: Sequence[Finding]
    launch_arguments: Sequence[str]
    restart_required: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Approved:
    """Every tool that is approved now."""

    tools: Sequence[str]
    restart_required: bool


async def inspect_runtime(ports: Ports, caller: Caller, agent_id: str) -> Inspection:
    """Return what is wrong, or may be, with an agent's program. Changes nothing.

    Raises:
        NotFound: there is no such agent.
    """
    agent = agent_of(ports, caller, agent_id)
    runtime = runtime_now(ports, agent, for_operator=True)
    findings: list[Finding] = []
    arguments: Sequence[str] = ()
    if runtime.problem:
        findings.append(Finding(code="not_running", gravity=Gravity.ERROR, text=runtime.problem))
    adapter = ports.adapters.get(agent.provider)
    if adapter is None:
        problem = ports.adapters.problem(agent.provider)
        findings.append(Finding(code=UnknownProvider.reason, gravity=Gravity.ERROR, text=problem))
        return Inspection(runtime=runtime, findings=findings, launch_arguments=(), restart_required=False)
    keeper = ports.roster.keeper(agent_id)
    life = keeper.life if keeper is not None else None
    try:
        plan = await _plan(ports, agent)
        async with asyncio.timeout(INSPECT_MS_MAX / 1000):
            findings += await adapter.inspect(plan, None if life is None else life.runtime)
            arguments = await adapter.launch_arguments(plan)
    except StartFailed as failed:
        findings.append(Finding(code=failed.code, gravity=Gravity.ERROR, text=str(failed), hint=failed.hint))
        return Inspection(runtime=runtime, findings=findings, launch_arguments=(), restart_required=False)
    except TimeoutError:
        findings.append(
            Finding(code="not_inspected", gravity=Gravity.WARNING, text=f"no answer within {INSPECT_MS_MAX} ms")
        )
    restart = life is not None and keeper is not None and _differs(keeper.plan, plan)
    return Inspection(runtime=runtime, findings=findings, launch_arguments=arguments, restart_required=restart)


async def approve_tools(ports: Ports, caller: Caller, agent_id: str, tools: Sequence[str]) -> Approved:
    """Approve tools of our MCP server by name, in the agent's private home.

    Raises:
        InvalidTools: none, too many, or one that is not ours; nothing was changed.
        CannotStart: there is nowhere to write it down; nothing was changed.
        UnknownProvider, NotFound: see there.
    """
    unknown = [tool for tool in tools if tool not in EVERY_OF]
    if not tools or len(tools) > TOOLS_MAX or unknown:
        raise InvalidTools(
            "tools are approved one by one: name 1 to 64 tools of ours; nothing was changed",
            hint=f"There are: {', '.join(EVERY_OF)}.",
        )
    agent = agent_of(ports, caller, agent_id)
    adapter = _adapter(ports, agent)
    try:
        approved = await adapter.approve_tools(await _plan(ports, agent), tuple(dict.fromkeys(tools)))
    except StartFailed as failed:
        raise CannotStart(f"{failed.code}: {failed}; nothing was changed", hint=failed.hint) from None
    _log.info("tools_approved", agent=agent.agent_id, tools=list(tools), by=caller.label)
    keeper = ports.roster.keeper(agent_id)
    return Approved(tools=approved, restart_required=keeper is not None and keeper.life is not None)


def _adapter(ports: Ports, agent: Agent) -> Adapter:
    adapter = ports.adapters.get(agent.provider)
    if adapter is None:
        raise UnknownProvider(f"{ports.adapters.problem(agent.provider)}; nothing was changed")
    return adapter


async def _plan(ports: Ports, agent: Agent) -> LaunchPlan:
    return await asyncio.to_thread(
        plan_of, ports.home, agent, generation=agent.generation, conversation_id=agent.conversation_id
    )


def _differs(running: LaunchPlan | None, wanted: LaunchPlan) -> bool:
    """Tell whether a restart would start the program otherwise."""
    return running is not None and (
        running.settings,
        running.workspace,
        running.instructions,
        running.skills,
    ) != (wanted.settings, wanted.workspace, wanted.instructions, wanted.skills)
