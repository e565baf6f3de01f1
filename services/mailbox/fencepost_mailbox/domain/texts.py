"""What may be said, and to whom it may be addressed (M021 to M025)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from fencepost_mailbox.domain.refusals import InvalidLimit, InvalidMessage, InvalidTarget
from fencepost_mailbox.domain.values import BODY_BYTES_MAX, EVIDENCE_BYTES_MAX, NOTE_BYTES_MAX, Kind

PREFIX: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        Kind.INFORMATION: "inf_",
        Kind.REQUEST: "ask_",
        Kind.REPLY: "rep_",
        Kind.NOTICE: "ntc_",
        Kind.PROMPT: "prm_",
        Kind.WAKE: "wak_",
    }
)

TARGET_CHARACTERS_MAX: Final = 64
# What is refused is not remembered.
TARGETS_REMEMBERED_MAX: Final = 4096
_BROADCASTS: Final = frozenset({"all", "*", "broadcast", "everyone"})
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def check_body(body: str) -> bytes:
    """Return the body's bytes, unchanged: every character round-trips, NUL and line ends included.

    Raises:
        InvalidMessage: no character that is not white space, over BODY_BYTES_MAX bytes, or not encodable as UTF-8.
    """
    try:
        raw = body.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidMessage("the message is not valid Unicode text; nothing was written") from None
    if len(raw) > BODY_BYTES_MAX:
        raise InvalidMessage(
            f"the message has {len(raw)} bytes, at most {BODY_BYTES_MAX} fit; nothing was written",
            hint="Put the long part into a file both can read and send its path.",
            state={"bytes": str(len(raw)), "bytes_max": str(BODY_BYTES_MAX)},
        )
    if not body or body.isspace():
        raise InvalidMessage("the message is blank; nothing was written")
    return raw


def check_evidence(text: str, field: str) -> str:
    """Return `text`.

    Raises:
        InvalidLimit: empty or over EVIDENCE_BYTES_MAX bytes.
    """
    if not 1 <= len(text.encode("utf-8", "replace")) <= EVIDENCE_BYTES_MAX:
        raise InvalidLimit(f"{field} has 1 to {EVIDENCE_BYTES_MAX} bytes; nothing was written")
    return text


def check_note(note: str) -> str:
    """Return `note`.

    Raises:
        InvalidLimit: it has more than NOTE_BYTES_MAX bytes.
    """
    if len(note.encode("utf-8", "replace")) > NOTE_BYTES_MAX:
        raise InvalidLimit(f"note has at most {NOTE_BYTES_MAX} bytes; nothing was written")
    return note


def record_id_text(kind: Kind, record_id: bytes) -> str:
    """Return the public form of a record's id."""
    return PREFIX[kind] + record_id.hex()


@lru_cache(maxsize=TARGETS_REMEMBERED_MAX)
def uuid_target(target: str) -> bytes | None:
    """Return the UUID that `target` spells, or None where it is a name.

    Raises:
        InvalidTarget: it is empty, padded, too long, or addresses several agents.
    """
    if not target:
        raise InvalidTarget("the target is empty; nothing was written", hint="Name one agent: list_agents shows them.")
    if target != target.strip():
        raise InvalidTarget("the target has white space around it; nothing was written", hint="Give the exact name.")
    if target.casefold() in _BROADCASTS or target.casefold().startswith("class:"):
        raise InvalidTarget(
            "a message goes to one agent; broadcasts do not exist; nothing was written",
            hint="Name one agent: list_agents shows them.",
        )
    if len(target) > TARGET_CHARACTERS_MAX:
        raise InvalidTarget(f"a target has at most {TARGET_CHARACTERS_MAX} characters; nothing was written")
    if _UUID.fullmatch(target):
        return bytes.fromhex(target.replace("-", ""))
    return None
