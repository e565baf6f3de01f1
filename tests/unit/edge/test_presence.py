"""What a listing may say of an agent, and what it may not."""

from __future__ import annotations

import pytest

from fencepost_mcp_edge.domain.presence import Observation, Reading, Status, age_text, presence_of

NOW = 1_700_000_000_000


@pytest.mark.requirement("edge.presence-is-honest")
@pytest.mark.parametrize(
    ("reading", "status", "evidence"),
    [
        (None, "unknown", "could not be learned"),
        (Reading(waiting=False, off=True, last_read_at_ms=NOW), "off", "a person has switched it off"),
        (Reading(waiting=True, off=False, last_read_at_ms=NOW - 9), "waiting", "waits for its mailbox now"),
        (Reading(waiting=True, off=False, last_read_at_ms=0), "waiting", "waits for its mailbox now"),
        (Reading(waiting=False, off=False, last_read_at_ms=0), "never_seen", "never read"),
        (Reading(waiting=False, off=False, last_read_at_ms=NOW - 61_000), "seen", "1 min ago"),
    ],
)
def test_a_status_rests_on_what_the_mailbox_knows(reading: Reading | None, status: str, evidence: str) -> None:
    presence = presence_of(reading, now_ms=NOW)
    assert presence.status.value == status
    assert evidence in presence.evidence


@pytest.mark.requirement("edge.presence-is-observed")
@pytest.mark.parametrize("status", [Status.IDLE, Status.PROCESSING, Status.ACTION_NEEDED, Status.ERROR, Status.OFF])
@pytest.mark.parametrize(
    "reading", [None, Reading(waiting=True, off=False, last_read_at_ms=NOW)], ids=["unread", "waiting"]
)
def test_what_was_observed_of_a_runtime_comes_before_what_the_mailbox_knows(
    reading: Reading | None, status: Status
) -> None:
    seen = Observation(status=status, detail="it asks", at_ms=NOW - 61_000)
    presence = presence_of(reading, now_ms=NOW, observed=seen)
    assert (presence.status, presence.evidence) == (status, "observed 1 min ago: it asks")
    plain = presence_of(reading, now_ms=NOW, observed=Observation(status=status, detail="", at_ms=NOW))
    assert plain.evidence == "observed 0 s ago"


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [(-5, "0 s"), (0, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (3_600_000, "1 h"), (172_800_000, "2 d")],
)
def test_an_age_is_rounded_down_to_its_greatest_unit(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text
