"""Which paths a reservation covers, held to a model that tries every path of a small world."""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.files import paths, reserving
from fencepost_mailbox.domain.files.paths import below, check_glob, check_path, folded, folders_above, leading, overlap
from fencepost_mailbox.domain.files.refusals import InvalidPath, InvalidReservation, ReservationLimit
from fencepost_mailbox.domain.files.values import (
    CHECKOUT_BYTES_MAX,
    DURATION_S_DEFAULT,
    DURATION_S_MAX,
    PATH_PARTS_MAX,
    PATHS_MAX,
    RESERVATION_REASON_BYTES_MAX,
    RESERVATIONS_LISTED_DEFAULT,
    RESERVATIONS_LISTED_MAX,
    RESERVED_OF_ONE_AGENT_MAX,
    RESERVED_PATH_BYTES_MAX,
    Scope,
    Span,
)

NAMES = ("a", "b", "ab", "ba")
WORLD_DEPTH = 5
# The root, and every path that can be made of these names.
WORLD = [(), *(path for depth in range(1, WORLD_DEPTH + 1) for path in itertools.product(NAMES, repeat=depth))]
PATTERNS = (*NAMES, "*", "?", "a*", "*b", "a?", "**", "b**a")

plain = st.lists(st.sampled_from(NAMES), max_size=3).map(lambda parts: Span(path="/".join(parts) or "."))
wild = (
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda glob: "*" in glob or "?" in glob)
    .map(lambda glob: Span(path=glob, glob=True))
)
spans = st.one_of(plain, wild)


@cache
def covered(span: Span) -> frozenset[tuple[str, ...]]:
    """Every path of the world that a span covers, by a regular expression over whole texts."""
    if span.glob:
        text = "".join(
            "(?:[^/]+/)*"
            if part == "**"
            else "".join({"*": "[^/]*", "?": "[^/]"}.get(c, re.escape(c)) for c in part) + "/"
            for part in span.path.split("/")
        )
    else:
        text = "" if span.path == "." else re.escape(span.path) + "/"
    # What is matched, and what lies below it.
    pattern = re.compile(text + "(?:[^/]+/)*")
    return frozenset(path for path in WORLD if pattern.fullmatch("".join(f"{part}/" for part in path)))


@pytest.mark.requirement("files.a-path-against-a-glob-is-exact")
@given(one=spans, other=spans)
def test_two_spans_overlap_where_they_cover_a_path_in_common(one: Span, other: Span) -> None:
    common = bool(covered(one) & covered(other))
    found = overlap(one, other, ignore_case=False)
    if one.glob and other.glob:
        assert found or not common, "two globs that cover a path in common overlap"
    else:
        assert found == common
    assert found == overlap(other, one, ignore_case=False)


@given(held=spans, path=plain)
def test_what_is_held_covers_a_path_where_it_covers_everything_that_the_path_covers(held: Span, path: Span) -> None:
    assert paths.covers(held, path, ignore_case=False) == (covered(path) <= covered(held))


@pytest.mark.requirement("files.overlaps-are-found-by-folder")
@given(one=spans, other=spans)
def test_of_two_spans_that_overlap_one_is_filed_at_above_or_below_the_other(one: Span, other: Span) -> None:
    if overlap(one, other, ignore_case=True):
        first, end = below(leading(one))
        assert leading(other) in folders_above(leading(one)) or first <= leading(other) < end


@given(one=spans, other=spans)
def test_what_overlaps_where_case_counts_overlaps_where_it_does_not(one: Span, other: Span) -> None:
    if overlap(one, other, ignore_case=False):
        assert overlap(one, other, ignore_case=True)


@pytest.mark.requirement("files.names-of-one-file-meet")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("README.md", "readme.MD"),
        ("Straße/x", "STRASSE/x"),
        ("caf\u00e9", "CAFE\u0301"),
        ("\u017ftart", "START"),
    ],
)
def test_names_that_differ_only_in_case_are_one_file_where_the_file_system_says_so(one: str, other: str) -> None:
    first, second = Span(path=unicodedata.normalize("NFC", one)), Span(path=unicodedata.normalize("NFC", other))
    assert overlap(first, second, ignore_case=True)
    assert not overlap(first, second, ignore_case=False)
    assert leading(first) == leading(second)


