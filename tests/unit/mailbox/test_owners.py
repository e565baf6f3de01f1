"""Who carries for whom right now, who looks at a mailbox, and how long a chain of requests becomes."""

from __future__ import annotations

import itertools

import pytest

from fencepost_mailbox.domain.hops import check_hops
from fencepost_mailbox.domain.readership import reader_of
from fencepost_mailbox.domain.refusals import HopLimit, InvalidLimit, InvalidState, StaleIncarnation
from fencepost_mailbox.domain.values import HOPS_MAX, OWNERS_MAX, Desired, Reader
from fencepost_mailbox.owners import Owners
from fencepost_testing.mailboxes import id16

D1, D2, ANN, BOB = (id16(name) for name in ("d1", "d2", "ann", "bob"))


@pytest.mark.requirement("mailbox.a-reader-is-who-looks-now")
def test_what_a_dispatcher_tells_replaces_what_it_told_and_ends_with_its_last_stream() -> None:
    owners = Owners()
    with owners.watching(D1):
        with owners.watching(D1):
            owners.report(D1, 1, {ANN: 2, BOB: 1}, newest=1)
            assert (owners.generation(ANN), owners.generation(BOB)) == (2, 1)
            owners.report(D1, 1, {BOB: 3}, newest=1)
            assert (owners.generation(ANN), owners.generation(BOB)) == (0, 3)
        assert owners.generation(BOB) == 3, "another stream of it is open"
    assert owners.generation(BOB) == 0
    with owners.watching(D1):
        assert owners.generation(BOB) == 0, "it tells anew"


@pytest.mark.requirement("mailbox.a-reader-is-who-looks-now")
def test_two_dispatchers_do_not_end_each_other() -> None:
    owners = Owners()
    with owners.watching(D1):
        with owners.watching(D2):
            owners.report(D1, 1, {ANN: 2}, newest=1)
            owners.report(D2, 1, {ANN: 3, BOB: 1}, newest=1)
            assert (owners.generation(ANN), owners.generation(BOB)) == (3, 1)
        assert (owners.generation(ANN), owners.generation(BOB)) == (2, 0)


@pytest.mark.requirement("mailbox.a-later-incarnation-fences-the-earlier")
def test_an_earlier_start_of_a_dispatcher_tells_nothing() -> None:
    owners = Owners()
    with owners.watching(D1):
        with pytest.raises(StaleIncarnation):
            owners.report(D1, 1, {ANN: 1}, newest=2)
        owners.report(D1, 3, {ANN: 1}, newest=2)
        with pytest.raises(StaleIncarnation):
            owners.report(D1, 2, {BOB: 1}, newest=2)
        with pytest.raises(InvalidLimit):
            owners.report(D1, 0, {}, newest=0)
        assert (owners.generation(ANN), owners.generation(BOB)) == (1, 0)


def test_a_report_without_a_stream_is_refused_and_one_has_a_limit() -> None:
    owners = Owners()
    with pytest.raises(InvalidState):
        owners.report(D1, 1, {ANN: 1}, newest=1)
    with owners.watching(None), pytest.raises(InvalidState):
        owners.report(D1, 1, {ANN: 1}, newest=1)
    assert owners.generation(ANN) == 0
    many = {n.to_bytes(16, "big"): 1 for n in range(OWNERS_MAX + 1)}
    with owners.watching(D1):
        with pytest.raises(InvalidLimit):
            owners.report(D1, 1, many, newest=1)
        many.popitem()
        owners.report(D1, 1, many, newest=1)


@pytest.mark.requirement("mailbox.a-reader-is-who-looks-now")
def test_a_persons_off_stands_over_an_owner_and_an_owner_over_having_read() -> None:
    for desired, owned, seen in itertools.product(Desired, (False, True), (False, True)):
        if desired is Desired.OFF:
            expected = Reader.OFF
        elif owned and desired is not Desired.PAUSED:
            expected = Reader.NATIVE
        else:
            expected = Reader.MANUAL if seen else Reader.NONE
        assert reader_of(desired=desired, owned=owned, seen=seen) is expected


@pytest.mark.requirement("mailbox.chains-of-requests-end")
def test_a_chain_of_requests_holds_at_its_limit() -> None:
    assert check_hops(-1) == 0
    assert check_hops(0) == 1
    assert check_hops(HOPS_MAX - 1) == HOPS_MAX
    with pytest.raises(HopLimit) as refused:
        check_hops(HOPS_MAX)
    assert refused.value.state == {"hops": str(HOPS_MAX + 1), "hops_max": str(HOPS_MAX)}
    assert refused.value.hint
