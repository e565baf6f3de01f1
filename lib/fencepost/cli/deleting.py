"""`fencepost agent delete`: says what will happen, begins it, and waits a while for its end."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from fencepost.cli import acting, screen
from fencepost.cli.directory import resolve
from fencepost.cli.options import AsJson, Key, Target, key_or_new
from fencepost.cli.plain import one_line, plain
from fencepost.errors import Refused
from fencepost.sessions.v1 import sessions_pb2 as pb

DELETION_WAIT_S_DEFAULT: Final = 30
DELETION_WAIT_S_MAX: Final = 600
LOOK_AGAIN_MS: Final = 200

CONSEQUENCES: Final = (
    "Its credentials end at once, and its credential file is removed.",
    "Whoever waits for its answer gets one by the host: failed.",
    "Requests that it sent are taken back, or closed with a notice where somebody may have begun.",
    "What it was sent is erased. What it sent to others stays with them.",
    "Its name is free a minute after that, its UUID never. This cannot be undone.",
)


def delete(
    target: Target,
    *,
    confirm: Annotated[
        str | None, typer.Option("--confirm", metavar="NAME", help="The agent's name, typed again as it is shown.")
    ] = None,
    wait_s: Annotated[
        int,
        typer.Option("--wait-s", metavar="S", help=f"How long to wait for the end: 0 to {DELETION_WAIT_S_MAX} s."),
    ] = DELETION_WAIT_S_DEFAULT,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Delete an agent and its mail. Without --confirm it only says what that would do."""
    operator = acting.as_operator()
    if not 0 <= wait_s <= DELETION_WAIT_S_MAX:
        raise Refused("invalid_arguments", f"--wait-s takes 0 to {DELETION_WAIT_S_MAX}; nothing was done")
    ask = pb.DeleteAgentRequest(idempotency_key=key_or_new(key), confirm_name=confirm or "")

    async def begin(services: acting.Services) -> pb.DeleteAgentResponse:
        agent = (await resolve(services, target)).agent
        ask.agent_id = agent.agent_id
        if confirm is None:
            raise Refused(
                "confirmation_missing",
                f"this would delete the agent {one_line(agent.name)}; nothing was done. " + " ".join(CONSEQUENCES),
                hint=f"If you mean it: fencepost agent delete {agent.agent_id} --confirm NAME, with its name as shown.",
            )
        return await services.sessions.delete_agent(ask)

    async def until_ended(services: acting.Services) -> pb.DeleteAgentResponse:
        # The same call again is a question: it tells how far the deletion has come.
        end = asyncio.get_running_loop().time() + wait_s
        while True:
            answer = await services.sessions.delete_agent(ask)
            if answer.finished or asyncio.get_running_loop().time() >= end:
                return answer
            await asyncio.sleep(LOOK_AGAIN_MS / 1000)

    first = acting.call(operator, begin)
    name = f"{one_line(first.agent.name)} ({first.agent.agent_id})"
    if not as_json:
        again = "is being deleted already" if first.duplicate else "is being deleted"
        screen.put(f"Agent {name} {again}.")
        for line in CONSEQUENCES:
            screen.put(f"  {line}")
    last = acting.call(operator, until_ended) if wait_s and not first.finished else first
    if as_json:
        screen.put_json({**plain(last), "finished": last.finished, "duplicate": first.duplicate})
    elif last.finished:
        screen.put("Deleted: its mail is closed and erased.")
    else:
        screen.put(
            f"Not ended within {wait_s} s: it goes on by itself while sessions and mailbox run. "
            "`fencepost agent show` tells deleting until it has ended, then that there is no such agent."
        )
