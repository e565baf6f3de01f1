"""Which records make a page: bounded three ways, never empty while something stands (M017 M033)."""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Final

from fencepost_mailbox.domain.refusals import InvalidCursor, InvalidLimit, InvalidTimeout
from fencepost_mailbox.domain.values import PAGE_BODY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_RECORDS_MAX, WAIT_MS_MAX, Record

# What a record costs beside its body in the widest JSON form that a client is given: ids, names, states, times.
RECORD_OVERHEAD_BYTES: Final = 640
# What the ids and names of attributes add to that.
ATTRIBUTES_OVERHEAD_BYTES: Final = 240
# Any number of so many digits is one that a database has room for.
PAGE_TOKEN_DIGITS_MAX: Final = 18


def check_limit(limit: int) -> int:
    """Return how many records a page may have; 0 asks for PAGE_RECORDS_MAX.

    Raises:
        InvalidLimit: outside 0..PAGE_RECORDS_MAX.
    """
    if not 0 <= limit <= PAGE_RECORDS_MAX:
        raise InvalidLimit(f"limit must be 1 to {PAGE_RECORDS_MAX}; nothing was read")
    return limit or PAGE_RECORDS_MAX


def check_budget(page_bytes: int) -> int:
    """Return how many bytes of JSON a page may have; 0 asks for PAGE_BYTES_MAX.

    Raises:
        InvalidLimit: outside 0..PAGE_BYTES_MAX.
    """
    if not 0 <= page_bytes <= PAGE_BYTES_MAX:
        raise InvalidLimit(f"page_bytes_max must be 1 to {PAGE_BYTES_MAX}; nothing was read")
    return page_bytes or PAGE_BYTES_MAX


def check_timeout(timeout_ms: int) -> int:
    """Return the wait in milliseconds.

    Raises:
        InvalidTimeout: outside 0..WAIT_MS_MAX.
    """
    if not 0 <= timeout_ms <= WAIT_MS_MAX:
        raise InvalidTimeout(f"timeout_ms must be 0 to {WAIT_MS_MAX}; nothing was read")
    return timeout_ms


def page_number(token: str) -> int:
    """Return the number that a page token stands for.

    Raises:
        InvalidCursor: it is malformed.
    """
    if not token.isascii() or not token.isdigit() or len(token) > PAGE_TOKEN_DIGITS_MAX:
        raise InvalidCursor(
            "the page token is malformed; nothing was read", hint="Begin the listing again without one."
        )
    return int(token)


def json_bytes(body: bytes) -> int:
    """Return how many bytes the body takes as a JSON string."""
    return len(encode_basestring(body.decode("utf-8")).encode("utf-8"))


def fitting(candidates: Sequence[Record], *, limit: int, page_bytes: int) -> int:
    """Return how many of `candidates`, from the first on, make a page. At least one where there is any.

    The one that does not fit is the first of the next page and stays as it is.
    """
    bodies = total = 0
    for count, record in enumerate(candidates[:limit]):
        bodies += len(record.body)
        total += RECORD_OVERHEAD_BYTES + json_bytes(record.body)
        if record.attributes is not None:
            total += ATTRIBUTES_OVERHEAD_BYTES + json_bytes(record.attributes.subject.encode("utf-8"))
        if count and (bodies > PAGE_BODY_BYTES_MAX or total > page_bytes):
            return count
    return min(len(candidates), limit)
