"""Start of `codex app-server` as our own child on a private socket, and of short commands. Source: M135-M137 M154 M155.

Never `codex app-server daemon`: that copies the program, updates itself and leaves a process behind. The start has no
deadline, for the program may index a long history first; each connection attempt and each write has one, and whoever
cancels the start gets control back once the child is joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost_providers.adapters.base import PROBE_MS_MAX, STOP_GRACE_MS, StartFailed
from fencepost_providers.adapters.codex import versions
from fencepost_providers.adapters.codex.rpc import (
    CONNECT_MS_MAX,
    WRITE_MS_MAX,
    Connection,
    Hear,
    Json,
    NoAnswer,
    NotSent,
    Refused,
    resolved,
)
from fencepost_providers.domain.runtimes import Installation, LaunchPlan
from fencepost_providers.processes.child import Child, End, Line, NotStarted, Program

PROGRAM: Final = "codex"
CLIENT: Final = "fencepost"
CLIENT_VERSION: Final = "1"
PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 250
OUTPUT_BYTES_MAX: Final = 16 * 1024 * 1024
NOTICE_MS_MAX: Final = 2_000
MISSING: Final = ("no rollout found", "missing source rollout", "invalid session id", "invalid thread id")
# What comes with every few words and is said again as a whole: not sent to us at all.
UNHEARD: Final = (
    "command/exec/outputDelta",
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "item/plan/delta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "thread/tokenUsage/updated",
    "turn/diff/updated",
)
LOG_NAME: Final = "codex.log"
OWNER_SOCKET: Final = "owner.sock"
INSTALL_HINT: Final = (
    "Install Codex 0.154.0 or later (npm install -g @openai/codex), or put it on PATH of `fencepost up`."
)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a program inherits from us: everything but what tells our own services who they are."""
    return {name: value for name, value in environment.items() if not name.startswith("FENCEPOST_")}


