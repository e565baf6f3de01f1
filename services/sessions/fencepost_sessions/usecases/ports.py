"""What the use cases work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost_kit.clock import Clock
from fencepost_sessions.store.protocol import Store
from fencepost_sessions.usecases.bells import Bells
from fencepost_sessions.usecases.followers import Followers
from fencepost_sessions.usecases.tokens import Tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """The directory, time, ids, tokens, and the two things that followers need. Everything that a test may replace."""

    store: Store
    clock: Clock
    new_id: Callable[[], bytes]
    tokens: Tokens
    bells: Bells
    followers: Followers
    version: str
