"""Cursors: a position in one recipient's inbox, of no use to anybody else and in no other store."""

from __future__ import annotations

import base64
import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.cursors import CURSOR_CHARACTERS, issue, position_of
from fencepost_mailbox.domain.refusals import ExpiredCursor, InvalidCursor
from fencepost_testing.mailboxes import id16

EPOCH, SECRET, MINE = id16("epoch"), id16("secret") * 2, id16("me")
POSITIONS = st.integers(min_value=0, max_value=2**63 - 1)


def cursor(position: int = 7, *, recipient: bytes = MINE, epoch: bytes = EPOCH, secret: bytes = SECRET) -> str:
    return issue(position, recipient=recipient, epoch=epoch, secret=secret)


def read(text: str, *, recipient: bytes = MINE, epoch: bytes = EPOCH, secret: bytes = SECRET) -> int:
    return position_of(text, recipient=recipient, epoch=epoch, secret=secret)


def raw_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.removeprefix("cur_") + "=")


def text_of(raw: bytes) -> str:
    return "cur_" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
@given(position=POSITIONS, recipient=st.binary(min_size=16, max_size=16))
def test_a_cursor_comes_back_as_the_position_it_was_issued_for(position: int, recipient: bytes) -> None:
    text = cursor(position, recipient=recipient)
    assert read(text, recipient=recipient) == position
    assert text == cursor(position, recipient=recipient), "the same place always has the same cursor"
    assert len(text) == CURSOR_CHARACTERS
    assert set(text) <= set(string.ascii_letters + string.digits + "-_")


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
@given(position=POSITIONS, other=st.binary(min_size=16, max_size=16).filter(lambda other: other != MINE))
def test_anybody_elses_cursor_is_invalid(position: int, other: bytes) -> None:
    with pytest.raises(InvalidCursor):
        read(cursor(position, recipient=other))


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
@given(position=POSITIONS)
def test_a_cursor_of_another_store_has_expired(position: int) -> None:
    with pytest.raises(ExpiredCursor):
        read(cursor(position, epoch=id16("another epoch"), secret=id16("another secret") * 2))


def test_a_cursor_signed_with_another_secret_is_invalid() -> None:
    with pytest.raises(InvalidCursor):
        read(cursor(secret=id16("another secret") * 2))


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
def test_one_flipped_bit_anywhere_makes_a_cursor_useless() -> None:
    for bit in range(32 * 8):
        raw = bytearray(raw_of(cursor()))
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises((InvalidCursor, ExpiredCursor)):
            read(text_of(bytes(raw)))


@pytest.mark.requirement("mailbox.cursors-belong-to-a-recipient-and-a-store")
def test_one_changed_character_anywhere_makes_a_cursor_useless() -> None:
    text = cursor(0x0123_4567_89AB_CDEF)
    for place, letter in itertools.product(range(CURSOR_CHARACTERS), "A_z-9"):
        if text[place] != letter:
            with pytest.raises((InvalidCursor, ExpiredCursor)):
                read(text[:place] + letter + text[place + 1 :])


GOOD = cursor()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "cur_",
        "cur_" + "A" * 42,
        "cur_" + "A" * 44,
        GOOD[:-1],
        GOOD + "=",
        GOOD + "\n",
        " " + GOOD[1:],
        GOOD.upper(),
        GOOD.replace("cur_", "CUR_"),
        GOOD.replace("cur_", "rep_"),
        GOOD[4:] + GOOD[:4],
        GOOD[:10] + "\n" + GOOD[11:],
        GOOD[:10] + "+" + GOOD[11:],
        GOOD[:10] + "/" + GOOD[11:],
        GOOD[:10] + "=" + GOOD[11:],
        GOOD[:10] + "é" + GOOD[11:],
        GOOD[:10] + "\0" + GOOD[11:],
        "cur_" + "é" * 43,
        "x" * 100_000,
    ],
)
def test_a_malformed_cursor_is_invalid_and_the_answer_says_how_to_go_on(text: str) -> None:
    with pytest.raises(InvalidCursor) as refused:
        read(text)
    assert "without a cursor" in refused.value.hint
    assert text == "" or text.strip() == "" or text not in refused.value.message


def test_every_cursor_has_one_spelling() -> None:
    # 32 bytes leave two spare bits in the last of 43 characters: a text that differs only there is another text.
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    last = alphabet.index(GOOD[-1])
    for spare in range(1, 4):
        other = GOOD[:-1] + alphabet[last ^ spare]
        assert raw_of(other) == raw_of(GOOD)
        with pytest.raises(InvalidCursor):
            read(other)


@given(text=st.text(max_size=60))
def test_no_text_at_all_is_taken_for_a_cursor_by_accident(text: str) -> None:
    with pytest.raises((InvalidCursor, ExpiredCursor)):
        read(text)


@given(raw=st.binary(min_size=32, max_size=32))
def test_no_bytes_at_all_are_taken_for_a_cursor_by_accident(raw: bytes) -> None:
    with pytest.raises((InvalidCursor, ExpiredCursor)):
        read(text_of(raw))
