"""Every limit of the directory, its unit last. A test stands on both sides of each."""

from __future__ import annotations

from typing import Final

NAME_CHARS_MAX: Final = 64
# What a name may measure before it is normalised: 64 characters decompose into at most four code points of four
# bytes each.
NAME_INPUT_BYTES_MAX: Final = 1024
PROVIDER_BYTES_MAX: Final = 64
PATH_BYTES_MAX: Final = 4096
LABEL_CHARS_MAX: Final = NAME_CHARS_MAX

CLASS_BYTES_MAX: Final = 64
MODEL_BYTES_MAX: Final = 128
EFFORT_BYTES_MAX: Final = 32
SANDBOX_BYTES_MAX: Final = 64
APPROVAL_BYTES_MAX: Final = 64
LAUNCH_TEXT_BYTES_MAX: Final = 4096
INCLUDE_DIRECTORIES_MAX: Final = 16
# All texts of one agent's launch settings together: a page of agents stays one that can be sent.
LAUNCH_BYTES_MAX: Final = 16_384
CONVERSATION_BYTES_MAX: Final = 256

HOLDER_BYTES_MAX: Final = 128
LEASE_TERM_MS_MIN: Final = 1000
LEASE_TERM_MS_DEFAULT: Final = 30_000
LEASE_TERM_MS_MAX: Final = 1_200_000
LEASES_LISTED_MAX: Final = 500

STATUS_DETAIL_BYTES_MAX: Final = 1024
TURN_BYTES_MAX: Final = 128

IDEMPOTENCY_KEY_BYTES_MAX: Final = 256
IDEMPOTENCY_KEPT_MS: Final = 30 * 24 * 60 * 60 * 1000
# Old keys are dropped a few at a time by the mutations that come after them: no sweep, no pause.
IDEMPOTENCY_DROPPED_ROWS_MAX: Final = 16

# No follower resolves a name from a directory older than 30 s, so after 60 s nobody takes a released name for its
# old holder.
QUARANTINE_MS: Final = 60_000

PROJECTS_MAX: Final = 1000
AGENTS_PER_PROJECT_MAX: Final = 1000
OLD_CREDENTIALS_KEPT_MAX: Final = 8
REMOVALS_KEPT_MAX: Final = 10_000

PAGE_ROWS_DEFAULT: Final = 100
PAGE_ROWS_MAX: Final = 500
PAGE_TOKEN_BYTES_MAX: Final = 2048

NEAR_MISSES_MAX: Final = 3
AMBIGUOUS_NAMED_MAX: Final = 5

CHANGES_PER_MESSAGE_MAX: Final = 500
# By the weights below. Half of what the transport takes, so that no page of long paths is ever too large to send.
MESSAGE_BYTES_MAX: Final = 1024 * 1024
ROW_FRAME_BYTES: Final = 256
HEARTBEAT_MS: Final = 5000
WATCHES_MAX: Final = 16
