"""The table of services, and the order that follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import Refused
from fencepost.home import SERVICES
from fencepost.up.table import TABLE, Row, plan, table_from_json, table_to_json


def everything(_: Row) -> bool:
    return True


def test_the_table_holds_every_service_of_the_home_and_each_names_what_it_needs() -> None:
    assert {row.name for row in TABLE} == set(SERVICES)
    planned = [row.name for row in plan(TABLE, chosen=None, installed=everything)]
    assert planned == ["sessions", "mailbox", "mcp_edge", "providers"]
    assert all(row.ready_ms_max > 0 for row in TABLE)


@given(order=st.permutations(TABLE), chosen=st.none() | st.lists(st.sampled_from(SERVICES), min_size=1))
def test_whatever_the_rows_order_each_service_comes_after_all_that_it_needs(
    order: list[Row], chosen: list[str] | None
) -> None:
    rows = plan(order, chosen=chosen, installed=everything)
    names = [row.name for row in rows]
    assert len(names) == len(set(names))
    assert set(names) >= set(chosen if chosen is not None else SERVICES)
    for row in rows:
        assert set(row.after) <= set(names[: names.index(row.name)])


def test_a_choice_brings_what_it_needs_and_nothing_more() -> None:
    assert [row.name for row in plan(TABLE, chosen=["mailbox"], installed=everything)] == ["sessions", "mailbox"]


def test_without_a_choice_what_is_not_installed_is_left_out() -> None:
    rows = plan(TABLE, chosen=None, installed=lambda row: row.name != "mcp_edge")
    assert [row.name for row in rows] == ["sessions", "mailbox", "providers"]


@pytest.mark.parametrize(
    ("chosen", "missing", "reason"),
    [
        (["mailbx"], set(), "unknown_service"),
        (["mailbox"], {"sessions"}, "service_not_installed"),
        (["mailbox"], {"mailbox"}, "service_not_installed"),
        (None, {"sessions"}, "service_not_installed"),
        (None, set(SERVICES), "nothing_to_start"),
        ([], set(), "nothing_to_start"),
    ],
)
def test_what_cannot_be_started_is_refused_with_its_reason(
    chosen: list[str] | None, missing: set[str], reason: str
) -> None:
    with pytest.raises(Refused) as caught:
        plan(TABLE, chosen=chosen, installed=lambda row: row.name not in missing)
    assert caught.value.reason == reason
    assert "nothing was started" in caught.value.message


def test_services_that_wait_for_each_other_are_an_error_of_the_table() -> None:
    table = (Row(name="a", module="a", after=("b",)), Row(name="b", module="b", after=("a",)))
    with pytest.raises(ValueError, match="a -> b -> a"):
        plan(table, chosen=None, installed=everything)


def test_a_table_survives_its_text() -> None:
    assert table_from_json(table_to_json(TABLE)) == TABLE


@pytest.mark.parametrize("text", ["", "[1]", '[{"name": "a"}]', '[{"name": "a", "module": "b", "extra": 1}]', "{}x"])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any text of the reader
        table_from_json(text)
