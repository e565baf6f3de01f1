"""A home whose path is too long for sockets, under the real supervisor, found by clients of another environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import up
from fencepost.home import SERVICES, Home, read_address
from fencepost_testing.compose import Up, until
from fencepost_testing.processes import Services, create_agents, environment, long_home_and_runtime
from fencepost_testing.shim import running_shim

START_S_MAX = 60.0


@pytest.mark.timeout(150)
@pytest.mark.requirement("home.a-long-path-gets-a-short-folder")
async def test_services_of_a_home_with_a_long_path_are_found_by_programs_that_know_no_runtime_folder() -> None:
    with long_home_and_runtime() as (home, runtime):
        compose = Up(home)
        try:
            supervisor = compose.spawn(env={"XDG_RUNTIME_DIR": str(runtime)}, table=up.TABLE)
            until(lambda: up.status(home).overall is up.Overall.READY, "readiness", timeout_s=START_S_MAX)
            published = {read_address(home.address(name)) for name in (*SERVICES, "edge")}
            assert {Path(str(one).removeprefix("unix:")).parent.parent for one in published} == {runtime / "fencepost"}
            agents = await create_agents(Services(home), "Ada")
            elsewhere = {"XDG_RUNTIME_DIR": "", "TMPDIR": "/nowhere"}
            identity = {"FENCEPOST_SESSION_ID": agents["Ada"].agent_id}
            await _receives_nothing(home, {**elsewhere, **identity})
            code, output = compose.end(supervisor)
            assert code == 0, output
            assert [path for path in runtime.rglob("*") if not path.is_dir()] == []
        finally:
            compose.close()


async def _receives_nothing(home: Home, env: dict[str, str]) -> None:
    async with running_shim(env=environment(home, env)) as shim:
        await shim.greet()
        answer = await shim.call("receive_messages", {})
        assert not answer.get("isError"), answer
