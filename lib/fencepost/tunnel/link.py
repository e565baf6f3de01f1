"""One connection of a tunnel: an ssh child of ours, the keeper over there, and their conversation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fencepost import __file__ as package
from fencepost import errors, holds, home, mcp, paths
from fencepost.errors import FencepostError, NotWritten, Refused
from fencepost.tunnel import keeper
from fencepost.tunnel.destination import Destination, failure, ssh_words

# From the start of ssh until the keeper answers: the connection, the person's answers to ssh, Python's start.
READY_MS_MAX: Final = 30_000
ASKED_READY_MS_MAX: Final = 300_000
# The keeper hears a word so often, and goes where it hears none for so long.
WORD_EVERY_MS: Final = 10_000
SILENCE_MS_MAX: Final = 45_000
STOP_MS_MAX: Final = 5_000
END_MS_MAX: Final = 3_000
SAID_BYTES_MAX: Final = 16 * 1024
ANSWER_BYTES_MAX: Final = 64 * 1024
SETUP_BYTES_MAX: Final = 2 * 1024 * 1024

# In front of an ssh that shares the terminal: Ctrl-C would end it before the other machine is told of the end. What
# follows are words of their own, which this shell reads no further.
DEAF_TO_INTERRUPTS: Final = ("/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh")

SHIM_LAUNCHER: Final = """#!{python} -I
import os, sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from fencepost.mcp.shim import main

