"""An agent as the directory tells it, as far as its runtime is concerned. Source: R241 M069."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

FRESH: Final = "fresh"


class Desired(enum.IntEnum):
    """What a person wants; the numbers of fencepost.sessions.v1.DesiredState."""

    UNSPECIFIED = 0
    ON = 1
    OFF = 2
    PAUSED = 3


class WhenActive(enum.IntEnum):
    """What work does that arrives during a turn; the numbers of fencepost.sessions.v1.DeliverWhenActive."""

    STEER = 1
    AFTER_TURN = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """How a person wants the program started; an empty text is the program's own default."""

    agent_class: str = ""
    model: str = ""
    effort: str = ""
    sandbox: str = ""
    approval: str = ""
    session_policy: str = ""
    custom_arguments: str = ""
    include_directories: tuple[str, ...] = ()
    checkout_root: str = ""
    tools_profile: str = ""
    when_active: WhenActive = WhenActive.STEER


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """An agent's record. `agent_id` is its UUID as text, as in every word that is exchanged about it."""

    agent_id: str
    project_id: str
    name: str
    provider: str = ""
    workspace: str = ""
    generation: int = 1
    revision: int = 0
    deleting: bool = False
    desired: Desired = Desired.UNSPECIFIED
    conversation_id: str = ""
    launch: Launch = Launch()


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """Whom a token speaks for. `role` is the number of fencepost.common.v1.Role; ids are empty where there are none."""

    credential_id: bytes
    token_sha256: bytes
    role: int
    agent_id: str
    project_id: str
    generation: int
    label: str
