"""A person's terminal on an agent's conversation: the stock program, which finds our server by its home. M138-M150.

The program looks for a server at a socket in its home. While a terminal joins, that socket is ours: it hands every byte
on to the real one and sees by this alone when a terminal comes and when it has gone. The server behind has nothing
loaded at first, so a thread that is loaded was loaded by the terminal; one with a server of its own is never seen here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost_providers.adapters.base import StartFailed, Terminal
from fencepost_providers.adapters.codex import launch
from fencepost_providers.adapters.codex.rpc import CONNECT_MS_MAX, NoAnswer, NotSent, Refused, resolved
from fencepost_providers.domain.runtimes import Permits
from fencepost_providers.processes.child import to_the_end

if TYPE_CHECKING:
    from fencepost_providers.adapters.codex.runtime import CodexRuntime

CONTROL_FOLDER: Final = "app-server-control"
CONTROL_SOCKET: Final = "app-server-control.sock"
JOIN_MS_MAX: Final = 120_000
LOOK_MS: Final = 100
# A terminal opens several connections one after the other while it starts.
QUIET_MS: Final = 1_000
CONNECTIONS_MAX: Final = 16
CHUNK_BYTES: Final = 64 * 1024
LOADED_MAX: Final = 2


class Relay:
    """Hands bytes on between terminals and the server, and counts who is there."""

    def __init__(self, path: str, server: str) -> None:
        self.path = path
        self.open = 0
        self.seen = 0
        self._changed = asyncio.Event()
        self._server = server
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. OSError where that cannot be done."""
        await asyncio.to_thread(Path(self.path).parent.mkdir, mode=0o700, parents=True, exist_ok=True)
        self._listening = await asyncio.start_unix_server(self._came, self.path)
        os.chmod(self.path, 0o600)  # noqa: PTH101

    async def close(self) -> None:
        """Cut everybody off. Harmless when repeated."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def wait(self, ms: float) -> bool:
        """Wait until somebody comes or goes, so long at most; return whether somebody did."""
        self._changed.clear()
        try:
            async with asyncio.timeout(ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count(1)
        onward: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(CONNECT_MS_MAX / 1000):
                back, onward = await asyncio.open_unix_connection(resolved(self._server))
            ways = [asyncio.ensure_future(_copy(reader, onward)), asyncio.ensure_future(_copy(back, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        except (OSError, TimeoutError):
            pass
        finally:
            writer.close()
            if onward is not None:
                onward.close()
            self._count(-1)

    def _count(self, more: int) -> None:
        self.open += more
        self.seen += max(0, more)
        self._changed.set()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


class CodexAttachment:
    """See `fencepost_providers.adapters.base.Attachment`."""

    def __init__(self, runtime: CodexRuntime, relay: Relay) -> None:
        self.terminal: Terminal = runtime.terminal()
        self._runtime = runtime
        self._relay = relay
        self._joined = False
        self._closed = False

    async def joined(self) -> None:
        """Return once the terminal loaded exactly our thread, and we hear what happens in it."""
        try:
            async with asyncio.timeout(JOIN_MS_MAX / 1000):
                while not await self._there():
                    await self._relay.wait(LOOK_MS)
        except TimeoutError:
            raise StartFailed(
                "terminal_not_seen",
                f"no terminal opened conversation {self._runtime.conversation_id} at the agent's app-server in"
                f" {JOIN_MS_MAX // 1000} s; nothing was delivered",
                hint="It may wait for an answer of yours, or run a server of its own: close it and attach again.",
                again=True,
            ) from None
        answer = await self._runtime.reopen()
        wrong = differing(self._runtime.terms.parameters, answer)
        if wrong:
            raise StartFailed(
                "terminal_settings_differ",
                f"the terminal opened the conversation with other settings than the agent's: {wrong};"
                " nothing was delivered",
                hint="Close the terminal and attach again, or set the agent's settings to these.",
            )
        await self._runtime.terms.restore()
        self._joined = True
        self._runtime.let_go()

    async def left(self) -> None:
        """Return once no terminal is connected any more, or the server has ended."""
        # The server's end cuts the terminal off, which is seen too; looking again only bounds what is not.
        while self._runtime.server is not None:
            if not await self._relay.wait(QUIET_MS) and self._relay.open == 0:
                return

    async def close(self) -> None:
        """Take back what only a terminal needs; the conversation goes on without one."""
        if self._closed:
            return
        self._closed = True
        await self._runtime.terms.restore()
        await self._relay.close()
        if self._joined or self._runtime.stopped or self._runtime.server is None:
            return
        try:
            await self._runtime.reopen()
        except StartFailed as error:
            await self._runtime.release()
            self._runtime.lost(f"the conversation could not be opened again without a terminal: {error}")
        self._runtime.let_go()

    async def _there(self) -> bool:
        try:
            answer = await self._runtime.ask("thread/loaded/list", {"limit": LOADED_MAX})
        except (NotSent, NoAnswer, Refused) as error:
            raise StartFailed(
                "codex_ended", f"codex app-server did not say what the terminal opened: {error}; nothing was delivered"
            ) from None
        loaded = answer.get("data")
        if not loaded:
            return False
        if loaded != [self._runtime.conversation_id]:
            raise StartFailed(
                "terminal_elsewhere",
                f"the terminal opened {', '.join(map(str, loaded))} and not conversation"
                f" {self._runtime.conversation_id}; nothing was delivered",
                hint="Close the terminal and attach again; do not choose another conversation in it while it starts.",
            )
        return self._relay.open > 0


def differing(parameters: Any, answer: Any) -> str:
    """Return how a thread differs from what a person set for the agent; empty where it does not."""
    sandboxes = {"readOnly": "read-only", "workspaceWrite": "workspace-write", "dangerFullAccess": "danger-full-access"}
    sandbox = answer.get("sandbox")
    kind = sandbox.get("type") if isinstance(sandbox, dict) else sandbox
    found = {
        "approvalPolicy": answer.get("approvalPolicy"),
        "sandbox": sandboxes.get(str(kind), kind),
        "model": answer.get("model"),
        "model_reasoning_effort": answer.get("reasoningEffort"),
    }
    wanted = {**parameters, **parameters.get("config", {})}
    return ", ".join(
        f"{name} is {found[name]} instead of {wanted[name]}"
        for name in found
        if name in wanted and found[name] is not None and found[name] != wanted[name]
    )


async def prepare(runtime: CodexRuntime, permits: Permits) -> CodexAttachment:
    """Start the server anew with nothing loaded, and stand at the socket where a terminal looks for it.

    Raises:
        StartFailed: the conversation does not rest, or something of it cannot be done.
    """
    try:
        await runtime.look()
    except (NotSent, NoAnswer, Refused) as error:
        raise StartFailed(
            "activity_unknown",
            f"codex did not say whether the conversation rests, so no terminal joins it; nothing was changed: {error}",
            again=True,
        ) from None
    if not runtime.conversation.resting or runtime.server is None:
        raise StartFailed(
            "conversation_active",
            "a turn runs, and a terminal joins only while the conversation rests; nothing was changed",
            hint="Wait for the turn's end, or interrupt it.",
            again=True,
        )
    control = str(Path(runtime.server.socket).with_name(CONTROL_SOCKET))
    runtime.held = "A person's terminal is joining the conversation."
    relay: Relay | None = None
    try:
        await runtime.release()
        await runtime.terms.project(permits)
        server = await runtime.terms.launch(launch.OWNER_SOCKET, runtime.hear)
        runtime.take(server)
        await _must_be_empty(runtime)
        await launch.clear_stale(control)
        relay = Relay(control, server.socket)
        await relay.start()
    except BaseException as error:
        await to_the_end(_undone(runtime, relay))
        runtime.lost(f"the conversation's server could not be started for a terminal: {error}")
        if isinstance(error, OSError):
            raise StartFailed("terminal_socket", f"the terminal's socket cannot be made: {error}") from None
        raise
    return CodexAttachment(runtime, relay)


async def _undone(runtime: CodexRuntime, relay: Relay | None) -> None:
    if relay is not None:
        await relay.close()
    await runtime.terms.restore()
    await runtime.release()


async def _must_be_empty(runtime: CodexRuntime) -> None:
    try:
        loaded = (await runtime.ask("thread/loaded/list", {"limit": LOADED_MAX})).get("data")
    except (NotSent, NoAnswer, Refused) as error:
        raise StartFailed("codex_ended", f"codex app-server did not say what it has loaded: {error}") from None
    if loaded:
        raise StartFailed(
            "codex_not_unloaded",
            f"a new codex app-server has {', '.join(map(str, loaded))} loaded: no terminal can be told from that",
        )
