"""A client of another service, connected again with what its credential says now."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from fencepost.errors import FencepostError, Refused
from fencepost_kit.identity import UnusableCredential

UNAUTHENTICATED: Final = "unauthenticated"

C = TypeVar("C")
T = TypeVar("T")


class Renewing(Generic[C]):
    """Holds the client that the next call is made by.

    A credential is rotated while its reader runs: a refused one is read again for the next call. The call that was
    refused is not repeated here.
    """

    def __init__(self, connect: Callable[[], C]) -> None:
        """Connect with the credential that this service has now; `connect` reads it anew each time."""
        self._connect = connect
        self.client = connect()

    def notice(self, error: FencepostError) -> None:
        """Connect anew where a call was refused for its credential; where there is none to read, stay as it is."""
        if error.reason == UNAUTHENTICATED:
            with contextlib.suppress(UnusableCredential):
                self.client = self._connect()

    async def ask(self, question: Callable[[C], Awaitable[T]]) -> T:
        """Return what the service answers.

        Raises:
            Refused: it said no; noticed.
            NotWritten, Uncertain: as the client raises them.
        """
        try:
            return await question(self.client)
        except Refused as refused:
            self.notice(refused)
            raise
