"""Every statement of the mailbox, written with SQLAlchemy Core and compiled once a dialect.

The text runs on the driver.

Executing Core objects for each operation costs three times the statement itself (docs/decisions/group-commit.md).
"""

from __future__ import annotations

from sqlalchemy import and_, bindparam, delete, func, or_, select, update

from fencepost_mailbox.domain.bindings import BindingState
from fencepost_mailbox.domain.claims import ClaimState
from fencepost_mailbox.domain.deletion import Phase
from fencepost_mailbox.domain.values import Answer, Delivery, Inbox, Kind
from fencepost_mailbox.store.dialect import const as _const
from fencepost_mailbox.store.dialect import sqlite as _sqlite
from fencepost_mailbox.store.dialect import upsert as _upsert
from fencepost_mailbox.store.dialect import whole_row as _insert
from fencepost_mailbox.store.tables import (
    BINDING,
    CLAIM,
    DIRECTORY_AGENT,
    DIRECTORY_CREDENTIAL,
    DISPATCHER,
    FACT,
    FLOOR,
    IDEMPOTENCY,
    META,
    READER,
    RECORD,
    TOMBSTONE,
)

R, C, B = RECORD.c, CLAIM.c, BINDING.c
_ZERO = _const(0)  # the dialect would bind one
_OPEN = R.answer == _const(Answer.OPEN)
_HELD = C.state == _const(ClaimState.HELD)
_PARENTED = R.parent_id.is_not(None)

