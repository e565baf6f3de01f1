"""What any store of the mailbox does for file reservations, inside the same transactions as for records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fencepost_mailbox.domain.files.values import Reserved, Span


class FileQueries(Protocol):
    """What can be asked of reservations, inside a transaction or beside it. What has expired is never among them."""

    def near(self, project_id: bytes, spans: Iterable[Span], now_ms: int) -> list[Reserved]:
        """Return everything in a project that may overlap with one of these, each once.

        Found by leading folder: what is filed at, above or below those of the spans.
        """
        ...

    def of_reservation(self, reservation_id: bytes, now_ms: int) -> list[Reserved]:
        """Return what is left of a reservation."""
        ...

    def held_count(self, holder: bytes, now_ms: int) -> int:
        """Count the paths that an agent holds."""
        ...

    def held_by(self, holder: bytes, after: tuple[bytes, int], limit: int, now_ms: int) -> list[Reserved]:
        """Return what an agent holds behind a place (reservation, place in it), in their order."""
        ...

    def listed(self, project_id: bytes, after: tuple[str, bytes, int], limit: int, now_ms: int) -> list[Reserved]:
        """Return what is held in a project behind a place (leading folder, reservation, place), in their order."""
        ...

    def any_expired(self, now_ms: int) -> bool:
        """Tell whether something that has expired still lies about."""
        ...


class FileTransaction(FileQueries, Protocol):
    """What an operation may write of reservations."""

    def insert(self, reserved: Sequence[Reserved]) -> None:
        """Write new reservations."""
        ...

    def set_expiry(self, reserved: Reserved, expires_at_ms: int) -> None:
        """Write another expiry; guarded by the one that it had."""
        ...

    def drop(self, reserved: Iterable[Reserved]) -> int:
        """Remove these; return how many there were."""
        ...

    def drop_of_attempt(self, attempt_id: bytes) -> int:
        """Remove what is bound to an attempt; return how many there were."""
        ...

    def drop_of_holder(self, holder: bytes, below_generation: int | None = None) -> int:
        """Remove what an agent holds, or what its lives before a generation held; return how many there were."""
        ...

    def drop_expired(self, now_ms: int, limit: int) -> int:
        """Remove up to `limit` that have expired; return how many there were."""
        ...
