"""What a lease, a conversation and a report mean, at both sides of every moment and number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_sessions.domain.agents import Agent, AgentState
from fencepost_sessions.domain.conversations import bound
from fencepost_sessions.domain.launch import Desired, LaunchSettings
from fencepost_sessions.domain.leases import (
    Lease,
    LeaseEnd,
    LeaseKind,
    Moment,
    acquired,
    held,
    lease_wanted,
    renewed,
    stands,
)
from fencepost_sessions.domain.refusals import ConversationConflict, LeaseHeld, LeaseLost, StaleStatus
from fencepost_sessions.domain.roles import Role
from fencepost_sessions.domain.status import RUNNING, Evidence, Observed, Status, check_newer, is_same_report, seen
from fencepost_sessions.usecases.answers import agent_of_words, words_of_agent
from fencepost_sessions.usecases.lease_time import LeaseTime
from fencepost_testing.clock import VirtualClock

AGENT = Agent(
    agent_id=b"a" * 16,
    project_id=b"p" * 16,
    name="ann",
    name_key="ann",
    role=Role.AGENT,
    provider="",
    workspace="",
    generation=4,
    created_at_ms=0,
    revision=1,
    conversation_id="talk",
)
LEASE = Lease(
    agent_id=AGENT.agent_id,
    acquisition_id=b"q" * 16,
    conversation_id="talk",
    kind=LeaseKind.BACKGROUND,
    holder="somebody",
    generation=4,
    fence=7,
    term_ms=1000,
    expires_at_ms=2000,
    acquired_at_ms=5,
)
STATUS = Status(
    state=Observed.IDLE,
    evidence=Evidence.PROCESS,
    detail="",
    turn_id="t",
    observed_at_ms=1000,
    generation=4,
    sequence=3,
    acquisition_id=LEASE.acquisition_id,
)
ENDS = [end for end in LeaseEnd if end is not LeaseEnd.NOT_ENDED]


def at(running_ms: int, *, unix_ms: int = 0) -> Moment:
    return Moment(unix_ms=unix_ms or running_ms, running_ms=running_ms)


@pytest.mark.requirement("sessions.one-lease-stands")
def test_a_lease_stands_until_the_millisecond_of_its_expiry_unless_it_has_ended() -> None:
    assert stands(LEASE, at(1999))
    assert not stands(LEASE, at(2000))
    assert not stands(None, at(0))
    assert not any(stands(replace(LEASE, end=end), at(0)) for end in ENDS)


@pytest.mark.requirement("sessions.one-lease-stands")
def test_a_new_lease_is_taken_only_where_none_stands_and_gets_the_next_fence() -> None:
    wanted = lease_wanted(kind=3, holder="me", term_ms=0)
    with pytest.raises(LeaseHeld):
        acquired(AGENT, LEASE, wanted, acquisition_id=b"n" * 16, moment=at(1999))
    taken = acquired(AGENT, LEASE, wanted, acquisition_id=b"n" * 16, moment=at(2000, unix_ms=9))
    assert (taken.fence, taken.generation, taken.conversation_id) == (8, 4, "talk")
    assert (taken.expires_at_ms, taken.acquired_at_ms) == (32_000, 9)
    assert acquired(AGENT, None, wanted, acquisition_id=b"n" * 16, moment=at(0)).fence == 1


@pytest.mark.requirement("sessions.lost-leases-stay-lost")
def test_a_lease_that_does_not_stand_is_lost_and_the_text_says_how() -> None:
    assert held(LEASE, LEASE.acquisition_id, at(1999)) is LEASE
    cases = {
        "has expired": (LEASE, at(2000)),
        "was released": (replace(LEASE, end=LeaseEnd.RELEASED), at(0)),
        "being deleted": (replace(LEASE, end=LeaseEnd.DELETED), at(0)),
        "taken its place": (replace(LEASE, acquisition_id=b"n" * 16), at(0)),
        "never taken": (None, at(0)),
    }
    for words, (lease, moment) in cases.items():
        with pytest.raises(LeaseLost, match=words):
            held(lease, LEASE.acquisition_id, moment)


def test_a_renewal_counts_from_now() -> None:
    assert renewed(LEASE, None, at(1500)).expires_at_ms == 2500
    assert renewed(LEASE, LeaseKind.INTERACTIVE, at(1500)).kind is LeaseKind.INTERACTIVE


@pytest.mark.requirement("sessions.lease-time-runs-with-sessions")
async def test_the_time_of_leases_follows_the_monotonic_clock_whatever_the_wall_does() -> None:
    clock = VirtualClock(now_ms=1_000_000)
    time = LeaseTime(clock)
    first = time.moment()
    clock.step_wall(-900_000)
    await clock.advance(0.25)
    later = time.moment()
    assert later.running_ms - first.running_ms == 250
    assert later.unix_of(later.running_ms) == later.unix_ms == 100_250


@pytest.mark.requirement("sessions.conversations-are-bound-once")
def test_a_conversation_is_left_only_on_purpose_and_never_taken_from_another() -> None:
    assert bound(AGENT, "talk", replacing=False, other=AGENT) is AGENT
    assert bound(AGENT, "new", replacing=True, other=None).conversation_id == "new"
    assert bound(AGENT, "", replacing=False, other=None).conversation_id == ""
    with pytest.raises(ConversationConflict):
        bound(AGENT, "new", replacing=False, other=None)
    with pytest.raises(ConversationConflict):
        bound(AGENT, "new", replacing=True, other=replace(AGENT, agent_id=b"b" * 16))


@pytest.mark.requirement("sessions.reports-have-an-order")
@given(st.tuples(st.integers(1, 3), st.integers(1, 3)), st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_a_report_takes_the_place_of_an_older_one_only(stands_at: tuple[int, int], comes: tuple[int, int]) -> None:
    stored = replace(STATUS, generation=stands_at[0], sequence=stands_at[1])
    report = replace(STATUS, generation=comes[0], sequence=comes[1], acquisition_id=b"")
    assert is_same_report(stored, report) is (stands_at == comes)
    if comes > stands_at:
        check_newer(stored, report)
    else:
        with pytest.raises(StaleStatus):
            check_newer(stored, report)
    check_newer(None, report)


@pytest.mark.requirement("sessions.status-claims-no-more-than-is-known")
@given(
    st.sampled_from(Observed),
    st.one_of(
        st.none(),
        st.builds(
            lambda end, same, expires: replace(
                LEASE, end=end, acquisition_id=LEASE.acquisition_id if same else b"n" * 16, expires_at_ms=expires
            ),
            st.sampled_from(LeaseEnd),
            st.booleans(),
            st.integers(1999, 2001),
        ),
    ),
)
def test_a_running_state_is_shown_only_under_the_standing_lease_of_its_report(
    state: Observed, lease: Lease | None
) -> None:
    report = replace(STATUS, state=state)
    shown = seen(report, lease, at(2000, unix_ms=4500))
    assert shown is not None
    mine = lease is not None and lease.acquisition_id == report.acquisition_id
    if state not in RUNNING or (mine and stands(lease, at(2000))):
        assert shown is report
    else:
        let_go = mine and lease is not None and lease.end is LeaseEnd.RELEASED
        assert shown.state is (Observed.OFF if let_go else Observed.ERROR)
        assert (shown.turn_id, "3 s ago" in shown.detail) == ("", True)
        assert (shown.observed_at_ms, shown.sequence) == (report.observed_at_ms, report.sequence)


def test_nothing_is_shown_of_an_agent_of_which_nothing_was_reported() -> None:
    assert seen(None, LEASE, at(0)) is None


@pytest.mark.requirement("sessions.keys-have-one-answer")
def test_an_answer_that_an_older_version_kept_is_read_as_it_was_meant() -> None:
    full = replace(AGENT, desired=Desired.ON, launch=LaunchSettings(model="m", include_directories=("/a",)))
    assert agent_of_words(words_of_agent(full)) == full
    words = words_of_agent(replace(AGENT, conversation_id=""))
    for name in ("state", "desired", "launch", "conversation_id"):
        words.pop(name)
    assert agent_of_words(words) == replace(AGENT, conversation_id="", state=AgentState.ACTIVE)
