"""The shim as a real process, against an edge that the test plays."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost import mcp
from fencepost.home import Home
from fencepost.mcp.names import SERVER_NAMES
from fencepost.mcp.registry import EVERY
from fencepost.mcp.session import LINE_BYTES_MAX
from fencepost.mcp.shim import main as shim_main
from fencepost_testing.shim import INITIALIZE, FakeEdge, Shim, environment, running_shim

SEND = {"target": "bob", "message": "hello"}


@pytest.fixture
async def shim(env: dict[str, str]) -> AsyncIterator[Shim]:
    async with running_shim(env=environment(**env)) as running:
        await running.greet()
        yield running


@pytest.fixture
async def edge(home: Home) -> AsyncIterator[FakeEdge]:
    async with FakeEdge(home) as played:
        yield played


def told(answer: dict[str, Any]) -> tuple[str, object]:
    assert answer["isError"] is True
    return answer["structuredContent"]["code"], answer["structuredContent"]["written"]


@pytest.mark.requirement("mcp.discovery-needs-no-home")
async def test_discovery_works_without_a_home_and_leaves_no_trace(tmp_path: Path) -> None:
    env = environment(HOME=str(tmp_path), FENCEPOST_HOME=str(tmp_path / "none"))
    async with running_shim(env=env) as shim:
        result = await shim.greet()
        assert result["serverInfo"]["name"] in SERVER_NAMES
        assert result["instructions"]
        listed = (await shim.ask("tools/list", identity=2))["result"]["tools"]
        assert len(listed) == 7
        assert (await shim.ask("ping", identity=3))["result"] == {}
        shim.close_input()
        assert await shim.ended() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_without_an_identity_a_call_is_refused_and_nothing_is_created(tmp_path: Path) -> None:
    env = environment(HOME=str(tmp_path), FENCEPOST_HOME=str(tmp_path / "none"))
    async with running_shim(env=env) as shim:
        await shim.greet()
        assert told(await shim.call("send_message", SEND)) == ("missing_managed_sender", False)
        assert told(await shim.call("send_message", {"target": "bob"}, identity=2)) == ("invalid_arguments", False)
        assert (await shim.ask("tools/call", {"name": "nope"}, identity=3))["error"]["code"] == -32602
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_an_agent_that_does_not_exist_is_no_managed_sender(home: Home) -> None:
    env = environment(FENCEPOST_HOME=home.text, FENCEPOST_SESSION_ID="0195f3a0-0000-7000-8000-00000000dead")
    async with running_shim(env=env) as shim:
        await shim.greet()
        assert told(await shim.call("list_agents")) == ("missing_managed_sender", False)


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_an_identity_that_appears_later_is_read_then_and_pinned_from_there(home: Home, edge: FakeEdge) -> None:
    agent = "0195f3a0-0000-7000-8000-000000000002"
    env = environment(FENCEPOST_HOME=home.text, FENCEPOST_SESSION_ID=agent)
    file = home.agent_credential(agent)
    async with running_shim(env=env) as shim:
        await shim.greet()
        assert told(await shim.call("list_agents")) == ("missing_managed_sender", False)
        file.parent.mkdir(parents=True)
        for number, letter in enumerate("AB", start=2):
            file.write_text("fp_" + letter * 43)
            file.chmod(0o600)
            shim.begin("list_agents", identity=number)
            edge.reply(await edge.frame())
            await shim.answer(number)
            edge.drop()
    assert [hello["token"] for hello in edge.hellos] == ["fp_" + "A" * 43] * 2


@pytest.mark.requirement("mcp.calls-are-bounded")
async def test_a_home_in_which_nothing_ever_ran_is_told_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    file = tmp_path / "credential"
    file.write_text("fp_" + "A" * 43)
    file.chmod(0o600)
    async with running_shim(env=environment(FENCEPOST_HOME=home.text, FENCEPOST_CREDENTIAL_FILE=str(file))) as shim:
        await shim.greet()
        answer = await shim.call("send_message", SEND)
        assert told(answer) == ("not_written", False)
        assert "fencepost up" in answer["structuredContent"]["hint"]
        assert told(await shim.call("send_message", {}, identity=2)) == ("invalid_arguments", False)
    assert not home.path.exists()


@pytest.mark.requirement("mcp.outlives-the-edge")
async def test_an_installation_that_was_removed_under_it_is_told_and_does_not_end_it(
    env: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(Path(mcp.__file__).parents[1], tmp_path / "fencepost", ignore=shutil.ignore_patterns("v1", "cli"))
    async with running_shim(env=environment(**env, PYTHONPATH=str(tmp_path))) as shim:
        await shim.greet()
        (tmp_path / "fencepost" / "mcp" / "link.py").write_text("raise RuntimeError")
        answer = await shim.call("send_message", SEND)
        assert told(answer) == ("internal_error", False)
        assert "restart the agent program" in answer["structuredContent"]["hint"]
        assert (await shim.ask("ping", identity=2))["result"] == {}


@pytest.mark.requirement("mcp.call-lines-pass-unchanged")
async def test_the_edge_is_greeted_and_gets_calls_byte_for_byte(shim: Shim, edge: FakeEdge) -> None:
    line = '{"id":7,"jsonrpc":"2.0", "method":"tools/call","params":{"name":"send_message","x":"漢\\u0000\\ud800"}}'
    shim.say(line.encode())
    assert await edge.frame() == b"1 " + line.encode()
    (hello,) = edge.hellos
    assert hello["fencepost"] == 1
    assert hello["token"] == "fp_" + "T" * 43
    assert len(hello["nonce"]) == 32
    assert "generation" not in hello
    edge.send('1 {"any":"thing","漢":"\\u0000"}'.encode())
    assert await shim.line() == {"any": "thing", "漢": "\0"}


@pytest.mark.requirement("mcp.ids-are-used-once")
async def test_two_processes_have_two_nonces(env: dict[str, str], edge: FakeEdge) -> None:
    async with running_shim(env=environment(**env)) as one, running_shim(env=environment(**env)) as two:
        for shim in (one, two):
            await shim.greet()
            shim.begin("list_agents", identity=7)
            await edge.frame()
    nonces = [hello["nonce"] for hello in edge.hellos]
    assert len(set(nonces)) == 2
    assert nonces == sorted(nonces)


@pytest.mark.requirement("mcp.identity-by-environment")
async def test_the_expected_generation_is_passed_on_for_services_to_judge(env: dict[str, str], edge: FakeEdge) -> None:
    async with running_shim(env=environment(**env, FENCEPOST_GENERATION="4")) as shim:
        await shim.greet()
        shim.begin("list_agents")
        await edge.frame()
    assert edge.hellos[0]["generation"] == 4


@pytest.mark.requirement("mcp.parked-wait-blocks-nobody")
async def test_calls_are_answered_in_any_order_and_pings_beside_them(shim: Shim, edge: FakeEdge) -> None:
    shim.begin("wait_agent", identity="w")
    shim.begin("send_message", SEND, identity="s")
    wait, send = await edge.frame(), await edge.frame()
    edge.reply(send)
    await shim.answer("s")
    assert (await shim.ask("ping", identity="p"))["result"] == {}
    edge.reply(wait)
    await shim.answer("w")


@pytest.mark.requirement("mcp.lost-edge-settles")
async def test_a_lost_mutation_is_settled_over_the_next_connection(shim: Shim, edge: FakeEdge) -> None:
    shim.begin("send_message", SEND, identity=5)
    call = await edge.frame()
    await edge.stop()
    await edge.start()
    frame = await edge.frame()
    assert frame == call.replace(b"1 ", b"1 settle E1 ", 1)
    edge.reply(frame)
    assert (await shim.answer(5))["result"] == {"structuredContent": {"ok": True}}
    assert [hello["nonce"] for hello in edge.hellos] == [edge.hellos[0]["nonce"]] * 2


@pytest.mark.requirement("mcp.reads-are-asked-again")
async def test_a_lost_wait_is_asked_again_for_what_is_left(shim: Shim, edge: FakeEdge) -> None:
    shim.begin("wait_agent", {"timeout_ms": 50_000})
    await edge.frame()
    edge.drop()
    number, word, left_ms, _ = (await edge.frame()).split(b" ", 3)
    assert (number, word) == (b"1", b"within")
    assert 40_000 < int(left_ms) <= 50_000


@pytest.mark.requirement("mcp.drain-is-invisible")
async def test_calls_that_a_stopping_edge_gives_back_go_to_the_next(shim: Shim, edge: FakeEdge) -> None:
    shim.begin("wait_agent", identity=1)
    await edge.frame()
    edge.send(b"0 draining")
    edge.send(b"1 again")
    await shim.ask("ping", identity="ordered")
    shim.begin("send_message", SEND, identity=2)
    await shim.ask("ping", identity="behind")
    await edge.stop()
    await edge.start()
    again, sent = await edge.frame(), await edge.frame()
    assert again.startswith(b"1 within ")
    assert sent.startswith(b"2 {")


@pytest.mark.requirement("mcp.outlives-the-edge")
async def test_a_call_made_while_no_edge_is_there_reaches_the_one_that_comes(shim: Shim, home: Home) -> None:
    shim.begin("send_message", SEND)
    await shim.ask("ping", identity="p")
    async with FakeEdge(home) as edge:
        edge.reply(await edge.frame())
        await shim.answer()
    shim.begin("list_agents", identity=2)
    async with FakeEdge(home) as edge:
        edge.reply(await edge.frame())
        await shim.answer(2)


@pytest.mark.requirement("mcp.outlives-the-edge")
async def test_an_edge_of_another_protocol_is_named_and_asked_no_further(shim: Shim, edge: FakeEdge) -> None:
    error = {"code": "incompatible_edge", "message": "another version", "hint": "restart"}
    edge.greeting = json.dumps({"fencepost": 1, "error": error}).encode() + b"\n"
    assert told(await shim.call("send_message", SEND)) == ("incompatible_edge", False)
    edge.greeting = None
    shim.begin("send_message", SEND, identity=2)
    edge.reply(await edge.frame())
    await shim.answer(2)


@pytest.mark.requirement("upgrades.say-what-to-do")
@pytest.mark.parametrize(
    ("greeting", "hint"),
    [
        ({"fencepost": 2, "edge": "9"}, "agent program"),
        ({"fencepost": 2, "error": {"code": "incompatible_edge", "message": "m", "hint": "its own hint"}}, "its own"),
    ],
)
async def test_a_newer_edge_s_protocol_is_no_reason_to_keep_a_model_waiting(
    shim: Shim, edge: FakeEdge, greeting: dict[str, object], hint: str
) -> None:
    edge.greeting = json.dumps(greeting).encode() + b"\n"
    result = await shim.call("send_message", SEND)
    assert told(result) == ("incompatible_edge", False)
    assert hint in result["structuredContent"]["hint"]


@pytest.mark.requirement("mcp.outlives-the-edge")
@pytest.mark.parametrize("greeting", [b"nonsense\n", b'{"fencepost":"2"}\n', b"[]\n", b'{"fencepost":1}\nwhat\n'])
async def test_a_server_that_is_no_edge_is_left_and_the_call_goes_to_the_right_one(
    shim: Shim, edge: FakeEdge, greeting: bytes
) -> None:
    edge.greeting = greeting
    shim.begin("list_agents")
    async with asyncio.timeout(10):
        await edge.lost.wait()
    edge.greeting = None
    while not (frame := await edge.frame()).startswith(b"1 "):
        pass
    edge.reply(frame)
    await shim.answer()


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
async def test_nothing_further_is_sent_for_a_cancelled_call(shim: Shim, edge: FakeEdge) -> None:
    shim.begin("wait_agent", identity=1)
    shim.begin("send_message", SEND, identity=2)
    frames = [await edge.frame(), await edge.frame()]
    # In this order: once the edge hears of the wait's end, the shim has heard of both.
    for identity in (2, 1):
        shim.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": identity}})
    assert await edge.frame() == b"1 cancel"
    for frame in frames:
        edge.reply(frame)
    shim.begin("list_agents", identity=3)
    edge.reply(await edge.frame())
    assert (await shim.line())["id"] == 3


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
async def test_at_the_end_of_input_waits_end_and_admissions_complete(shim: Shim, edge: FakeEdge) -> None:
    shim.begin("wait_agent", identity=1)
    shim.begin("send_message", SEND, identity=2)
    await edge.frame()
    send = await edge.frame()
    shim.close_input()
    assert await edge.frame() == b"1 cancel"
    edge.reply(send)
    assert (await shim.line())["id"] == 2
    assert await shim.line() is None
    assert await shim.ended() == 0


@pytest.mark.requirement("mcp.cancel-and-eof-end-waits-only")
async def test_calls_of_a_client_that_has_left_already_are_answered(env: dict[str, str], edge: FakeEdge) -> None:
    async with running_shim(env=environment(**env)) as shim:
        shim.say({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": INITIALIZE})
        shim.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        shim.begin("receive_messages", identity=1)
        shim.close_input()
        edge.reply(await edge.frame())
        assert (await shim.line())["id"] == "i"
        assert (await shim.line())["id"] == 1
        assert await shim.ended() == 0


@pytest.mark.requirement("mcp.ends-with-its-client")
async def test_a_silent_edge_does_not_keep_a_finished_shim(shim: Shim, edge: FakeEdge) -> None:
    shim.begin("send_message", SEND)
    await edge.frame()
    shim.close_input()
    answer = await shim.answer()
    assert told(answer["result"]) == ("delivery_uncertain", "unknown")
    assert await shim.ended() == 0


@pytest.mark.requirement("mcp.ends-with-its-client")
async def test_it_ends_with_its_parent_although_its_input_stays_open(env: dict[str, str]) -> None:
    here, there = socket.socketpair()
    code = (
        "import subprocess as s, sys\n"
        "end = int(sys.argv[1])\n"
        "s.Popen([sys.executable, '-m', 'fencepost.mcp.shim'], stdin=end, stdout=end)\n"
        "sys.stdin.read()"
    )
    with here:
        with there:
            parent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", code, str(there.fileno())),
                stdin=asyncio.subprocess.PIPE,
                env=environment(**env),
                pass_fds=(there.fileno(),),
            )
        here.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(15):
            await loop.sock_sendall(here, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            assert json.loads(await loop.sock_recv(here, 4096))["result"] == {}
            await parent.communicate(b"")
            # The end: the process, which alone still held the other half, is gone.
            assert await loop.sock_recv(here, 4096) == b""


@pytest.mark.requirement("mcp.ends-with-its-client")
async def test_it_ends_when_nobody_can_read_its_answers(env: dict[str, str]) -> None:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fencepost.mcp.shim"),
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        env=environment(**env),
    )
    os.close(writing)
    os.close(reading)
    async with asyncio.timeout(10):
        assert await process.wait() == 0
    await process.communicate()


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
async def test_bad_lines_are_answered_one_by_one_and_the_stream_goes_on(shim: Shim) -> None:
    for line, code in [(b"{bad", -32700), (b"\xff\xfe", -32700), (b"[]", -32600), (b'"x"', -32600)]:
        shim.say(line)
        answer = await shim.line()
        assert (answer["id"], answer["error"]["code"]) == (None, code)
    assert (await shim.ask("ping"))["result"] == {}


@pytest.mark.requirement("mcp.stream-survives-bad-lines")
async def test_no_depth_of_nesting_ends_the_process(tmp_path: Path) -> None:
    async with running_shim(env=environment(HOME=str(tmp_path))) as shim:
        await shim.greet()
        for depth in range(940, 1000):
            deep = b"[" * depth + b"]" * depth
            shim.say(
                b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"list_agents","arguments":{"x":%b}}}'
                % (depth, deep)
            )
            answer = await shim.line()
            assert answer["id"] in (depth, None)
            assert "error" in answer or answer["result"]["isError"]
        assert (await shim.ask("ping", identity="p"))["result"] == {}


@pytest.mark.requirement("mcp.lines-are-bounded")
async def test_an_oversize_line_is_skipped_answered_once_and_the_stream_goes_on(shim: Shim, edge: FakeEdge) -> None:
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message"'
    for size in (LINE_BYTES_MAX + 1, 5 * LINE_BYTES_MAX):
        shim.say(call + b" " * (size - len(call) - 2) + b"}}")
        answer = await shim.line()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert (await shim.ask("ping", identity="p"))["result"] == {}
    shim.say(call + b" " * (LINE_BYTES_MAX - len(call) - 2) + b"}}")
    frame = await edge.frame()
    assert len(frame) == LINE_BYTES_MAX + 2
    edge.reply(frame)
    await shim.answer()
    assert edge.frames.empty()


@pytest.mark.requirement("mcp.lines-are-bounded")
@pytest.mark.parametrize(
    "tail", [b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_agents"}}', b"{"]
)
async def test_an_unterminated_last_line_is_answered_once_and_not_acted_upon(
    shim: Shim, edge: FakeEdge, tail: bytes
) -> None:
    shim.write(tail)
    shim.close_input()
    answer = await shim.line()
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    assert await shim.line() is None
    assert await shim.ended() == 0
    assert edge.hellos == []


@pytest.mark.requirement("mcp.unread-output-is-bounded")
def test_a_client_that_does_not_read_makes_the_shim_stop_reading(env: dict[str, str]) -> None:
    count = 8_000
    lines = [json.dumps({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": INITIALIZE})]
    lines += ['{"jsonrpc":"2.0","method":"notifications/initialized"}']
    lines += [json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/list"}) for number in range(count)]
    data = "".join(f"{line}\n" for line in lines).encode()
    with subprocess.Popen(
        [sys.executable, "-m", "fencepost.mcp.shim"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(**env),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        writable = select.poll()
        writable.register(process.stdin, select.POLLOUT)
        taken = 0
        # 40 MiB of answers are asked for. It stops taking questions when about 1 MiB of answers is unread.
        while writable.poll(1_000):
            taken += os.write(process.stdin.fileno(), data[taken : taken + 4096])
        assert taken < len(data)
        if sys.platform == "linux":
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert int(status.partition("VmRSS:")[2].split()[0]) < 32 * 1024
        os.set_blocking(process.stdin.fileno(), True)
        source = process.stdin

        def write_rest() -> None:
            source.write(data[taken:])
            source.close()

        rest = threading.Thread(target=write_rest)
        rest.start()
        answered = [json.loads(line)["id"] for line in process.stdout]
        rest.join()
    assert answered == ["i", *range(count)]
    assert process.returncode == 0


@pytest.mark.requirement("mcp.start-is-cheap")
def test_discovery_loads_no_module_that_is_slow_to_load() -> None:
    code = "import sys; from fencepost.mcp import shim; sys.stdout.write(' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=20)
    bare = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; sys.stdout.write(' '.join(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    added = set(done.stdout.split()) - set(bare.stdout.split())
    assert added == {
        "__future__",
        "_json",
        "errno",
        "fencepost",
        "fencepost.mcp",
        "fencepost.mcp.answers",
        "fencepost.mcp.session",
        "fencepost.mcp.shim",
        "fencepost.mcp.wire",
        "select",
    } - set(bare.stdout.split())


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["--help"], 0), (["what"], 2)])
def test_a_person_who_runs_it_is_told_what_it_is(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost.mcp.shim", *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=20,
    )
    assert done.returncode == code
    assert "fencepost-mcp" in done.stdout + done.stderr
    assert bool(done.stdout) == (code == 0)


@pytest.mark.requirement("mcp.discovery-needs-no-home")
async def test_the_command_line_serves_the_same(tmp_path: Path) -> None:
    program = (sys.executable, "-P", "-m", "fencepost", "mcp", "serve")
    async with running_shim(env=environment(FENCEPOST_HOME=str(tmp_path / "none")), program=program) as shim:
        assert (await shim.greet())["serverInfo"]["name"] in SERVER_NAMES
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("tools.profiles", "tools.server-names")
async def test_arguments_say_what_the_server_offers_and_calls_itself(tmp_path: Path) -> None:
    program = (sys.executable, "-P", "-m", "fencepost", "mcp", "serve", "--tools", "files", "--names=warp")
    env = environment(FENCEPOST_HOME=str(tmp_path / "none"), FENCEPOST_SERVER_NAME="here")
    async with running_shim(env=env, program=program) as shim:
        hello = await shim.greet()
        assert hello["serverInfo"]["name"] == "here"
        assert "warp_file_reserve" in hello["instructions"]
        listed = (await shim.ask("tools/list", identity=2))["result"]["tools"]
        assert [tool["name"] for tool in listed] == [f"warp_{t.name}" for t in EVERY if t.family == "files"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.requirement("tools.profiles")
@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["--tools", "every"], {}, "--tools takes all, off, or of messaging, tasks, context, files"),
        (["--names"], {}, "--names needs a value"),
        (["--tools", "all", "--tools", "off"], {}, "--tools is given twice"),
        ([], {"FENCEPOST_TOOLS": "every"}, "FENCEPOST_TOOLS takes"),
        ([], {"FENCEPOST_SERVER_NAME": "a b"}, "takes 1 to 64 of"),
    ],
)
def test_a_server_that_cannot_understand_its_settings_does_not_start(
    arguments: list[str],
    variables: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert shim_main(arguments) == 2
    assert said in capsys.readouterr().err
