"""What any store of the mailbox does for threads and the search of records, in the same transactions as for records.

The search is an index beside the records that may be behind them: `lag` tells by how much, `index` catches up. A store
with PostgreSQL keeps none: a generated column `tsvector` (configuration `simple`, with `unaccent`) over subject and
text under a GIN index is written with the record, is never behind, and forgets with the row; `found` is then
`websearch_to_tsquery` on it, with sender and recipient in the same condition, and `index` and `clear` do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fencepost_mailbox.domain.threads.words import Term
from fencepost_mailbox.domain.values import Record


class ThreadQueries(Protocol):
    """What can be asked of threads and words, inside a transaction or beside it."""

    def of_thread(self, thread: bytes, after: int, limit: int) -> list[Record]:
        """Return records of a thread with a sequence above `after`, in commit order."""
        ...

    def found(
        self, terms: Sequence[Term], *, agent: bytes | None, project_id: bytes | None, before: int, limit: int
    ) -> list[Record]:
        """Return records with all terms and a sequence below `before`, newest first; those that the index has.

        Only those that `agent` sent or was sent, and only of `project_id`, where they are given.
        """
        ...

    def lag(self) -> bool:
        """Tell whether there are records that the index does not have yet."""
        ...

    def clearing(self) -> int:
        """Return how far what was erased is cleared out of the index; see domain.threads.indexing."""
        ...


class ThreadTransaction(ThreadQueries, Protocol):
    """What an operation may write of the index."""

    def index(self, *, records_max: int, bytes_max: int) -> int:
        """Index the oldest records that it does not have: up to `records_max`, and at least one; return how many."""
        ...

    def set_clearing(self, clearing: int) -> None:
        """Write how far what was erased is cleared out."""
        ...

    def clear(self, pages: int) -> bool:
        """Rewrite about `pages` pages of the index so that nothing of what was erased is left in them.

        A negative number begins with the whole index. True where nothing is left to do.
        """
        ...
