"""WatchEvents: everything once, in commit order, whatever the steps and however the two kinds of numbers lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.records import new_record
from fencepost_mailbox.domain.values import Fact, FactKind, Kind, Origin, Record
from fencepost_mailbox.events import Event, step


def a_record(sequence: int) -> Record:
    return new_record(
        sequence=sequence,
        record_id=sequence.to_bytes(16, "big"),
        kind=Kind.INFORMATION,
        project_id=b"p" * 16,
        sender=b"s" * 16,
        recipient=b"r" * 16,
        body=b"x",
        now_ms=1,
        origin=Origin.AGENT,
    )


class Committed:
    """A store that holds an admission or a fact under each number; facts are of the first record."""

    def __init__(self, kinds: list[bool], gaps: list[int]) -> None:
        self.records = [a_record(1)]
        self.all_facts: list[Fact] = []
        number = 1
        for is_record, gap in zip(kinds, gaps, strict=True):
            number += gap
            if is_record:
                self.records.append(a_record(number))
            else:
                self.all_facts.append(
                    Fact(
                        sequence=number,
                        record_id=self.records[0].record_id,
                        fact=FactKind.EXPOSED,
                        at_ms=1,
                        generation=1,
                        evidence="e",
                    )
                )

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        yield

    def newest_sequence(self) -> int:
        return max([self.records[-1].sequence, *(fact.sequence for fact in self.all_facts[-1:])])

    def admissions(self, after: int, limit: int) -> list[Record]:
        return [one for one in self.records if one.sequence > after][:limit]

    def facts_behind(self, after: int, limit: int) -> list[Fact]:
        return [one for one in self.all_facts if one.sequence > after][:limit]

    def record(self, record_id: bytes) -> Record | None:
        return next((one for one in self.records if one.record_id == record_id), None)


def told(store: Any, after: int, limit: int) -> list[Event]:
    """Everything that steps of this size tell, to the end."""
    events: list[Event] = []
    while True:
        found, reached = step(store, after, limit)
        events += found
        if reached == after:
            return events
        assert reached > after
        after = reached


HISTORIES = st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=40)


@pytest.mark.requirement("mailbox.events-are-told-once-in-commit-order")
@given(history=HISTORIES, limit=st.integers(1, 7), data=st.data())
def test_steps_of_any_size_tell_everything_once_in_commit_order(
    history: list[tuple[bool, int]], limit: int, data: st.DataObject
) -> None:
    store = Committed([kind for kind, _ in history], [gap for _, gap in history])
    numbers = sorted([one.sequence for one in store.records] + [one.sequence for one in store.all_facts])
    after = data.draw(st.integers(0, numbers[-1] + 1))
    events = told(store, after, limit)
    assert [event.position for event in events] == [number for number in numbers if number > after]
    assert all((event.fact is None) == (event.position in {one.sequence for one in store.records}) for event in events)


def test_a_position_ahead_of_the_store_stays_where_it_is() -> None:
    store: Any = Committed([], [])
    assert step(store, 99, 5) == ([], 99)
