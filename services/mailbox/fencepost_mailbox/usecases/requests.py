"""What a request id of context and files stands for: the packed result of the call that it was first used for."""

from __future__ import annotations

from fencepost_mailbox.domain.refusals import KeyCancelled
from fencepost_mailbox.domain.tasks.refusals import RequestConflict
from fencepost_mailbox.domain.values import Operation
from fencepost_mailbox.store.protocol import InvariantBroken, Queries, Transaction

_NUMBER_BYTES = 8


def packed(*numbers: int) -> bytes:
    """Return numbers from 0 on as the result that a request id stands for."""
    return b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in numbers)


def unpacked(raw: bytes) -> tuple[int, ...]:
    """Return the numbers of a result."""
    return tuple(int.from_bytes(raw[at : at + _NUMBER_BYTES], "big") for at in range(0, len(raw), _NUMBER_BYTES))


def known_result(
    queries: Queries, *, scope: bytes, operation: Operation, request_id: bytes, content: bytes
) -> bytes | None:
    """Return the result of an earlier call under this request id, or None where there was none.

    Raises:
        RequestConflict: it stands for other content.
    """
    row = queries.key(scope, operation, request_id)
    if row is None:
        return None
    if row.record_id is None:
        raise KeyCancelled(
            "this request_id was settled as cancelled before the call arrived; nothing was written",
            hint="If it is still wanted, call again with a new request_id.",
        )
    if row.fingerprint != content:
        raise RequestConflict(
            "this request_id was used for a call with other content; nothing was written",
            hint="Use a new request_id for a new call.",
        )
    return row.record_id


def keep_result(
    tx: Transaction,
    *,
    scope: bytes,
    operation: Operation,
    request_id: bytes,
    content: bytes,
    result: bytes,
    now_ms: int,
) -> None:
    """Let a request id stand for a result, in the transaction that brought it about."""
    known = tx.take_key(
        caller=scope, operation=operation, key=request_id, fingerprint=content, record_id=result, now_ms=now_ms
    )
    if known is not None:
        raise InvariantBroken("a request id was taken while its call was carried out")
