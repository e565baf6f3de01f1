"""Pages: sizes, and tokens that say where the next page begins.

A token is no secret and no authority: what a caller sees is decided anew for every page. It carries which list it
belongs to, so that a token of another list, filter or directory is refused instead of silently giving another page.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fencepost_sessions.domain.limits import MESSAGE_BYTES_MAX, PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, PAGE_TOKEN_BYTES_MAX
from fencepost_sessions.domain.refusals import InvalidCursor, InvalidLimit

T = TypeVar("T")

_VERSION: Final = b"\x01"
_CHECK_BYTES: Final = 8
_NUMBER_BYTES: Final = 8
ID_BYTES: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[T]):
    """Rows of one page and the token of the next; empty on the last."""

    rows: tuple[T, ...]
    next_token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NamePosition:
    """A place in an order by name: after this key, and for equal keys after this id."""

    key: str
    row_id: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberPosition:
    """A place in an order by number: after this number, and for equal numbers after this id."""

    number: int
    row_id: bytes


NAME_START: Final = NamePosition(key="", row_id=b"")
NUMBER_START: Final = NumberPosition(number=0, row_id=b"")


def page_rows(asked: int) -> int:
    """Return how many rows a page holds; 0 asks for PAGE_ROWS_DEFAULT.

    Raises:
        InvalidLimit: negative or over PAGE_ROWS_MAX.
    """
    if not 0 <= asked <= PAGE_ROWS_MAX:
        raise InvalidLimit(
            f"a page holds 1 to {PAGE_ROWS_MAX} rows, {asked} were asked for",
            hint="Ask for fewer and follow the page token.",
        )
    return asked or PAGE_ROWS_DEFAULT


def list_mark(epoch: bytes, name: str, narrowed_to: bytes | None) -> bytes:
    """Return what tells one list from every other: directory, name and filter."""
    return hashlib.sha256(epoch + name.encode("ascii") + b"\0" + (narrowed_to or b"")).digest()


def name_token(mark: bytes, position: NamePosition) -> str:
    """Return the token of a place in an order by name."""
    return _encode(mark, position.row_id + position.key.encode("utf-8", "surrogatepass"))


def name_position(mark: bytes, token: str) -> NamePosition:
    """Return the place that a token of this list names; an empty token is the start.

    Raises:
        InvalidCursor: not a token of this list.
    """
    if not token:
        return NAME_START
    raw = _decode(mark, token)
    if len(raw) <= ID_BYTES:
        raise _refused()
    try:
        return NamePosition(key=raw[ID_BYTES:].decode("utf-8"), row_id=raw[:ID_BYTES])
    except UnicodeDecodeError as error:
        raise _refused() from error


def number_token(mark: bytes, position: NumberPosition) -> str:
    """Return the token of a place in an order by number."""
    return _encode(mark, position.row_id + position.number.to_bytes(_NUMBER_BYTES, "big"))


def number_position(mark: bytes, token: str) -> NumberPosition:
    """Return the place that a token of this list names; an empty token is the start.

    Raises:
        InvalidCursor: not a token of this list.
    """
    if not token:
        return NUMBER_START
    raw = _decode(mark, token)
    number = int.from_bytes(raw[ID_BYTES:], "big")
    if len(raw) != ID_BYTES + _NUMBER_BYTES or number >= 1 << 63:
        raise _refused()
    return NumberPosition(number=number, row_id=raw[:ID_BYTES])


def fitting(rows: Sequence[T], size: int, weigh: Callable[[T], int]) -> tuple[T, ...]:
    """Return the first rows that make one message: at most `size`, and MESSAGE_BYTES_MAX by weight; at least one."""
    taken = 0
    for number, row in enumerate(rows[:size]):
        taken += weigh(row)
        if taken > MESSAGE_BYTES_MAX and number:
            return tuple(rows[:number])
    return tuple(rows[:size])


def cut(rows: Sequence[T], size: int, weigh: Callable[[T], int]) -> tuple[tuple[T, ...], T | None]:
    """Return a page of `rows` and, where more were found than fit, the last row of the page to go on from."""
    page = fitting(rows, size, weigh)
    return page, page[-1] if len(rows) > len(page) else None


def _encode(mark: bytes, position: bytes) -> str:
    return base64.urlsafe_b64encode(_head(mark, position) + position).rstrip(b"=").decode("ascii")


def _head(mark: bytes, position: bytes) -> bytes:
    # Not a secret: it tells a token that was cut, changed or made for another list, and keeps nobody from making one.
    return _VERSION + hashlib.sha256(mark + position).digest()[:_CHECK_BYTES]


def _decode(mark: bytes, token: str) -> bytes:
    if len(token) > PAGE_TOKEN_BYTES_MAX or not token.isascii():
        raise _refused()
    padded = token + "=" * (-len(token) % 4)
    try:
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused() from error
    position = raw[len(_VERSION) + _CHECK_BYTES :]
    # Base64 has several spellings of one value: only the one that was given out counts.
    if _encode(mark, position) != token:
        raise _refused()
    return position


def _refused() -> InvalidCursor:
    return InvalidCursor("the page token is not one of this list", hint="Begin again without a page token.")
