"""Values that are made fast are values all the same."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_kit.values import replace, value


@value(frozen=True, kw_only=True, slots=True)
class Pair:
    left: int
    right: str = "r"


@value(frozen=True, kw_only=True, slots=True)
class Single:
    only: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Frozen:
    left: int
    right: str = "r"


@given(st.integers(), st.text(), st.integers(), st.text())
def test_a_value_equals_hashes_and_prints_as_a_frozen_dataclass(a: int, b: str, c: int, d: str) -> None:
    one, other = Pair(left=a, right=b), Pair(left=c, right=d)
    plain, another = Frozen(left=a, right=b), Frozen(left=c, right=d)
    assert (one == other) is (plain == another)
    assert (hash(one) == hash(other)) is (hash(plain) == hash(another))
    assert repr(one) == repr(plain).replace("Frozen", "Pair")
    assert one != object()
    assert len({one, Pair(left=a, right=b)}) == 1
    assert pickle.loads(pickle.dumps(one)) == one


def test_it_has_no_other_fields_and_no_positional_ones() -> None:
    with pytest.raises(AttributeError):
        Pair(left=1).other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        Pair(1)  # type: ignore[call-arg]


@given(st.integers(), st.text(), st.integers())
def test_replacing_gives_what_dataclasses_would_and_leaves_the_old_one(a: int, b: str, c: int) -> None:
    one = Pair(left=a, right=b)
    assert replace(one, left=c) == dataclasses.replace(one, left=c)
    assert replace(one) == one
    assert replace(one) is not one
    assert (one.left, one.right) == (a, b)
    assert replace(Single(), only=(c,)) == Single(only=(c,))
    with pytest.raises(TypeError, match="nothing"):
        replace(one, nothing=1)  # type: ignore[call-arg]


def test_only_a_frozen_class_is_made_a_value() -> None:
    with pytest.raises(AssertionError, match="never changes"):

        @value(frozen=False, kw_only=True, slots=True)
        class Changing:
            field: int
