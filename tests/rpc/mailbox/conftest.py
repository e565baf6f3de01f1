"""A mailbox that answers on a socket of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost_testing.processes import short_home
from fencepost_testing.served_mailbox import ServedMailbox


@pytest.fixture
async def served() -> AsyncIterator[ServedMailbox]:
    with short_home() as home:
        made = ServedMailbox(home)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()
