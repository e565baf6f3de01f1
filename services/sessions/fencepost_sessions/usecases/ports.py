"""What the use cases work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost_kit.clock import Clock
from fencepost_sessions.store.protocol import Store
from fencepost_sessions.usecases.bells import Bells
from fencepost_sessions.usecases.followers import Followers
from fencepost_sessions.usecases.lease_time import LeaseTime
from fencepost_sessions.usecases.tokens import Tokens
from fencepost_sessions.usecases.tools_shown import ToolsShown


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """The directory, both times, ids, tokens, and what followers need: everything that a test may replace."""

    store: Store
    clock: Clock
    lease_time: LeaseTime
    new_id: Callable[[], bytes]
    tokens: Tokens
    tools_shown: ToolsShown
    bells: Bells
    followers: Followers
    version: str
