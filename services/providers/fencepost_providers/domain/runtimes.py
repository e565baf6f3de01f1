"""The words that the carrier and every adapter share, as values. Source: M073-M097 M135-M158 R127-R134.

An adapter reports facts in these words and decides nothing about records; the carrier decides from them and knows no
program.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

CODE_BYTES_MAX: Final = 64
DETAIL_BYTES_MAX: Final = 900
FINAL_BYTES_MAX: Final = 65_536
ROW_BYTES_MAX: Final = 16_384


class CapabilityKind(enum.IntEnum):
    """What can be done with a conversation; the numbers of fencepost.providers.v1.CapabilityKind."""

    IDLE_START = 1
    MID_TURN = 2
    INFORMATION = 3
    INTERRUPT = 4
    FINAL = 5
    RESUME = 6
    MCP = 7
    ATTACH = 8


class Support(enum.IntEnum):
    """Whether it can be done; the numbers of fencepost.providers.v1.Support."""

    CERTIFIED = 1
    UNCERTIFIED = 2
    NONE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Capability:
    """One capability of one version, and why not where not."""

    support: Support
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """A program as it was found. `problem` says why no agent can be started with it now, and what to do."""

    program: str = ""
    version: str = ""
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model that a program offers."""

    model: str
    title: str = ""
    efforts: tuple[str, ...] = ()
    default_effort: str = ""
    is_default: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Models, where from ("live", "aliases", "unavailable"), and why a refresh gave nothing new."""

    models: tuple[Model, ...] = ()
    source: str = "unavailable"
    asked_at_ms: int = 0
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServer:
    """How the agent's program starts our MCP server."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSettings:
    """How a person wants the program started; an empty text is the program's own default."""

    model: str = ""
    effort: str = ""
    sandbox: str = ""
    approval: str = ""
    custom_arguments: tuple[str, ...] = ()
    include_directories: tuple[str, ...] = ()
    tools_profile: str = "messaging"


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """Everything an adapter needs for one life of one agent.

    `conversation_id` is the exact conversation to go on with, empty for a new one. `folder` is the agent's own in the
    home: the adapter keeps its private home, records and log below it. `instructions` are the managed texts in their
    order (common, class, agent), `skills` folders whose entries are skills, later ones winning. `environment` is what
    the program inherits besides ours, the expected generation included.
    """

    agent_id: str
    name: str
    generation: int
    workspace: str
    folder: str
    conversation_id: str = ""
    settings: LaunchSettings = LaunchSettings()
    mcp: McpServer
    instructions: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class State(enum.IntEnum):
    """What a conversation does; the numbers of fencepost.providers.v1.Activity."""

    UNKNOWN = 0
    IDLE = 1
    PROCESSING = 2
    ACTION_NEEDED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """What a conversation does, as an answer or event of its program said.

    `turn_id` is empty in IDLE, and where the program names no turn. `detail` says what a person is asked for.
    """

    state: State
    turn_id: str = ""
    detail: str = ""


class Mode(enum.IntEnum):
    """How work entered a turn; the numbers of fencepost.mailbox.v1.AdmissionMode."""

    START = 1
    STEER = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnBinding:
    """The exact turn that took a request."""

    provider: str
    conversation_id: str
    turn_id: str
    mode: Mode


# --- what a submission came to: exactly one of the four ---------------------------------------------------------------


class Again(enum.Enum):
    """When another attempt may differ."""

    NOW = "now"  # activity has changed meanwhile: read it again
    WHEN_IDLE = "when_idle"  # not into this turn, or not by this version
    NEVER = "never"  # it fails the same way every time


@dataclass(frozen=True, kw_only=True, slots=True)
class NotSubmitted:
    """Proof that the program took nothing: `code` and `detail` say which proof. Only this returns work to its queue."""

    code: str
    detail: str = ""
    again: Again = Again.WHEN_IDLE


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """The program took the work into exactly this turn, with a receipt that names our submission."""

    binding: TurnBinding
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Visible:
    """The context stands in the conversation; no turn was started."""

    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncertain:
    """Not known, and never tried again: everything that is not certainly one of the others."""

    code: str
    detail: str = ""


Submission = NotSubmitted | Accepted | Visible | Uncertain


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """A record on its way into a conversation. The body is never joined to the routing text.

    `record_id` has its prefix. `kind` is "information", "request", "reply", "notice", "prompt" or "wake"; `sender` a
    name for people, empty for the host; `parent_id` and `status` belong to replies and notices.
    """

    record_id: str
    kind: str
    sender: str
    sender_id: str
    body: str
    parent_id: str = ""
    status: str = ""
    possibly_seen: bool = False


class TurnStatus(enum.IntEnum):
    """How a turn ended; the numbers of fencepost.mailbox.v1.TurnOutcome."""

    COMPLETED = 1
    INTERRUPTED = 2
    FAILED = 3
    LOST = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnd:
    """Terminal evidence of a turn, whoever started it.

    `final_text` is the assistant's final words, commentary left out; empty where there are none, or where they have
    more than FINAL_BYTES_MAX bytes; `final_bytes` counts them in any case. `detail` says why it failed.
    """

    turn_id: str
    status: TurnStatus
    final_text: str = ""
    final_bytes: int = 0
    detail: str = ""


class Interruption(enum.IntEnum):
    """What came of an interruption; the numbers of fencepost.providers.v1.Interruption."""

    REQUESTED = 1
    CONFIRMED = 2
    NOTHING = 3
    UNSUPPORTED = 4
    UNCERTAIN = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupted:
    """What came of an interruption, and of which turn."""

    result: Interruption
    turn_id: str = ""
    detail: str = ""


class RowKind(enum.IntEnum):
    """What a row of a conversation is; the numbers of fencepost.providers.v1.RowKind."""

    USER = 1
    ASSISTANT = 2
    TOOL_CALL = 3
    TOOL_RESULT = 4
    STATUS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Something that happened in a conversation, the same shape for every program; text up to ROW_BYTES_MAX bytes."""

    kind: RowKind
    text: str = ""
    cut: bool = False
    name: str = ""
    turn_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """A runtime that ended by itself, or whose connection did. `intended` where we stopped it: that is no error."""

    intended: bool
    detail: str = ""
    exit_code: int | None = None


class Gravity(enum.IntEnum):
    """How grave a finding is; the numbers of fencepost.providers.v1.Gravity."""

    FACT = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that is, or may be, wrong with an agent's program, private home or registration."""

    code: str
    gravity: Gravity
    text: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Permits:
    """What the operator permits the program while a person's terminal is attached: nothing, where nothing is said.

    R130 M180.
    """

    trust_workspace: bool = False
    skip_update_check: bool = False


NOTHING_PERMITTED: Final = Permits()
