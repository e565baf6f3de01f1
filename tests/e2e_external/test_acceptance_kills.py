"""Processes are killed while the real Codex carries work, and requests race with the ends of its turns.

What was executed is counted where it counts: in Codex's own rollout, and in what its model was told. A request is
executed once at most; its answer is there, or it is uncertain and `fencepost why` says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost.client import Channels
from fencepost.errors import FencepostError, NotWritten
from fencepost.home import MAILBOX, PROVIDERS
from fencepost.mailbox.v1 import mailbox_pb2 as pb
from fencepost.providers.v1 import providers_pb2 as providers_pb
from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
from fencepost_testing.acceptance import ALL, Installed, Stage
from fencepost_testing.acceptance_evidence import Rollout, rollout_at
from fencepost_testing.acceptance_report import Report
from fencepost_testing.acceptance_run import Judged
from fencepost_testing.carried import Carried, until

pytestmark = pytest.mark.timeout(900)

RACES: Final = 20
STEP_S: Final = 0.001
COMMITS_MAX: Final = 40
SETTLED_S_MAX: Final = 90.0
# Long enough that a kill from outside comes in between.
STALL: Final = "delay_ms:1500"
# Work that is answered by a call of `reply`; where that is not written, by the same words at the end.
REPLYING: Final = {
    "when": r"explicitly (number \d+)",
    "steps": [
        [["CALL", 'reply {"request_id":"<asked>","status":"done","message":"<match:1>"}']],
        [["SAY", "<match:1>"]],
    ],
}
CARRIER: Final = (
    "providers.intent.written",
    "providers.submit.returned",
    "providers.outcome.stored",
    "providers.mailbox.told",
    "providers.turn.ended",
    "providers.turn.recorded",
)
SERVER: Final = {
    "providers.intent.written": "claimed",
    "providers.submit.returned": "",
    "providers.outcome.stored": "",
    "providers.turn.ended": "",
    "providers.turn.recorded": "accepted",
}


class Killed(Carried):
    """A home with one agent in the real Codex, whose services are those of the wheel."""

    stage: Stage
    services: Installed

    async def rollout(self) -> Rollout:
        runtime = await self.ready("worker")
        return rollout_at(Path(runtime.private_home, "sessions"), runtime.conversation_id)

    def told(self, record_id: str, thread: str) -> int:
        """How often the model was told of a record, as far as it knows by now."""
        asked = [one for one in self.stage.asked() if one["thread"] == thread]
        return sum(one["record"] == record_id for one in asked[-1]["history"]) if asked else 0

    async def judged(self, request_id: str, said: str, revive: Callable[[], Any] | None = None) -> str:
        """Wait until a request is answered or uncertain, and hold what is promised of it; returns which."""

        async def settled() -> pb.ExplainResponse | None:
            if revive is not None:
                await revive()
            found = await self.explain(request_id)
            uncertain = found.record.delivery_state == pb.DELIVERY_STATE_UNCERTAIN
            lost = found.binding.state == pb.BINDING_STATE_UNCERTAIN
            return found if found.reply_id or uncertain or lost else None

        try:
            found = await until(settled, f"{request_id} being answered or uncertain", within_s=SETTLED_S_MAX)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.facts(request_id)}\n{self.stage.logs()}") from None
        executed = (await self.rollout()).executions(request_id)
        assert executed <= 1, f"executed {executed} times"
        if not found.reply_id:
            why = await asyncio.to_thread(self.stage.why, request_id)
            assert "uncertain" in [fact["fact"] for fact in why["facts"]], why
            assert "ncertain" in why["summary"] or "not known" in why["summary"], why["summary"]
            return "uncertain"
        reply = (await self.mailbox.get_record(found.reply_id)).record
        assert reply.body == said, reply
        assert reply.origin in {pb.ORIGIN_AUTOMATIC, pb.ORIGIN_AGENT}, reply
        assert executed == 1, "answered, and not executed"
        return "answered"

    async def goes_on(self, *earlier: str, thread: str) -> None:
        """Hold that later work is carried in the same conversation, which was told of earlier work once at most."""
        later = await self.request("worker", "SAY later")
        assert (await self.answered(later)).body == "later"
        rollout = await self.rollout()
        assert rollout.thread == thread
        for record_id in (*earlier, later):
            counts = rollout.executions(record_id), self.told(record_id, thread)
            assert max(counts) <= 1, f"{record_id} was executed more than once: {counts}"

    async def asked_for(self, body: str, revive: Callable[[], Any]) -> str:
        """Ask until there is a receipt, whatever dies meanwhile; under one key as long as it may have been taken."""
        key = f"acceptance-{uuid.uuid4().hex}"

        async def receipt() -> str:
            nonlocal key
            await revive()
            try:
                async with self.acting("sender") as client:
                    return str((await client.request("worker", body, key=key)).request_id)
            except FencepostError as error:
                if isinstance(error, NotWritten) or error.reason == "key_cancelled":
                    key = f"acceptance-{uuid.uuid4().hex}"
                raise

        return str(await until(receipt, "a receipt", within_s=SETTLED_S_MAX))


@pytest.fixture(scope="module")
def stage(judged: Judged) -> Iterator[Stage]:
    if judged.said is not None:
        pytest.skip("it takes a model that holds until it is let go")
    with judged.stage() as made:
        made.play(REPLYING)
        yield made


@pytest.fixture(scope="module")
def services(stage: Stage) -> Iterator[Installed]:
    python = stage.scripts / "python"
    running = Installed(stage.home, python=python, inside=stage.inside, environment=stage.environment)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
async def killed(stage: Stage, services: Installed) -> AsyncIterator[Killed]:
    """A fresh worker in the home of this file, and every service running with nothing armed."""
    for name in ALL:
        if not services.is_alive(name):
            await services.start(name)
    async with Channels(stage.home) as channels:
        made = Killed(services, channels)
        made.stage = stage
        await made.start(f"work-{uuid.uuid4().hex[:8]}")
        await made.create("worker", provider="codex")
        await made.ready("worker")
        yield made
        if not services.is_alive(PROVIDERS):
            await services.start(PROVIDERS)
        await made.want("worker", sessions_pb.DESIRED_STATE_OFF)


@pytest.mark.requirement("acceptance.kills")
@pytest.mark.parametrize("point", CARRIER)
async def test_a_killed_carrier_executes_nothing_twice_and_hides_nothing(
    killed: Killed, acceptance: Report, point: str
) -> None:
    before = await killed.ready("worker")
    await killed.services.restart(PROVIDERS, env={"FENCEPOST_FAULTS": f"{point}=kill"})
    await killed.ready("worker", after_generation=before.generation)
    asked = await killed.request("worker", "SAY once")
    assert await asyncio.to_thread(killed.services.join, PROVIDERS) == -signal.SIGKILL
    await killed.services.start(PROVIDERS)
    came = await killed.judged(asked, "once")
    await killed.goes_on(asked, thread=before.conversation_id)
    assert came == ("answered" if point == "providers.turn.recorded" else "uncertain")
    acceptance.add(f"carrier killed at {point}", request=asked, came_to=came)


@pytest.mark.requirement("acceptance.kills")
@pytest.mark.parametrize("point", SERVER)
async def test_a_killed_app_server_executes_nothing_twice_and_hides_nothing(
    killed: Killed, acceptance: Report, point: str
) -> None:
    first = await killed.ready("worker")
    await killed.services.restart(PROVIDERS, env={"FENCEPOST_FAULTS": f"{point}={STALL}"})
    before = await killed.ready("worker", after_generation=first.generation)
    asked = await killed.request("worker", "SAY once")

    async def reached() -> bool:
        if fact := SERVER[point]:
            return fact in await killed.facts(asked)
        return killed.told(asked, before.conversation_id) > 0

    await until(reached, "the point being reached")
    os.kill(before.pid, signal.SIGKILL)
    came = await killed.judged(asked, "once")
    await killed.goes_on(asked, thread=before.conversation_id)
    acceptance.add(f"app-server killed at {point}", request=asked, came_to=came)
    await killed.services.restart(PROVIDERS)


@pytest.mark.requirement("acceptance.kills")
async def test_an_app_server_killed_in_mid_turn_leaves_its_request_uncertain(
    killed: Killed, acceptance: Report
) -> None:
    before = await killed.ready("worker")
    tag = f"mid-turn-{uuid.uuid4().hex}"
    asked = await killed.request("worker", f"HOLD {tag}\nSAY once")
    await killed.delivered(asked, pb.DELIVERY_STATE_ACCEPTED)
    os.kill(before.pid, signal.SIGKILL)
    assert await killed.judged(asked, "once") == "uncertain"
    # Codex keeps what the broken turn was asked, and shows it to the model again in the next: nobody asks it anew.
    killed.stage.release(tag)
    await killed.goes_on(asked, thread=before.conversation_id)
    acceptance.add("app-server killed in mid-turn", request=asked, came_to="uncertain")


@pytest.mark.requirement("acceptance.kills")
@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("mailbox.commit.before", "SAY number"),
        ("mailbox.commit.after", "SAY number"),
        ("mailbox.commit.before", "explicitly number"),
        ("mailbox.commit.after", "explicitly number"),
        ("mailbox.outcome.recorded", "SAY number"),
    ],
)
async def test_a_mailbox_killed_at_each_commit_of_a_request_loses_no_answer(
    killed: Killed, acceptance: Report, point: str, said: str
) -> None:
    words = ("agent", "tools", killed.ids["worker"], "--approve", "reply")
    await asyncio.to_thread(killed.stage.told, *words)
    await killed.providers.restart_runtime(providers_pb.RestartRuntimeRequest(agent_id=killed.ids["worker"]))
    thread = (await killed.ready("worker")).conversation_id
    came: list[str] = []
    asked: list[str] = []
    for turn in range(1, COMMITS_MAX):
        killed.services.kill(MAILBOX)
        # Not waited for: its first commits come before it is ready.
        killed.services.spawn(MAILBOX, env={"FENCEPOST_FAULTS": f"{point}=kill@{turn}"})
        died = False

        async def revive() -> None:
            nonlocal died
            if not killed.services.is_alive(MAILBOX):
                died = True
                await killed.services.start(MAILBOX)

        request_id = await killed.asked_for(f"{said} {turn}", revive)
        asked.append(request_id)
        came.append(await killed.judged(request_id, f"number {turn}", revive))
        if not died:
            break
    else:
        pytest.fail(f"a request takes {COMMITS_MAX} commits")
    await killed.services.restart(MAILBOX)
    assert len(came) > 1, "the point was never reached"
    # Nothing but the mailbox died: what it was not told was kept for it.
    assert set(came) == {"answered"}
    await killed.goes_on(*asked, thread=thread)
    acceptance.add(f"mailbox killed at {point}, {said}", kills=len(came) - 1, came_to=came)


@pytest.mark.requirement("acceptance.races")
async def test_requests_that_race_with_a_turns_end_are_in_it_or_delivered_later(
    killed: Killed, acceptance: Report
) -> None:
    thread = (await killed.ready("worker")).conversation_id
    joined = released = 0
    asked: list[str] = []
    for number in range(RACES):
        tag = f"race-{uuid.uuid4().hex}"
        first = await killed.request("worker", f"HOLD {tag}\nSAY quick {number}")
        await killed.delivered(first, pb.DELIVERY_STATE_ACCEPTED)
        killed.stage.release(tag)
        await asyncio.sleep(STEP_S * number)
        second = await killed.request("worker", f"SAY raced {number}")
        asked += [first, second]
        answers = [(await killed.answered(one)).body for one in (first, second)]
        one, two = [(await killed.explain(record)).binding for record in (first, second)]
        shared = one.provider_turn_id == two.provider_turn_id
        joined += shared
        released += "released" in await killed.facts(second)
        assert answers == ([f"raced {number}"] * 2 if shared else [f"quick {number}", f"raced {number}"])
        turn = (await killed.rollout()).turns[two.provider_turn_id]
        assert turn.records == ([first, second] if shared else [second])
    await killed.goes_on(*asked, thread=thread)
    print(f"\n{joined} of {RACES} joined the turn, {RACES - joined} came later, {released} were given back in between")
    acceptance.add("races", requests=RACES, joined=joined, later=RACES - joined, given_back_in_between=released)
