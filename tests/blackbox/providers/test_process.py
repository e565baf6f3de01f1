"""The process itself: how it starts, what it says of itself, what a kill leaves."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any, Final

import pytest

from fencepost.home import PROVIDERS
from fencepost_testing.carried import Carried
from fencepost_testing.processes import environment

HEARD_S_MAX: Final = 60
LOOK = """
import os, sys
class Look:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
            sys.meta_path.remove(self)
sys.meta_path.insert(0, Look())
import fencepost_providers.__main__
"""


@pytest.mark.requirement("providers.starting-a-program-harms-nobody")
def test_grpc_is_told_to_install_no_fork_handlers_before_it_is_imported(shared_services: object) -> None:
    home = shared_services.home  # type: ignore[attr-defined]
    told = subprocess.run(
        [sys.executable, "-c", LOOK], env=environment(home), capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout == "0\n"


@pytest.mark.requirement("providers.a-start-counts")
async def test_the_dispatcher_stays_the_same_and_its_incarnation_grows_with_each_start(fragile: Carried) -> None:
    before = await fragile.providers.describe()
    await fragile.services.restart(PROVIDERS)
    after = await fragile.providers.describe()
    assert (after.dispatcher_id, after.incarnation) == (before.dispatcher_id, before.incarnation + 1)


async def test_a_stop_joins_every_program_and_tells_that_it_is_off(fragile: Carried) -> None:
    from fencepost.sessions.v1 import sessions_pb2 as sessions_pb
    from fencepost_testing.compose import is_alive

    agent_id = await fragile.create("worker")
    found = await fragile.ready("worker")
    assert fragile.services.stop(PROVIDERS) == 0
    assert not is_alive(found.pid)
    assert (await fragile.status("worker")).state == sessions_pb.OBSERVED_STATE_OFF
    assert not (await fragile.sessions.list_leases(agent_id)).leases
    await fragile.services.start(PROVIDERS)
    again = await fragile.ready("worker", after_generation=found.generation)
    assert again.conversation_id == found.conversation_id


@pytest.mark.requirement("cli.watching-rides-out-a-restart")
async def test_a_person_who_watches_sees_the_conversation_go_on_over_a_kill(fragile: Carried) -> None:
    await fragile.create("worker")
    await fragile.answered(await fragile.request("worker", "SAY one"))
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "fencepost", "agent", "watch", "worker", "--after", "0", "--json"),
        env=environment(fragile.services.home),
        stdout=asyncio.subprocess.PIPE,
    )
    rows: list[dict[str, Any]] = []

    async def heard(text: str) -> None:
        assert watching.stdout is not None
        async with asyncio.timeout(HEARD_S_MAX):
            while (line := await watching.stdout.readline()) and rows.append(json.loads(line)) is None:
                if (rows[-1]["kind"], rows[-1]["text"]) == ("assistant", text):
                    return
        pytest.fail(f"the watch ended before {text!r}")

    try:
        await heard("one")
        await fragile.services.restart(PROVIDERS)
        await fragile.answered(await fragile.request("worker", "SAY two"))
        await heard("two")
    finally:
        watching.terminate()
        await watching.wait()
    positions = [row["position"] for row in rows]
    assert positions == sorted(set(positions))
    assert len({row["generation"] for row in rows}) == 2
