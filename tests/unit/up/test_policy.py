"""What follows from the end of a service."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.up.policy import SHORT_LIFE_MS, End, Limits, backoff_ms, is_crash, judge

LIMITS = Limits(crash_exits_max=3, backoff_ms_min=100, backoff_ms_max=1_000)
CODES = st.integers(min_value=-64, max_value=255)


@pytest.mark.requirement("up.a-killed-ready-service-never-trips-the-cap")
@pytest.mark.parametrize(
    ("code", "ready_ms", "counts"),
    [
        (1, None, True),
        (0, None, True),
        (-signal.SIGKILL, None, True),
        (1, 0, True),
        (1, SHORT_LIFE_MS - 1, True),
        (1, SHORT_LIFE_MS, False),
        (0, SHORT_LIFE_MS - 1, True),
        (-signal.SIGSEGV, 10, True),
        (-signal.SIGKILL, 0, False),
        (-signal.SIGTERM, 10, False),
        (-signal.SIGKILL, SHORT_LIFE_MS, False),
    ],
)
def test_an_end_counts_before_readiness_or_within_two_seconds_of_it_unless_it_was_killed(
    code: int, ready_ms: int | None, counts: bool
) -> None:
    assert is_crash(End(code=code, ready_ms=ready_ms)) is counts


@pytest.mark.requirement("up.a-killed-ready-service-never-trips-the-cap")
@given(lives=st.lists(st.tuples(st.sampled_from([-9, -15]), st.integers(min_value=0, max_value=10_000)), max_size=300))
def test_however_often_a_ready_service_is_killed_it_is_started_again_soon(lives: list[tuple[int, int]]) -> None:
    crashes = 0
    for code, ready_ms in lives:
        verdict = judge(crashes, End(code=code, ready_ms=ready_ms), limits=LIMITS, randomness=0.99)
        crashes = verdict.crash_exits
        assert not verdict.give_up
        assert verdict.wait_ms <= LIMITS.backoff_ms_min


@pytest.mark.requirement("up.a-crash-loop-ends")
@given(crashes=st.integers(min_value=0, max_value=5), code=CODES)
def test_the_cap_is_reached_by_that_many_crashes_in_a_row_and_by_no_fewer(crashes: int, code: int) -> None:
    verdict = judge(crashes, End(code=code, ready_ms=None), limits=LIMITS, randomness=0)
    assert verdict.crash_exits == crashes + 1
    assert verdict.give_up == (crashes + 1 >= LIMITS.crash_exits_max)


def test_a_life_that_lasted_forgives_the_crashes_before_it() -> None:
    assert judge(2, End(code=1, ready_ms=SHORT_LIFE_MS), limits=LIMITS, randomness=0).crash_exits == 0


def test_a_short_life_that_was_killed_neither_counts_nor_forgives() -> None:
    assert judge(2, End(code=-signal.SIGKILL, ready_ms=5), limits=LIMITS, randomness=0).crash_exits == 2


@given(
    crashes=st.integers(min_value=0, max_value=10**9),
    randomness=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_a_wait_is_doubled_by_each_crash_jittered_by_half_and_never_over_its_limit(
    crashes: int, randomness: float
) -> None:
    full = min(LIMITS.backoff_ms_max, LIMITS.backoff_ms_min * 2 ** min(max(crashes - 1, 0), 16))
    assert full // 2 <= backoff_ms(crashes, limits=LIMITS, randomness=randomness) <= full


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (End(code=3, ready_ms=None), "exited with 3 before it was ready"),
        (End(code=-9, ready_ms=1500), "was ended by SIGKILL 1.5 s after it was ready"),
        (End(code=-63, ready_ms=0), "was ended by signal 63 0.0 s after it was ready"),
        (End(code=-9, ready_ms=None, timed_out_ms=20_000), "was not ready within 20 s"),
    ],
)
def test_an_end_is_told_in_words(end: End, text: str) -> None:
    assert end.text() == text
