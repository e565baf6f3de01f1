"""UUIDs of version 7 as 16 bytes, which sort by the time of their minting. They identify and never authorise."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from fencepost_kit.clock import SYSTEM_CLOCK
from fencepost_kit.refusal import Malformed

UUID_BYTES: Final = 16
UUID_CHARS: Final = 36
# The same few agents are named over and over.
TEXTS_REMEMBERED_MAX: Final = 4096
TIME_BITS: Final = 48
RANDOM_BITS: Final = 74
# Inside one millisecond ids count upwards by random steps of up to this many bits: room for 2**41 of them.
STEP_BITS: Final = 32

_TIME_MASK: Final = (1 << TIME_BITS) - 1
_RANDOM_MASK: Final = (1 << RANDOM_BITS) - 1
_LOW_MASK: Final = (1 << 62) - 1
_FRAME: Final = (0x7 << 76) | (0b10 << 62)


class MalformedId(Malformed, ValueError):
    """The text is not a UUID in its canonical lower-case form of 36 characters."""


def uuid7(now_ms: int, randomness: int) -> bytes:
    """Return the UUIDv7 (RFC 9562) of a Unix time in milliseconds and 74 random bits. Pure.

    Raises:
        ValueError: the time is not in 0 .. 2**48-1, or the randomness not in 0 .. 2**74-1.
    """
    if not 0 <= now_ms <= _TIME_MASK or not 0 <= randomness <= _RANDOM_MASK:
        raise ValueError("time or randomness out of range")
    high, low = randomness >> 62, randomness & _LOW_MASK
    return (now_ms << 80 | high << 64 | low | _FRAME).to_bytes(UUID_BYTES, "big")


class IdMint:
    """Mints UUIDv7s, each greater than every one before it in this process, also when the clock steps back.

    Safe to use from several threads. After a step back the ids keep the highest time that was seen.
    """

    __slots__ = ("_bits", "_last_ms", "_last_random", "_lock", "_now_ms")

    def __init__(
        self, *, now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms, getrandbits: Callable[[int], int] | None = None
    ) -> None:
        self._now_ms = now_ms
        # Seeded from the system once: ids must not collide, and they need not be unguessable.
        self._bits = getrandbits or random.Random(os.urandom(32)).getrandbits  # noqa: S311
        self._last_ms = -1
        self._last_random = 0
        self._lock = threading.Lock()

    def new(self) -> bytes:
        """Return the next id."""
        with self._lock:
            now = self._now_ms()
            if now > self._last_ms:
                self._last_ms = now
                # The top bit stays free, so that a burst inside this millisecond has room to count upwards.
                self._last_random = self._bits(RANDOM_BITS - 1)
            else:
                self._last_random += 1 + self._bits(STEP_BITS)
                if self._last_random > _RANDOM_MASK:
                    self._last_ms += 1
                    self._last_random = self._bits(RANDOM_BITS - 1)
            return uuid7(self._last_ms, self._last_random)


def hex32(value: bytes) -> str:
    """Return an id as 32 lower-case hexadecimal digits."""
    if len(value) != UUID_BYTES:
        raise ValueError(f"an id has {UUID_BYTES} bytes")
    return value.hex()


@lru_cache(maxsize=TEXTS_REMEMBERED_MAX)
def uuid_text(value: bytes) -> str:
    """Return an id in the canonical form of 36 characters."""
    digits = hex32(value)
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a UUID in canonical form.

    Raises:
        MalformedId: another form (upper case, braces, without dashes, padded): two texts never mean one id.
    """
    try:
        value = uuid.UUID(text).bytes if len(text) == UUID_CHARS else b""
    except ValueError:
        value = b""
    if not value or uuid_text(value) != text:
        raise MalformedId("not a UUID in lower-case form of 36 characters")
    return value
