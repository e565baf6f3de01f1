"""Idempotency keys: the same call again, another call under the same key, and a key that was cancelled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_mailbox.domain.idempotency import (
    KeyRow,
    KeyVerdict,
    check_key,
    fingerprint,
    judge_repeat,
    judge_settle,
)
from fencepost_mailbox.domain.refusals import IdempotencyConflict, InvalidIdempotencyKey, KeyCancelled
from fencepost_mailbox.domain.values import KEY_BYTES_MAX, Completion, Kind, ReplyStatus
from fencepost_mailbox.usecases import admit, reply
from fencepost_testing.mailboxes import id16

CONTENT, OTHER = fingerprint(b"content"), fingerprint(b"other")
WRITTEN, CANCELLED = KeyRow(fingerprint=CONTENT, record_id=id16("it")), KeyRow(fingerprint=CONTENT, record_id=None)


@pytest.mark.requirement("mailbox.same-key-same-receipt")
@pytest.mark.parametrize("key", ["x", " ", "\0", "k" * KEY_BYTES_MAX, "é" * (KEY_BYTES_MAX // 2)])
def test_a_key_of_one_to_the_limit_of_bytes_is_kept_as_it_is(key: str) -> None:
    assert check_key(key) == key.encode()


@pytest.mark.parametrize("key", ["", "k" * (KEY_BYTES_MAX + 1), "é" * (KEY_BYTES_MAX // 2) + "x", "k" * 100_000])
def test_an_empty_or_over_long_key_is_refused_counting_bytes(key: str) -> None:
    with pytest.raises(InvalidIdempotencyKey) as refused:
        check_key(key)
    assert len(refused.value.message) < 200


@pytest.mark.requirement("mailbox.same-key-same-receipt")
def test_the_same_content_again_names_the_first_record() -> None:
    assert judge_repeat(WRITTEN, CONTENT) == id16("it")


@pytest.mark.requirement("mailbox.same-key-same-receipt")
@pytest.mark.parametrize("row", [WRITTEN, CANCELLED])
def test_other_content_is_a_conflict_whatever_the_key_stands_for(row: KeyRow) -> None:
    with pytest.raises(IdempotencyConflict):
        judge_repeat(row, OTHER)
    with pytest.raises(IdempotencyConflict):
        judge_settle(row, OTHER)


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
def test_a_late_arrival_under_a_cancelled_key_is_refused() -> None:
    with pytest.raises(KeyCancelled):
        judge_repeat(CANCELLED, CONTENT)


@pytest.mark.requirement("mailbox.cancelled-keys-stay-cancelled")
def test_a_settled_key_was_written_or_cancelled() -> None:
    assert judge_settle(WRITTEN, CONTENT) is KeyVerdict.WRITTEN
    assert judge_settle(CANCELLED, CONTENT) is KeyVerdict.CANCELLED


@given(parts=st.lists(st.binary(max_size=8), max_size=4), others=st.lists(st.binary(max_size=8), max_size=4))
def test_two_calls_have_one_fingerprint_only_where_all_their_parts_are_the_same(
    parts: list[bytes], others: list[bytes]
) -> None:
    assert (fingerprint(*parts) == fingerprint(*others)) == (parts == others)


def a_command(**changes: object) -> admit.Command:
    facts: dict[str, object] = {
        "kind": Kind.REQUEST,
        "target": "bob",
        "body": "work",
        "key": "k",
        "completion": Completion.AUTOMATIC,
    }
    return admit.Command(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "Bob"},
        {"target": "bobw", "body": "ork"},
        {"body": "work "},
        {"completion": Completion.EXPLICIT},
        {"kind": Kind.INFORMATION, "completion": Completion.NONE},
    ],
)
def test_every_part_of_a_send_belongs_to_its_content(changes: dict[str, object]) -> None:
    assert a_command(**changes).content() != a_command().content()


def test_the_key_itself_is_no_part_of_the_content() -> None:
    assert a_command(key="another").content() == a_command().content()


def test_every_part_of_a_reply_belongs_to_its_content() -> None:
    facts = {"request_id": id16("ask"), "status": ReplyStatus.DONE, "body": "done", "key": "k"}
    plain = reply.Command(**facts).content()  # type: ignore[arg-type]
    for change in ({"request_id": id16("other")}, {"status": ReplyStatus.FAILED}, {"body": "done."}):
        assert reply.Command(**{**facts, **change}).content() != plain  # type: ignore[arg-type]
    assert reply.Command(**{**facts, "key": "another"}).content() == plain  # type: ignore[arg-type]
