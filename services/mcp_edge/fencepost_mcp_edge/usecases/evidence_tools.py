"""The tools of evidence: a report, and a list that may be checked first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost.mailbox.v1 import evidence_pb2 as pb
from fencepost.mcp.families.tasks import EVIDENCE_IDS_MAX
from fencepost.providers.v1 import providers_pb2 as providers
from fencepost_mcp_edge import evidence_translate as wire
from fencepost_mcp_edge.translate import Payload
from fencepost_mcp_edge.usecases.rows import Asking, Reading, paged, repeatable


async def _add(asking: Asking) -> Payload:
    request = wire.add_request(asking.arguments, asking.request_id)
    response = await asking.caller.evidence.add(request)
    return wire.add_result(request.task_id, response, asking.request_id)


async def _list(asking: Asking) -> Payload:
    arguments = asking.arguments
    task_id, only = arguments["task_id"], sorted(set(arguments.get("evidence_ids", ())))
    verify = arguments.get("verify", False)

    async def read(ids: Sequence[str], size: int, cursor: str) -> pb.ListEvidenceResponse:
        ask = pb.ListEvidenceRequest(task_id=task_id, evidence_ids=ids, page_size=size, after="" if ids else cursor)
        return await asking.caller.evidence.list_evidence(ask)

    async def some(size: int, cursor: str) -> tuple[list[Payload], str]:
        # Ids are in the order of their reports, in which the pages of both kinds go on.
        left = [one for one in only if one > cursor]
        ids = left[:size]
        if only and not ids:
            return [], ""
        response = await read(ids, size, cursor)
        more = len(left) > len(ids) if only else response.has_more
        found = list(response.evidence)
        if verify and found:
            found_ids = [one.evidence_id for one in found][:EVIDENCE_IDS_MAX]
            await asking.caller.providers.verify_evidence(
                providers.VerifyEvidenceRequest(task_id=task_id, evidence_ids=found_ids)
            )
            found = list((await read(found_ids, size, "")).evidence)
        return [wire.evidence(one) for one in found], found[-1].evidence_id if found and more else ""

    page = await paged(asking, some)
    return {"operation": "evidence_list", "evidence": page.entries, "next_cursor": page.cursor or None}


WRITES: Final = (repeatable("evidence_add", _add),)
READINGS: Final = (Reading(name="evidence_list", ask=_list),)
