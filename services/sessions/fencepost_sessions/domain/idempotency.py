"""Idempotency keys: one answer for one content, for at least IDEMPOTENCY_KEPT_MS."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from fencepost_sessions.domain.limits import IDEMPOTENCY_KEY_BYTES_MAX
from fencepost_sessions.domain.refusals import IdempotencyConflict, InvalidIdempotencyKey


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """A key in its scope: who asks, for what, by which key, with which content."""

    scope: bytes
    operation: str
    key: str
    content_sha256: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstAnswer:
    """What the first call with a key was and what it answered, as plain words of JSON."""

    content_sha256: bytes
    answer: Mapping[str, object]


def idempotency_key(*, scope: bytes, operation: str, key: str, content: tuple[str | int | None, ...]) -> Key:
    """Return a key with its scope and content.

    Raises:
        InvalidIdempotencyKey: empty or over IDEMPOTENCY_KEY_BYTES_MAX bytes.
    """
    size = len(key.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= IDEMPOTENCY_KEY_BYTES_MAX:
        raise InvalidIdempotencyKey(
            f"the idempotency key has {size} bytes; nothing was written",
            hint=f"Use 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes, unique for each thing to do.",
        )
    return Key(scope=scope, operation=operation, key=key, content_sha256=content_hash(operation, *content))


def content_hash(*parts: str | int | None) -> bytes:
    """Return one hash for one sequence of parts: lengths and kinds are in it, so that no two sequences meet."""
    digest = hashlib.sha256()
    for part in parts:
        kind = b"n" if part is None else b"i" if isinstance(part, int) else b"s"
        raw = b"" if part is None else str(part).encode("utf-8", "surrogatepass")
        digest.update(kind + len(raw).to_bytes(4, "big") + raw)
    return digest.digest()


def same_content(first: FirstAnswer, key: Key) -> Mapping[str, object]:
    """Return the first answer for a repeated call.

    Raises:
        IdempotencyConflict: the key was used for other content.
    """
    if first.content_sha256 != key.content_sha256:
        raise IdempotencyConflict(
            "this idempotency key was used for other content; nothing was written",
            hint="Repeat the first call exactly, or use a new key for a new thing to do.",
        )
    return first.answer
