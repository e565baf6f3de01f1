"""How the index of words follows the records, and how it forgets (SQLite alone needs this: see store/threads).

Records are indexed behind their commit: the commit is what a sender waits for, and words are what somebody may look
for later. A round of the sweep takes a chunk; a search takes what is left before it answers.
"""

from __future__ import annotations

from typing import Final

# Of one transaction: others wait for the writer as long.
INDEXED_RECORDS_MAX: Final = 200
INDEXED_BYTES_MAX: Final = 131_072
# What a byte of a text that is not ASCII counts there: its characters are looked at one by one.
WIDE_BYTES: Final = 4
# How many chunks a search indexes before it answers with what it has.
SEARCH_CHUNKS_MAX: Final = 50
# How many chunks a round of the sweep takes, and how long it lets others go first between two.
SWEPT_CHUNKS_MAX: Final = 50
INDEX_PAUSE_MS: Final = 20

# So many numbers given since the last round, or fewer, and the writer has time; where it has none, the index waits.
QUIET_NUMBERS_MAX: Final = 200

# Nothing was erased; something was; the index is being rewritten.
CLEAR: Final = 0
TO_CLEAR: Final = 1
CLEARING: Final = 2
CLEARED_PAGES_MAX: Final = 64
