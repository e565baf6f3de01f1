"""Another version is installed while agents are at work: old servers meet new services, and the reverse."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.home import MCP_EDGE, Home
from fencepost.mcp import answers
from fencepost_testing.agents import World
from fencepost_testing.command import Person
from fencepost_testing.processes import SUPPORT, Services, short_home
from fencepost_testing.shim import Shim, environment, running_shim

LIBRARY = Path(fencepost.__file__).resolve().parent
OTHER = "0.0.7"
# What an installation of another version differs in, by file: text and what stands there instead.
VERSION_EDITS = {
    "__init__.py": {f'"{answers.VERSION}"': f'"{OTHER}"'},
    "mcp/answers.py": {f'"{answers.VERSION}"': f'"{OTHER}"', answers.REGISTRY_HASH: "0" * 32},
}
# And one that speaks to the edge in another way.
PROTOCOL_EDITS = {"mcp/link.py": {"PROTOCOL: Final = 1": "PROTOCOL: Final = 2"}}


def installation(folder: Path, edits: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Copy the library with edits; return the variables under which a process uses the copy."""
    shutil.copytree(LIBRARY, folder / "fencepost", ignore=shutil.ignore_patterns("__pycache__"))
    for name, replacements in edits.items():
        file = folder / "fencepost" / name
        text = file.read_text(encoding="utf-8")
        for old, new in replacements.items():
            assert old in text, f"{name} has no {old}"
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    return {"PYTHONPATH": f"{folder}:{SUPPORT}"}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An installation of another version."""
    return installation(tmp_path_factory.mktemp("other"), VERSION_EDITS)


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as found:
        yield found


@asynccontextmanager
async def shim_of(world: World, who: str, installed: Mapping[str, str]) -> AsyncIterator[Shim]:
    known = world.ann if who == "ann" else world.bob
    async with running_shim(env=environment(**world.variables(known), **installed)) as shim:
        yield shim


def result(answer: dict[str, Any]) -> Any:
    assert answer["isError"] is False, answer
    return answer["structuredContent"]


async def greeted_version(shim: Shim) -> str:
    return str((await shim.greet())["serverInfo"]["version"])


async def until_waiting(shim: Shim) -> None:
    async with asyncio.timeout(10):
        for number in itertools.count():
            listed = result(await shim.call("list_agents", identity=f"list {number}"))
            if "waiting" in {agent["status"] for agent in listed["agents"]}:
                return


@pytest.mark.requirement("upgrades.are-invisible-to-calls")
@pytest.mark.parametrize("older", ["shims", "edge"])
async def test_an_edge_of_another_version_takes_over_what_waits_and_what_is_sent(
    fragile_world: World, other: dict[str, str], older: str
) -> None:
    services = fragile_world.services
    shims, first, second = (other, other, {}) if older == "shims" else ({}, {}, other)
    await services.restart(MCP_EDGE, env=first)
    async with shim_of(fragile_world, "ann", shims) as ann, shim_of(fragile_world, "bob", shims) as bob:
        wanted = OTHER if older == "shims" else answers.VERSION
        assert [await greeted_version(shim) for shim in (ann, bob)] == [wanted, wanted]
        bob.begin("wait_agent", {"timeout_ms": 60_000}, identity=1)
        await until_waiting(ann)
        services.signal(MCP_EDGE, signal.SIGTERM)
        # Made while no edge is there.
        ann.begin("send_message", {"target": "bob", "message": "through the upgrade"}, identity=2)
        assert await asyncio.to_thread(services.join, MCP_EDGE) == 0
        await services.start(MCP_EDGE, env=second)
        assert result((await ann.answer(2))["result"])["delivery_state"] == "admitted"
        assert result((await bob.answer(1))["result"])["wake_reason"] == "activity"
        page = result(await bob.call("receive_messages", identity=3))
        assert [message["message"] for message in page["messages"]] == ["through the upgrade"]


def old_program(home: Path, folder: Path, installed: Mapping[str, str]) -> None:
    """A person's configuration whose server is the one of another installation."""
    script = folder / "fencepost-mcp"
    python = f"PYTHONPATH={installed['PYTHONPATH']} exec {sys.executable} -P -m fencepost.mcp.shim"
    script.write_text(f'#!/bin/sh\n{python} "$@"\n', encoding="utf-8")
    script.chmod(0o700)
    entry = {"command": str(script), "args": ["--agent", "old"], "env": {"FENCEPOST_HOME": str(home)}}
    (folder / ".claude.json").write_text(json.dumps({"mcpServers": {"fencepost": entry}}), encoding="utf-8")


@pytest.mark.requirement("doctor.greets-the-edge")
@pytest.mark.parametrize("older", ["edge", "configured server"])
async def test_the_doctor_names_an_edge_and_a_configured_server_of_another_version(
    fragile_world: World, other: dict[str, str], tmp_path: Path, older: str
) -> None:
    services = fragile_world.services
    await services.restart(MCP_EDGE, env=other if older == "edge" else {})
    if older != "edge":
        old_program(services.home.path, tmp_path, other)
    doctor = partial(Person(services=services), "doctor", "--json", env={"HOME": str(tmp_path)})
    found = await asyncio.to_thread(doctor)
    findings = {finding["code"]: finding for finding in json.loads(found.out)["findings"]}
    finding = findings["edge_version" if older == "edge" else "old_shim"]
    assert OTHER in finding["what"]
    assert ("fencepost down" if older == "edge" else "fencepost connect claude") in finding["do"]


@pytest.mark.requirement("upgrades.say-what-to-do")
async def test_a_server_of_another_protocol_is_told_whom_to_start_anew(fragile_world: World, tmp_path: Path) -> None:
    newer = installation(tmp_path, PROTOCOL_EDITS)
    async with shim_of(fragile_world, "ann", newer) as ann:
        await ann.greet()
        refused = await ann.call("send_message", {"target": "bob", "message": "x"})
    assert refused["isError"] is True
    told = refused["structuredContent"]
    assert (told["code"], told["written"]) == ("incompatible_edge", False)
    assert "fencepost down" in told["hint"]


@pytest.mark.timeout(150)
@pytest.mark.requirement("upgrades.are-invisible-to-calls")
async def test_down_and_up_with_another_version_are_invisible_to_calls_under_way(
    home: Home, other: dict[str, str]
) -> None:
    services = Services(home)
    operator = Person(services=services)

    async def command(*words: str, **variables: str) -> None:
        done = await asyncio.to_thread(partial(operator, *words, env=variables))
        assert done.code == 0, done

    await command("up", "--detach", **other)
    try:
        world = await World.create(services, project="upgraded")
        async with shim_of(world, "ann", {}) as ann, shim_of(world, "bob", other) as bob:
            for shim in (ann, bob):
                await shim.greet()
            bob.begin("wait_agent", {"timeout_ms": 60_000}, identity=1)
            await until_waiting(ann)
            await command("down")
            await command("up", "--detach")
            sent = result(await ann.call("send_message", {"target": "bob", "message": "after"}, identity=2))
            assert result((await bob.answer(1))["result"])["wake_reason"] == "activity"
            page = result(await bob.call("receive_messages", identity=3))
            assert [message["interaction_id"] for message in page["messages"]] == [sent["interaction_id"]]
    finally:
        await command("down")
