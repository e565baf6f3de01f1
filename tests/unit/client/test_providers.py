"""What a call to providers can end in, and that only a refusal that allows it is answered by a second call."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from fencepost import Refused, Uncertain
from fencepost.client import Budgets, Channels, Providers
from fencepost.home import Home
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost_testing.fake_mailbox import TOKEN, fail, refuse
from fencepost_testing.fake_providers import FakeProviders

ASK = pb.InterruptTurnRequest(target="u-bob")
NOT_YET = refuse("dependency_unavailable", grpc.StatusCode.UNAVAILABLE, may_resend=True)


@pytest.fixture
async def programs(home: Home) -> AsyncIterator[FakeProviders]:
    served = FakeProviders(home)
    await served.start()
    yield served
    await served.stop()


@pytest.mark.requirement("client.may-resend-is-resent-with-the-same-key")
async def test_a_refusal_that_says_that_it_may_be_sent_again_is_sent_again(
    programs: FakeProviders, channels: Channels
) -> None:
    programs.scripts.extend([NOT_YET, NOT_YET])
    programs.answer = pb.InterruptTurnResponse(interruption=pb.INTERRUPTION_CONFIRMED)
    answer = await Providers(channels, TOKEN).interrupt_turn(ASK)
    assert answer.interruption == pb.INTERRUPTION_CONFIRMED
    assert programs.asked == [ASK] * 3


@pytest.mark.requirement("client.may-resend-is-resent-with-the-same-key")
async def test_a_service_that_stays_unready_is_refused_once_the_budget_is_spent(
    programs: FakeProviders, channels: Channels
) -> None:
    programs.scripts.extend([NOT_YET] * 99)
    with pytest.raises(Refused) as caught:
        await Providers(channels, TOKEN, budgets=Budgets(ready_ms=300)).interrupt_turn(ASK)
    assert caught.value.reason == "dependency_unavailable"
    assert len(programs.asked) > 1


async def test_a_final_refusal_and_a_lost_answer_are_told_at_once(programs: FakeProviders, channels: Channels) -> None:
    programs.scripts.extend([refuse("not_found", grpc.StatusCode.NOT_FOUND), fail(grpc.StatusCode.INTERNAL)])
    face = Providers(channels, TOKEN)
    with pytest.raises(Refused):
        await face.interrupt_turn(ASK)
    with pytest.raises(Uncertain):
        await face.interrupt_turn(ASK)
    assert programs.asked == [ASK] * 2
