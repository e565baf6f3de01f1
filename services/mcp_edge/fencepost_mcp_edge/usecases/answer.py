"""From a shim's frame to the line that answers it (order of checks: arguments, then the caller, then one service)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from fencepost.errors import FencepostError, Refused
from fencepost.mailbox.v1 import mailbox_pb2 as mailbox
from fencepost.mcp import profiles, registry, wire
from fencepost_kit import faults, logs
from fencepost_mcp_edge.domain.frames import Ask, Request, Settle
from fencepost_mcp_edge.translate import InvalidReceipt, Payload, encoded
from fencepost_mcp_edge.usecases import outcomes
from fencepost_mcp_edge.usecases.caller import KEY_BYTES_MAX, Caller
from fencepost_mcp_edge.usecases.outcomes import EDGE_CALL_MS_MAX, ToolError
from fencepost_mcp_edge.usecases.rows import SETTLES, Asking, Mutation, Write
from fencepost_mcp_edge.usecases.tools import MUTATIONS, READINGS, WRITES

BEFORE_CALL: Final = faults.register("mcp_edge.call.before", "a mutation is about to be sent to the mailbox")
AFTER_CALL: Final = faults.register("mcp_edge.call.after", "the mailbox has answered, the shim does not know yet")
BEFORE_SETTLE: Final = faults.register("mcp_edge.settle.before", "a lost mutation is about to be settled")

_KEY_TOO_LONG: Final = f"the id makes an idempotency key of more than {KEY_BYTES_MAX} bytes; nothing was done"

_log: Final = logs.get(__name__)


async def answer_ask(caller: Caller, ask: Ask, request: Request, *, page_bytes_max: int) -> bytes:
    """Return the answer to a tool call. Raises CancelledError only."""

    async def perform(checked: registry.Checked, key: str) -> Payload:
        row = MUTATIONS.get(checked.tool.name)
        if row is not None:
            return await _write(caller, partial(row.call, caller, row.to_request(checked.arguments, key)))
        asking = Asking(
            caller=caller,
            arguments=checked.arguments,
            key=key,
            within_ms=ask.within_ms,
            page_bytes_max=page_bytes_max,
            place=request.place,
        )
        write = WRITES.get(checked.tool.name)
        if write is not None:
            return await _write(caller, partial(write.ask, asking))
        return await READINGS[checked.tool.name].ask(asking)

    return await _answered(caller, ask.number, request, caller.menu, perform)


async def answer_settle(caller: Caller, settle: Settle, request: Request) -> bytes:
    """Return what became of a mutation whose answer was lost. Never calls it. Raises CancelledError only.

    It was called when its tool was offered: whether that is still so says nothing of what was written.
    """

    async def perform(checked: registry.Checked, key: str) -> Payload:
        row = MUTATIONS.get(checked.tool.name)
        if row is None:
            asking = Asking(caller=caller, arguments=checked.arguments, key=key, page_bytes_max=0, place=request.place)
            return await _settle_write(WRITES[checked.tool.name], asking, settle.epoch)
        return await _settle(caller, row, row.to_request(checked.arguments, key), settle.epoch)

    async def menu() -> registry.Menu:
        return registry.menu(frozenset(profiles.FAMILIES), warp=caller.warp)

    return await _answered(caller, settle.number, request, menu, perform)


async def _write(caller: Caller, call: Callable[[], Awaitable[Payload]]) -> Payload:
    try:
        await caller.tell_epoch()
    except FencepostError as error:
        # The mutation was not sent, whatever became of the question.
        raise outcomes.unsent(error) from None
    if faults.ARMED:
        faults.hit(BEFORE_CALL)
    payload = await call()
    if faults.ARMED:
        faults.hit(AFTER_CALL)
    return payload


async def _settle_write(row: Write, asking: Asking, epoch: str) -> Payload:
    if faults.ARMED:
        faults.hit(BEFORE_SETTLE)
    try:
        # Without an epoch no edge had called the store, so any store may tell that nothing was written.
        return await row.settle(asking, epoch or (await asking.caller.settling.describe()).epoch)
    except Refused as refused:
        raise outcomes.told(refused, mutation=True) from None
    except FencepostError as error:
        raise outcomes.unsettled(error) from None


async def _settle(caller: Caller, row: Mutation, request: Any, epoch: str) -> Payload:
    settles = SETTLES[type(request)]
    if faults.ARMED:
        faults.hit(BEFORE_SETTLE)
    try:
        # Without an epoch no edge had called the store, so any store may bar the call from arriving.
        epoch = epoch or (await caller.settling.describe()).epoch
        answer = await caller.settling.settle(mailbox.SettleKeyRequest(epoch=epoch, **{settles: request}))
    except FencepostError as error:
        # Other content under the key proves that this call was, or will be, refused for it.
        conflict = isinstance(error, Refused) and error.reason == "idempotency_conflict"
        raise (outcomes.told(error, mutation=True) if conflict else outcomes.unsettled(error)) from None
    if answer.settlement == mailbox.SETTLEMENT_CANCELLED:
        raise outcomes.cancelled()
    if answer.settlement != mailbox.SETTLEMENT_WRITTEN:
        raise outcomes.unsettled(None)
    if answer.WhichOneof("receipt") != settles:
        raise InvalidReceipt
    return row.to_result(request, getattr(answer, settles))


async def _answered(
    caller: Caller,
    number: int,
    request: Request,
    menu: Callable[[], Awaitable[registry.Menu]],
    perform: Callable[[registry.Checked, str], Awaitable[Payload]],
) -> bytes:
    try:
        offered = await menu()
    except FencepostError as error:
        # What was asked is not known to be a mutation, and nothing was sent for it.
        return outcomes.unsent(error).line(request.id_text)
    verdict = registry.examine(request.params, offered)
    if isinstance(verdict, registry.Malformed):
        return verdict.line(request.id_text)
    key = caller.key(number, request)
    if key is None:
        return wire.failure(request.id_text, wire.INVALID_REQUEST, _KEY_TOO_LONG)
    mutation = verdict.tool.lost is not registry.Lost.ASK_AGAIN
    try:
        async with asyncio.timeout(EDGE_CALL_MS_MAX / 1000):
            try:
                await caller.confirm()
            except FencepostError as error:
                raise outcomes.unsent(error) from None
            payload = await perform(verdict, key)
        return wire.tool_result(request.id_text, encoded(payload))
    except ToolError as error:
        problem = error
    except FencepostError as error:
        problem = outcomes.told(error, mutation=mutation)
    except TimeoutError:
        problem = outcomes.overdue(mutation=mutation)
    except InvalidReceipt:
        problem = outcomes.senseless(mutation=mutation)
    except Exception as error:  # noqa: BLE001 - one call's defect must not end the connection of all the others
        _log.exception("call_failed", error, tool=verdict.tool.name)
        problem = outcomes.broken(mutation=mutation)
    problem = outcomes.fitting(problem, verdict.tool.name)
    if offered.warp:
        problem = outcomes.renamed(problem)
    _log.info("tool_error", tool=verdict.tool.name, code=problem.code)
    return problem.line(request.id_text)
