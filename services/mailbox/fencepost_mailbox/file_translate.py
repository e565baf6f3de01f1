"""What file reservations look like on the wire: translate.py's part for files.proto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import grpc

from fencepost.mailbox.v1 import files_pb2 as pb
from fencepost_kit.ids import uuid_bytes, uuid_text
from fencepost_kit.refusal import Malformed, Refusal
from fencepost_mailbox import translate
from fencepost_mailbox.domain.files import refusals
from fencepost_mailbox.domain.files.values import Conflicts, Mode, Reserved, Scope
from fencepost_mailbox.usecases.files import hold, look

FILE_STATUS_OF: Final[Mapping[type[Refusal], grpc.StatusCode]] = MappingProxyType(
    {
        refusals.InvalidPath: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.InvalidReservation: grpc.StatusCode.INVALID_ARGUMENT,
        refusals.ReservationLost: grpc.StatusCode.ABORTED,
        refusals.ReservationLimit: grpc.StatusCode.FAILED_PRECONDITION,
    }
)


def scope_of(scope: pb.FileScope) -> Scope:
    """Return where paths count."""
    return Scope(checkout=scope.checkout, ignore_case=scope.ignore_case)


def _ids(texts: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(uuid_bytes(text) for text in texts)


def reserve_command(request: pb.ReserveFilesRequest) -> hold.Reserve:
    """Return what ReserveFiles asks for.

    Raises:
        Malformed: the mode is one that nobody knows.
        MalformedId: an id is no UUID.
    """
    if request.mode not in (
        pb.RESERVATION_MODE_UNSPECIFIED,
        pb.RESERVATION_MODE_EXCLUSIVE,
        pb.RESERVATION_MODE_SHARED,
    ):
        raise Malformed("a reservation is exclusive or shared; nothing was written")
    return hold.Reserve(
        paths=tuple(request.paths),
        globs=tuple(request.globs),
        scope=scope_of(request.scope),
        mode=Mode(request.mode or pb.RESERVATION_MODE_EXCLUSIVE),
        duration_seconds=request.duration_seconds,
        reason=request.reason,
        attempt_id=translate.optional_uuid(request.attempt_id),
        request_id=uuid_bytes(request.request_id),
    )


def renew_command(request: pb.RenewFilesRequest) -> hold.Renew:
    """Return what RenewFiles asks for.

    Raises:
        MalformedId: an id is no UUID.
    """
    return hold.Renew(
        reservation_ids=_ids(request.reservation_ids),
        paths=tuple(request.paths),
        globs=tuple(request.globs),
        duration_seconds=request.duration_seconds,
        request_id=uuid_bytes(request.request_id),
    )


def release_command(request: pb.ReleaseFilesRequest) -> hold.Release:
    """Return what ReleaseFiles asks for.

    Raises:
        MalformedId: an id is no UUID.
    """
    return hold.Release(
        reservation_ids=_ids(request.reservation_ids),
        paths=tuple(request.paths),
        globs=tuple(request.globs),
        everything=request.everything,
        holder=translate.optional_uuid(request.holder_id),
        request_id=uuid_bytes(request.request_id),
    )


def reservation(one: Reserved, names: translate.Namer) -> pb.Reservation:
    """Return a reserved path as its reader sees it."""
    return pb.Reservation(
        reservation_id=uuid_text(one.reservation_id),
        path=one.span.path,
        glob=one.span.glob,
        mode=pb.ReservationMode.ValueType(one.mode),
        scope=pb.FileScope(checkout=one.scope.checkout, ignore_case=one.scope.ignore_case),
        holder=names.ref(one.holder),
        generation=one.generation,
        attempt_id=uuid_text(one.attempt_id) if one.attempt_id is not None else "",
        reason=one.reason,
        reserved_at_ms=one.reserved_at_ms,
        expires_at_ms=one.expires_at_ms,
    )


def _conflicts(conflicts: Conflicts, names: translate.Namer) -> list[pb.FileConflict]:
    return [pb.FileConflict(path=one.asked.path, held=reservation(one.held, names)) for one in conflicts.listed]


def reserve_response(answer: hold.Answer, names: translate.Namer) -> pb.ReserveFilesResponse:
    """Return the answer of ReserveFiles."""
    return pb.ReserveFilesResponse(
        reserved=answer.reservation_id is not None and not answer.lapsed,
        reservation_id=uuid_text(answer.reservation_id) if answer.reservation_id is not None else "",
        expires_at_ms=answer.expires_at_ms,
        conflicts=_conflicts(answer.conflicts, names),
        more_conflicts=answer.conflicts.more,
        duplicate=answer.duplicate,
        lapsed=answer.lapsed,
    )


def check_response(checked: look.Checked, names: translate.Namer) -> pb.CheckFilesResponse:
    """Return the answer of CheckFiles."""
    return pb.CheckFilesResponse(
        free=not checked.conflicts.listed,
        conflicts=_conflicts(checked.conflicts, names),
        more_conflicts=checked.conflicts.more,
        checked_at_ms=checked.at_ms,
    )