RECORD_BY_ID = _sqlite(select(RECORD).where(R.record_id == bindparam("record_id")))
PAGE = _sqlite(
    select(RECORD)
    .where(R.recipient == bindparam("recipient"), R.inbox == bindparam("inbox"), R.position > bindparam("after"))
    .order_by(R.position)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
HAS_FRESH = _sqlite(
    select(_const(1))
    .where(R.recipient == bindparam("recipient"), R.inbox == _const(Inbox.FRESH))
    .limit(_const(1))
    .offset(_ZERO)
)
FRESH_POSITIONS = _sqlite(
    select(R.position)
    .where(R.recipient == bindparam("recipient"), R.inbox == _const(Inbox.FRESH))
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
FRESH_BEHIND = _sqlite(
    select(R.position)
    .where(R.recipient == bindparam("recipient"), R.inbox == _const(Inbox.FRESH), R.position > bindparam("after"))
    .order_by(R.position)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
OPEN_REQUESTS = _sqlite(
    select(RECORD)
    .where(
        R.recipient == bindparam("recipient"),
        _OPEN,
        R.delivery != _const(Delivery.PENDING),
        # A prompt takes no reply.
        R.kind == _const(Kind.REQUEST),
    )
    .with_hint(RECORD, "INDEXED BY record_owed", "sqlite")
    .order_by(R.position)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
RECEIVED = _sqlite(
    select(RECORD)
    .where(R.recipient == bindparam("recipient"), R.inbox == bindparam("inbox"), R.position < bindparam("before"))
    .order_by(R.position.desc())
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
SENT = _sqlite(
    select(RECORD)
    .where(R.sender == bindparam("sender"), R.sequence < bindparam("before"), R.recipient != bindparam("besides"))
    .order_by(R.sequence.desc())
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
FACTS = _sqlite(
    select(FACT)
    .where(FACT.c.record_id == bindparam("record_id"))
    .order_by(FACT.c.sequence.desc())
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
FACT_COUNT = _sqlite(
    select(func.count(FACT.c.sequence)).select_from(FACT).where(FACT.c.record_id == bindparam("record_id"))
)
ADMISSIONS = _sqlite(
    select(RECORD).where(R.sequence > bindparam("after")).order_by(R.sequence).limit(bindparam("limit")).offset(_ZERO)
)
FACTS_BEHIND = _sqlite(
    select(FACT)
    .where(FACT.c.sequence > bindparam("after"))
    .order_by(FACT.c.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
REPLY_OF = _sqlite(
    select(R.record_id, R.status, R.body, R.origin)
    .where(R.parent_id == bindparam("parent_id"), _PARENTED, R.kind == _const(Kind.REPLY))
    .order_by(R.sequence)
    .limit(_const(1))
    .offset(_ZERO)
)
KEY = _sqlite(
    select(IDEMPOTENCY.c.fingerprint, IDEMPOTENCY.c.record_id).where(
        IDEMPOTENCY.c.caller == bindparam("caller"),
        IDEMPOTENCY.c.operation == bindparam("operation"),
        IDEMPOTENCY.c.key == bindparam("key"),
    )
)
CLAIM_BY_TOKEN = _sqlite(select(CLAIM).where(C.token == bindparam("token")))
FLOOR_OF = _sqlite(select(FLOOR.c.generation).where(FLOOR.c.agent_id == bindparam("agent_id")))
READ_AT = _sqlite(select(READER.c.last_read_at_ms).where(READER.c.agent_id == bindparam("agent_id")))
NEWEST_RECORD = _sqlite(select(R.sequence).order_by(R.sequence.desc()).limit(_const(1)).offset(_ZERO))
NEWEST_FACT = _sqlite(select(FACT.c.sequence).order_by(FACT.c.sequence.desc()).limit(_const(1)).offset(_ZERO))

OLDEST_PENDING = _sqlite(
    select(RECORD)
    .where(
        R.recipient == bindparam("recipient"),
        _OPEN,
        R.delivery == _const(Delivery.PENDING),
        # A wake-up is taken by itself.
        R.kind != _const(Kind.WAKE),
    )
    .with_hint(RECORD, "INDEXED BY record_pending", "sqlite")
    .order_by(R.position)
    .limit(_const(1))
    .offset(_ZERO)
)
OLDEST_STORED = _sqlite(
    select(RECORD)
    .where(
        R.recipient == bindparam("recipient"),
        R.inbox == _const(Inbox.FRESH),
        R.delivery == _const(Delivery.STORED),
        R.position <= bindparam("high_water"),
    )
    .order_by(R.position)
    .limit(_const(1))
    .offset(_ZERO)
)
OPEN_WAKES = _sqlite(
    # Word for word the condition of the index record_wake.
    select(RECORD).where(R.recipient == bindparam("recipient"), _OPEN, R.kind == _const(Kind.WAKE))
)
WAKE_WRITTEN = _sqlite(
    # Word for word the condition of the index record_waked.
    select(R.admitted_at_ms)
    .where(R.recipient == bindparam("recipient"), R.kind == _const(Kind.WAKE))
    .order_by(R.admitted_at_ms.desc())
    .limit(_const(1))
    .offset(bindparam("newer"))
)
REWORD = _sqlite(
    update(RECORD)
    .where(
        R.sequence == bindparam("was_sequence"),
        R.delivery == _const(Delivery.PENDING),
        R.kind == _const(Kind.WAKE),
    )
    .values(body=bindparam("body"))
)
NEXT_RECIPIENT = _sqlite(
    select(R.recipient).where(R.recipient > bindparam("after")).order_by(R.recipient).limit(_const(1)).offset(_ZERO)
)
ACKNOWLEDGEABLE = _sqlite(
    select(RECORD)
    .where(
        R.recipient == bindparam("recipient"),
        R.position <= bindparam("up_to"),
        # Word for word the condition of the index record_shown: only then does the planner see that it applies.
        R.acknowledged == _const(0),
        or_(R.exposed == _const(1), R.delivery.in_([_const(Delivery.VISIBLE), _const(Delivery.ACCEPTED)])),
    )
    .order_by(R.position)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)

INSERT_RECORD = _insert(RECORD)
INSERT_KEY = _insert(IDEMPOTENCY)
# With the brackets of one row: fencepost_mailbox.store.sqlite repeats them for rows that are written together.
INSERT_RECORDS = _insert(RECORD, else_rollback=True)
INSERT_KEYS = _insert(IDEMPOTENCY, else_rollback=True)
INSERT_FACT = _insert(FACT)
INSERT_CLAIM = _insert(CLAIM)
_STATE = (
    "delivery",
    "answer",
    "exposed",
    "acknowledged",
    "inbox",
    "position",
    "claim_token",
    "claim_generation",
    "releases",
)
MOVE_RECORD = _sqlite(
    update(RECORD)
    .where(
        R.sequence == bindparam("was_sequence"),
        R.delivery == bindparam("was_delivery"),
        R.answer == bindparam("was_answer"),
        R.claim_token.is_(bindparam("was_claim_token")),
        R.claim_generation == bindparam("was_claim_generation"),
    )
    .values({name: bindparam(name) for name in _STATE})
)
SET_CLAIM_STATE = _sqlite(
    update(CLAIM)
    .where(
        C.token == bindparam("was_token"),
        C.generation == bindparam("was_generation"),
        C.state == bindparam("was_state"),
    )
    .values(state=bindparam("state"))
)
HELD_BY_RECIPIENT = _sqlite(select(CLAIM).where(C.recipient == bindparam("recipient"), _HELD))
HELD_BY_DISPATCHER = _sqlite(select(CLAIM).where(C.dispatcher == bindparam("dispatcher"), _HELD))
HELD_EXPIRED = _sqlite(select(CLAIM).where(C.expires_at_ms <= bindparam("expired_at_ms"), _HELD))
ANY_EXPIRED = _sqlite(
    select(_const(1)).where(C.expires_at_ms <= bindparam("expired_at_ms"), _HELD).limit(_const(1)).offset(_ZERO)
)
_ACCEPTED_OPEN = and_(
    _OPEN, R.delivery == _const(Delivery.ACCEPTED), C.token == R.claim_token, C.state == _const(ClaimState.ACCEPTED)
)
ACCEPTED_BY_RECIPIENT = _sqlite(select(CLAIM).where(R.recipient == bindparam("recipient"), _ACCEPTED_OPEN))
ACCEPTED_BY_DISPATCHER = _sqlite(
    # Through the few open requests, not through every claim that ever was.
    select(CLAIM)
    .where(C.dispatcher == bindparam("dispatcher"), _ACCEPTED_OPEN)
    .with_hint(RECORD, "INDEXED BY record_open", "sqlite")
)
EXTEND_HELD = _sqlite(
    update(CLAIM)
    .where(_HELD, C.expires_at_ms < bindparam("now_ms") + C.term_ms)
    .values(expires_at_ms=bindparam("now_ms") + C.term_ms)
)
# The turns of claims.
BINDING_BY_TOKEN = _sqlite(select(BINDING).where(B.token == bindparam("token")))
INSERT_BINDING = _insert(BINDING)
MOVE_BINDING = _sqlite(
    update(BINDING)
    .where(
        B.sequence == bindparam("was_sequence"),
        B.token == bindparam("was_token"),
        B.generation == bindparam("was_generation"),
        B.state == bindparam("was_state"),
    )
    .values(
        {
            name: bindparam(name)
            for name in ("state", "outcome", "final_bytes", "final_digest", "evidence", "reply_id", "final")
        }
    )
)
_BOUND = B.state == _const(BindingState.BOUND)
# Word for word the conditions of their indexes.
_UNSETTLED = B.state.in_([_const(BindingState.BOUND), _const(BindingState.UNCERTAIN)])
_UNPUBLISHED = and_(B.state == _const(BindingState.OUTCOME_RECORDED), B.publishes == _const(1))
BOUND_BY_RECIPIENT = _sqlite(select(BINDING).where(B.recipient == bindparam("recipient"), _BOUND))
BOUND_BY_DISPATCHER = _sqlite(select(BINDING).where(B.dispatcher == bindparam("dispatcher"), _UNSETTLED, _BOUND))
BINDINGS_UNSETTLED = _sqlite(
    select(BINDING)
    .join(RECORD, R.record_id == B.record_id)
    .where(
        B.dispatcher == bindparam("dispatcher"),
        B.sequence > bindparam("after"),
        _UNSETTLED,
        # An uncertain one that nobody waits for is left out.
        or_(_BOUND, _OPEN),
    )
    .order_by(B.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
UNPUBLISHED_OF = _sqlite(
    select(BINDING)
    .where(B.requester == bindparam("requester"), _UNPUBLISHED)
    .order_by(B.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
HAS_UNPUBLISHED = _sqlite(
    select(_const(1)).where(B.requester == bindparam("requester"), _UNPUBLISHED).limit(_const(1)).offset(_ZERO)
)
UNPUBLISHED = _sqlite(
    # SQLAlchemy renders no hint for this dialect.
    select(BINDING).where(_UNPUBLISHED).limit(bindparam("limit")).offset(_ZERO)
).replace("FROM binding", "FROM binding INDEXED BY binding_unpublished")
ERASE_BINDINGS = _sqlite(
    delete(BINDING).where(B.token.in_(select(C.token).where(C.record_id == bindparam("record_id"))))
)
MOST_HOPS = _sqlite(
    select(R.hops)
    .where(
        R.recipient == bindparam("recipient"),
        # Word for word the condition of the index record_hops.
        _OPEN,
        R.kind == _const(Kind.REQUEST),
        R.delivery.in_([_const(Delivery.RECEIVER), _const(Delivery.ACCEPTED)]),
    )
    .order_by(R.hops.desc())
    .limit(_const(1))
    .offset(_ZERO)
)
INCARNATION_OF = _sqlite(select(DISPATCHER.c.incarnation).where(DISPATCHER.c.dispatcher == bindparam("dispatcher")))
PUT_INCARNATION = _upsert(DISPATCHER)
PUT_FLOOR = _upsert(FLOOR)
PUT_READER = _upsert(READER)
PUT_META = _upsert(META)
FORGET_META = _sqlite(delete(META))
PUT_AGENT = _upsert(DIRECTORY_AGENT)
PUT_CREDENTIAL = _upsert(DIRECTORY_CREDENTIAL)
DROP_CREDENTIAL = _sqlite(
    delete(DIRECTORY_CREDENTIAL).where(DIRECTORY_CREDENTIAL.c.credential_id == bindparam("credential_id"))
)
CLEAR_AGENTS = _sqlite(delete(DIRECTORY_AGENT))
CLEAR_CREDENTIALS = _sqlite(delete(DIRECTORY_CREDENTIAL))
DROP_AGENT = _sqlite(delete(DIRECTORY_AGENT).where(DIRECTORY_AGENT.c.agent_id == bindparam("agent_id")))
ALL_AGENTS = _sqlite(select(DIRECTORY_AGENT))
ALL_CREDENTIALS = _sqlite(select(DIRECTORY_CREDENTIAL))
ALL_META = _sqlite(select(META))

# Deleted agents, and the erasure of their mail.
T = TOMBSTONE.c
DELETED = _sqlite(select(_const(1)).where(T.agent_id == bindparam("agent_id")))
PUT_TOMBSTONE = _upsert(TOMBSTONE)
ALL_TOMBSTONES = _sqlite(select(TOMBSTONE))
NEWEST_TOMBSTONE = _sqlite(select(T.sequence).order_by(T.sequence.desc()).limit(_const(1)).offset(_ZERO))
UNFINISHED_DELETIONS = _sqlite(
    select(TOMBSTONE)
    .where(T.phase < _const(Phase.FINISHED))
    .order_by(T.agent_id)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
OPEN_OF_RECIPIENT = _sqlite(
    select(RECORD)
    .where(R.recipient == bindparam("recipient"), _OPEN)
    .order_by(R.position)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
OPEN_OF_SENDER = _sqlite(
    # Through the few open requests, not through everything that the agent ever sent.
    # SQLAlchemy renders no hint for this dialect.
    select(RECORD).where(R.sender == bindparam("sender"), _OPEN).limit(bindparam("limit")).offset(_ZERO)
).replace("FROM record", "FROM record INDEXED BY record_open")
RECEIVED_IDS = _sqlite(
    select(R.sequence, R.record_id).where(R.recipient == bindparam("recipient")).limit(bindparam("limit")).offset(_ZERO)
)
ERASE_FACTS = _sqlite(delete(FACT).where(FACT.c.record_id == bindparam("record_id")))
ERASE_CLAIMS = _sqlite(delete(CLAIM).where(C.record_id == bindparam("record_id")))
ERASE_RECORD = _sqlite(delete(RECORD).where(R.sequence == bindparam("sequence")))
KEYS_OF = _sqlite(
    select(IDEMPOTENCY.c.operation, IDEMPOTENCY.c.key)
    .where(IDEMPOTENCY.c.caller == bindparam("caller"))
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
ERASE_KEY = _sqlite(
    delete(IDEMPOTENCY).where(
        IDEMPOTENCY.c.caller == bindparam("caller"),
        IDEMPOTENCY.c.operation == bindparam("operation"),
        IDEMPOTENCY.c.key == bindparam("key"),
    )
)
ERASE_FLOOR = _sqlite(delete(FLOOR).where(FLOOR.c.agent_id == bindparam("agent_id")))
ERASE_READER = _sqlite(delete(READER).where(READER.c.agent_id == bindparam("agent_id")))
