"""The query language of the search, and what is shown of a text that was found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.refusals import InvalidQuery
from fencepost_mailbox.domain.threads.words import QUERY_BYTES_MAX, QUERY_TERMS_MAX, Term, excerpt, terms_of
from fencepost_mailbox.domain.values import LISTING_BODY_CHARACTERS_MAX


@pytest.mark.requirement("search.finds-words")
@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("one two", (Term(text="one"), Term(text="two"))),
        ('"one two" three', (Term(text="one two"), Term(text="three"))),
        ("begin* end", (Term(text="begin", beginning=True), Term(text="end"))),
        ("one one - ... *", (Term(text="one"),)),
        ('one"two"', (Term(text="one"), Term(text="two"))),
    ],
)
def test_a_query_is_words_phrases_and_beginnings(query: str, terms: tuple[Term, ...]) -> None:
    assert terms_of(query) == terms


@pytest.mark.requirement("search.finds-words")
@pytest.mark.parametrize("query", ["", "   ", "...", "*", '"', '"open', '""', "-"])
def test_a_query_without_a_word_or_with_an_open_quotation_is_refused(query: str) -> None:
    with pytest.raises(InvalidQuery):
        terms_of(query)


@pytest.mark.requirement("search.finds-words")
def test_a_query_has_512_bytes_and_16_words() -> None:
    assert terms_of("x" * QUERY_BYTES_MAX)
    assert terms_of("ü" * (QUERY_BYTES_MAX // 2))
    for longer in ("x" * (QUERY_BYTES_MAX + 1), "ü" * (QUERY_BYTES_MAX // 2) + "x"):
        with pytest.raises(InvalidQuery):
            terms_of(longer)
    many = [f"w{number}" for number in range(QUERY_TERMS_MAX + 1)]
    assert len(terms_of(" ".join(many[:-1]))) == QUERY_TERMS_MAX
    with pytest.raises(InvalidQuery):
        terms_of(" ".join(many))


@pytest.mark.requirement("search.finds-words")
@pytest.mark.parametrize("word", ["needle", "NEEDLE", "nééd"])
@pytest.mark.parametrize("before", [0, 30, 400, 5000])
def test_an_excerpt_shows_the_first_word_that_was_found(word: str, before: int) -> None:
    body = "x " * before + "needle" + " y" * 300
    shown = excerpt(body, [Term(text=word, beginning=True)])
    assert len(shown) <= LISTING_BODY_CHARACTERS_MAX
    assert "needle" in shown or (before == 5000 and word == "nééd"), "long texts are looked at as they are written"
    assert shown.endswith("…")
    assert shown.startswith("…") is ("needle" in shown and before > 20)


@pytest.mark.requirement("search.finds-words")
@given(body=st.text(max_size=600), word=st.text(min_size=1, max_size=3))
def test_an_excerpt_is_a_piece_of_the_text_and_never_longer_than_its_limit(body: str, word: str) -> None:
    shown = excerpt(body, [Term(text="a" + word)])
    assert len(shown) <= LISTING_BODY_CHARACTERS_MAX
    assert shown == body or shown.strip("…") in body
