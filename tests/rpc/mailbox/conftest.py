"""A mailbox that answers on a socket of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost.transports import TRANSPORTS
from fencepost_testing.processes import short_home
from fencepost_testing.served_mailbox import ServedMailbox


@pytest.fixture(params=TRANSPORTS)
async def served(request: pytest.FixtureRequest) -> AsyncIterator[ServedMailbox]:
    with short_home() as home:
        made = ServedMailbox(home, transport=request.param)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()
