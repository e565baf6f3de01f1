"""One line of meaning a method of FilesService.

The guard in front of it has authenticated the caller and checked its role and deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fencepost.mailbox.v1 import files_pb2 as pb
from fencepost_kit.guard import Call, Rule
from fencepost_kit.identity import Role
from fencepost_mailbox import file_translate as wire
from fencepost_mailbox import translate
from fencepost_mailbox.usecases.files.hold import HoldFiles
from fencepost_mailbox.usecases.files.look import LookAtFiles
from fencepost_mailbox.usecases.ports import Ports

FILE_CALL_MS_MAX: Final = 10_000

_AGENTS: Final = frozenset({Role.AGENT, Role.COORDINATOR})
_HOLDING: Final = Rule(roles=_AGENTS, deadline_ms_max=FILE_CALL_MS_MAX)
_LOOKING: Final = Rule(roles=_AGENTS | {Role.OPERATOR}, deadline_ms_max=FILE_CALL_MS_MAX)

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "ReserveFiles": _HOLDING,
        "RenewFiles": _HOLDING,
        "ReleaseFiles": _LOOKING,
        "ListReservations": _LOOKING,
        "CheckFiles": _LOOKING,
    }
)


class FilesServicer:
    """fencepost.mailbox.v1.FilesService."""

    def __init__(self, ports: Ports) -> None:
        self._names = translate.Namer(ports.directory)
        self._hold = HoldFiles(ports)
        self._look = LookAtFiles(ports)

    async def ReserveFiles(self, request: pb.ReserveFilesRequest, call: Call) -> pb.ReserveFilesResponse:
        """See files.proto, as for every method here."""
        answer = await self._hold.reserve(call.caller, wire.reserve_command(request))
        return wire.reserve_response(answer, self._names)

    async def RenewFiles(self, request: pb.RenewFilesRequest, call: Call) -> pb.RenewFilesResponse:
        renewed = await self._hold.renew(call.caller, wire.renew_command(request))
        return pb.RenewFilesResponse(
            renewed=renewed.count, expires_at_ms=renewed.expires_at_ms, duplicate=renewed.duplicate
        )

    async def ReleaseFiles(self, request: pb.ReleaseFilesRequest, call: Call) -> pb.ReleaseFilesResponse:
        released = await self._hold.release(call.caller, wire.release_command(request))
        return pb.ReleaseFilesResponse(released=released.count, duplicate=released.duplicate)

    async def ListReservations(self, request: pb.ListReservationsRequest, call: Call) -> pb.ListReservationsResponse:
        page = await self._look.list_reservations(
            call.caller,
            translate.optional_uuid(request.project_id),
            path=request.path,
            holder=request.holder,
            size=request.page_size,
            token=request.page_token,
        )
        reservations = [wire.reservation(one, self._names) for one in page.reservations]
        return pb.ListReservationsResponse(reservations=reservations, next_page_token=page.next_token)

    async def CheckFiles(self, request: pb.CheckFilesRequest, call: Call) -> pb.CheckFilesResponse:
        checked = await self._look.check(
            call.caller,
            translate.optional_uuid(request.project_id),
            tuple(request.paths),
            tuple(request.globs),
            wire.scope_of(request.scope),
        )
        return wire.check_response(checked, self._names)
