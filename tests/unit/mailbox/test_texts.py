"""What may be said, and to whom it may be addressed."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.refusals import InvalidLimit, InvalidMessage, InvalidTarget
from fencepost_mailbox.domain.texts import TARGET_CHARACTERS_MAX, check_body, check_evidence, uuid_target
from fencepost_mailbox.domain.values import BODY_BYTES_MAX, EVIDENCE_BYTES_MAX
from fencepost_testing.mailboxes import id16

WHITE = "".join(letter for letter in map(chr, range(sys.maxunicode + 1)) if letter.isspace())


@pytest.mark.requirement("mailbox.bodies-have-limits")
@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀"])
def test_a_body_of_exactly_the_limit_of_bytes_is_taken_and_one_byte_more_is_not(letter: str) -> None:
    width = len(letter.encode())
    whole = letter * (BODY_BYTES_MAX // width) + "x" * (BODY_BYTES_MAX % width)
    assert len(check_body(whole)) == BODY_BYTES_MAX
    with pytest.raises(InvalidMessage) as refused:
        check_body(whole + "x")
    assert refused.value.state == {"bytes": str(BODY_BYTES_MAX + 1), "bytes_max": str(BODY_BYTES_MAX)}
    assert letter * 3 not in refused.value.message + refused.value.hint


@pytest.mark.requirement("mailbox.bodies-have-limits")
def test_a_body_of_white_space_alone_is_blank_in_every_script() -> None:
    for body in ("", *WHITE, WHITE, "\r\n\t" * 1000):
        with pytest.raises(InvalidMessage):
            check_body(body)


@pytest.mark.parametrize("place", ["x{}", "{}x"])
def test_white_space_beside_text_is_kept(place: str) -> None:
    body = place.format(WHITE)
    assert check_body(body).decode() == body


@pytest.mark.requirement("mailbox.bodies-round-trip")
@pytest.mark.parametrize(
    "body",
    [
        "\0",
        "\x1b[31mred\x1b[0m",
        "a\rb\nc\r\nd",
        "\x85\u2028\u2029x",
        "\ufeffbom",
        "\u200b",
        unicodedata.normalize("NFD", "é"),
        "\u202eright to left",
        '"quotes" \\ and / {json: [null]}',
        "\U0010ffff",
        "漢字かな交じり",
    ],
)
def test_every_character_is_kept_byte_for_byte(body: str) -> None:
    assert check_body(body) == body.encode()


@pytest.mark.requirement("mailbox.bodies-round-trip")
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_text_comes_back_as_it_was_given_or_is_blank(body: str) -> None:
    try:
        assert check_body(body).decode() == body
    except InvalidMessage:
        assert not body.strip()


@pytest.mark.parametrize("body", ["\ud800", "text \udfff text"])
def test_half_a_surrogate_pair_is_no_text(body: str) -> None:
    with pytest.raises(InvalidMessage):
        check_body(body)


@pytest.mark.parametrize("size", [1, EVIDENCE_BYTES_MAX])
def test_evidence_holds_at_both_ends(size: int) -> None:
    assert check_evidence("x" * size, "proof") == "x" * size


@pytest.mark.parametrize("text", ["", "x" * (EVIDENCE_BYTES_MAX + 1), "é" * (EVIDENCE_BYTES_MAX // 2) + "x"])
def test_no_evidence_and_too_much_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidLimit) as refused:
        check_evidence(text, "proof")
    assert refused.value.message.startswith("proof ")


def cased(word: str) -> list[str]:
    return [word, word.upper(), word.title(), word[0] + word[1:].upper()]


@pytest.mark.requirement("mailbox.targets-are-exact")
@pytest.mark.parametrize(
    "target",
    [
        *cased("all"),
        *cased("broadcast"),
        *cased("everyone"),
        "*",
        *cased("class:"),
        *(f"{word}reviewer" for word in cased("class:")),
        "class: reviewer",
    ],
)
def test_there_is_no_broadcast_in_any_case(target: str) -> None:
    with pytest.raises(InvalidTarget) as refused:
        uuid_target(target)
    assert "one agent" in refused.value.message


@pytest.mark.requirement("mailbox.targets-are-exact")
@pytest.mark.parametrize("form", ["{}bob", "bob{}", "{}bob{}", "{}", "{}all"])
def test_a_padded_target_is_refused_whatever_the_padding(form: str) -> None:
    for space in WHITE:
        with pytest.raises(InvalidTarget):
            uuid_target(form.replace("{}", space))


def test_an_empty_target_is_refused() -> None:
    with pytest.raises(InvalidTarget):
        uuid_target("")


@pytest.mark.requirement("mailbox.targets-are-exact")
def test_a_target_holds_at_its_limit() -> None:
    assert uuid_target("n" * TARGET_CHARACTERS_MAX) is None
    assert uuid_target("😀" * TARGET_CHARACTERS_MAX) is None
    with pytest.raises(InvalidTarget):
        uuid_target("n" * (TARGET_CHARACTERS_MAX + 1))


@pytest.mark.parametrize(
    "name", ["bob", "Bob", "alles", "all of us", "a*", "broadcaster", "classy", "my class:x", "ALLY"]
)
def test_an_exact_name_is_a_name(name: str) -> None:
    assert uuid_target(name) is None


def test_a_uuid_is_read_in_either_case() -> None:
    raw = id16("somebody")
    digits = raw.hex()
    text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    assert uuid_target(text) == uuid_target(text.upper()) == raw


@pytest.mark.parametrize(
    "near",
    [
        "0123456789abcdef0123456789abcdef",
        "{01234567-89ab-cdef-0123-456789abcdef}",
        "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
        "01234567-89ab-cdef-0123-456789abcde",
        "01234567-89ab-cdef-0123-456789abcdeg",
        "01234567-89ab-cdef-0123-456789abcde\u0661",
    ],
)
def test_what_only_looks_like_a_uuid_is_a_name(near: str) -> None:
    assert uuid_target(near) is None


@given(st.text(alphabet=st.characters(), min_size=TARGET_CHARACTERS_MAX + 1, max_size=80))
def test_a_refused_target_is_not_repeated_in_the_answer(target: str) -> None:
    with pytest.raises(InvalidTarget) as refused:
        uuid_target(target)
    assert target.strip() not in refused.value.message + refused.value.hint or not target.strip()
