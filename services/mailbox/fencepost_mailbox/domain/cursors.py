"""Cursors: a position in one recipient's inbox that nobody else can use and that no other store honours.

Source: M029 M030 M031.

A cursor is `cur_` and 32 bytes in base64url: 8 of the store's epoch, 8 of the position, 16 of a MAC over both and the
recipient. It is stateless: replaying one is always possible.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from fencepost_mailbox.domain.refusals import ExpiredCursor, InvalidCursor

_PREFIX: Final = "cur_"
_EPOCH_BYTES: Final = 8
_POSITION_BYTES: Final = 8
_MAC_BYTES: Final = 16
CURSOR_CHARACTERS: Final = len(_PREFIX) + 43


def _mac(secret: bytes, recipient: bytes, head: bytes) -> bytes:
    return hashlib.blake2b(recipient + head, key=secret, digest_size=_MAC_BYTES).digest()


def issue(position: int, *, recipient: bytes, epoch: bytes, secret: bytes) -> str:
    """Return the cursor of `position`. The same position, recipient and store always give the same text."""
    head = epoch[:_EPOCH_BYTES] + position.to_bytes(_POSITION_BYTES, "big")
    return _spelled(head + _mac(secret, recipient, head))


def _spelled(raw: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def position_of(cursor: str, *, recipient: bytes, epoch: bytes, secret: bytes) -> int:
    """Return the position that `cursor` stands for.

    Raises:
        InvalidCursor: it is malformed or another recipient's.
        ExpiredCursor: it is of another store.
    """
    malformed = InvalidCursor(
        "the cursor is malformed or belongs to another agent; nothing was read or acknowledged",
        hint="Call receive without a cursor: it starts at the oldest unacknowledged record.",
    )
    if len(cursor) != CURSOR_CHARACTERS or not cursor.startswith(_PREFIX):
        raise malformed
    try:
        raw = base64.b64decode(cursor[len(_PREFIX) :] + "=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise malformed from None
    # One cursor has one spelling: the decoder also takes the other alphabet and any spare bits in the last character.
    if _spelled(raw) != cursor:
        raise malformed
    head, mac = raw[: _EPOCH_BYTES + _POSITION_BYTES], raw[_EPOCH_BYTES + _POSITION_BYTES :]
    if head[:_EPOCH_BYTES] != epoch[:_EPOCH_BYTES]:
        raise ExpiredCursor(
            "the cursor was issued by another store than this one; nothing was read or acknowledged",
            hint="Call receive without a cursor: it starts at the oldest unacknowledged record.",
        )
    if not hmac.compare_digest(mac, _mac(secret, recipient, head)):
        raise malformed
    return int.from_bytes(head[_EPOCH_BYTES:], "big")
