"""Starting, stopping and changing the runtime of an agent: what is written, what is waited for, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.cli import running
from fencepost.errors import FencepostError, NotWritten, Refused, Uncertain
from fencepost.providers.v1 import providers_pb2 as pb
from fencepost.sessions.v1 import sessions_pb2 as sessions
from fencepost_testing.shell import BOB, PROJECT, Shell

ON, OFF, PAUSED = sessions.DESIRED_STATE_ON, sessions.DESIRED_STATE_OFF, sessions.DESIRED_STATE_PAUSED
BY_ITSELF = sessions.DESIRED_STATE_UNSPECIFIED
DOWN = NotWritten("not_running", "providers could not be reached; nothing was sent", hint="Run `fencepost up`.")
NOT_HEARD = Refused("not_found", "no agent that you may see has this UUID")


def agent(desired: Any = OFF, **fields: Any) -> sessions.Agent:
    known: dict[str, Any] = {"name": "bob", "provider": "codex", "workspace": "/w", "generation": 3}
    return sessions.Agent(agent_id=BOB, project_id=PROJECT, desired=desired, **{**known, **fields})


def runtime(state: pb.RuntimeState, **fields: Any) -> pb.GetRuntimeResponse:
    known: dict[str, Any] = {"provider": "codex", "version": "0.171.0", "generation": 4, "pid": 77}
    return pb.GetRuntimeResponse(runtime=pb.Runtime(agent_id=BOB, state=state, **{**known, **fields}))


OFF_NOW = runtime(pb.RUNTIME_STATE_OFF)
STARTING = runtime(pb.RUNTIME_STATE_STARTING)
READY = runtime(pb.RUNTIME_STATE_READY, activity=pb.ACTIVITY_ACTION_NEEDED, conversation_id="th-1", attached=True)
FAILED = runtime(pb.RUNTIME_STATE_FAILED, problem="codex_missing: no codex was found. Install it.", since_ms=5)


@pytest.fixture
def quick(shell: Shell) -> Shell:
    """A shell that looks again at once."""
    shell.monkeypatch.setattr(running, "LOOK_AGAIN_MS", 0)
    knows(shell, agent())
    return shell


def knows(shell: Shell, known: sessions.Agent) -> None:
    shell.sessions.answers["get_agent"] = sessions.GetAgentResponse(agent=known)

    def update(request: sessions.UpdateAgentRequest) -> sessions.UpdateAgentResponse:
        changed = sessions.Agent()
        changed.CopyFrom(known)
        changed.desired = request.desired
        return sessions.UpdateAgentResponse(agent=changed)

    shell.sessions.answers["update_agent"] = update


def says(shell: Shell, *runtimes: pb.GetRuntimeResponse | FencepostError) -> None:
    """Let providers say one after the other, the last one for ever."""

    def one_by_one() -> Iterator[pb.GetRuntimeResponse | FencepostError]:
        yield from runtimes
        while True:
            yield runtimes[-1]

    saying = one_by_one()
    shell.providers.answers["get_runtime"] = lambda _: next(saying)


def written(shell: Shell) -> list[int]:
    return [request.desired for method, request in shell.sessions.asked if method == "update_agent"]


@pytest.mark.requirement("cli.runs-agents")
def test_a_start_is_written_and_told_once_the_program_is_ready(quick: Shell) -> None:
    says(quick, OFF_NOW, OFF_NOW, STARTING, READY)
    done = quick("agent", "start", "bob", "--idempotency-key", "k")
    assert (done.code, written(quick)) == (0, [ON])
    for expected in ("Agent bob is to run.", "ready, action needed, codex 0.171.0, generation 4, process 77", "th-1"):
        assert expected in done.out
    assert "a terminal is attached" in done.out
    assert quick.sessions.asked[-1][1].idempotency_key == "k"


@pytest.mark.requirement("cli.runs-agents")
@pytest.mark.parametrize(
    ("command", "before", "runtimes", "wanted", "text"),
    [
        (("stop",), ON, [READY, READY, OFF_NOW], OFF, "is switched off"),
        (("stop",), BY_ITSELF, [NOT_HEARD, OFF_NOW], OFF, "is switched off"),
        (("pause",), ON, [READY], PAUSED, "nothing is carried into it"),
        (("pause",), PAUSED, [READY], PAUSED, "nothing is carried into it"),
        (("resume",), PAUSED, [READY], ON, "is to run"),
        (("start", "--wait-s", "0"), OFF, [OFF_NOW], ON, "is to run"),
        (("start",), OFF, [NOT_HEARD, NOT_HEARD, READY], ON, "is to run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_person_wants_is_written_once_and_awaited(
    quick: Shell, command: tuple[str, ...], before: Any, runtimes: list[Any], wanted: int, text: str
) -> None:
    knows(quick, agent(before))
    says(quick, *runtimes)
    done = quick("agent", command[0], "bob", *command[1:])
    assert (done.code, written(quick), done.err) == (0, [wanted], "")
    assert text in done.out


@pytest.mark.requirement("cli.runs-agents")
def test_the_document_holds_the_agent_what_runs_and_no_problem(quick: Shell) -> None:
    says(quick, READY)
    found = quick("agent", "start", "bob", "--json").document
    assert set(found) == {"schema", "agent", "runtime", "problem"}
    assert (found["agent"]["desired"], found["runtime"]["state"], found["problem"]) == ("on", "ready", None)
    assert found["runtime"]["activity"] == "action_needed"


@pytest.mark.requirement("cli.runs-agents")
@pytest.mark.parametrize(
    ("fields", "code", "do"),
    [
        ({"provider": ""}, "unknown_provider", "--provider"),
        ({"workspace": ""}, "no_workspace", "--workspace"),
    ],
)
def test_a_start_that_cannot_work_is_refused_before_anything_is_written(
    quick: Shell, fields: dict[str, str], code: str, do: str
) -> None:
    knows(quick, agent(**fields))
    done = quick("agent", "start", "bob", "--json")
    assert (done.code, done.error["code"], written(quick)) == (1, code, [])
    assert do in done.error["hint"]


def test_an_agent_that_works_in_a_checkout_needs_no_workspace(quick: Shell) -> None:
    knows(quick, agent(workspace="", launch=sessions.LaunchSettings(checkout_root="/c")))
    says(quick, READY)
    assert quick("agent", "start", "bob").code == 0


@pytest.mark.parametrize("command", ["pause", "resume"])
@pytest.mark.parametrize("before", [OFF, BY_ITSELF], ids=["off", "by itself"])
def test_only_what_runs_is_paused_or_resumed(quick: Shell, command: str, before: Any) -> None:
    knows(quick, agent(before))
    done = quick("agent", command, "bob", "--json")
    assert (done.code, done.error["code"], written(quick)) == (1, "agent_off", [])


@pytest.mark.requirement("cli.runs-agents")
def test_a_program_that_cannot_be_started_is_told_with_the_remedy_and_exit_1(quick: Shell) -> None:
    says(quick, OFF_NOW, STARTING, FAILED)
    done = quick("agent", "start", "bob")
    assert (done.code, written(quick)) == (1, [ON])
    assert "codex_missing: no codex was found. Install it." in done.out


def test_a_failure_from_before_is_not_taken_for_that_of_this_start(quick: Shell) -> None:
    says(quick, FAILED, FAILED, STARTING, READY)
    assert quick("agent", "start", "bob").code == 0


@pytest.mark.requirement("cli.runs-agents")
def test_a_start_of_what_has_failed_and_is_wanted_already_tries_once_more(quick: Shell) -> None:
    knows(quick, agent(ON))
    says(quick, FAILED)
    quick.providers.answers["restart_runtime"] = pb.RestartRuntimeResponse(runtime=READY.runtime)
    done = quick("agent", "start", "bob", "--wait-s", "7")
    assert (done.code, "ready" in done.out) == (0, True)
    assert quick.providers.asked[-1] == ("restart_runtime", pb.RestartRuntimeRequest(agent_id=BOB, wait_ms=7000))
    quick.providers.answers["restart_runtime"] = Refused("cannot_start", "it could not be started again: no codex")
    done = quick("agent", "start", "bob", "--json")
    assert (done.code, done.document["problem"]["code"]) == (1, "cannot_start")


@pytest.mark.requirement("cli.runs-agents")
@pytest.mark.parametrize(("command", "seen"), [("start", STARTING), ("start", OFF_NOW), ("stop", READY)])
def test_patience_that_ends_first_is_exit_7_and_says_that_it_goes_on(quick: Shell, command: str, seen: Any) -> None:
    quick.monkeypatch.setattr(running.time, "monotonic", iter(range(1000)).__next__)
    says(quick, seen)
    done = quick("agent", command, "bob", "--wait-s", "1")
    assert done.code == 7
    assert "Not so within 1 s; it goes on by itself" in done.out
    assert quick("agent", command, "bob", "--wait-s", "1", "--json").document["runtime"] is not None


@pytest.mark.requirement("cli.providers-down-is-exit-6")
@pytest.mark.parametrize("command", ["start", "stop", "pause", "resume"])
def test_without_providers_the_wish_is_written_and_the_exit_is_6(quick: Shell, command: str) -> None:
    knows(quick, agent(PAUSED))
    quick.providers.answers["get_runtime"] = DOWN
    done = quick("agent", command, "bob")
    assert (done.code, len(written(quick))) == (6, 1)
    assert "That is written; what its program does is not known" in done.out
    assert "fencepost up" in done.out
    found = quick("agent", command, "bob", "--json")
    assert (found.code, found.document["runtime"], found.document["problem"]["code"]) == (6, None, "not_running")


@pytest.mark.requirement("cli.providers-down-is-exit-6")
@pytest.mark.parametrize(
    ("method", "command"),
    [
        ("restart_runtime", ("agent", "restart", "bob")),
        ("begin_conversation", ("agent", "new-session", "bob")),
        ("interrupt_turn", ("agent", "interrupt", "bob")),
        ("interrupt_turn", ("message", "interrupt", "bob")),
        ("inspect_runtime", ("agent", "doctor", "bob")),
        ("approve_tools", ("agent", "tools", "bob", "--approve", "reply")),
        ("get_capabilities", ("delivery", "capabilities", "bob")),
        ("list_providers", ("provider", "list")),
        ("list_models", ("provider", "models", "codex")),
        ("list_models", ("agent", "models", "--provider", "codex")),
        ("watch_conversation", ("agent", "watch", "bob")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_command_of_providers_says_that_they_do_not_run(
    quick: Shell, method: str, command: tuple[str, ...]
) -> None:
    knows(quick, agent(ON))
    quick.providers.answers[method] = [DOWN] if method == "watch_conversation" else DOWN
    done = quick(*command, "--json")
    assert (done.code, done.error["code"], done.error["outcome"]) == (6, "not_running", "not_written")
    assert "fencepost up" in done.error["hint"]


@pytest.mark.requirement("cli.unknown-outcomes-say-so")
@pytest.mark.parametrize(("method", "command"), [("restart_runtime", "restart"), ("begin_conversation", "new-session")])
def test_a_change_of_a_runtime_whose_answer_is_lost_is_exit_7_and_is_not_asked_again(
    quick: Shell, method: str, command: str
) -> None:
    quick.providers.answers[method] = Uncertain("connection_lost", "lost; what was written is not known")
    done = quick("agent", command, "bob", "--json")
    assert (done.code, done.error["outcome"]) == (7, "uncertain")
    assert "agent show bob" in done.error["hint"]
    assert [asked for asked, _ in quick.providers.asked] == [method]


def test_a_lost_answer_of_sessions_keeps_its_key(quick: Shell) -> None:
    says(quick, OFF_NOW)
    quick.sessions.answers["update_agent"] = Uncertain("connection_lost", "lost", state={"idempotency_key": "k"})
    done = quick("agent", "start", "bob", "--json")
    assert (done.code, done.error["state"]["idempotency_key"]) == (7, "k")


@pytest.mark.requirement("cli.runs-agents")
@pytest.mark.parametrize(
    ("command", "method", "answer", "asked"),
    [
        (
            ("restart",),
            "restart_runtime",
            pb.RestartRuntimeResponse,
            pb.RestartRuntimeRequest(agent_id=BOB, wait_ms=30_000),
        ),
        (
            ("new-session", "--leave", "th-0", "--wait-s", "2"),
            "begin_conversation",
            pb.BeginConversationResponse,
            pb.BeginConversationRequest(agent_id=BOB, expected_conversation_id="th-0", wait_ms=2_000),
        ),
    ],
)
def test_another_life_is_asked_for_once_and_shown(
    quick: Shell, command: tuple[str, ...], method: str, answer: Any, asked: Any
) -> None:
    quick.providers.answers[method] = answer(runtime=READY.runtime)
    done = quick("agent", command[0], "bob", *command[1:])
    assert (done.code, quick.providers.asked) == (0, [(method, asked)])
    assert "Agent bob:\n  ready" in done.out
    quick.providers.answers[method] = answer(runtime=STARTING.runtime)
    assert quick("agent", command[0], "bob").code == 7
    assert quick("agent", command[0], "bob", "--wait-s", "0").code == 0
    quick.providers.answers[method] = Refused("agent_off", "this agent is not to be run", hint="Say so first.")
    assert quick("agent", command[0], "bob", "--json").error["code"] == "agent_off"


@pytest.mark.parametrize("wait_s", ["-1", str(running.WAIT_S_MAX + 1)])
@pytest.mark.parametrize("command", ["start", "stop", "resume", "restart", "new-session"])
def test_a_wait_out_of_its_range_is_refused_before_a_call(quick: Shell, command: str, wait_s: str) -> None:
    done = quick("agent", command, "bob", "--wait-s", wait_s, "--json")
    assert (done.code, done.error["code"], quick.acted) == (1, "invalid_arguments", [])


def test_the_longest_wait_is_taken(quick: Shell) -> None:
    says(quick, READY)
    assert quick("agent", "start", "bob", "--wait-s", str(running.WAIT_S_MAX)).code == 0


@pytest.mark.requirement("cli.runs-agents")
def test_a_clone_has_the_settings_and_nothing_of_the_conversation(quick: Shell) -> None:
    launch = sessions.LaunchSettings(model="m", include_directories=["/i"])
    knows(quick, agent(ON, launch=launch, conversation_id="th-1"))
    quick.sessions.answers["create_agent"] = lambda request: sessions.CreateAgentResponse(
        agent=agent(BY_ITSELF, name=request.name)
    )
    done = quick("agent", "clone", "bob", "cyd", "--idempotency-key", "k")
    asked = quick.sessions.asked[-1][1]
    launch.set_include_directories = True
    assert asked == sessions.CreateAgentRequest(
        idempotency_key="k", project_id=PROJECT, name="cyd", provider="codex", workspace="/w", launch=launch
    )
    assert "fencepost agent start cyd" in done.out
    assert quick("agent", "clone", "bob", "cyd", "--json").document["agent"]["name"] == "cyd"


@pytest.mark.requirement("cli.launch-settings")
def test_launch_settings_are_given_at_creation_and_changed_or_cleared_one_by_one(quick: Shell) -> None:
    quick.sessions.answers["ensure_project"] = sessions.EnsureProjectResponse()
    quick.sessions.answers["create_agent"] = sessions.CreateAgentResponse(agent=agent(name="a b"))
    words = ("--class", "reviewer", "--model", "m", "--effort", "high", "--sandbox", "read-only")
    more = ("--approval", "never", "--custom-arguments", "-c 'a b'", "--include", "/i", "--include", "/j")
    how = ("--when-active", "after_turn", "--session", "fresh")
    done = quick("agent", "create", "a b", "--provider", "codex", "--workspace", "/w", *words, *more, *how)
    assert "To have Fencepost run it: fencepost agent start 'a b'" in done.out
    launch = quick.sessions.asked[-1][1].launch
    assert (getattr(launch, "class"), launch.model, launch.effort) == ("reviewer", "m", "high")
    assert (launch.sandbox, launch.approval, launch.custom_arguments) == ("read-only", "never", "-c 'a b'")
    assert (list(launch.include_directories), launch.set_include_directories) == (["/i", "/j"], True)
    assert launch.deliver_when_active == sessions.DELIVER_WHEN_ACTIVE_AFTER_TURN
    assert launch.session_policy == "fresh"

    assert quick("agent", "update", "bob", "--model", "", "--include", "").code == 0
    changed = quick.sessions.asked[-1][1]
    assert (changed.launch.HasField("model"), changed.launch.HasField("effort")) == (True, False)
    assert (list(changed.launch.include_directories), changed.launch.set_include_directories) == ([], True)
    assert changed.desired == BY_ITSELF, "changing a setting starts nobody"
    assert quick("agent", "update", "bob", "--name", "x").code == 0
    assert not quick.sessions.asked[-1][1].HasField("launch")


def test_a_word_that_says_no_way_of_delivery_is_refused(quick: Shell) -> None:
    done = quick("agent", "update", "bob", "--when-active", "now", "--json")
    assert (done.code, done.error["code"], quick.acted) == (1, "invalid_arguments", [])


@pytest.mark.requirement("cli.shows-what-was-observed")
def test_an_agent_is_shown_with_its_runtime_and_what_stands_in_its_way(quick: Shell) -> None:
    knows(quick, agent(ON))
    says(quick, READY)
    assert (
        "Runtime      ready, action needed, codex 0.171.0, generation 4, process 77"
        in quick("agent", "show", "bob").out
    )
    assert quick("agent", "show", "bob", "--json").document["runtime"]["pid"] == 77
    says(quick, FAILED)
    assert "Problem      codex_missing: no codex was found." in quick("agent", "show", "bob").out


@pytest.mark.requirement("cli.shows-what-was-observed")
@pytest.mark.parametrize("answer", [DOWN, NOT_HEARD, None], ids=["down", "not heard of", "silent"])
def test_an_agent_is_shown_where_providers_cannot_tell(quick: Shell, answer: Any) -> None:
    knows(quick, agent(ON))
    quick.monkeypatch.setattr(running, "GLANCE_MS_MAX", 50)

    async def silent(_agent_id: str) -> None:
        await asyncio.Event().wait()

    if answer is None:
        quick.providers.get_runtime = silent
    else:
        quick.providers.answers["get_runtime"] = answer
    done = quick("agent", "show", "bob", "--json")
    assert (done.code, done.document["runtime"]) == (0, None)


@pytest.mark.requirement("cli.shows-what-was-observed")
@pytest.mark.parametrize(
    ("desired", "state", "expected"),
    [
        (BY_ITSELF, None, "by itself"),
        (ON, None, "not seen yet, wanted on"),
        (OFF, None, "not seen yet, wanted off"),
        (ON, sessions.OBSERVED_STATE_IDLE, "idle (9.00 s ago)"),
        (ON, sessions.OBSERVED_STATE_ACTION_NEEDED, "action needed (9.00 s ago)"),
        (ON, sessions.OBSERVED_STATE_ERROR, "error (9.00 s ago)"),
        (ON, sessions.OBSERVED_STATE_OFF, "off (9.00 s ago), wanted on"),
        (OFF, sessions.OBSERVED_STATE_OFF, "off (9.00 s ago)"),
        (OFF, sessions.OBSERVED_STATE_PROCESSING, "processing (9.00 s ago), wanted off"),
        (PAUSED, sessions.OBSERVED_STATE_IDLE, "idle (9.00 s ago), wanted paused"),
    ],
)
def test_a_status_is_what_was_seen_with_its_age_and_what_is_wanted_where_that_differs(
    quick: Shell, desired: Any, state: Any, expected: str
) -> None:
    known = agent(desired, conversation_id="th-1", launch=sessions.LaunchSettings(effort="high"))
    if state is not None:
        known.status.CopyFrom(sessions.AgentStatus(state=state, observed_at_ms=1_000, detail="it asks\nfor a word"))
    quick.monkeypatch.setattr("fencepost.cli.agents.time.time", lambda: 10.0)
    knows(quick, known)
    quick.sessions.answers["list_agents"] = sessions.ListAgentsResponse(agents=[known])
    quick.sessions.answers["list_projects"] = sessions.ListProjectsResponse()
    quick.monkeypatch.setenv("COLUMNS", "300")
    assert expected in quick("agent", "list").out
    shown = quick("agent", "show", "bob").out
    assert f"Status       {expected}\n" in shown
    assert ("Detail       it asks⏎for a word" in shown) == (state is not None)
    assert "Conversation th-1" in shown
    assert "Effort       high" in shown
    assert quick("agent", "show", "bob", "--json").document["agent"]["launch"]["effort"] == "high"
