"""Refusals on the wire: one gRPC status each, with the detail that proves that nothing was written."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import grpc
from google.protobuf import any_pb2
from google.rpc import status_pb2  # type: ignore[import-untyped]

from fencepost.common.v1 import common_pb2
from fencepost_kit.refusal import (
    STATE_PAIR_BYTES_MAX,
    STATE_PAIRS_MAX,
    TEXT_BYTES_MAX,
    DependencyDown,
    Draining,
    Malformed,
    Overloaded,
    PermissionDenied,
    Refusal,
    Unauthenticated,
)

DETAILS_KEY: Final = "grpc-status-details-bin"
# Trailing metadata has 8 KiB on every client that was not told otherwise, and a binary entry grows by a third.
DETAILS_BYTES_MAX: Final = 4096
# The reason, the type's address, and the tags and lengths around everything.
DETAILS_FRAME_BYTES: Final = 256
PAIR_FRAME_BYTES: Final = 12

KIT_STATUSES: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        Malformed: grpc.StatusCode.INVALID_ARGUMENT,
        Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
        PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
        Draining: grpc.StatusCode.UNAVAILABLE,
        Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
        DependencyDown: grpc.StatusCode.UNAVAILABLE,
    }
)


def status_of(refusal: Refusal, table: Mapping[type[Refusal], grpc.StatusCode]) -> grpc.StatusCode:
    """Return the status of a refusal: its nearest class in `table`, else in KIT_STATUSES.

    Raises:
        LookupError: neither table knows the class, which is a bug of the service.
    """
    for kind in type(refusal).__mro__:
        status = table.get(kind) or KIT_STATUSES.get(kind)
        if status is not None:
            return status
    raise LookupError(f"no status for {type(refusal).__name__}")


def clip(text: str, bytes_max: int) -> str:
    """Return `text` as valid Unicode of at most `bytes_max` bytes in UTF-8, never cut inside a character."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def status_details(refusal: Refusal, code: grpc.StatusCode) -> bytes:
    """Return google.rpc.Status with common.v1.Refusal as its only detail, at most DETAILS_BYTES_MAX bytes.

    What is over a limit is cut; facts of the state that find no room are left out, the last ones first.
    """
    detail = common_pb2.Refusal(
        reason=refusal.reason,
        effect=common_pb2.EFFECT_NOT_WRITTEN,
        may_resend=refusal.may_resend,
        hint=clip(refusal.hint, TEXT_BYTES_MAX),
    )
    room = DETAILS_BYTES_MAX - DETAILS_FRAME_BYTES - 2 * TEXT_BYTES_MAX
    for key, value in list(refusal.state.items())[:STATE_PAIRS_MAX]:
        name = clip(key, STATE_PAIR_BYTES_MAX // 4)
        text = clip(value, STATE_PAIR_BYTES_MAX - len(name.encode()))
        room -= len(name.encode()) + len(text.encode()) + PAIR_FRAME_BYTES
        if room < 0:
            break
        detail.state[name] = text
    packed = any_pb2.Any()
    packed.Pack(detail)
    number: int = code.value[0]
    status = status_pb2.Status(code=number, message=clip(refusal.message, TEXT_BYTES_MAX), details=[packed])
    raw: bytes = status.SerializeToString()
    return raw


def detail_of(error: grpc.RpcError) -> common_pb2.Refusal | None:
    """Return the refusal that an RPC error carries, or None: without it the outcome is unknown."""
    metadata = getattr(error, "trailing_metadata", lambda: None)()
    for key, value in metadata or ():
        if key == DETAILS_KEY:
            return _unpacked(value)
    return None


def _unpacked(raw: bytes) -> common_pb2.Refusal | None:
    try:
        status = status_pb2.Status.FromString(raw)
        detail = common_pb2.Refusal()
        for packed in status.details:
            if packed.Unpack(detail) and detail.effect == common_pb2.EFFECT_NOT_WRITTEN:
                return detail
    except Exception:  # noqa: BLE001, S110 - whatever was sent, it proves nothing
        pass
    return None
