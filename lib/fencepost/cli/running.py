"""`fencepost agent start|stop|pause|resume|restart|new-session|clone`: whether, and how, an agent's program runs.

What a person wants is written to sessions; providers makes it so and reports what it sees. A command waits for that
report, and says what stands where its patience ends before. So it has two halves, and where the second cannot be had
the first stands all the same: the text says so, and the exit code is that of the second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from fencepost.cli import acting, exits, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, Key, Target, key_or_new
from fencepost.cli.plain import enum_word, one_line, plain
from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2

WAIT_S_DEFAULT: Final = 30
WAIT_S_MAX: Final = 120
LOOK_AGAIN_MS: Final = 150
# What only adds to an answer may take no longer than this.
GLANCE_MS_MAX: Final = 2_000

WaitS = Annotated[
    int, typer.Option("--wait-s", metavar="S", help=f"How long to wait for it to be so: 0 to {WAIT_S_MAX} s.")
]

_RUNNING: Final = frozenset({pb.RUNTIME_STATE_READY})
_GONE: Final = frozenset({pb.RUNTIME_STATE_OFF})
_ANY: Final[frozenset[int]] = frozenset()
_ON, _OFF, _PAUSED = (
    sessions_pb2.DESIRED_STATE_ON,
    sessions_pb2.DESIRED_STATE_OFF,
    sessions_pb2.DESIRED_STATE_PAUSED,
)
_SAID: Final[Mapping[int, str]] = {
    _ON: "is to run",
    _OFF: "is switched off",
    _PAUSED: "is paused: nothing is carried into it",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wish:
    """What a person wants of an agent, and what is seen once it is so."""

    desired: sessions_pb2.DesiredState.ValueType
    until: frozenset[int]
    # Refuses where it makes no sense for this agent.
    check: Callable[[sessions_pb2.Agent], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What providers said last; `problem` where it said nothing."""

    runtime: pb.Runtime | None = None
    problem: FencepostError | None = None


def start(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, key: Key = None, as_json: AsJson = False) -> None:
    """Run an agent: its program is started now, and again whenever it ends, until `agent stop`."""
    _want(target, _Wish(desired=_ON, until=_RUNNING, check=_check_start), wait_s=wait_s, key=key, as_json=as_json)


def stop(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, key: Key = None, as_json: AsJson = False) -> None:
    """Stop an agent's program. Its conversation, mail and home stay; work for it is held until `agent start`."""
    _want(target, _Wish(desired=_OFF, until=_GONE, check=_check_nothing), wait_s=wait_s, key=key, as_json=as_json)


def pause(target: Target, *, key: Key = None, as_json: AsJson = False) -> None:
    """Leave an agent's program running and carry nothing into it until `agent resume`."""
    _want(target, _Wish(desired=_PAUSED, until=_ANY, check=_check_pause), wait_s=0, key=key, as_json=as_json)


def resume(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, key: Key = None, as_json: AsJson = False) -> None:
    """Carry again into an agent that was paused; what was held meanwhile follows."""
    _want(target, _Wish(desired=_ON, until=_RUNNING, check=_check_resume), wait_s=wait_s, key=key, as_json=as_json)


def restart(target: Target, *, wait_s: WaitS = WAIT_S_DEFAULT, as_json: AsJson = False) -> None:
    """Stop an agent's program and start it anew on the same conversation. Nothing uncertain is replayed."""

    async def work(services: acting.Services, agent: sessions_pb2.Agent) -> pb.Runtime:
        ask = pb.RestartRuntimeRequest(agent_id=agent.agent_id, wait_ms=wait_s * 1000)
        return (await services.providers.restart_runtime(ask)).runtime

    _act(target, work, wait_s=wait_s, as_json=as_json)


