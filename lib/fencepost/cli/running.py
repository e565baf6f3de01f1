"""`fencepost agent start|stop|pause|resume|restart|new-session|clone`: whether, and how, an agent's program runs.

What a person wants is written to sessions; providers makes it so and reports what it sees. A command waits for that
report, and says what stands where its patience ends before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, Key, Target, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.errors import FencepostError, Refused
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2

WAIT_S_DEFAULT: Final = 30
WAIT_S_MAX: Final = 120
LOOK_AGAIN_MS: Final = 150

WaitS = Annotated[
    int, typer.Option("--wait-s", metavar="S", help=f"How long to wait for it to be so: 0 to {WAIT_S_MAX} s.")
]

_RUNNING: Final = frozenset({pb.RUNTIME_STATE_READY, pb.RUNTIME_STATE_FAILED})
_GONE: Final = frozenset({pb.RUNTIME_STATE_OFF})


def start(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, key: Key = None, as_json: AsJson = False) -> None:
    """Run an agent: its program is started now, and again whenever it ends, until `agent stop`."""
    _want(target, sessions_pb2.DESIRED_STATE_ON, until=_RUNNING, wait_s=wait_s, key=key, as_json=as_json)


def stop(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, key: Key = None, as_json: AsJson = False) -> None:
    """Stop an agent's program. Its conversation, mail and home stay; work for it is held until `agent start`."""
    _want(target, sessions_pb2.DESIRED_STATE_OFF, until=_GONE, wait_s=wait_s, key=key, as_json=as_json)


def pause(target: Target, *, key: Key = None, as_json: AsJson = False) -> None:
    """Leave an agent's program running and carry nothing into it until `agent resume`."""
    _want(target, sessions_pb2.DESIRED_STATE_PAUSED, until=frozenset(), wait_s=0, key=key, as_json=as_json)


def resume(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, key: Key = None, as_json: AsJson = False) -> None:
    """Carry again into an agent that was paused; what was held meanwhile follows."""
    _want(target, sessions_pb2.DESIRED_STATE_ON, until=_RUNNING, wait_s=wait_s, key=key, as_json=as_json)


def restart(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, as_json: AsJson = False) -> None:
    """Stop an agent's program and start it anew on the same conversation. Nothing uncertain is replayed."""

    async def work(services: acting.Services, agent: sessions_pb2.Agent) -> pb.Runtime:
        ask = pb.RestartRuntimeRequest(agent_id=agent.agent_id, wait_ms=wait_s * 1000)
        return (await services.providers.restart_runtime(ask)).runtime

    _act(target, work, wait_s=wait_s, as_json=as_json)


def new_session(
    target: Target,
    *,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--leave", metavar="CONVERSATION", help="The conversation that is left, as `agent show` names it."
        ),
    ] = None,
    wait_s: WaitS = WAIT_S_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Begin a new conversation. The one before stays where its program keeps it; Fencepost goes on with the new."""

    async def work(services: acting.Services, agent: sessions_pb2.Agent) -> pb.Runtime:
        ask = pb.BeginConversationRequest(
            agent_id=agent.agent_id, expected_conversation_id=confirm or "", wait_ms=wait_s * 1000
        )
        return (await services.providers.begin_conversation(ask)).runtime

    _act(target, work, wait_s=wait_s, as_json=as_json)


def clone(
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new agent's name in the same project.")],
    *,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Create an agent with another's role, program, workspace and launch settings; never its conversation or mail."""
    operator = acting.as_operator()
    idempotency_key = key_or_new(key)

    async def work(services: acting.Services) -> sessions_pb2.CreateAgentResponse:
        of = (await resolve(services, target)).agent
        ask = sessions_pb2.CreateAgentRequest(
            idempotency_key=idempotency_key,
            project_id=of.project_id,
            name=name,
            role=of.role,
            provider=of.provider,
            workspace=of.workspace,
        )
        if of.HasField("launch"):
            ask.launch.CopyFrom(of.launch)
            ask.launch.set_include_directories = bool(of.launch.include_directories)
        return await services.sessions.create_agent(ask)

    made = acting.call(operator, work)
    if as_json:
        screen.put_json(plain(made))
        return
    earlier = "was created by an earlier call with this key" if made.duplicate else "is created"
    screen.put(f"Agent {one_line(made.agent.name)} ({made.agent.agent_id}) {earlier}.")
    screen.put(f"It does not run yet: fencepost agent start {one_line(made.agent.name)}")


