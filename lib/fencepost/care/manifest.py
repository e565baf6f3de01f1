"""What stands beside the copies of a backup: which stores, of which moment, and how to know each file again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.errors import Refused
from fencepost.home import MAILBOX, SESSIONS

NAME: Final = "manifest.json"
FORMAT: Final = 1
MANIFEST_BYTES_MAX: Final = 64 * 1024

# The stores of a home, in the order in which they are copied: mailbox follows the directory of sessions, so its copy
# must not be the newer one. With each the question for its epoch, and where its migrations are.
STORES: Final[Mapping[str, tuple[str, str]]] = {
    MAILBOX: ("SELECT value FROM meta WHERE key = 'epoch'", "fencepost_mailbox.store.migrations"),
    SESSIONS: ("SELECT epoch FROM directory", "fencepost_sessions.store.migrations"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreCopy:
    """The copy of one store. `epoch` is the store's at that moment, as UUID."""

    service: str
    file: str
    schema: int
    epoch: str
    rows: Mapping[str, int]
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A whole backup."""

    version: str
    made_at_ms: int
    stores: tuple[StoreCopy, ...]


def to_json(manifest: Manifest) -> bytes:
    """Return the content of the manifest."""
    plain: dict[str, Any] = {"format": FORMAT, **asdict(manifest)}
    return json.dumps(plain, indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        Refused: there is none, or it cannot be used; nothing was changed.
    """
    try:
        with (folder / NAME).open("rb") as file:
            raw = file.read(MANIFEST_BYTES_MAX + 1)
    except OSError as error:
        raise Refused(
            "backup_missing",
            f"{folder} holds no backup: {NAME} cannot be read ({error.strerror}); nothing was changed",
            hint="Name the folder that `fencepost backup` printed.",
        ) from error
    try:
        return _manifest(raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(
            "backup_damaged",
            f"{folder / NAME} is no manifest of this format; nothing was changed",
            hint="Use another backup, or the version of fencepost that made it.",
        ) from error


def _manifest(raw: bytes) -> Manifest:
    plain = json.loads(raw)
    if len(raw) > MANIFEST_BYTES_MAX or plain.pop("format") != FORMAT:
        raise ValueError("another format")
    stores = tuple(StoreCopy(**store) for store in plain.pop("stores"))
    manifest = Manifest(**plain, stores=stores)
    if [store.service for store in stores] != list(STORES) or any(
        store.file != f"{store.service}.db" or type(store.schema) is not int for store in stores
    ):
        raise ValueError("other stores")
    return manifest
