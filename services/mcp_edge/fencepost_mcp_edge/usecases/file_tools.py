"""The tools of file reservations. Where no shim has named the files, this is their machine, and they are named here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from fencepost.errors import Refused
from fencepost.mailbox.v1 import files_pb2 as pb
from fencepost.mcp import places
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_mcp_edge import file_translate as wire
from fencepost_mcp_edge.domain.frames import Place
from fencepost_mcp_edge.translate import Payload
from fencepost_mcp_edge.usecases.outcomes import ToolError
from fencepost_mcp_edge.usecases.rows import Asking, Reading, paged, repeatable


async def _placed(asking: Asking) -> Place:
    """Return the files of a call as their checkout has them. Raises FencepostError."""
    if asking.place is not None:
        return asking.place
    told = await asking.caller.sessions.get_caller()
    folder = _checkout(told)
    made = await asyncio.to_thread(places.place, asking.arguments, folder)
    return Place(
        root=made["root"], ignore_case=made["ignore_case"], paths=tuple(made["paths"]), globs=tuple(made["globs"])
    )


def _checkout(told: sessions.GetCallerResponse) -> str:
    """Return the folder that the caller works in, as far as is recorded of it."""
    folder = told.agent.launch.checkout_root or told.agent.workspace
    if not folder and told.project.location:
        location = Path(told.project.location)
        folder = str(location.parent if location.name == ".git" else location)
    if not folder:
        raise Refused(
            "no_workspace",
            "nothing is recorded of the folder that you work in, so files cannot be named; nothing was sent",
            hint="A person sets it: fencepost agent update NAME --workspace DIR.",
        )
    return folder


async def _reserve(asking: Asking) -> Payload:
    place = await _placed(asking)
    request = wire.reserve_request(asking.arguments, place, asking.request_id)
    return wire.reserve_result(await asking.caller.files.reserve(request), place, asking.request_id)


async def _renew(asking: Asking) -> Payload:
    request = wire.renew_request(asking.arguments, await _placed(asking), asking.request_id)
    return wire.renew_result(await asking.caller.files.renew(request), asking.request_id)


async def _release(asking: Asking) -> Payload:
    request = wire.release_request(asking.arguments, await _placed(asking), asking.request_id)
    return wire.release_result(await asking.caller.files.release(request), asking.request_id)


async def _check(asking: Asking) -> Payload:
    return wire.check_result(await asking.caller.files.check(wire.check_request(await _placed(asking))))


async def _list(asking: Asking) -> Payload:
    place = await _placed(asking) if "file_path" in asking.arguments else None
    if place is not None and place.globs:
        raise ToolError(
            "invalid_arguments",
            "file_path is one file or folder here, no glob; nothing was read.",
            hint="Name the folder that the glob is below, or ask file_check about the glob.",
        )
    named = list(place.paths) if place is not None else []
    request = pb.ListReservationsRequest(path=named[0] if named else "", holder=asking.arguments.get("holder", ""))

    async def some(size: int, cursor: str) -> tuple[list[Payload], str]:
        request.page_size, request.page_token = size, cursor
        response = await asking.caller.files.list_reservations(request)
        return [wire.reservation(one) for one in response.reservations], response.next_page_token

    page = await paged(asking, some)
    return {"operation": "file_reservations", "reservations": page.entries, "next_cursor": page.cursor or None}


WRITES: Final = (
    repeatable("file_reserve", _reserve),
    repeatable("file_renew", _renew),
    repeatable("file_release", _release),
)
READINGS: Final = (Reading(name="file_reservations", ask=_list), Reading(name="file_check", ask=_check))
