"""How an app-server is started, and every way in which that ends."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex import launch
from fencepost_providers.adapters.codex.launch import clear_stale, refused
from fencepost_providers.adapters.codex.rpc import Refused
from fencepost_providers.domain.runtimes import Accepted, LaunchSettings, State
from fencepost_testing.adapter_benches import Heard, Say, processes_of, until
from fencepost_testing.codex_benches import FakeCodexBench

Start = Callable[..., Any]


async def failed(bench: FakeCodexBench, **changes: Any) -> StartFailed:
    heard = Heard()
    with pytest.raises(StartFailed) as why:
        await bench.adapter.start(bench.plan(**changes), heard)
    assert not processes_of(bench.folder)
    assert not heard.all
    assert why.value.hint
    return why.value


@pytest.mark.requirement("codex.materialised-without-a-turn")
async def test_a_fresh_conversation_survives_a_restart_before_any_turn(bench: FakeCodexBench, start: Start) -> None:
    first, _ = await start()
    await first.stop()
    second, _ = await start(conversation_id=first.conversation_id, generation=2)
    assert (await second.activity()).state is State.IDLE
    assert not bench.requests("turn/start")
    assert [request["name"] for request in bench.requests("thread/name/set")] == ["ann"]
    (resumed,) = bench.requests("thread/resume")
    assert (resumed["threadId"], resumed["excludeTurns"]) == (first.conversation_id, True)


@pytest.mark.requirement("codex.materialised-without-a-turn")
async def test_where_a_name_writes_no_file_an_item_does(bench: FakeCodexBench, start: Start) -> None:
    bench.want("names_lie_elsewhere")
    first, _ = await start()
    await first.stop()
    await start(conversation_id=first.conversation_id, generation=2)
    (injected,) = bench.requests("thread/inject_items")
    assert injected["items"][0]["role"] == "developer"
    assert not bench.requests("turn/start")


@pytest.mark.requirement("codex.settings-as-a-person-set-them")
async def test_a_thread_gets_what_a_person_set_and_nothing_else(bench: FakeCodexBench, start: Start) -> None:
    first, _ = await start()
    await first.stop()
    (plain,) = bench.requests("thread/start")
    assert set(plain) == {"cwd", "developerInstructions"}
    assert plain["developerInstructions"].index("You are Ann.") < plain["developerInstructions"].index("English")
    settings = LaunchSettings(
        effort="high",
        sandbox="workspace-write",
        approval="never",
        include_directories=(str(bench.folder),),
    )
    second, _ = await start(conversation_id=first.conversation_id, settings=settings)
    (resumed,) = bench.requests("thread/resume")
    assert (resumed["sandbox"], resumed["approvalPolicy"]) == ("workspace-write", "never")
    # An effort alone keeps the model that the conversation has.
    assert resumed["model"] == "one"
    assert resumed["config"] == {
        "model_reasoning_effort": "high",
        "sandbox_workspace_write.writable_roots": [str(bench.folder)],
    }
    assert (await second.activity()).state is State.IDLE


async def test_the_program_inherits_no_name_of_our_own_services(bench: FakeCodexBench) -> None:
    ours = {"FENCEPOST_CREDENTIAL_FILE": "x", "PATH": "/bin", "OPENAI_API_KEY": "k"}
    plan = bench.plan(environment={"FENCEPOST_GENERATION": "7"})
    assert launch.environment_of(plan, "/home", ours) == {
        "PATH": "/bin",
        "OPENAI_API_KEY": "k",
        "FENCEPOST_GENERATION": "7",
        "CODEX_HOME": "/home",
    }


@pytest.mark.requirement("codex.version-gate")
async def test_without_a_program_or_with_one_too_old_nothing_is_started(bench: FakeCodexBench) -> None:
    bench.want("version", "0.153.9")
    why = await failed(bench)
    assert (why.code, why.again) == ("codex_version_unsupported", False)
    assert "0.153.9" in str(why)
    (bench.folder / "bin" / "codex").unlink()
    why = await failed(bench)
    assert (why.code, why.again) == ("codex_not_found", False)


@pytest.mark.requirement("codex.the-program-that-was-probed")
async def test_a_server_of_another_version_than_the_one_that_was_probed_is_ended(bench: FakeCodexBench) -> None:
    bench.want("says_version", "0.170.0")
    why = await failed(bench)
    assert (why.code, why.again) == ("codex_version_changed", True)
    assert "0.171.0" in str(why)
    assert "0.170.0" in str(why)


@pytest.mark.requirement("codex.the-program-that-was-probed")
async def test_a_server_in_another_home_than_the_agents_is_ended(bench: FakeCodexBench) -> None:
    bench.want("says_home", str(bench.folder))
    why = await failed(bench)
    assert (why.code, why.again) == ("codex_foreign_home", False)


async def test_nobody_logged_in_is_said_before_any_work_is_taken(bench: FakeCodexBench) -> None:
    bench.want("needs_login")
    why = await failed(bench)
    assert (why.code, why.again) == ("codex_not_logged_in", False)
    assert "codex login" in why.hint


async def test_a_server_that_ends_at_once_is_told_with_its_last_words(bench: FakeCodexBench) -> None:
    bench.want("refuses_to_start")
    why = await failed(bench)
    assert why.code == "codex_ended"
    assert "unexpected argument" in str(why)


@pytest.mark.parametrize("method", ["account/read", "thread/start", "thread/name/set"])
async def test_a_server_that_dies_while_it_starts_leaves_nothing(bench: FakeCodexBench, method: str) -> None:
    bench.misbehave((method, "die"))
    assert (await failed(bench)).code == "codex_ended"


@pytest.mark.requirement("codex.start-is-bounded-and-cancelled-whole")
@pytest.mark.parametrize("moment", ["indexes", "thread/start"])
async def test_a_start_waits_without_a_limit_and_is_cancelled_whole(bench: FakeCodexBench, moment: str) -> None:
    if moment == "indexes":
        bench.want("indexes")
    else:
        bench.misbehave((moment, "ignore"))
    heard = Heard()
    starting = asyncio.ensure_future(bench.adapter.start(bench.plan(), heard))
    if moment == "indexes":
        await until(lambda: any("app-server" in line for line in processes_of(bench.folder).values()), "a server")
    else:
        await until(lambda: (bench.scripts / "requests.jsonl").exists() and bool(bench.requests(moment)), "the request")
    assert not starting.done()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not processes_of(bench.folder)
    assert not heard.all


@pytest.mark.requirement("codex.start-is-bounded-and-cancelled-whole")
async def test_a_history_that_takes_long_to_index_is_waited_for(bench: FakeCodexBench) -> None:
    bench.want("indexes")
    heard = Heard()
    starting = asyncio.ensure_future(bench.adapter.start(bench.plan(), heard))
    await until(lambda: any("app-server" in line for line in processes_of(bench.folder).values()), "a server")
    bench.unwant("indexes")
    runtime = await starting
    assert (await runtime.activity()).state is State.IDLE
    await runtime.stop()


@pytest.mark.requirement("codex.one-writer")
async def test_a_conversation_that_somebody_else_writes_is_refused_and_tried_again(
    bench: FakeCodexBench, start: Start
) -> None:
    first, _ = await start()
    await first.stop()
    lock = Path(bench.adapter.private_home(bench.plan())) / "thread-writer-locks" / first.conversation_id
    with open(lock, "w") as held:  # noqa: ASYNC230, PTH123
        fcntl.flock(held, fcntl.LOCK_EX)
        why = await failed(bench, conversation_id=first.conversation_id)
    assert (why.code, why.again) == ("conversation_in_use", True)
    assert first.conversation_id in str(why)
    await start(conversation_id=first.conversation_id)


@pytest.mark.requirement("codex.plain-words")
@pytest.mark.parametrize(
    ("said", "code", "again"),
    [
        ("thread 01a2 already has an active writer", "conversation_in_use", True),
        ("no rollout found for thread id 01a2", "conversation_missing", False),
        ("invalid session id: invalid character", "conversation_missing", False),
        ("invalid paginated history lineage for 01a2: missing source rollout", "conversation_missing", False),
        ("list_turns is not supported by this store", "history_incompatible", False),
        ("cannot resume paginated thread 01a2", "history_incompatible", False),
        ("unknown model `x`", "codex_refused", False),
    ],
)
def test_what_codex_refuses_at_the_start_is_said_in_plain_words(said: str, code: str, again: bool) -> None:
    why = refused("thread/resume", "01a2", Refused(said))
    assert (why.code, why.again) == (code, again)
    assert why.hint
    if code in {"history_incompatible", "codex_refused"}:
        assert said in str(why)


@pytest.mark.requirement("codex.stale-socket")
async def test_a_socket_that_a_killed_server_left_behind_is_no_hindrance(bench: FakeCodexBench, start: Start) -> None:
    first, heard = await start()
    await bench.kill(first)
    await heard.close()
    socket_path = Path(bench.adapter.private_home(bench.plan())) / "app-server-control/app-server-control.sock"
    assert os.path.lexists(socket_path)
    second, _ = await start(conversation_id=first.conversation_id, generation=2)
    assert isinstance(await second.begin(bench.delivery(Say("again"))), Accepted)


@pytest.mark.requirement("codex.stale-socket")
async def test_only_a_socket_at_which_nobody_listens_is_removed(tmp_path_short: Path) -> None:
    path = tmp_path_short / "s"
    await clear_stale(str(path))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(1)
        with pytest.raises(StartFailed) as in_use:
            await clear_stale(str(path))
        assert (in_use.value.code, in_use.value.again) == ("codex_socket_in_use", True)
        assert path.exists()
    await clear_stale(str(path))
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(StartFailed) as strange:
        await clear_stale(str(path))
    assert strange.value.code == "codex_socket_unusable"
    assert path.read_text() == "mine"


@pytest.mark.requirement("codex.stale-socket")
async def test_a_socket_that_was_replaced_meanwhile_stays(
    tmp_path_short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path_short / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    identities = iter([(1, 1), (1, 2)])
    monkeypatch.setattr(launch, "_identity", lambda _: next(identities))
    await clear_stale(str(path))
    assert os.path.lexists(path)


@pytest.fixture
def tmp_path_short() -> Any:
    with tempfile.TemporaryDirectory(prefix="fps") as made:
        yield Path(made)


@pytest.mark.requirement("codex.models")
async def test_the_models_are_those_of_the_installed_program(bench: FakeCodexBench) -> None:
    found = await bench.adapter.models(refresh=False)
    assert ([model.model for model in found.models], found.source, found.problem) == (["one"], "live", "")
    bench.want("models.json", json.dumps({"models": []}))
    again = await bench.adapter.models(refresh=True)
    assert [model.model for model in again.models] == ["one"]
    assert "names no model" in again.problem


async def test_an_upgrade_behind_a_running_agent_is_found(bench: FakeCodexBench, start: Start) -> None:
    runtime, _ = await start()
    plan = replace(bench.plan(), conversation_id=runtime.conversation_id)
    assert "codex_upgraded" not in {finding.code for finding in await bench.adapter.inspect(plan, runtime)}
    bench.want("version", "0.172.0")
    assert "codex_upgraded" in {finding.code for finding in await bench.adapter.inspect(plan, runtime)}
    bench.want("version", "0.1.0")
    assert "codex_program" in {finding.code for finding in await bench.adapter.inspect(plan, runtime)}
