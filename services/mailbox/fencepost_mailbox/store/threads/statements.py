"""Every statement of attributes and words of records. Those of the full-text index are text: Core does not know it."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select, update

from fencepost_mailbox.store.dialect import const as _const
from fencepost_mailbox.store.dialect import sqlite, whole_row
from fencepost_mailbox.store.tables import RECORD
from fencepost_mailbox.store.threads.tables import ATTRIBUTES, WORDS_STATE

_R, _A, _S = RECORD.c, ATTRIBUTES.c, WORDS_STATE.c
_ZERO = _const(0)  # the dialect would bind one
_ONE = _const(1)

ATTRIBUTES_OF = sqlite(select(ATTRIBUTES).where(_A.sequence == bindparam("sequence")))
INSERT_ATTRIBUTES = whole_row(ATTRIBUTES)
ERASE_ATTRIBUTES = sqlite(delete(ATTRIBUTES).where(_A.sequence == bindparam("sequence")))

# A thread is three ranges in commit order: the record that began it, what joined it, and what answers the first.
BEGAN_THREAD = sqlite(select(RECORD).where(_R.record_id == bindparam("thread"), _R.sequence > bindparam("after")))
JOINED_THREAD = sqlite(
    select(RECORD)
    .join(ATTRIBUTES, _R.sequence == _A.sequence)
    .where(_A.thread == bindparam("thread"), _A.sequence > bindparam("after"))
    .order_by(_A.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
ANSWERED_FIRST = sqlite(
    select(RECORD)
    .where(_R.parent_id == bindparam("thread"), _R.parent_id.is_not(None), _R.sequence > bindparam("after"))
    .order_by(_R.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)

STATE = sqlite(select(_S.position, _S.clearing).where(_S.place == _ONE))
SET_POSITION = sqlite(update(WORDS_STATE).where(_S.place == _ONE).values(position=bindparam("position")))
SET_CLEARING = sqlite(update(WORDS_STATE).where(_S.place == _ONE).values(clearing=bindparam("clearing")))
BEHIND = sqlite(
    select(_R.sequence).where(_R.sequence > bindparam("position")).order_by(_R.sequence).limit(_ONE).offset(_ZERO)
)
NOT_INDEXED = sqlite(
    select(RECORD)
    .where(_R.sequence > bindparam("position"))
    .order_by(_R.sequence)
    .limit(bindparam("limit"))
    .offset(_ZERO)
)
RECORD_AT = sqlite(select(RECORD).where(_R.sequence == bindparam("sequence")))
INSERT_WORDS = "INSERT INTO record_words (rowid, subject, body, who) VALUES (?, ?, ?, ?)"
# The index keeps no texts: what is to go must be said as it was put in.
ERASE_WORDS = "INSERT INTO record_words (record_words, rowid, subject, body, who) VALUES ('delete', ?, ?, ?, ?)"
MERGE_WORDS = "INSERT INTO record_words (record_words, rank) VALUES ('merge', :pages)"
FOUND = """SELECT rowid FROM record_words WHERE record_words MATCH :expression AND rowid < :before
    ORDER BY rowid DESC LIMIT :limit"""
