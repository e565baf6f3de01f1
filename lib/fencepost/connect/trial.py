"""Tries a configured server as a program would: starts the command, shakes hands, lists the tools, ends it.

No tool is called, so that no identity comes into being by it. Every child is bounded in time and output and joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost import __version__
from fencepost.connect.entry import SERVER_NAME, Server, wish_of_words
from fencepost.home import CREDENTIAL_VARIABLE, SESSION_VARIABLE
from fencepost.mcp import profiles, registry
from fencepost.mcp.offers import Wish

HANDSHAKE_MS_MAX: Final = 10_000
ASK_MS_MAX: Final = 30_000
END_MS_MAX: Final = 2_000
LINE_BYTES_MAX: Final = 1024 * 1024
OUTPUT_BYTES_MAX: Final = 64 * 1024
SAID_CHARS_MAX: Final = 200
# What Codex, the strictest, leaves of its own environment to a server.
_KEPT: Final = ("HOME", "LANG", "PATH", "TERM")
# Programs colour what they say even where nobody sees colours.
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """How the handshake with a server ended; `problem` is empty where it is one of ours and lists its tools."""

    problem: str
    version: str = ""
    tools: tuple[str, ...] = ()
    # The tools whole, to be compared with others.
    listing: Any = None
    took_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a program itself says of its servers. `listed` is None where it could not be asked."""

    listed: bool | None
    said: str


async def shake_hands(server: Server, *, env: Mapping[str, str], cwd: Path | None = None) -> Trial:
    """Start a server with the environment that a strict program gives it, and do what the program would do first."""
    begun_s = time.monotonic()
    kept = {name: env[name] for name in _KEPT if name in env} | dict(server.environment)
    try:
        async with asyncio.timeout(HANDSHAKE_MS_MAX / 1000), _started(server, kept, cwd) as process:
            wish = wish_of_words([server.command, *server.arguments], kept)
            bounded = any(kept.get(name) for name in (SESSION_VARIABLE, CREDENTIAL_VARIABLE))
            trial = await _conversation(process, wish, bounded=bounded)
    except TimeoutError:
        return Trial(problem=f"it did not answer within {HANDSHAKE_MS_MAX} ms")
    except (OSError, ValueError) as error:
        return Trial(problem=f"{server.command} cannot be started: {error}")
    return Trial(
        problem=trial.problem,
        version=trial.version,
        tools=trial.tools,
        listing=trial.listing,
        took_ms=int((time.monotonic() - begun_s) * 1000),
    )


@contextlib.asynccontextmanager
async def _started(
    server: Server, env: Mapping[str, str], cwd: Path | None
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        server.command,
        *server.arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=env,
        cwd=cwd,
        limit=LINE_BYTES_MAX,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the input, which ends a server, and help where it does not; join it."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, RuntimeError):
        process.stdin.close()
    try:
        async with asyncio.timeout(END_MS_MAX / 1000):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    # Reading to the end lets the transport close its descriptors before the loop does.
    with contextlib.suppress(ValueError, OSError):
        await process.communicate()


async def _conversation(process: asyncio.subprocess.Process, wish: Wish, *, bounded: bool) -> Trial:
    client = {"name": "fencepost-connect", "version": __version__}
    params = {"protocolVersion": registry.VERSIONS[-1], "capabilities": {}, "clientInfo": client}
    hello = await _ask(process, 1, "initialize", params)
    if hello is None:
        return Trial(problem=await _ended(process))
    info = hello.get("result", {}).get("serverInfo", {})
    # Earlier versions called themselves so everywhere; which version it is, is told.
    if info.get("name") not in (wish.name, SERVER_NAME):
        return Trial(problem="something else than a Fencepost server answered")
    await _say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    listed = await _ask(process, 2, "tools/list", {})
    if listed is None:
        return Trial(problem=await _ended(process))
    found = listed.get("result", {}).get("tools", [])
    names = tuple(str(tool.get("name")) for tool in found)
    offered = registry.menu(profiles.allowed(wish.tools, None), warp=wish.warp).tools
    # What is stored for an agent may be fewer families, and is the operator's wish.
    there = {offered[name].family for name in names if name in offered}
    missing = [name for name, tool in offered.items() if name not in names and (tool.family in there or not bounded)]
    problem = f"it does not offer {', '.join(missing)}" if missing else ""
    return Trial(problem=problem, version=str(info.get("version", "")), tools=names, listing=found)


async def _say(process: asyncio.subprocess.Process, message: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    with contextlib.suppress(ConnectionError):
        await process.stdin.drain()


async def _ask(
    process: asyncio.subprocess.Process, identity: int, method: str, params: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the answer to a request, or None where the server ends before it, or answers what is no answer."""
    assert process.stdout is not None
    await _say(process, {"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
    while line := await process.stdout.readline():
        try:
            message = json.loads(line)
        except ValueError:
            return {}
        if isinstance(message, dict) and message.get("id") == identity:
            return message
    return None


async def _ended(process: asyncio.subprocess.Process) -> str:
    return f"it ended with status {await process.wait()} before it answered"


async def ask_program(words: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None) -> Asked:
    """Ask an installed program which servers it knows; it may start them to find out, and calls no tool."""
    program = shutil.which(words[0], path=env.get("PATH")) if words else None
    if program is None:
        return Asked(listed=None, said=f"{words[0]} is not installed" if words else "it cannot be asked")
    process = await asyncio.create_subprocess_exec(
        program,
        *words[1:],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = b""
    try:
        async with asyncio.timeout(ASK_MS_MAX / 1000):
            while (piece := await process.stdout.read(OUTPUT_BYTES_MAX)) and len(output) < OUTPUT_BYTES_MAX:
                output += piece
            code = await process.wait()
    except TimeoutError:
        return Asked(listed=None, said=f"`{' '.join(words)}` did not answer within {ASK_MS_MAX} ms")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()
    lines = _COLOURS.sub("", output[:OUTPUT_BYTES_MAX].decode("utf-8", "replace")).splitlines()
    about = next((line.strip() for line in lines if SERVER_NAME in line), "")
    if about:
        return Asked(listed=True, said=about[:SAID_CHARS_MAX])
    if code:
        return Asked(listed=None, said=f"`{' '.join(words)}` ended with status {code}")
    return Asked(listed=False, said=f"`{' '.join(words)}` does not name it")
