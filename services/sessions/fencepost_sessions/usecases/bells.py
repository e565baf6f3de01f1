"""Bells: how an open watch learns that the directory may have changed.

Level-triggered: a bell carries nothing but "look again".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from fencepost_kit.refusal import Draining, Overloaded
from fencepost_sessions.domain.limits import WATCHES_MAX


class Bells:
    """One bell for each open watch, at most WATCHES_MAX.

    Whoever is slow misses rings, never changes: it reads on from where it is.
    """

    def __init__(self) -> None:
        self._bells: set[asyncio.Event] = set()
        self._closed = False

    @property
    def count(self) -> int:
        """How many watches are open."""
        return len(self._bells)

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Give a bell that rings for everything that is committed from now on.

        Raises:
            Overloaded: WATCHES_MAX are open.
        """
        if len(self._bells) >= WATCHES_MAX:
            raise Overloaded(
                f"{WATCHES_MAX} watches are open, as many as there can be",
                hint="End a watch that is no longer used, or try again in a while.",
                state={"watches_max": str(WATCHES_MAX)},
            )
        bell = asyncio.Event()
        self._bells.add(bell)
        try:
            yield bell
        finally:
            self._bells.discard(bell)

    def ring(self) -> None:
        """Ring all."""
        for bell in self._bells:
            bell.set()

    def close(self) -> None:
        """End every watch, now and later, as draining."""
        self._closed = True
        self.ring()

    def check_open(self) -> None:
        """Let a watch go on.

        Raises:
            Draining: the service stops.
        """
        if self._closed:
            raise Draining("the service is stopping", hint="Watch again from the last revision that was applied.")
