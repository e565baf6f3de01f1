"""Ids: form, order, and what a stepping clock does to them."""

from __future__ import annotations

import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_kit.ids import RANDOM_BITS, STEP_BITS, IdMint, MalformedId, hex32, uuid7, uuid_bytes, uuid_text
from fencepost_kit.refusal import Malformed

TIMES = st.integers(min_value=0, max_value=2**48 - 1)
RANDOM = st.integers(min_value=0, max_value=2**RANDOM_BITS - 1)


@given(now_ms=TIMES, randomness=RANDOM)
def test_a_uuid7_carries_its_time_its_randomness_version_and_variant(now_ms: int, randomness: int) -> None:
    value = uuid7(now_ms, randomness)
    parsed = uuid.UUID(bytes=value)
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert int.from_bytes(value[:6], "big") == now_ms
    number = int.from_bytes(value, "big")
    assert (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1 == randomness


@given(one=st.tuples(TIMES, RANDOM), other=st.tuples(TIMES, RANDOM))
def test_uuid7s_sort_by_time_then_randomness(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (uuid7(*one) < uuid7(*other)) == (one < other)


@pytest.mark.parametrize(
    ("now_ms", "randomness"), [(-1, 0), (2**48, 0), (0, -1), (0, 2**RANDOM_BITS)], ids=["past", "future", "low", "high"]
)
def test_a_time_or_randomness_out_of_range_is_refused(now_ms: int, randomness: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        uuid7(now_ms, randomness)
    uuid7(min(max(now_ms, 0), 2**48 - 1), min(max(randomness, 0), 2**RANDOM_BITS - 1))


@pytest.mark.requirement("kit.ids-grow-whatever-the-clock-does")
@given(times=st.lists(st.integers(min_value=0, max_value=50), min_size=1, max_size=60), high=st.booleans())
def test_ids_grow_strictly_whatever_the_clock_does(times: list[int], high: bool) -> None:
    clock = iter(times)
    # The highest randomness there is makes every second id of a millisecond overflow into the next one.
    mint = IdMint(now_ms=lambda: next(clock), getrandbits=lambda bits: (1 << bits) - 1 if high else 0)
    minted = [mint.new() for _ in times]
    assert minted == sorted(set(minted))
    assert all(uuid.UUID(bytes=value).version == 7 for value in minted)


@pytest.mark.requirement("kit.ids-grow-whatever-the-clock-does")
@given(bursts=st.lists(st.sampled_from([1, 1 << STEP_BITS - 1]), max_size=20))
def test_ids_grow_through_an_exhausted_millisecond(bursts: list[int]) -> None:
    top = (1 << RANDOM_BITS) - 1
    randoms = iter([top, *bursts])
    mint = IdMint(now_ms=lambda: 7, getrandbits=lambda _: next(randoms, 0))
    minted = [mint.new() for _ in range(len(bursts) + 2)]
    assert minted == sorted(set(minted))


@pytest.mark.requirement("kit.ids-grow-whatever-the-clock-does")
def test_ids_of_several_threads_are_all_different() -> None:
    mint = IdMint(now_ms=lambda: 1)
    minted: list[list[bytes]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda own=own: own.extend(mint.new() for _ in range(2000)))  # type: ignore[misc]
        for own in minted
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len({value for own in minted for value in own}) == 8000
    assert all(own == sorted(own) for own in minted)


def test_two_mints_do_not_collide_at_one_moment() -> None:
    one, other = IdMint(now_ms=lambda: 1), IdMint(now_ms=lambda: 1)
    assert not {one.new() for _ in range(500)} & {other.new() for _ in range(500)}


@given(value=st.binary(min_size=16, max_size=16))
def test_text_and_bytes_of_an_id_are_each_others_inverse(value: bytes) -> None:
    assert uuid_bytes(uuid_text(value)) == value
    assert uuid_text(value) == str(uuid.UUID(bytes=value))
    assert bytes.fromhex(hex32(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0190163D-8694-739B-AEA5-966C26F8AD91",
        "0190163d8694739baea5966c26f8ad91",
        "{0190163d-8694-739b-aea5-966c26f8ad91}",
        " 0190163d-8694-739b-aea5-966c26f8ad91",
        "0190163d-8694-739b-aea5-966c26f8ad9",
        "0190163d-8694-739b-aea5-966c26f8ad911",
        "0190163d-8694-739b-aea5-966c26f8ad9g",
        "0190163d86-94-739b-aea5-966c26f8ad91",
        "urn:uuid:0190163d-8694-739b-aea5-966",
        "\u0660190163d-8694-739b-aea5-966c26f8ad91",
    ],
)
def test_only_the_canonical_form_is_an_id(text: str) -> None:
    with pytest.raises(MalformedId) as caught:
        uuid_bytes(text)
    assert isinstance(caught.value, Malformed)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("length", [0, 15, 17])
def test_bytes_of_another_length_are_no_id(length: int) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_text(bytes(length))
