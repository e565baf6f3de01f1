"""`fencepost agent attach bob` before a scripted attachment, as a program of its own that a test gives a terminal.

    python -m fencepost_testing.attaching STEP...

STEP is `turn`, `attached`, `ended`, `busy`, `lost`, `stays` (nothing more is said), or `launch:CODE`: the program,
which is this interpreter running CODE. What was asked, and that the attachment was left, is told on standard error.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from fencepost.cli import acting
from fencepost.cli.app import main
from fencepost.errors import Refused, Uncertain
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import BOB


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Sessions:
    async def get_agent(self, _request: Any) -> sessions.GetAgentResponse:
        return sessions.GetAgentResponse(agent=sessions.Agent(agent_id=BOB, name="bob"))


class _Providers:
    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    async def attach_terminal(self, request: pb.AttachTerminalRequest) -> AsyncIterator[pb.AttachTerminalResponse]:
        _say(f"asked {request.agent_id == BOB} {request.wait_idle_ms}")
        try:
            for step in self._steps:
                yield await self._said(step)
        finally:
            _say("left")

    async def _said(self, step: str) -> pb.AttachTerminalResponse:
        word, _, code = step.partition(":")
        match word:
            case "turn":
                return pb.AttachTerminalResponse(waiting_for_turn="t1")
            case "launch":
                argv = [sys.executable, "-c", code] if code else ["/nowhere/codex"]
                launch = pb.Launch(argv=argv, environment={"FROM_PROVIDERS": "yes"}, working_directory="/")
                return pb.AttachTerminalResponse(launch=launch)
            case "attached":
                return pb.AttachTerminalResponse(attached=pb.Runtime(agent_id=BOB, state=pb.RUNTIME_STATE_READY))
            case "ended":
                return pb.AttachTerminalResponse(ended="the agent was switched off")
            case "busy":
                raise Refused("agent_busy", "the agent's turn did not end in time; nothing was changed")
            case "lost":
                raise Uncertain("connection_lost", "the connection was lost; what was written is not known")
        await asyncio.Event().wait()
        raise AssertionError("nothing more is said")


def run(steps: list[str]) -> int:
    """Run the command on these steps; return its exit code."""

    @asynccontextmanager
    async def connected(_who: acting.Acting, **_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(sessions=_Sessions(), providers=_Providers(steps))

    acting.connected = connected  # type: ignore[assignment]
    return main(["agent", "attach", "bob", "--wait-idle-s", "5"])


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