sys.exit(main())
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a tunnel is to do, the same for each of its connections."""

    destination: Destination
    # The socket of the edge here.
    local: Path
    remote_home: str
    # Tokens by the agent's UUID.
    credentials: Mapping[str, str] = field(repr=False)
    at_end: str
    # Which tunnel: its next connection may send its last one's keeper away, and nobody else's.
    tunnel: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """The folder over there, and the shim that can be started there; empty where there is none."""

    folder: str
    shim: str
    python: str


def shim_files() -> dict[str, str]:
    """Return the files of the stdio shim, by their place in its folder: standard library only."""
    root = Path(str(package)).parent
    named = [Path(str(module.__file__)) for module in (errors, home, holds, paths)]
    folder = Path(str(mcp.__file__)).parent
    files = [Path(str(package)), *named, *(one for one in sorted(folder.rglob("*.py")) if one.name != "generate.py")]
    found = {f"fencepost/{one.relative_to(root).as_posix()}": one.read_text(encoding="utf-8") for one in files}
    return {**found, "fencepost-mcp": SHIM_LAUNCHER}


def _keeper() -> bytes:
    """Return the program that runs over there, as text."""
    return Path(keeper.__file__).read_bytes()


def new_socket_name() -> str:
    """Return a name that no socket over there has: a new one for each connection, so that none is ever taken away."""
    return f"edge-{secrets.token_hex(4)}.sock"


def ssh_program() -> str:
    """Return ssh.

    Raises:
        Refused: there is none (ssh_missing).
    """
    found = shutil.which("ssh")
    if found is None:
        raise Refused(
            "ssh_missing", "there is no ssh on the PATH; nothing was started", hint="Install OpenSSH's client."
        )
    return found


class Link:
    """One ssh child. Whoever opens it closes it; closing joins the child."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._mark = f"fencepost-{secrets.token_hex(8)} "
        self._child: asyncio.subprocess.Process | None = None
        self._said = b""
        self._listening: asyncio.Task[None] | None = None
        self._stands_since_s: float | None = None

    @property
    def stood_ms(self) -> int:
        """For how long it has stood, milliseconds; 0 where it never did."""
        if self._stands_since_s is None:
            return 0
        return 1 + int((asyncio.get_running_loop().time() - self._stands_since_s) * 1000)

    @property
    def pid(self) -> int:
        """The child's process id, 0 where none was started."""
        return 0 if self._child is None else self._child.pid

    async def prepare(self, *, shim: Mapping[str, str] | None) -> Prepared:
        """Make the folder over there, and put the shim into it where its files are given.

        Raises:
            FencepostError: it could not be done, and why.
        """
        await self._start({"mode": "prepare", "socket": new_socket_name(), "shim": shim}, forward=None)
        return _prepared(await self._answer("prepared"))

    async def stand(self, folder: str) -> Prepared:
        """Forward the edge's socket, copy the credentials, publish the address; returns when all of it stands.

        Raises:
            FencepostError: it could not be done, and why.
        """
        name = new_socket_name()
        await self._start({"mode": "keep", "socket": name}, forward=f"{folder}/run/{name}")
        found = _prepared(await self._answer("ready"))
        self._stands_since_s = asyncio.get_running_loop().time()
        return found

    async def lost(self) -> tuple[FencepostError, bool]:
        """Return once the connection is gone, with what that means and whether another may be had."""
        child = self._running()
        speaking = asyncio.ensure_future(self._speak())
        try:
            assert child.stdout is not None
            while await child.stdout.read(ANSWER_BYTES_MAX):
                pass
            return failure(await self._last_words(), await child.wait())
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)

    async def stop(self) -> bool:
        """Ask the keeper to take back what it has put; tell whether it says that it has."""
        with contextlib.suppress(OSError, TimeoutError, FencepostError):
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await self._say(b"stop\n")
                while not (await self._line()).get("cleared"):
                    pass
                return True
        return False

    async def close(self) -> None:
        """End the child and join it. The keeper over there hears the end of its input, and cleans up."""
        child = self._child
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        for end in (child.terminate, child.kill):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_MS_MAX / 1000):
                    await child.wait()
                    break
            with contextlib.suppress(ProcessLookupError):
                end()
        await child.wait()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    def _running(self) -> asyncio.subprocess.Process:
        assert self._child is not None, "started first"
        return self._child

    async def _start(self, more: Mapping[str, Any], *, forward: str | None) -> None:
        plan = self._plan
        setup = {
            "mark": self._mark,
            "home": plan.remote_home,
            "tunnel": plan.tunnel,
            "credentials": dict(plan.credentials) if forward is not None else {},
            "at_end": plan.at_end,
            "silence_ms": SILENCE_MS_MAX,
            "shim": None,
            **more,
        }
        program = _keeper()
        text = b"%d\n%b%b\n" % (len(program), program, json.dumps(setup).encode())
        if len(text) > SETUP_BYTES_MAX:
            raise Refused("invalid_arguments", f"a tunnel carries at most {SETUP_BYTES_MAX} bytes to begin with")
        words = ssh_words(ssh_program(), plan.destination, forward=forward, local=plan.local.name)
        if plan.destination.may_ask:
            words = [*DEAF_TO_INTERRUPTS, *words]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        self._child = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**kept, "LC_ALL": "C"},
            cwd=plan.local.parent,
            limit=ANSWER_BYTES_MAX,
            # Ctrl-C is ours, to end in order. Where ssh may ask it needs the terminal, and so hears it as well.
            start_new_session=not plan.destination.may_ask,
        )
        self._listening = asyncio.ensure_future(self._listen())
        with contextlib.suppress(OSError):
            await self._say(text)

    async def _listen(self) -> None:
        """Keep the last of what ssh says on its standard error."""
        stderr = self._running().stderr
        assert stderr is not None
        while data := await stderr.read(4096):
            self._said = (self._said + data)[-SAID_BYTES_MAX:]

    async def _last_words(self) -> str:
        if self._listening is not None:
            await asyncio.wait([self._listening], timeout=END_MS_MAX / 1000)
        return self._said.decode("utf-8", "replace")

    async def _say(self, text: bytes) -> None:
        stdin = self._running().stdin
        assert stdin is not None
        stdin.write(text)
        await stdin.drain()

    async def _speak(self) -> None:
        """Let the keeper hear that we are there."""
        with contextlib.suppress(OSError):
            while True:
                await asyncio.sleep(WORD_EVERY_MS / 1000)
                await self._say(b"here\n")

    async def _answer(self, wanted: str) -> dict[str, Any]:
        limit_ms = ASKED_READY_MS_MAX if self._plan.destination.may_ask else READY_MS_MAX
        try:
            async with asyncio.timeout(limit_ms / 1000):
                found = await self._line()
        except TimeoutError:
            raise NotWritten("unreachable", f"the other machine did not answer within {limit_ms} ms") from None
        if "error" in found:
            raise _flaw(found)
        if not found.get(wanted):
            raise NotWritten("ssh_failed", "the other machine's answer makes no sense; nothing was forwarded")
        return found

    async def _line(self) -> dict[str, Any]:
        """Return the keeper's next answer; what the account's shell prints besides is passed over."""
        child = self._running()
        assert child.stdout is not None
        mark = self._mark.encode()
        while True:
            try:
                line = await child.stdout.readline()
            except ValueError:
                raise NotWritten(
                    "ssh_failed", "the other machine prints without an end; nothing was forwarded"
                ) from None
            if not line:
                raise failure(await self._last_words(), await child.wait())[0]
            if line.startswith(mark):
                found = json.loads(line[len(mark) :])
                return found if isinstance(found, dict) else {}


_HINTS: Final[Mapping[str, str]] = {
    "remote_home_unsafe": "Name another folder with --remote-home: one of that user's own, in a place of its own.",
    "remote_home_taken": "Name another folder with --remote-home; a home with services of its own needs no tunnel.",
    "remote_home_in_use": "End that tunnel, or name another folder with --remote-home. One that has died lets go within"
    f" {SILENCE_MS_MAX // 1000} s.",
    "remote_path_too_long": "Name a shorter folder with --remote-home.",
    "remote_python_too_old": "Install Python 3.11 or later over there, as python3.",
    "forwarding_refused": "Its sshd_config needs AllowStreamLocalForwarding yes (or remote).",
}


def _flaw(found: Mapping[str, Any]) -> Refused:
    code = str(found["error"])
    return Refused(code, str(found.get("message", "")), hint=_HINTS.get(code, ""))


def _prepared(found: Mapping[str, Any]) -> Prepared:
    return Prepared(folder=str(found["folder"]), shim=str(found["shim"]), python=str(found["python"]))
