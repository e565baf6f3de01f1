"""ReportOwners and ListBindings: what a dispatcher tells of itself, and what it must look after (M097)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost_kit.values import value
from fencepost_mailbox.domain.bindings import Binding
from fencepost_mailbox.domain.pages import page_number
from fencepost_mailbox.domain.refusals import InvalidLimit
from fencepost_mailbox.domain.values import BINDINGS_LISTED_DEFAULT, BINDINGS_LISTED_MAX, Record
from fencepost_mailbox.store.protocol import InvariantBroken
from fencepost_mailbox.usecases.ports import Ports


class ReportOwners:
    """ReportOwners."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, dispatcher: bytes, incarnation: int, owners: Mapping[bytes, int]) -> None:
        """Keep which agents a dispatcher carries for, until its stream of work ends.

        Raises:
            InvalidLimit, StaleIncarnation, InvalidState: see Owners.report.
        """
        newest = self._ports.store.read.incarnation(dispatcher)
        self._ports.owners.report(dispatcher, incarnation, owners, newest=newest)


@value(frozen=True, kw_only=True, slots=True)
class Bound:
    """A page of bindings with the records that they are on; `next_token` is empty on the last."""

    bindings: Sequence[tuple[Binding, Record]]
    next_token: str


class ListBindings:
    """ListBindings."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    async def __call__(self, dispatcher: bytes, size: int, token: str) -> Bound:
        """Return bindings of a dispatcher without a recorded outcome, oldest first.

        Raises:
            InvalidLimit, InvalidCursor: the page asked for does not exist.
        """
        if not 0 <= size <= BINDINGS_LISTED_MAX:
            raise InvalidLimit(f"page_size must be 1 to {BINDINGS_LISTED_MAX}; nothing was read")
        size = size or BINDINGS_LISTED_DEFAULT
        queries = self._ports.store.read
        after = page_number(token) if token else 0
        with queries.snapshot():
            found = queries.unsettled_bindings(dispatcher, after, size + 1)
            page = []
            for binding in found[:size]:
                record = queries.record(binding.record_id)
                if record is None:
                    raise InvariantBroken("a turn is bound to a record that does not stand")
                page.append((binding, record))
        return Bound(bindings=page, next_token=str(found[size - 1].sequence) if len(found) > size else "")