def environment_of(plan: LaunchPlan, codex_home: str, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program."""
    return {**inherited(ours), **plan.environment, "CODEX_HOME": codex_home}


def words(program: str, socket: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the words with which the program is started. None is a secret."""
    return (program, "app-server", *arguments, "--listen", f"unix://{socket}")


def thread_parameters(plan: LaunchPlan, instructions: str) -> Json:
    """Return how a thread is started or resumed: what a person set, and nothing else.

    It goes with each thread besides the server's arguments: a resumed thread prefers what it was run with before.
    """
    settings, config = plan.settings, dict[str, Any]()
    parameters: Json = {"cwd": plan.workspace}
    for name, value in (
        ("approvalPolicy", settings.approval),
        ("sandbox", settings.sandbox),
        ("model", settings.model),
        ("developerInstructions", instructions),
    ):
        if value:
            parameters[name] = value
    if settings.effort:
        config["model_reasoning_effort"] = settings.effort
    if settings.include_directories:
        config["sandbox_workspace_write.writable_roots"] = list(settings.include_directories)
    if config:
        parameters["config"] = config
    return parameters


def find(environment: Mapping[str, str]) -> str:
    """Return the program's path, empty where none is found."""
    return shutil.which(PROGRAM, path=environment.get("PATH", "")) or ""


async def command(argv: Sequence[str], environment: Mapping[str, str], *, timeout_ms: int) -> tuple[End, bytes]:
    """Run a short command to its end; return how it ended, and its output.

    Raises:
        NotStarted: it cannot be executed.
        TimeoutError: it did not end in time; it was ended.
    """
    lines: list[bytes] = []
    room = OUTPUT_BYTES_MAX

    def take(line: Line) -> None:
        nonlocal room
        room -= len(line.text)
        if room >= 0:
            lines.append(line.text)

    program = Program(
        argv=tuple(argv), environment=dict(environment), working_directory="/", line_bytes_max=OUTPUT_BYTES_MAX
    )
    child = await Child.start(program, on_line=take)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            end = await child.gone()
    finally:
        await child.stop(grace_ms=0)
    return end, b"\n".join(lines)


async def probe(program: str, environment: Mapping[str, str]) -> Installation:
    """Return the program's version, or what is wrong with it."""
    if not program:
        return Installation(problem=f"No {PROGRAM} is on PATH. {INSTALL_HINT}")
    try:
        end, output = await command([program, "--version"], inherited(environment), timeout_ms=PROBE_MS_MAX - 1_000)
    except NotStarted as error:
        return Installation(program=program, problem=f"{program} cannot be started: {error}. {INSTALL_HINT}")
    except TimeoutError:
        return Installation(program=program, problem=f"{program} --version did not answer. Try it in a terminal.")
    version = versions.parse(output.decode("utf-8", "replace"))
    if end.exit_code != 0 or version is None:
        return Installation(program=program, problem=f"{program} --version {end}. {INSTALL_HINT}")
    why = versions.refusal(version.text)
    problem = f"Codex is too old or not a release: {why}. {INSTALL_HINT}" if why else ""
    return Installation(program=program, version=version.text, problem=problem)


# --- the server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What a server is started with; `version` is the one that was probed."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str
    log: str
    socket: str
    codex_home: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A running app-server and our connection to it."""

    child: Child
    connection: Connection
    socket: str

    async def stop(self, *, grace_ms: int = STOP_GRACE_MS) -> End:
        """End it: with a turn in flight it drains at first; what is left after half of the grace is told again."""

        async def drain() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, 15)

        try:
            return await self.child.stop(grace_ms=grace_ms, polite=drain)
        finally:
            await self.connection.close()


async def launch(order: Order, hear: Hear) -> Server:
    """Start a server and shake hands with it. Cancelling ends and joins it.

    Raises:
        StartFailed: it did not start, or is not the program that was probed, or not in our home; no child is left.
    """
    await clear_stale(order.socket)
    program = Program(
        argv=order.argv,
        environment=order.environment,
        working_directory=order.working_directory,
        log=Path(order.log),
    )
    try:
        child = await Child.start(program)
    except NotStarted as error:
        raise StartFailed(
            "codex_not_started", f"codex app-server was not started: {error}", hint=INSTALL_HINT
        ) from None
    connection: Connection | None = None
    try:
        connection = await _connected(child, order.socket, hear)
        await _greeted(connection, child, order)
    except BaseException:
        try:
            await child.stop(grace_ms=0)
        finally:
            if connection is not None:
                await connection.close()
        raise
    return Server(child=child, connection=connection, socket=order.socket)


async def clear_stale(path: str) -> None:
    """Remove a socket that its owner left behind: nobody listens, and it is the same file before and after asking.

    Raises:
        StartFailed: somebody listens there, or it is no socket; nothing was removed.
    """
    before = _identity(path)
    if before is None:
        return
    try:
        async with asyncio.timeout(CONNECT_MS_MAX / 1000):
            _, writer = await asyncio.open_unix_connection(resolved(path))
    except (ConnectionRefusedError, FileNotFoundError):
        if _identity(path) == before:
            _remove(path)
        return
    except (OSError, TimeoutError) as error:
        raise StartFailed(
            "codex_socket_unusable",
            f"{path} cannot be used as Codex's socket: {str(error) or 'it does not answer'}; nothing was started",
            hint="Look what this file is; move it away if it is not yours.",
            again=True,
        ) from None
    writer.close()
    raise StartFailed(
        "codex_socket_in_use",
        f"another codex app-server listens at {path}; nothing was started",
        hint="It may be ending just now. If it stays, somebody else started a codex in this agent's home: end it.",
        again=True,
    )


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 (a link as such)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not (stat.S_ISSOCK(found.st_mode) or stat.S_ISLNK(found.st_mode)):
        raise StartFailed(
            "codex_socket_unusable",
            f"{path} is no socket, and Codex's has to be there; nothing was started or removed",
            hint="Look what this file is; move it away if it is not needed.",
        )
    return found.st_dev, found.st_ino


async def _connected(child: Child, path: str, hear: Hear) -> Connection:
    pause_ms = PAUSE_MS_MIN
    while True:
        if child.has_ended:
            raise _ended(await child.gone())
        try:
            return await Connection.open(path, hear)
        except (ConnectionRefusedError, FileNotFoundError, NotSent):
            gone = asyncio.ensure_future(child.gone())
            await asyncio.wait([gone], timeout=pause_ms / 1000)
            gone.cancel()
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)


async def _greeted(connection: Connection, child: Child, order: Order) -> None:
    client = {"name": CLIENT, "title": "Fencepost", "version": CLIENT_VERSION}
    hello = {"clientInfo": client, "capabilities": {"experimentalApi": True, "optOutNotificationMethods": UNHEARD}}
    answer = await asked(connection, child, "initialize", hello)
    version = versions.of_user_agent(str(answer.get("userAgent", "")))
    if version != order.version:
        raise StartFailed(
            "codex_version_changed",
            f"codex is {order.version}, and its app-server says {version or 'no version'}; it was ended again",
            hint="It was probably upgraded just now: the next start looks again.",
            again=True,
        )
    home = str(answer.get("codexHome", ""))
    if not home or resolved(home) != resolved(order.codex_home):
        raise StartFailed(
            "codex_foreign_home",
            f"codex app-server works in {home or 'no home'} and not in {order.codex_home}; it was ended again",
            hint="Something sets CODEX_HOME for every codex, a wrapper on PATH perhaps: let it pass the variable on.",
        )
    await connection.notify("initialized")


async def asked(connection: Connection, child: Child, method: str, parameters: Json) -> Json:
    """Ask something that belongs to the start, however long the answer takes while the child lives.

    Raises:
        Refused: see there.
        StartFailed: the program ended, or closed the connection, or took nothing for WRITE_MS_MAX.
    """
    try:
        return await connection.request(method, parameters, timeout_ms=None)
    except (NotSent, NoAnswer) as error:
        gone = asyncio.ensure_future(child.gone())
        await asyncio.wait([gone], timeout=NOTICE_MS_MAX / 1000)
        if gone.done():
            raise _ended(gone.result()) from None
        gone.cancel()
        raise StartFailed(
            "codex_does_not_answer",
            f"codex app-server does not answer to {method}: {error} (a write may take {WRITE_MS_MAX} ms); it was ended",
            hint="Its log says more: `fencepost agent doctor` names the file.",
            again=True,
        ) from None


def _ended(end: End) -> StartFailed:
    return StartFailed(
        "codex_ended",
        f"codex app-server {end}",
        hint="Its log says more: `fencepost agent doctor` names the file. The agent's custom arguments may be wrong.",
    )


def refused(method: str, conversation_id: str, refusal: Refused) -> StartFailed:
    """Return a refusal of the start in plain words: what it means, and what a person can do."""
    text = refusal.message
    if "already has an active writer" in text:
        return StartFailed(
            "conversation_in_use",
            f"another codex writes conversation {conversation_id} just now, and only one may; nothing was started",
            hint="Close the terminal, or end the other codex, in which it is open. The start is tried again by itself.",
            again=True,
        )
    if any(said in text for said in MISSING):
        return StartFailed(
            "conversation_missing",
            f"codex has no conversation {conversation_id} in this agent's home; nothing was started",
            hint="Begin a new conversation for the agent, or bring back the file of the session.",
        )
    if "list_turns is not supported" in text or "paginated" in text.lower():
        return StartFailed(
            "history_incompatible",
            f"this codex cannot read conversation {conversation_id}, whose history another version wrote: {text}",
            hint="Use the newer codex again, or begin a new conversation for the agent. The history was not changed.",
        )
    return StartFailed(
        "codex_refused",
        f"codex refused {method}: {text}; nothing was started",
        hint="Look at the agent's settings: model, effort, sandbox, approval and workspace.",
    )
