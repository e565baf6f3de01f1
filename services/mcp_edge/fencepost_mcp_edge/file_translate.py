"""File reservations between the tools' JSON and the protobuf of FilesService."""

from __future__ import annotations

from typing import Any, Final

from fencepost.mailbox.v1 import files_pb2 as pb
from fencepost_mcp_edge.domain.frames import Place
from fencepost_mcp_edge.translate import Arguments, InvalidReceipt, Payload, Words, agent_of, moment

MODE: Final = Words(pb.ReservationMode, "RESERVATION_MODE_")


def _scope(place: Place, *, checkout: bool) -> pb.FileScope:
    return pb.FileScope(checkout=place.root if checkout else "", ignore_case=place.ignore_case)


def reserve_request(arguments: Arguments, place: Place, request_id: str) -> pb.ReserveFilesRequest:
    """Return the ReserveFiles that file_reserve stands for."""
    shared = arguments.get("shared", False)
    return pb.ReserveFilesRequest(
        paths=place.paths,
        globs=place.globs,
        scope=_scope(place, checkout=arguments.get("scope") == "checkout"),
        mode=pb.RESERVATION_MODE_SHARED if shared else pb.RESERVATION_MODE_EXCLUSIVE,
        duration_seconds=arguments.get("duration_seconds", 0),
        reason=arguments.get("reason", ""),
        attempt_id=arguments.get("attempt_id", ""),
        request_id=request_id,
    )


def reservation(held: pb.Reservation) -> Payload:
    """Return one reserved path."""
    return {
        "file_path": held.path,
        "glob": held.glob,
        "mode": MODE[held.mode],
        "checkout": held.scope.checkout or None,
        "holder": agent_of(held.holder),
        "reason": held.reason or None,
        "reservation_id": held.reservation_id,
        "attempt_id": held.attempt_id or None,
        "reserved_at": moment(held.reserved_at_ms),
        "expires_at": moment(held.expires_at_ms),
    }


def _conflicts(response: Any) -> Payload:
    return {
        "conflicts": [{"file_path": one.path, "held": reservation(one.held)} for one in response.conflicts],
        "more_conflicts": response.more_conflicts,
    }


def reserve_result(response: pb.ReserveFilesResponse, place: Place, request_id: str) -> Payload:
    """Return what came of file_reserve: of a refusal also who holds the first of the files. Raises InvalidReceipt."""
    if response.reserved and not response.reservation_id:
        raise InvalidReceipt
    named = [*place.paths, *place.globs]
    payload: Payload = {
        "operation": "file_reserve",
        "file_path": named[0],
        "reserved": response.reserved,
        "expires_at": moment(response.expires_at_ms),
        "duplicate": response.duplicate,
        "request_id": request_id,
    }
    if len(named) > 1:
        payload["more_paths"] = named[1:]
    if response.reservation_id:
        payload["reservation_id"] = response.reservation_id
    if response.lapsed:
        payload["lapsed"] = True
    if response.conflicts:
        held = response.conflicts[0].held
        payload |= {
            "holder": agent_of(held.holder),
            "reason": held.reason or None,
            "expires_at": moment(held.expires_at_ms),
            **_conflicts(response),
        }
    return payload


def renew_request(arguments: Arguments, place: Place, request_id: str) -> pb.RenewFilesRequest:
    """Return the RenewFiles that file_renew stands for."""
    return pb.RenewFilesRequest(
        **_held(arguments, place), duration_seconds=arguments.get("duration_seconds", 0), request_id=request_id
    )


def _held(arguments: Arguments, place: Place) -> dict[str, Any]:
    reservation_id = arguments.get("reservation_id")
    return {
        "reservation_ids": [reservation_id] if reservation_id else [],
        "paths": place.paths,
        "globs": place.globs,
    }


def renew_result(response: pb.RenewFilesResponse, request_id: str) -> Payload:
    """Return what file_renew renewed."""
    return {
        "operation": "file_renew",
        "renewed": response.renewed,
        "expires_at": moment(response.expires_at_ms),
        "duplicate": response.duplicate,
        "request_id": request_id,
    }


def release_request(arguments: Arguments, place: Place, request_id: str) -> pb.ReleaseFilesRequest:
    """Return the ReleaseFiles that file_release stands for."""
    return pb.ReleaseFilesRequest(
        **_held(arguments, place), everything=arguments.get("everything", False), request_id=request_id
    )


def release_result(response: pb.ReleaseFilesResponse, request_id: str) -> Payload:
    """Return what file_release gave up."""
    return {
        "operation": "file_release",
        "released": response.released,
        "duplicate": response.duplicate,
        "request_id": request_id,
    }


def check_request(place: Place) -> pb.CheckFilesRequest:
    """Return the CheckFiles that file_check stands for."""
    return pb.CheckFilesRequest(paths=place.paths, globs=place.globs, scope=_scope(place, checkout=True))


def check_result(response: pb.CheckFilesResponse) -> Payload:
    """Return what bars the caller from writing."""
    return {
        "operation": "file_check",
        "free": response.free,
        **_conflicts(response),
        "checked_at": moment(response.checked_at_ms),
    }
