"""Making a call until it is answered, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fencepost.errors import FencepostError, Refused

PURSUED_S_MAX: Final = 60.0
PURSUE_PAUSE_S: Final = 0.1
_MAY_RESEND: Final = frozenset({"draining", "overloaded", "dependency_unavailable", "storage_error"})

T = TypeVar("T")


async def pursued(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call whose repetition changes nothing more, until it is answered.

    Raises:
        Refused: the answer was no, for another reason than that the service could not be asked.
        FencepostError: there was no answer within PURSUED_S_MAX.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + PURSUED_S_MAX
    while True:
        try:
            return await call()
        except Refused as refused:
            if refused.reason not in _MAY_RESEND or clock() > until:
                raise
        except FencepostError:
            if clock() > until:
                raise
        await asyncio.sleep(PURSUE_PAUSE_S)
