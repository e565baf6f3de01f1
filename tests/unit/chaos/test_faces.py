"""The faces of the chaos run's clients, where they have to bear the end of what they speak to."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fencepost_chaos.faces import ShimFace
from fencepost_chaos.history import Log


async def test_the_end_of_a_shim_fails_what_still_waits_and_nothing_that_was_given_up() -> None:
    output = asyncio.StreamReader()
    process = cast("asyncio.subprocess.Process", SimpleNamespace(stdout=output))
    face = ShimFace(client="c", agent="a", log=Log(io.StringIO()), process=process)
    loop = asyncio.get_running_loop()
    given_up: asyncio.Future[dict[str, Any]] = loop.create_future()
    waiting: asyncio.Future[dict[str, Any]] = loop.create_future()
    face._open |= {"given up": given_up, "waiting": waiting}
    given_up.cancel()
    output.feed_eof()
    await face._read()
    with pytest.raises(ConnectionError):
        await waiting
