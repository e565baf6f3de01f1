"""Refusals on the wire."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import status_pb2
from hypothesis import given
from hypothesis import strategies as st

from fencepost.common.v1 import common_pb2
from fencepost_kit import refusal as refusals
from fencepost_kit.refusal import (
    STATE_PAIR_BYTES_MAX,
    STATE_PAIRS_MAX,
    TEXT_BYTES_MAX,
    Malformed,
    Refusal,
    StartRefused,
)
from fencepost_kit.statuses import (
    DETAILS_BYTES_MAX,
    DETAILS_KEY,
    KIT_STATUSES,
    clip,
    detail_of,
    status_details,
    status_of,
)

CODE = grpc.StatusCode.ABORTED


class Stale(Refusal):
    reason = "stale_generation"


class Staler(Stale):
    reason = "staler"


class FakeError(grpc.RpcError):
    def __init__(self, metadata: object) -> None:
        self._metadata = metadata

    def trailing_metadata(self) -> object:
        return self._metadata


def unpacked(raw: bytes) -> common_pb2.Refusal:
    detail = detail_of(FakeError(((DETAILS_KEY, raw),)))
    assert detail is not None
    return detail


def test_every_common_refusal_has_a_status() -> None:
    common = {
        kind
        for kind in vars(refusals).values()
        if isinstance(kind, type) and issubclass(kind, Refusal) and kind not in {Refusal, StartRefused}
    }
    assert set(KIT_STATUSES) == common


def test_the_nearest_class_decides_on_the_status_and_a_services_table_before_the_kits() -> None:
    table = {Stale: grpc.StatusCode.ABORTED, Malformed: grpc.StatusCode.OUT_OF_RANGE}
    assert status_of(Staler("no"), table) is grpc.StatusCode.ABORTED
    assert status_of(Malformed("no"), table) is grpc.StatusCode.OUT_OF_RANGE
    assert status_of(Malformed("no"), {}) is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(LookupError):
        status_of(Stale("no"), {})


@pytest.mark.requirement("kit.a-refusal-travels-with-its-proof")
def test_the_detail_is_a_google_status_with_one_refusal() -> None:
    raw = status_details(Stale("older", hint="Ask again.", state={"generation": "4"}), CODE)
    status = status_pb2.Status.FromString(raw)
    assert (status.code, status.message, len(status.details)) == (CODE.value[0], "older", 1)
    assert status.details[0].type_url == "type.googleapis.com/fencepost.common.v1.Refusal"
    assert unpacked(raw) == common_pb2.Refusal(
        reason="stale_generation",
        effect=common_pb2.EFFECT_NOT_WRITTEN,
        hint="Ask again.",
        state={"generation": "4"},
    )


@given(
    message=st.text(max_size=2000),
    hint=st.text(max_size=2000),
    state=st.dictionaries(st.text(max_size=300), st.text(max_size=600), max_size=30),
)
def test_whatever_a_refusal_holds_its_detail_stays_within_its_limits(
    message: str, hint: str, state: dict[str, str]
) -> None:
    raw = status_details(Stale(message, hint=hint, state=state), CODE)
    detail = unpacked(raw)
    assert len(raw) <= DETAILS_BYTES_MAX
    assert len(detail.hint.encode()) <= TEXT_BYTES_MAX
    assert len(detail.state) <= STATE_PAIRS_MAX
    assert all(len(k.encode()) + len(v.encode()) <= STATE_PAIR_BYTES_MAX for k, v in detail.state.items())


@pytest.mark.parametrize(
    ("pairs", "kept"), [(STATE_PAIRS_MAX, STATE_PAIRS_MAX), (STATE_PAIRS_MAX + 1, STATE_PAIRS_MAX)]
)
def test_a_state_has_as_many_pairs_as_its_limit(pairs: int, kept: int) -> None:
    state = {str(number): "x" for number in range(pairs)}
    assert len(unpacked(status_details(Stale("no", state=state), CODE)).state) == kept


def test_a_state_that_finds_no_room_loses_its_last_pairs() -> None:
    state = {f"key{number:02}": "x" * 240 for number in range(STATE_PAIRS_MAX)}
    kept = unpacked(status_details(Stale("m" * 600, hint="h" * 600, state=state), CODE)).state
    assert 8 <= len(kept) < STATE_PAIRS_MAX
    assert sorted(kept) == sorted(state)[: len(kept)]


@pytest.mark.parametrize(
    ("text", "bytes_max", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("äöü", 4, "äö"),
        ("äöü", 3, "ä"),
        ("\ud800x", 10, "?x"),
        ("", 3, ""),
    ],
)
def test_a_text_is_cut_between_characters_and_is_always_valid(text: str, bytes_max: int, expected: str) -> None:
    assert clip(text, bytes_max) == expected


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        (),
        (("other", "x"),),
        ((DETAILS_KEY, b"\xff\xff"),),
        ((DETAILS_KEY, status_pb2.Status(code=5).SerializeToString()),),
    ],
    ids=["none", "empty", "other", "garbage", "status without detail"],
)
def test_an_error_without_a_whole_detail_proves_nothing(metadata: object) -> None:
    assert detail_of(FakeError(metadata)) is None


def test_a_detail_that_does_not_say_not_written_proves_nothing() -> None:
    status = status_pb2.Status(code=5)
    status.details.add().Pack(common_pb2.Refusal(reason="new", effect=common_pb2.EFFECT_UNSPECIFIED))
    assert detail_of(FakeError(((DETAILS_KEY, status.SerializeToString()),))) is None


def test_a_refusals_state_cannot_be_changed_from_outside() -> None:
    state = {"a": "1"}
    refusal = Stale("no", state=state)
    state["a"] = "2"
    assert dict(refusal.state) == {"a": "1"}
    assert str(refusal) == "no"