def _check_wait(wait_s: int) -> None:
    if not 0 <= wait_s <= WAIT_S_MAX:
        raise Refused("invalid_arguments", f"--wait-s takes 0 to {WAIT_S_MAX}; nothing was done")


def _want(
    target: str,
    desired: sessions_pb2.DesiredState.ValueType,
    *,
    until: frozenset[int],
    wait_s: int,
    key: str | None,
    as_json: bool,
) -> None:
    """Write what a person wants, then wait until the runtime is in one of the states `until`."""
    operator = acting.as_operator()
    _check_wait(wait_s)
    idempotency_key = key_or_new(key)

    async def work(services: acting.Services) -> tuple[sessions_pb2.Agent, pb.Runtime | None]:
        found = (await resolve(services, target)).agent
        _check_managed(found, desired)
        ask = sessions_pb2.UpdateAgentRequest(idempotency_key=idempotency_key, agent_id=found.agent_id, desired=desired)
        changed = (await services.sessions.update_agent(ask)).agent
        return changed, await _seen(services, changed.agent_id, until, wait_s)

    agent, runtime = acting.call(operator, work)
    if as_json:
        screen.put_json({"agent": plain(agent), "runtime": None if runtime is None else plain(runtime)})
        return
    word = enum_word(agent.DESCRIPTOR.fields_by_name["desired"], agent.desired)
    screen.put(f"Agent {one_line(agent.name)} is wanted {word}.")
    if runtime is None:
        screen.put("  The providers service does not answer: it makes it so once it runs (`fencepost status`).")
        return
    put_runtime(runtime)
    if until and runtime.state not in until:
        screen.put(f"  Not so within {wait_s} s; it goes on by itself: fencepost agent show {one_line(agent.name)}")


def _check_managed(agent: sessions_pb2.Agent, desired: sessions_pb2.DesiredState.ValueType) -> None:
    if desired == sessions_pb2.DESIRED_STATE_ON and not agent.provider:
        raise Refused(
            "provider_unknown",
            f"the agent {one_line(agent.name)} has no provider, so there is no program to run; nothing was written",
            hint=f"Name one: fencepost agent update {one_line(agent.name)} --provider codex --workspace DIR",
        )


async def _seen(services: acting.Services, agent_id: str, until: frozenset[int], wait_s: int) -> pb.Runtime | None:
    end = time.monotonic() + wait_s
    while True:
        try:
            runtime = (await services.providers.get_runtime(agent_id)).runtime
        except FencepostError:
            runtime = None
        # What providers says at once may be of before it has heard.
        if time.monotonic() >= end or (runtime is not None and runtime.state in until):
            return runtime
        await asyncio.sleep(LOOK_AGAIN_MS / 1000)


def _act(
    target: str,
    work: Callable[[acting.Services, sessions_pb2.Agent], Awaitable[pb.Runtime]],
    *,
    wait_s: int,
    as_json: bool,
) -> None:
    operator = acting.as_operator()
    _check_wait(wait_s)

    async def run(services: acting.Services) -> tuple[sessions_pb2.Agent, pb.Runtime]:
        agent = (await resolve(services, target)).agent
        return agent, await work(services, agent)

    agent, runtime = acting.call(operator, run)
    if as_json:
        screen.put_json({"agent_id": agent.agent_id, "runtime": plain(runtime)})
        return
    screen.put(f"Agent {one_line(agent.name)}:")
    put_runtime(runtime)


def put_runtime(runtime: pb.Runtime) -> None:
    """Show a runtime to people."""
    fields = runtime.DESCRIPTOR.fields_by_name
    state = enum_word(fields["state"], runtime.state) or "not known"
    facts = [state]
    if runtime.state == pb.RUNTIME_STATE_READY:
        facts.append(enum_word(fields["activity"], runtime.activity) or "activity not known")
        facts.append(f"{runtime.provider} {runtime.version}".strip())
        facts.append(f"generation {runtime.generation}")
        facts.append(f"process {runtime.pid}")
    if runtime.attached:
        facts.append("a terminal is attached")
    screen.put("  " + ", ".join(one_line(fact) for fact in facts))
    if runtime.conversation_id:
        screen.put(f"  conversation {one_line(runtime.conversation_id)}")
    if runtime.problem:
        screen.put(f"  {one_line(runtime.problem)}")
