"""`fencepost tunnel` over a real sshd on loopback: messages both ways, losses, ends of every kind, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencepost_testing.command import People, Person
from fencepost_testing.shim import Shim, running_shim
from fencepost_testing.sshd import ALIAS, Remote, running_sshd

WAIT_S_MAX = 30.0
POLL_S = 0.02


class Tunnel:
    """A running tunnel, as its --json tells of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def event(self, what: str) -> dict[str, Any]:
        """Return the next event of a kind; what is told before it is passed over."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S_MAX):
            while line := await self.process.stdout.readline():
                found: dict[str, Any] = json.loads(line)
                if found["event"] == what:
                    return found
        raise AssertionError(f"the tunnel ended before {what}")

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S_MAX):
            return await self.process.wait()


@asynccontextmanager
async def tunnel(operator: Person, remote: Remote, *arguments: str) -> AsyncIterator[Tunnel]:
    command = ("tunnel", ALIAS, "--ssh-config", str(remote.client), "--remote-home", str(remote.home), *arguments)
    words = operator.words(*command, "--json")
    process = await asyncio.create_subprocess_exec(
        *words, env=operator.environment(), cwd=operator.services.home.path.parent, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Tunnel(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def refused(operator: Person, remote: Remote, *arguments: str) -> dict[str, Any]:
    """The error of a tunnel that is not opened."""
    options = ("--ssh-config", str(remote.client), "--remote-home", str(remote.home))
    done = operator("tunnel", ALIAS, *options, *arguments, "--json")
    assert done.code != 0
    return done.error


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():  # noqa: ASYNC110 (what other processes do sets no event)
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def far_shim(stands: dict[str, Any]) -> AsyncIterator[Shim]:
    """The server that the tunnel's configuration names, started as an agent program over there would start it."""
    server = stands["agents"][0]["mcp"]["mcpServers"]["fencepost"]
    env = {**server["env"], "PATH": "/usr/bin:/bin"}
    async with running_shim(env=env, program=(server["command"], *server["args"])) as shim:
        assert (await shim.greet())["serverInfo"]["name"] == "fencepost-ssh"
        yield shim


def told(result: dict[str, Any]) -> dict[str, Any]:
    assert not result.get("isError"), result
    found: dict[str, Any] = result["structuredContent"]
    return found


def left(remote: Remote) -> list[str]:
    """Every file of the folder over there but the shim's and the tunnel's own two."""
    own = {"tunnel.json", "tunnel.lock"}
    return sorted(
        str(path.relative_to(remote.home))
        for path in remote.home.rglob("*")
        if not path.is_dir() and not path.is_relative_to(remote.home / "shim") and path.name not in own
    )


@pytest.mark.requirement("tunnel.an-agent-elsewhere-takes-part")
@pytest.mark.requirement("tunnel.only-the-edge-and-the-named-agents")
@pytest.mark.requirement("tunnel.nothing-is-left-behind")
@pytest.mark.requirement("tunnel.the-shim-needs-python-alone")
@pytest.mark.requirement("tunnel.a-lost-connection-is-replaced")
async def test_messages_go_both_ways_a_lost_connection_is_replaced_and_the_end_leaves_nothing(
    people: People, remote: Remote
) -> None:
    async with tunnel(people.operator, remote, "--agent", "ada", "--install-shim") as far:
        stands = await far.event("stands")
        (socket,) = (remote.home / "run").glob("edge-*.sock")
        credential = remote.home / "agents" / people.ada.agent_id / "credential"
        expected = [credential, socket, remote.home / "run" / "edge.addr"]
        assert left(remote) == [str(path.relative_to(remote.home)) for path in expected]
        assert [stat.S_IMODE(path.lstat().st_mode) for path in (remote.home, remote.home / "run", socket)] == [
            0o700,
            0o700,
            0o600,
        ]
        assert stat.S_IMODE(credential.stat().st_mode) == 0o600
        async with far_shim(stands) as ada:
            told(await ada.call("send_message", {"target": "bob", "message": "from afar"}, identity=1))
            assert [one["body"] for one in people.bob("message", "receive", "--json").document["records"]] == [
                "from afar"
            ]
            people.bob("message", "send", "ada", "from here")
            page = told(await ada.call("receive_messages", {"timeout_ms": 5000}, identity=2))
            assert [one["message"] for one in page["messages"]] == ["from here"]
            os.kill(stands["ssh_pid"], signal.SIGKILL)
            again = await far.event("stands")
            assert again["ssh_pid"] != stands["ssh_pid"]
            people.bob("message", "send", "ada", "still here")
            page = told(await ada.call("receive_messages", {"cursor": page["next_cursor"]}, identity=3))
            assert [one["message"] for one in page["messages"]] == ["still here"]
        far.process.send_signal(signal.SIGINT)
        assert (await far.event("ended"))["cleared"] is True
        assert await far.ended() == 0
    assert left(remote) == []
    await until(lambda: not remote.processes())


