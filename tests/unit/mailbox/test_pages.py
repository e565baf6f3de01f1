"""Pages: three budgets, each at both sides, and always one record."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.pages import (
    RECORD_OVERHEAD_BYTES,
    check_budget,
    check_limit,
    check_timeout,
    fitting,
    json_bytes,
)
from fencepost_mailbox.domain.refusals import InvalidLimit, InvalidTimeout, MailboxRefusal
from fencepost_mailbox.domain.values import (
    BODY_BYTES_MAX,
    PAGE_BODY_BYTES_MAX,
    PAGE_BYTES_MAX,
    PAGE_RECORDS_MAX,
    WAIT_MS_MAX,
    Kind,
    Record,
)
from fencepost_testing.mailboxes import a_record


def bodies(*sizes: int, letter: bytes = b"x") -> list[Record]:
    return [a_record(Kind.INFORMATION, sequence=n, body=letter * size) for n, size in enumerate(sizes, start=1)]


def fit(candidates: list[Record], *, limit: int = PAGE_RECORDS_MAX, page_bytes: int = PAGE_BYTES_MAX) -> int:
    return fitting(candidates, limit=limit, page_bytes=page_bytes)


@pytest.mark.requirement("mailbox.pages-have-budgets")
@pytest.mark.parametrize(
    ("check", "most", "refusal"),
    [
        (check_limit, PAGE_RECORDS_MAX, InvalidLimit),
        (check_budget, PAGE_BYTES_MAX, InvalidLimit),
        (check_timeout, WAIT_MS_MAX, InvalidTimeout),
    ],
)
def test_a_number_holds_at_both_ends(check: Callable[[int], int], most: int, refusal: type[MailboxRefusal]) -> None:
    assert check(1) == 1
    assert check(most) == most
    for wrong in (-1, most + 1, -(2**31), 2**31 - 1):
        with pytest.raises(refusal):
            check(wrong)


def test_zero_asks_for_the_whole_page_and_for_no_wait() -> None:
    assert check_limit(0) == PAGE_RECORDS_MAX
    assert check_budget(0) == PAGE_BYTES_MAX
    assert check_timeout(0) == 0


@pytest.mark.requirement("mailbox.pages-have-budgets")
@pytest.mark.parametrize("limit", [1, 2, PAGE_RECORDS_MAX])
def test_a_page_has_at_most_its_limit_of_records(limit: int) -> None:
    assert fit(bodies(*[1] * limit), limit=limit) == limit
    assert fit(bodies(*[1] * (limit + 1)), limit=limit) == limit


@pytest.mark.requirement("mailbox.pages-have-budgets")
def test_bodies_up_to_their_budget_make_one_page_and_one_byte_more_two() -> None:
    assert fit(bodies(BODY_BYTES_MAX, PAGE_BODY_BYTES_MAX - BODY_BYTES_MAX)) == 2
    over = bodies(BODY_BYTES_MAX, PAGE_BODY_BYTES_MAX - BODY_BYTES_MAX - 1, 2)
    assert fit(over) == 2
    assert fit(over[2:]) == 1, "the one that was cut is the first of the next page"


@pytest.mark.requirement("mailbox.pages-have-budgets")
def test_the_budget_counts_the_records_as_json() -> None:
    three = bodies(10, 10, 10)
    exactly = 3 * (RECORD_OVERHEAD_BYTES + 12)
    assert fit(three, page_bytes=exactly) == 3
    assert fit(three, page_bytes=exactly - 1) == 2


@pytest.mark.requirement("mailbox.pages-have-budgets")
def test_what_json_escapes_counts_as_it_is_written() -> None:
    # Sixfold: a control character becomes six in JSON.
    escaped = bodies(1000, 1000, letter=b"\x01")
    assert json_bytes(escaped[0].body) == 6002
    budget = 2 * (RECORD_OVERHEAD_BYTES + 6002)
    assert fit(escaped, page_bytes=budget) == 2
    assert fit(escaped, page_bytes=budget - 1) == 1
    largest = bodies(BODY_BYTES_MAX, 1, letter=b"\x01")
    assert fit(largest) == 2, "a body of the longest kind leaves room in the largest page"


@pytest.mark.requirement("mailbox.pages-have-budgets")
@pytest.mark.parametrize("letter", [b"x", b"\x01"])
def test_one_record_always_fits_however_small_the_budget(letter: bytes) -> None:
    assert fit(bodies(BODY_BYTES_MAX, 1, letter=letter), page_bytes=1) == 1


def test_nothing_makes_an_empty_page() -> None:
    assert fit([]) == 0


@pytest.mark.requirement("mailbox.pages-have-budgets")
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300))
def test_a_body_is_counted_exactly_as_json_writes_it(body: str) -> None:
    assert json_bytes(body.encode()) == len(json.dumps(body, ensure_ascii=False).encode())


@given(
    st.lists(st.integers(min_value=1, max_value=BODY_BYTES_MAX), max_size=12),
    st.integers(min_value=1, max_value=PAGE_RECORDS_MAX),
    st.integers(min_value=1, max_value=PAGE_BYTES_MAX),
)
def test_paging_on_returns_every_record_once_in_order_and_within_every_budget(
    sizes: list[int], limit: int, page_bytes: int
) -> None:
    rest, seen = bodies(*sizes), []
    while rest:
        count = fit(rest, limit=limit, page_bytes=page_bytes)
        page = rest[:count]
        assert 1 <= count <= limit
        if count > 1:
            assert sum(len(record.body) for record in page) <= PAGE_BODY_BYTES_MAX
            assert sum(RECORD_OVERHEAD_BYTES + json_bytes(record.body) for record in page) <= page_bytes
        seen += page
        rest = rest[count:]
    assert [record.sequence for record in seen] == list(range(1, len(sizes) + 1))
