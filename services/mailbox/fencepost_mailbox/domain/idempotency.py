"""Idempotency keys: the same call again gives the first receipt, another call under the same key is a conflict."""

from __future__ import annotations

import enum
import hashlib
import struct
from typing import Final

from fencepost_kit.values import value
from fencepost_mailbox.domain.refusals import IdempotencyConflict, InvalidIdempotencyKey, KeyCancelled
from fencepost_mailbox.domain.values import KEY_BYTES_MAX

_length: Final = struct.Struct(">I").pack


@value(frozen=True, kw_only=True, slots=True)
class KeyRow:
    """What a key stands for: a record, or nothing ever (cancelled)."""

    fingerprint: bytes
    record_id: bytes | None


class KeyVerdict(enum.Enum):
    """What a settled key tells."""

    WRITTEN = "written"
    CANCELLED = "cancelled"


def check_key(key: str) -> bytes:
    """Return the key's bytes.

    Raises:
        InvalidIdempotencyKey: empty or over KEY_BYTES_MAX bytes.
    """
    raw = key.encode("utf-8")
    if not 1 <= len(raw) <= KEY_BYTES_MAX:
        raise InvalidIdempotencyKey(f"an idempotency key has 1 to {KEY_BYTES_MAX} bytes; nothing was written")
    return raw


def fingerprint(*parts: bytes) -> bytes:
    """Return 16 bytes that stand for the content of a call.

    Each part is length-prefixed, so that no two calls run together.
    """
    told = b"".join([_length(len(part)) + part for part in parts])
    return hashlib.blake2b(told, digest_size=16).digest()


def judge_repeat(row: KeyRow, asked: bytes) -> bytes:
    """Return the id of the record that an earlier call with this key and content wrote.

    Raises:
        IdempotencyConflict: the key stands for other content.
        KeyCancelled: the key was settled as cancelled.
    """
    if row.fingerprint != asked:
        raise IdempotencyConflict(
            "this idempotency key was used for a call with other content; nothing was written",
            hint="Use a new key for a new message.",
        )
    if row.record_id is None:
        raise KeyCancelled(
            "this key was settled as cancelled before the call arrived; nothing was written",
            hint="If it is still wanted, send it again under a new key.",
        )
    return row.record_id


def judge_settle(row: KeyRow, asked: bytes) -> KeyVerdict:
    """Return what became of a key.

    Raises:
        IdempotencyConflict: the key stands for other content than was asked about.
    """
    if row.fingerprint != asked:
        raise IdempotencyConflict("this idempotency key stands for a call with other content; nothing was written")
    return KeyVerdict.CANCELLED if row.record_id is None else KeyVerdict.WRITTEN