@pytest.mark.requirement("tunnel.nothing-is-left-behind")
async def test_a_tunnel_that_is_killed_leaves_nothing_either(people: People, remote: Remote) -> None:
    async with tunnel(people.operator, remote, "--agent", "ada", "--agent", "bob") as far:
        await far.event("stands")
        assert len(left(remote)) == 4
        far.process.kill()
        await far.ended()
        await until(lambda: not left(remote) and not remote.processes())


@pytest.mark.requirement("tunnel.nothing-is-left-behind")
async def test_at_the_end_a_copied_credential_can_be_made_worthless_or_kept(people: People, remote: Remote) -> None:
    before = people.operator("agent", "show", "bob", "--json").document["agent"]["generation"]
    async with tunnel(people.operator, remote, "--agent", "bob", "--at-end", "renew") as far:
        await far.event("stands")
        far.process.terminate()
        assert (await far.event("renewed"))["generation"] == before + 1
        assert await far.ended() == 0
    async with tunnel(people.operator, remote, "--agent", "bob", "--at-end", "keep") as far:
        await far.event("stands")
        far.process.terminate()
        assert await far.ended() == 0
    assert left(remote) == [f"agents/{people.bob.agent_id}/credential"]
    async with tunnel(people.operator, remote, "--agent", "bob") as far:
        await far.event("stands")
        taken = refused(people.operator, remote, "--agent", "ada")
        assert taken["code"] == "remote_home_in_use"
        far.process.terminate()
        assert await far.ended() == 0
    assert left(remote) == []


@pytest.mark.requirement("tunnel.nothing-is-left-behind")
async def test_an_interrupt_that_ssh_hears_as_well_ends_in_order(people: People, remote: Remote) -> None:
    # With --ask both share the terminal, and so the group to which Ctrl-C goes.
    async with tunnel(people.operator, remote, "--agent", "ada", "--ask") as far:
        stands = await far.event("stands")
        os.kill(stands["ssh_pid"], signal.SIGINT)
        far.process.send_signal(signal.SIGINT)
        assert (await far.event("ended"))["cleared"] is True
        assert await far.ended() == 0
    assert left(remote) == []


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
def test_a_host_that_is_not_known_or_not_the_same_is_refused(people: People, remote: Remote) -> None:
    key = remote.host_key()
    try:
        remote.known_hosts()
        assert refused(people.operator, remote)["code"] == "host_key_unknown"
        other = " ".join((remote.folder / "client.pub").read_text().split()[:2])
        remote.known_hosts(other)
        assert refused(people.operator, remote)["code"] == "host_key_changed"
    finally:
        remote.known_hosts(key)


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
def test_a_key_that_is_not_let_in_and_a_port_that_nobody_has_are_told_apart(people: People, remote: Remote) -> None:
    keys = remote.folder / "authorized_keys"
    allowed = keys.read_text()
    try:
        keys.write_text("")
        assert refused(people.operator, remote)["code"] == "ssh_auth_refused"
    finally:
        keys.write_text(allowed)
    options = ("--ssh-config", str(remote.client), "--port", "1")
    nobody = people.operator("tunnel", ALIAS, *options, "--json")
    assert (nobody.code, nobody.error["code"], nobody.error["outcome"]) == (6, "unreachable", "not_written")


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
def test_a_folder_over_there_that_is_not_ours_alone_or_too_long_is_refused(people: People, remote: Remote) -> None:
    strange = remote.folder / "strange"
    strange.mkdir(mode=0o700)
    (strange / "thesis.txt").touch()
    opened = remote.folder / "opened"
    opened.mkdir(mode=0o755)
    for folder, code in (
        (strange, "remote_home_taken"),
        (opened, "remote_home_unsafe"),
        (remote.folder / ("d" * 100), "remote_path_too_long"),
    ):
        options = ("--ssh-config", str(remote.client), "--remote-home", str(folder))
        assert people.operator("tunnel", ALIAS, *options, "--json").error["code"] == code
    assert not list(opened.iterdir())
    assert not (remote.folder / ("d" * 100)).exists()
    assert [path.name for path in strange.iterdir()] == ["thesis.txt"]


@pytest.mark.requirement("tunnel.errors-say-what-is-wrong")
def test_an_sshd_that_forbids_it_and_an_account_without_python_say_so(people: People, remote: Remote) -> None:
    # `remote` has shown that this account is let in at all.
    with running_sshd("AllowStreamLocalForwarding no") as closed:
        assert refused(people.operator, closed, "--agent", "ada")["code"] == "forwarding_refused"
        assert left(closed) == []
    with running_sshd("SetEnv PATH=/nowhere") as bare:
        assert refused(people.operator, bare)["code"] == "remote_without_python"