def test_a_wildcard_for_one_character_still_matches_one_that_folds_to_two() -> None:
    assert overlap(Span(path="?.txt", glob=True), Span(path="ß.txt"), ignore_case=True)
    assert overlap(Span(path="S?.TXT", glob=True), Span(path="sß.txt"), ignore_case=True)


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), max_size=8), st.text(max_size=8))
def test_a_slash_stays_a_slash_whatever_stands_beside_it(one: str, other: str) -> None:
    assert folded(f"{one}/{other}") == f"{folded(one)}/{folded(other)}"


@pytest.mark.parametrize("name", ["app/[id]/page.tsx", "{a,b}.py", "a!b", "weird name"])
def test_brackets_and_braces_stand_for_themselves(name: str) -> None:
    assert check_path(name) == name
    assert overlap(Span(path=name), Span(path=name), ignore_case=False)
    assert not overlap(Span(path=name), Span(path="app/i/page.tsx"), ignore_case=False)
    with pytest.raises(InvalidPath, match="has a wildcard"):
        check_glob(name)


@pytest.mark.requirement("files.paths-arrive-canonical")
@pytest.mark.parametrize(
    "path",
    ["", "/a", "a/", "a//b", "./a", "a/.", "..", "a/../b", "a\\b", "a\nb", "a\x7f", "e\u0301", "a/\ud800", "\0"],
)
def test_a_path_that_is_not_canonical_is_refused(path: str) -> None:
    with pytest.raises(InvalidPath, match="nothing was written"):
        check_path(path)


@pytest.mark.parametrize("path", [".", "a", "a/b.c", "a/...", ".github/x", "é", "a b/*", "C:x"])
def test_a_canonical_path_passes_as_it_is(path: str) -> None:
    assert check_path(path) == path


def test_the_limits_of_a_path_hold_at_both_sides() -> None:
    assert check_path("a" * RESERVED_PATH_BYTES_MAX)
    assert check_path("/".join("a" * PATH_PARTS_MAX))
    for path in ("a" * (RESERVED_PATH_BYTES_MAX + 1), "/".join("a" * (PATH_PARTS_MAX + 1))):
        with pytest.raises(InvalidPath):
            check_path(path)


@given(stars=st.integers(1, 40))
def test_many_stars_take_no_longer_than_their_product(stars: int) -> None:
    assert not paths.part_matches("*a" * stars + "b", "a" * 200)


def test_the_limits_of_a_request_hold_at_both_sides() -> None:
    many = [f"f{number}" for number in range(PATHS_MAX)]
    assert len(reserving.spans_of(many, [])) == PATHS_MAX
    assert len(reserving.spans_of(["a", "a"], ["a*", "a*"])) == 2, "what is named twice counts once"
    for over in ([*many, "one more"], []):
        with pytest.raises(InvalidReservation, match="1 to 100"):
            reserving.spans_of(over, [])
    assert reserving.duration_ms(0) == 1000 * DURATION_S_DEFAULT
    assert reserving.duration_ms(1) == 1000
    assert reserving.duration_ms(DURATION_S_MAX) == 1000 * DURATION_S_MAX
    for seconds in (-1, DURATION_S_MAX + 1):
        with pytest.raises(InvalidReservation, match="duration_seconds"):
            reserving.duration_ms(seconds)
    assert reserving.page_size(0) == RESERVATIONS_LISTED_DEFAULT
    assert reserving.page_size(RESERVATIONS_LISTED_MAX) == RESERVATIONS_LISTED_MAX
    for size in (-1, RESERVATIONS_LISTED_MAX + 1):
        with pytest.raises(InvalidReservation, match="page_size"):
            reserving.page_size(size)


def test_the_limits_of_texts_and_of_what_one_agent_holds_hold_at_both_sides() -> None:
    reserving.check_reason("é" * (RESERVATION_REASON_BYTES_MAX // 2))
    reserving.check_scope(Scope(checkout="c" * CHECKOUT_BYTES_MAX))
    for call in (
        lambda: reserving.check_reason("r" * (RESERVATION_REASON_BYTES_MAX + 1)),
        lambda: reserving.check_reason("\ud800"),
        lambda: reserving.check_scope(Scope(checkout="c" * (CHECKOUT_BYTES_MAX + 1))),
    ):
        with pytest.raises(InvalidReservation, match="nothing was written"):
            call()
    reserving.check_room(RESERVED_OF_ONE_AGENT_MAX - 1, 1)
    with pytest.raises(ReservationLimit):
        reserving.check_room(RESERVED_OF_ONE_AGENT_MAX, 1)
