"""A service's client of another one: a refused credential is read again for the next call."""

from __future__ import annotations

import pytest

from fencepost.errors import Refused
from fencepost_kit.identity import UnusableCredential
from fencepost_kit.renewing import UNAUTHENTICATED, Renewing


async def refuse(reason: str) -> None:
    raise Refused(reason, "no")


async def test_after_a_refused_credential_the_next_call_is_made_with_what_stands_there_now() -> None:
    read: list[int] = []

    def connect() -> int:
        if len(read) == 2:
            raise UnusableCredential("it has gone")
        read.append(len(read))
        return read[-1]

    renewing = Renewing(connect)
    for reason, client in (("not_found", 0), (UNAUTHENTICATED, 1), (UNAUTHENTICATED, 1)):
        with pytest.raises(Refused):
            await renewing.ask(lambda _, reason=reason: refuse(reason))  # type: ignore[misc]
        assert renewing.client == client
