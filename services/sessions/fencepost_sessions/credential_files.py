"""The files of the home that hold tokens: 0600 in folders of 0700, synced before anything is promised.

A new token is first written beside its place, as `<place>.next`; moving it into place is one atomic rename.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from fencepost.holds import HOLD, LET_GO
from fencepost.home import FOLDER_MODE, TOOLS_NAME, Home, is_uuid
from fencepost_kit.files import PRIVATE_MODE
from fencepost_kit.identity import UnusableCredential, fingerprint, read_token
from fencepost_sessions.domain.credentials import HomeCredential
from fencepost_sessions.domain.identifiers import uuid_bytes, uuid_text
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.usecases.tokens import Place

NEXT_SUFFIX: Final = ".next"
_OTHERS: Final = 0o077
# macOS: fsync does not reach the platter there.
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)


class HomeCredentialFiles:
    """CredentialFiles in a home. Blocking work runs on a thread, so that a slow disk stalls no heartbeat."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def path(self, place: Place) -> str:
        """Return where the token of a place lies."""
        return str(self._place(place))

    async def offer(self, place: Place, token: str) -> None:
        """Write a token beside its place, durably, over whatever lies there."""
        await asyncio.to_thread(_offer, self._place(place), token)

    async def publish(self, place: Place) -> None:
        """Move the token beside a place into it, durably and at once."""
        await asyncio.to_thread(_publish, self._place(place))

    async def withdraw(self, place: Place) -> None:
        """Remove what lies beside a place; and an agent's folder if nothing else is in it."""
        await asyncio.to_thread(_withdraw, self._place(place), self._own_folder(place))

    async def remove(self, place: Place) -> None:
        """Remove the token in a place and what lies beside it, durably; an agent's folder too if it is empty then."""
        await asyncio.to_thread(_remove, self._place(place), self._own_folder(place))

    async def offered(self, place: Place) -> bytes | None:
        """Return the hash of what lies beside a place: None for nothing, empty for something that is no token."""
        return await asyncio.to_thread(_offered, _beside(self._place(place)))

    async def current(self, place: Place) -> bytes | None:
        """Return the hash of the token in a place; None where there is none that can be used."""
        return await asyncio.to_thread(_hash_in, self._place(place))

    async def offered_agents(self) -> list[bytes]:
        """Return the agents beside whose place something lies."""
        return await asyncio.to_thread(_offered_in, self._home.agents)

    def _place(self, place: Place) -> Path:
        if isinstance(place, HomeCredential):
            operator = place.role is Role.OPERATOR
            return self._home.operator_credential if operator else self._home.service_credential(place.label)
        return self._home.agent_credential(uuid_text(place))

    def _own_folder(self, place: Place) -> Path | None:
        return None if isinstance(place, HomeCredential) else self._home.agent_folder(uuid_text(place))


def _beside(place: Path) -> Path:
    return place.with_name(place.name + NEXT_SUFFIX)


def _offer(place: Path, token: str) -> None:
    _private_folder(place.parent)
    beside = _beside(place)
    beside.unlink(missing_ok=True)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_MODE)
    try:
        os.fchmod(handle, PRIVATE_MODE)
        os.write(handle, token.encode("ascii") + b"\n")
        _sync(handle)
    finally:
        os.close(handle)
    _sync_folder(place.parent)


def _publish(place: Path) -> None:
    _beside(place).replace(place)
    _sync_folder(place.parent)


def _withdraw(place: Path, own_folder: Path | None) -> None:
    _beside(place).unlink(missing_ok=True)
    if own_folder is not None:
        with contextlib.suppress(OSError):  # not empty: the agent lives
            own_folder.rmdir()


def _remove(place: Path, own_folder: Path | None) -> None:
    if not place.parent.is_dir():
        return
    place.unlink(missing_ok=True)
    _sync_folder(place.parent)
    if own_folder is not None:
        # What was set of its tools, and what a session that was the agent left there; one that still runs holds a name
        # of nobody.
        for name in (HOLD, LET_GO, TOOLS_NAME):
            (own_folder / name).unlink(missing_ok=True)
    _withdraw(place, own_folder)


def _offered(beside: Path) -> bytes | None:
    try:
        facts = beside.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(facts.st_mode):
        return b""
    # A disk that cannot be read says nothing about the token: an error here, so that nothing is thrown away for it.
    os.close(os.open(beside, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
    return _hash_in(beside) or b""


def _hash_in(place: Path) -> bytes | None:
    try:
        return fingerprint(read_token(place))
    except UnusableCredential:
        return None


def _offered_in(agents: Path) -> list[bytes]:
    try:
        with os.scandir(agents) as folders:
            names = [entry.name for entry in folders if is_uuid(entry.name) and entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return [
        uuid_bytes(name, what="folder")
        for name in sorted(names)
        if os.path.lexists(_beside(agents / name / "credential"))
    ]


def _private_folder(folder: Path) -> None:
    """Make a folder of 0700, and those above it, each durable in the one above.

    Raises:
        OSError: it cannot be made, or belongs to somebody else, or is no folder.
    """
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileNotFoundError:
        _private_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            raise NotADirectoryError(f"{folder} is not a folder of this user") from None
        if facts.st_mode & _OTHERS:
            folder.chmod(FOLDER_MODE)
        return
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(handle)
    finally:
        os.close(handle)


def _sync(handle: int) -> None:
    if _FULL_SYNC is None:
        os.fsync(handle)
    else:
        fcntl.fcntl(handle, _FULL_SYNC)
