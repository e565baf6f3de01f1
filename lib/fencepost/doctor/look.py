"""Gathers the facts: looks at files, asks services and processes, tries configured commands. Changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fencepost import up
from fencepost.connect import trial
from fencepost.connect.entry import SCRIPT, Server, shim_command
from fencepost.doctor import entries, processes
from fencepost.doctor.entries import Entry, Unreadable, is_ours
from fencepost.doctor.findings import Facts, Version
from fencepost.errors import FencepostError, Refused
from fencepost.home import (
    HOME_VARIABLE,
    SESSION_VARIABLE,
    TOKEN_CHARS,
    TOKEN_PREFIX,
    Home,
    read_address,
    read_credential,
)
from fencepost.mcp import answers, registry

GREETING_MS_MAX: Final = 3_000
GREETING_BYTES_MAX: Final = 4096
TRIALS_MAX: Final = 12
PATHS_MAX: Final = 4096
_OTHERS: Final = 0o077


async def facts_of(home: Home, env: Mapping[str, str]) -> Facts:
    """Return what can be seen of a home without asking for anybody's mail. Bounded, whatever is broken."""
    seen = up.status(home)
    edge, edge_problem = await greet(home)
    found, unreadable, problem = _entries(home, env)
    live = list(dict.fromkeys(entry.command for entry in found if entry.enabled and is_ours(entry.command)))
    missing = [command for command in live if not _runnable(command[0], env)]
    tried = {
        entry.command: await _try(entry, env)
        for entry in _first_of_each(found)[:TRIALS_MAX]
        if entry.command not in missing
    }
    return Facts(
        home=home.text,
        default_home=Home.named({}).text,
        unsafe=list(unsafe_paths(home)),
        supervised=seen.running,
        unready={item.name: item.phase.value for item in seen.services if item.phase is not up.Phase.READY},
        own=Version(version=answers.VERSION, registry=answers.REGISTRY_HASH),
        edge=edge,
        edge_problem=edge_problem,
        entries=found,
        unreadable=unreadable,
        records_problem=problem,
        missing_commands=missing,
        trials=tried,
        listing=registry.every_shown(),
        unusable_ids=_unusable_ids(found),
        processes=await asyncio.to_thread(processes.running),
        installed_s=_installed_s(),
        own_commands=[word for word in shim_command() if Path(word).name.startswith((SCRIPT, "python"))],
        now_ms=int(time.time() * 1000),
    )


def _installed_s() -> float:
    return Path(answers.__file__).stat().st_mtime


async def greet(home: Home) -> tuple[Version | None, str]:
    """Return the version of the running edge, or why it does not tell; nothing is called and no credential is shown."""
    try:
        address = read_address(home.edge_address)
    except Refused as refused:
        return None, refused.message
    if address is None:
        return None, ""
    # The greeting comes before any credential is looked at: this is the form of one and nobody's.
    nobody = TOKEN_PREFIX + "A" * (TOKEN_CHARS - len(TOKEN_PREFIX))
    hello = {"fencepost": 1, "shim": answers.VERSION, "token": nobody, "nonce": os.urandom(16).hex()}
    try:
        async with asyncio.timeout(GREETING_MS_MAX / 1000):
            reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"), limit=GREETING_BYTES_MAX)
            try:
                writer.write(json.dumps(hello).encode() + b"\n")
                greeting: Any = json.loads(await reader.readline())
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        return Version(version=str(greeting["edge"]), registry=str(greeting["registry"])), ""
    except TimeoutError:
        return None, f"no greeting came within {GREETING_MS_MAX} ms"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, f"{type(error).__name__} at {address}"


def unsafe_paths(home: Home) -> Iterator[tuple[str, str, str]]:
    """Yield what of a home is open to others or not this user's, with what is wrong and the mode it should have."""
    for path, private in _paths(home):
        try:
            facts = path.lstat()
        except OSError:
            continue
        mode = "" if stat.S_ISLNK(facts.st_mode) else "700" if stat.S_ISDIR(facts.st_mode) else "600"
        if stat.S_ISLNK(facts.st_mode) and private:
            yield str(path), "is a link", ""
        elif facts.st_uid != os.geteuid():
            yield str(path), "belongs to another user", ""
        elif not stat.S_ISLNK(facts.st_mode) and facts.st_mode & (_OTHERS if private else 0o022):
            yield str(path), f"is open to other users (mode {stat.S_IMODE(facts.st_mode):o})", mode


def _paths(home: Home) -> Iterator[tuple[Path, bool]]:
    yield home.path, False
    yield from ((path, True) for path in (home.run, home.logs, home.agents, home.services, home.operator_credential))
    count = 0
    for folder, pattern in ((home.agents, "*"), (home.agents, "*/credential"), (home.services, "*.credential")):
        for path in sorted(folder.glob(pattern)):
            count += 1
            if count > PATHS_MAX:
                return
            yield path, True


def _entries(home: Home, env: Mapping[str, str]) -> tuple[list[Entry], list[Unreadable], str]:
    found: list[Entry] = []
    unreadable: list[Unreadable] = []
    try:
        for item in entries.every(home, env):
            if isinstance(item, Entry):
                found.append(item)
            else:
                unreadable.append(item)
    except Refused as refused:
        return found, unreadable, refused.message
    return found, unreadable, ""


def _first_of_each(found: Sequence[Entry]) -> list[Entry]:
    """Return one entry for each command; commands that differ in the agent that they name only are still tried once."""
    each: dict[tuple[str, ...], Entry] = {}
    for entry in found:
        if entry.enabled and is_ours(entry.command):
            each.setdefault(entry.command, entry)
    return list(each.values())


def _runnable(command: str, env: Mapping[str, str]) -> bool:
    return shutil.which(command, path=env.get("PATH")) is not None


async def _try(entry: Entry, env: Mapping[str, str]) -> trial.Trial:
    server = Server(command=entry.command[0], arguments=entry.command[1:], environment=entry.environment, passes=())
    return await trial.shake_hands(server, env=env)


def _unusable_ids(found: Sequence[Entry]) -> dict[str, str]:
    """Return the session ids of entries whose credential cannot be used, with the reason; no secret is kept."""
    unusable: dict[str, str] = {}
    for entry in found:
        session = entry.environment.get(SESSION_VARIABLE, "").lower()
        if not session:
            continue
        try:
            home = Home.from_environment({HOME_VARIABLE: entry.environment.get(HOME_VARIABLE, "")})
            read_credential(home.agent_credential_text(session))
        except FencepostError as error:
            unusable[session] = error.message
    return unusable