def new_session(
    target: Target,
    *,
    leave: Annotated[
        str | None,
        typer.Option(
            "--leave",
            metavar="CONVERSATION",
            help="The conversation that is left, as `agent show` names it; refused where it is another one.",
        ),
    ] = None,
    wait_s: WaitS = WAIT_S_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Begin a new conversation. The one before stays where its program keeps it; Fencepost goes on with the new."""

    async def work(services: acting.Services, agent: sessions_pb2.Agent) -> pb.Runtime:
        ask = pb.BeginConversationRequest(
            agent_id=agent.agent_id, expected_conversation_id=leave or "", wait_ms=wait_s * 1000
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
    shown = one_line(made.agent.name)
    earlier = "was created by an earlier call with this key" if made.duplicate else "is created"
    screen.put(f"Agent {shown} ({made.agent.agent_id}) {earlier}.")
    if made.agent.provider:
        screen.put(f"  It does not run yet: fencepost agent start {shown}")


def _check_nothing(agent: sessions_pb2.Agent) -> None:
    """Accept: everybody can be switched off."""
    del agent


def _check_start(agent: sessions_pb2.Agent) -> None:
    """Refuse an agent of which it is certain already that no program can be started for it."""
    shown = one_line(agent.name)
    if not agent.provider:
        raise Refused(
            "unknown_provider",
            f"the agent {shown} has no provider, so there is no program to run; nothing was written",
            hint=f"Name one, for example: fencepost agent update {shown} --provider codex",
        )
    if not (agent.workspace or agent.launch.checkout_root):
        raise Refused(
            "no_workspace",
            f"the agent {shown} has no folder to work in; nothing was written",
            hint=f"Name one: fencepost agent update {shown} --workspace DIR",
        )


def _check_pause(agent: sessions_pb2.Agent) -> None:
    if agent.desired not in {_ON, _PAUSED}:
        raise Refused(
            "agent_off",
            f"Fencepost does not run the agent {one_line(agent.name)}, so there is nothing to pause; nothing was"
            " written",
            hint=f"To run it: fencepost agent start {one_line(agent.name)}",
        )


def _check_resume(agent: sessions_pb2.Agent) -> None:
    if agent.desired not in {_ON, _PAUSED}:
        raise Refused(
            "agent_off",
            f"the agent {one_line(agent.name)} is not paused: Fencepost does not run it; nothing was written",
            hint=f"To run it: fencepost agent start {one_line(agent.name)}",
        )


def _check_wait(wait_s: int) -> None:
    if not 0 <= wait_s <= WAIT_S_MAX:
        raise Refused("invalid_arguments", f"--wait-s takes 0 to {WAIT_S_MAX}; nothing was done")


def _want(target: str, wish: _Wish, *, wait_s: int, key: str | None, as_json: bool) -> None:
    """Write what a person wants, then wait until the runtime is as it is to be."""
    operator = acting.as_operator()
    _check_wait(wait_s)
    idempotency_key = key_or_new(key)

    async def work(services: acting.Services) -> tuple[sessions_pb2.Agent, _Seen]:
        found = (await resolve(services, target)).agent
        wish.check(found)
        before = await _look(services, found.agent_id)
        ask = sessions_pb2.UpdateAgentRequest(
            idempotency_key=idempotency_key, agent_id=found.agent_id, desired=wish.desired
        )
        changed = (await services.sessions.update_agent(ask)).agent
        if isinstance(before.problem, NotWritten):
            return changed, before
        if wish.desired == _ON and found.desired == _ON and _failed(before.runtime):
            # It was wanted before, so that nothing has changed: a person says to try once more.
            return changed, await _retried(services, found.agent_id, wait_s)
        return changed, await _awaited(services, changed.agent_id, wish.until, wait_s, before.runtime)

    agent, seen = acting.call(operator, work)
    _tell(agent, seen, as_json=as_json, said=_SAID[wish.desired])
    _end(seen, wish.until, wait_s, agent=agent, as_json=as_json)


async def _look(services: acting.Services, agent_id: str) -> _Seen:
    try:
        return _Seen(runtime=(await services.providers.get_runtime(agent_id)).runtime)
    except FencepostError as error:
        return _Seen(problem=error)


async def _awaited(
    services: acting.Services, agent_id: str, until: frozenset[int], wait_s: int, before: pb.Runtime | None
) -> _Seen:
    """Look until it is so, or failed, or the time is over. A failure from before is none of this command's."""
    end = time.monotonic() + wait_s
    while True:
        seen = await _look(services, agent_id)
        if isinstance(seen.problem, NotWritten) or time.monotonic() >= end:
            return seen
        if seen.runtime is not None:
            stale = _failed(before) and before is not None and seen.runtime.since_ms == before.since_ms
            if seen.runtime.state in until or (_failed(seen.runtime) and not stale and until == _RUNNING):
                return seen
        await asyncio.sleep(LOOK_AGAIN_MS / 1000)


async def _retried(services: acting.Services, agent_id: str, wait_s: int) -> _Seen:
    try:
        ask = pb.RestartRuntimeRequest(agent_id=agent_id, wait_ms=wait_s * 1000)
        return _Seen(runtime=(await services.providers.restart_runtime(ask)).runtime)
    except FencepostError as error:
        return _Seen(problem=error)


def _failed(runtime: pb.Runtime | None) -> bool:
    return runtime is not None and runtime.state == pb.RUNTIME_STATE_FAILED


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
        try:
            return agent, await work(services, agent)
        except Uncertain as lost:
            raise Uncertain(
                lost.reason,
                lost.message,
                hint=f"fencepost agent show {one_line(agent.name)} tells what stands; it is not done again by itself.",
                state=lost.state,
            ) from None

    agent, runtime = acting.call(operator, run)
    seen = _Seen(runtime=runtime)
    _tell(agent, seen, as_json=as_json, said="")
    _end(seen, _RUNNING, wait_s, agent=agent, as_json=as_json)


def _tell(agent: sessions_pb2.Agent, seen: _Seen, *, as_json: bool, said: str) -> None:
    problem = seen.problem
    if as_json:
        told = None if problem is None else {"code": problem.reason, "message": problem.message, "hint": problem.hint}
        runtime = None if seen.runtime is None else plain(seen.runtime)
        screen.put_json({"agent": plain(agent), "runtime": runtime, "problem": told})
        return
    screen.put(f"Agent {one_line(agent.name)} {said}".rstrip() + ("." if said else ":"))
    if seen.runtime is not None:
        put_runtime(seen.runtime)
    elif problem is not None:
        unknown = "" if isinstance(problem, Refused) else "what its program does is not known: "
        screen.put(f"  That is written; {unknown}{one_line(problem.message)} ({problem.reason})")
        if problem.hint:
            screen.put(f"  {one_line(problem.hint)}")


def _end(seen: _Seen, until: frozenset[int], wait_s: int, *, agent: sessions_pb2.Agent, as_json: bool) -> None:
    """End with the exit code of what was seen; nothing where it is so, or where nobody wanted to wait."""
    if seen.problem is not None:
        raise typer.Exit(exits.exit_code(seen.problem))
    if seen.runtime is None or not until or seen.runtime.state in until or not wait_s:
        return
    if until == _RUNNING and _failed(seen.runtime):
        raise typer.Exit(exits.FAILED)
    if not as_json:
        screen.put(f"  Not so within {wait_s} s; it goes on by itself: fencepost agent show {one_line(agent.name)}")
    raise typer.Exit(exits.TIMED_OUT)


async def runtime_of(services: acting.Services, agent: sessions_pb2.Agent) -> pb.Runtime | None:
    """Return what providers say of an agent that they run; None where they run none, or cannot tell at once."""
    if agent.desired == sessions_pb2.DESIRED_STATE_UNSPECIFIED:
        return None
    try:
        async with asyncio.timeout(GLANCE_MS_MAX / 1000):
            return (await services.providers.get_runtime(agent.agent_id)).runtime
    except (FencepostError, TimeoutError):
        # Who an agent is, is sessions' answer; it does not depend on providers.
        return None


def runtime_words(runtime: pb.Runtime) -> str:
    """Return the state of a runtime for people, on one line."""
    fields = runtime.DESCRIPTOR.fields_by_name
    facts = [enum_word(fields["state"], runtime.state) or "not known"]
    if runtime.state == pb.RUNTIME_STATE_READY:
        activity = enum_word(fields["activity"], runtime.activity) or "activity not known"
        facts.append(activity.replace("_", " "))
        facts.append(f"{runtime.provider} {runtime.version}".strip())
        facts.append(f"generation {runtime.generation}")
        facts.append(f"process {runtime.pid}")
    if runtime.attached:
        facts.append("a terminal is attached")
    return ", ".join(one_line(fact) for fact in facts)


def put_runtime(runtime: pb.Runtime) -> None:
    """Show a runtime to people."""
    screen.put(f"  {runtime_words(runtime)}")
    if runtime.conversation_id:
        screen.put(f"  conversation {one_line(runtime.conversation_id)}")
    if runtime.problem:
        screen.put(f"  {one_line(runtime.problem)}")
