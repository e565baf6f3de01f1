"""The mailbox's words as values. Ids are 16 bytes; their text forms (inf_..., ask_...) are made at the rim."""

from __future__ import annotations

import enum
from typing import Final

from fencepost_kit.values import value

BODY_BYTES_MAX: Final = 65_536
KEY_BYTES_MAX: Final = 256
PAGE_RECORDS_MAX: Final = 100
PAGE_BODY_BYTES_MAX: Final = 131_072
PAGE_BYTES_MAX: Final = 524_288
WAIT_MS_MAX: Final = 60_000
LISTING_RECORDS_DEFAULT: Final = 50
LISTING_RECORDS_MAX: Final = 100
LISTING_BODY_CHARACTERS_MAX: Final = 160
OPEN_REQUESTS_MAX: Final = 20
UNACKNOWLEDGED_COUNT_MAX: Final = 100
ACKNOWLEDGED_ROWS_MAX: Final = 500
FACTS_MAX: Final = 200
EVIDENCE_BYTES_MAX: Final = 1024
CLAIM_TERM_MS_MIN: Final = 1000
CLAIM_TERM_MS_DEFAULT: Final = 60_000
CLAIM_TERM_MS_MAX: Final = 600_000
RELEASES_MAX: Final = 8
UNCERTAIN_LISTED_MAX: Final = 100
READERS_MAX: Final = 500
MIRROR_AGE_MS_MAX: Final = 30_000
# Of an adapter's name, and of a provider's conversation and turn.
BINDING_PROVIDER_BYTES_MAX: Final = 64
BINDING_ID_BYTES_MAX: Final = 256
BINDINGS_LISTED_DEFAULT: Final = 100
BINDINGS_LISTED_MAX: Final = 500
# Outcomes that one transaction publishes.
PUBLISHED_ROWS_MAX: Final = 100
# Requests of other agents that may have led to one.
HOPS_MAX: Final = 16
NOTE_BYTES_MAX: Final = 4096
OWNERS_MAX: Final = 500
# Of a subject, which is one line.
SUBJECT_BYTES_MAX: Final = 256


class Kind(enum.IntEnum):
    """What a record is. Values are stored."""

    INFORMATION = 1
    REQUEST = 2
    REPLY = 3
    NOTICE = 4
    PROMPT = 5
    WAKE = 6


# What wants to be worked on, and ends: everything else is context.
WORK: Final = frozenset({Kind.REQUEST, Kind.PROMPT, Kind.WAKE})


class Delivery(enum.IntEnum):
    """Where a record stands on its way to its recipient. Values are stored."""

    PENDING = 1
    RECEIVER = 2
    CLAIMED = 3
    ACCEPTED = 4
    UNCERTAIN = 5
    FAILED = 6
    STORED = 7
    EXPOSED = 8
    VISIBLE = 9


class Answer(enum.IntEnum):
    """Whether work has been answered. NONE for context. Values are stored.

    CLOSED is a prompt's end without the assistant's final words, and every end of a wake-up.
    """

    NONE = 0
    OPEN = 1
    ANSWERED = 2
    WITHDRAWN = 3
    CLOSED = 4


class ReplyStatus(enum.IntEnum):
    """A reply's outcome. NONE for what is not a reply. Values are stored."""

    NONE = 0
    DONE = 1
    BLOCKED = 2
    FAILED = 3


class Origin(enum.IntEnum):
    """Where a record's words come from. Values are stored."""

    AGENT = 1
    HUMAN = 2
    HOST = 3
    AUTOMATIC = 4


class Completion(enum.IntEnum):
    """What may answer a request. NONE for what is not a request. Values are stored."""

    NONE = 0
    AUTOMATIC = 1
    EXPLICIT = 2


class Inbox(enum.IntEnum):
    """Which part of its recipient's inbox a record stands in.

    Derived by `fencepost_mailbox.domain.inbox.place`. Values are stored.

    FRESH: receive shows it without a cursor. SEEN: only a cursor that stands before it shows it again. AWAY: receive
        does not show it.
    """

    FRESH = 0
    SEEN = 1
    AWAY = 2


class Operation(enum.IntEnum):
    """Which call an idempotency key belongs to. Values are stored."""

    SEND = 1
    REQUEST = 2
    REPLY = 3
    CLAIM = 4
    PROMPT = 5
    RESOLVE = 6
    # Every write of tasks: their request ids are one scope.
    TASK = 20
    # Every write of contexts and memory, and every write of reservations.
    CONTEXT = 21
    FILES = 22
    # Every report of evidence.
    EVIDENCE = 23


class FactKind(enum.IntEnum):
    """A fact of a record's life after its admission. Values are stored."""

    EXPOSED = 1
    CLAIMED = 2
    RELEASED = 3
    VISIBLE = 4
    ACCEPTED = 5
    UNCERTAIN = 6
    FAILED = 7
    REPLIED = 8
    ANSWERED_BY_HOST = 9
    ACKNOWLEDGED = 10
    WITHDRAWN = 11
    BOUND = 12
    OUTCOME_RECORDED = 13
    PUBLISHED = 14
    RESOLVED = 15
    TURN_LOST = 16


class Desired(enum.IntEnum):
    """Whether a person wants an agent to run, as the directory says. Values are stored."""

    UNSPECIFIED = 0
    ON = 1
    OFF = 2
    PAUSED = 3


class Reader(enum.IntEnum):
    """Who looks at a mailbox."""

    NATIVE = 1
    MANUAL = 2
    NONE = 3
    OFF = 4


@value(frozen=True, kw_only=True, slots=True)
class Attributes:
    """What a sender said of a record besides its text. It never changes.

    `thread` is the id of the record that began the thread: the record's own where it began one.
    """

    thread: bytes
    subject: str = ""
    reply_to: bytes | None = None
    reply_to_kind: Kind | None = None
    task_id: bytes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Record:
    """A record as it is stored."""

    sequence: int
    record_id: bytes
    kind: Kind
    project_id: bytes
    sender: bytes | None
    recipient: bytes
    parent_id: bytes | None
    body: bytes
    status: ReplyStatus
    origin: Origin
    completion: Completion
    admitted_at_ms: int
    delivery: Delivery
    answer: Answer
    exposed: bool
    acknowledged: bool
    inbox: Inbox
    position: int
    claim_token: bytes | None
    claim_generation: int
    releases: int
    # Requests of other agents that led to this one.
    hops: int = 0
    # None for nearly every record: what a plain message does not have costs it nothing.
    attributes: Attributes | None = None


@value(frozen=True, kw_only=True, slots=True)
class Fact:
    """Something that became true of a record, with what it rests on."""

    sequence: int
    record_id: bytes
    fact: FactKind
    at_ms: int
    generation: int
    evidence: str


@value(frozen=True, kw_only=True, slots=True)
class Agent:
    """An agent as the directory knows it."""

    agent_id: bytes
    project_id: bytes
    name: str
    role: int
    provider: str
    generation: int
    revision: int
    # As the stream tells it. Not stored: what is stored of it is a tombstone.
    deleting: bool = False
    desired: Desired = Desired.UNSPECIFIED
