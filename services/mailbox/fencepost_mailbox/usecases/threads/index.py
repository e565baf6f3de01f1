"""The index of words: taking records in, and clearing out what was erased (domain/threads/indexing.py)."""

from __future__ import annotations

from fencepost_kit.values import value
from fencepost_mailbox.domain.threads.indexing import (
    CLEAR,
    CLEARED_PAGES_MAX,
    CLEARING,
    INDEXED_BYTES_MAX,
    INDEXED_RECORDS_MAX,
    TO_CLEAR,
)
from fencepost_mailbox.store.protocol import Applied, Transaction


@value(frozen=True, kw_only=True, slots=True)
class Indexing:
    """Take the next chunk of records into the index. Words and position are one transaction."""

    def apply(self, tx: Transaction) -> Applied[int]:
        """Return how many were taken."""
        return Applied(value=tx.threads.index(records_max=INDEXED_RECORDS_MAX, bytes_max=INDEXED_BYTES_MAX))


@value(frozen=True, kw_only=True, slots=True)
class Clearing:
    """Rewrite a piece of the index, so that nothing of what was erased is left in it."""

    def apply(self, tx: Transaction) -> Applied[bool]:
        """Return whether nothing is left to do."""
        state = tx.threads.clearing()
        if state == CLEAR:
            return Applied(value=True)
        done = tx.threads.clear(-CLEARED_PAGES_MAX if state == TO_CLEAR else CLEARED_PAGES_MAX)
        tx.threads.set_clearing(CLEAR if done else CLEARING)
        return Applied(value=done)
