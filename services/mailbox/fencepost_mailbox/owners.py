"""Which agents a dispatcher carries records for right now.

Lives on the event loop; holds nothing that must survive: what was told ends with its dispatcher's WatchWork stream, and
a dispatcher that watches again tells it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fencepost_mailbox.domain.claims import check_incarnation
from fencepost_mailbox.domain.refusals import InvalidLimit, InvalidState
from fencepost_mailbox.domain.values import OWNERS_MAX


class Owners:
    """What every dispatcher of this process's streams has told."""

    def __init__(self) -> None:
        self._streams: Counter[bytes] = Counter()
        self._told: dict[bytes, tuple[int, Mapping[bytes, int]]] = {}
        # Of all of them together, so that a receipt costs one look-up.
        self._generations: dict[bytes, int] = {}

    @contextmanager
    def watching(self, dispatcher: bytes | None) -> Iterator[None]:
        """Hold a dispatcher's stream open; what it told ends with its last one."""
        if dispatcher is None:
            yield
            return
        self._streams[dispatcher] += 1
        try:
            yield
        finally:
            self._streams[dispatcher] -= 1
            if not self._streams[dispatcher]:
                del self._streams[dispatcher]
                if self._told.pop(dispatcher, None) is not None:
                    self._merge()

    def report(self, dispatcher: bytes, incarnation: int, owners: Mapping[bytes, int], *, newest: int) -> None:
        """Replace what a dispatcher told before: agents and the generation that runs. `newest`: its newest known start.

        Raises:
            InvalidLimit: more than OWNERS_MAX agents, or no incarnation.
            StaleIncarnation: a later start of the dispatcher has been seen.
            InvalidState: it has no WatchWork stream that the report could end with.
        """
        if len(owners) > OWNERS_MAX:
            raise InvalidLimit(f"at most {OWNERS_MAX} agents can be told; nothing was kept")
        before, _ = self._told.get(dispatcher, (0, {}))
        check_incarnation(incarnation, max(newest, before))
        if not self._streams[dispatcher]:
            raise InvalidState(
                "this dispatcher has no WatchWork stream here; nothing was kept",
                hint="Open the stream, wait for its first message, then tell the owners again.",
            )
        self._told[dispatcher] = (incarnation, dict(owners))
        self._merge()

    def _merge(self) -> None:
        merged: dict[bytes, int] = {}
        for _, owners in self._told.values():
            for agent_id, generation in owners.items():
                merged[agent_id] = max(generation, merged.get(agent_id, 0))
        self._generations = merged

    def generation(self, agent_id: bytes) -> int:
        """Return the generation that an agent is carried for in; 0 where it is not."""
        return self._generations.get(agent_id, 0)
