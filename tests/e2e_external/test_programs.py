"""Real agent programs, connected by `fencepost connect`, call our tools: each has a scripted model and only loopback.

Nothing a program says counts: the mailbox's records do.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost.home import Home
from fencepost_testing import scripted_model
from fencepost_testing.real_programs import ISOLATE, NotInstalled, Ran, installed, run

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = ROOT / "build" / "e2e" / "programs"
# In a network of its own any port is free.
PORT: Final = 4100
URL: Final = f"http://127.0.0.1:{PORT}"
PROMPT: Final = "Write to bob and read what he answers."
NAMES: Final = {
    "send_message",
    "followup_task",
    "receive_messages",
    "wait_agent",
    "reply",
    "interrupt_agent",
    "list_agents",
}
CALLED: Final = ("send_message", "receive_messages")
QUESTION: Final = "are you there?"
ANSWER: Final = "I am, and it is noon"
WAIT_MS: Final = 45_000
Call = tuple[str, Mapping[str, Any]]
CALLS: Final[Sequence[Call]] = [
    ("send_message", {"target": "bob", "message": QUESTION}),
    ("receive_messages", {"timeout_ms": 40_000}),
    ("receive_messages", {"ack_cursor": "<last:ack_cursor>"}),
]
# The services listen on sockets, not on ports: a program without a network reaches them.
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
NOTHING_ELSE: Final = "a network of its own takes Linux, unshare, ip, and the right to use them"


Worked = tuple[Ran, list[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """How one program is set up for a scripted model, as a person would for a real one, and run for one prompt."""

    name: str
    # The file that `connect` edits, below the person's home, and what stands in it before; None: there is none.
    file: str
    before: str | None
    words: tuple[str, ...]
    others: Mapping[str, str]
    variables: Mapping[str, str]
    # The tools that are approved, none where it never asks.
    approved: tuple[str, ...] = CALLED
    # It keeps state of its own in the very file; what it wrote stays when ours is taken out.
    rewrites: bool = False


def _codex(project: Path) -> Case:
    before = f"""# How I like it.
model = "scripted"
model_provider = "scripted"
approval_policy = "never"      # never ask me
sandbox_mode = "read-only"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{URL}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[features]
plugins = false

[projects."{project}"]
trust_level = "trusted"
"""
    words = ("codex", "exec", "--skip-git-repo-check", PROMPT)
    return Case(name="codex", file=".codex/config.toml", before=before, words=words, others={}, variables={})


def _claude(project: Path) -> Case:
    state = {"hasCompletedOnboarding": True, "theme": "dark", "projects": {str(project): {}}}
    return Case(
        name="claude",
        file=".claude.json",
        before=json.dumps(state, indent=2),
        words=("claude", "-p", PROMPT, "--model", "claude-sonnet-4-5"),
        others={},
        variables={
            "ANTHROPIC_BASE_URL": URL,
            "ANTHROPIC_API_KEY": "none-is-needed",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
        },
        rewrites=True,
    )


def _opencode(_: Path) -> Case:
    # OpenCode itself adds "$schema" where it is missing.
    before = f"""{{
  "$schema": "https://opencode.ai/config.json",
  // How I like it.
  "autoupdate": false,
  "share": "disabled",
  "snapshot": false,
  "model": "scripted/scripted",
  "small_model": "scripted/scripted",
  "enabled_providers": ["scripted"],
  "provider": {{
    "scripted": {{
      "npm": "@ai-sdk/openai-compatible",
      "name": "Scripted",
      "options": {{"baseURL": "{URL}/v1", "apiKey": "none"}},
      "models": {{"scripted": {{"name": "S", "limit": {{"context": 200000, "output": 8000}}, "tool_call": true}}}},
    }},
  }},
  "permission": {{"*": "ask"}}, // ask me
}}
"""
    variables = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return Case(
        name="opencode",
        file=".config/opencode/opencode.jsonc",
        before=before,
        words=("opencode", "run", "--format", "json", PROMPT),
        others={},
        variables={f"OPENCODE_DISABLE_{name}": "1" for name in variables},
    )


def _gemini(_: Path) -> Case:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    return Case(
        name="gemini",
        file=".gemini/settings.json",
        before="// How I like it.\n" + json.dumps(settings, indent=2) + "\n",
        words=("gemini", "-m", "gemini-2.5-flash", "-o", "stream-json", "-p", PROMPT),
        others={},
        variables={
            "GEMINI_API_KEY": "none-is-needed",
            "GOOGLE_GEMINI_BASE_URL": URL,
            "GEMINI_CLI_NO_RELAUNCH": "1",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        # With nobody there to be asked, it offers its model nothing else.
        approved=tuple(sorted(NAMES)),
    )


def _pi(_: Path) -> Case:
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    model = {"id": "scripted", "name": "Scripted", "reasoning": False, "input": ["text"], "cost": cost}
    provider = {"baseUrl": f"{URL}/v1", "api": "openai-completions", "apiKey": "none"}
    provider["models"] = [{**model, "contextWindow": 200_000, "maxTokens": 8_000}]  # type: ignore[assignment]
    return Case(
        name="pi",
        file=".pi/agent/mcp.json",
        before=None,
        words=("pi", "--provider", "scripted", "--model", "scripted", "--mode", "json", PROMPT),
        others={".pi/agent/models.json": json.dumps({"providers": {"scripted": provider}})},
        variables={"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
        approved=(),
    )


CASES: Final[Mapping[str, Callable[[Path], Case]]] = {
    "codex": _codex,
    "claude": _claude,
    "opencode": _opencode,
    "gemini": _gemini,
    "pi": _pi,
}


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody with a home folder of their own, who has one agent program."""

    home: Path
    project: Path
    case: Case
    env: Mapping[str, str]

    def connect(self, *words: str, path: str = "") -> Ran:
        """`fencepost connect PROGRAM ...`; with another PATH, the program is not found, and so not asked."""
        command = Path(sys.executable).with_name("fencepost")
        env = {**self.env, "PATH": path or self.env["PATH"]}
        ran = run([*ISOLATE, command, "connect", self.case.name, *words], env=env, cwd=self.project)
        assert ran.code == 0, ran
        return ran

    def work(self, calls: Sequence[Call] = CALLS, **variables: str) -> Worked:
        """Run the program for one prompt; return how it ended, and what its model was told."""
        script, record = self.home.parent / "calls.json", self.home.parent / "record.jsonl"
        script.write_text(json.dumps(calls), encoding="utf-8")
        record.write_text("", encoding="utf-8")
        model = [sys.executable, "-P", str(scripted_model.__file__), "--port", str(PORT)]
        words: list[str | Path] = [*ISOLATE, *model, "--calls", script, "--record", record, "--", *self.case.words]
        ran = run(words, env={**self.env, **variables}, cwd=self.project)
        return ran, [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]

    def held(self) -> dict[str, bytes]:
        """Every file that `connect` may have to do with, by name."""
        names = (self.case.file, ".claude/settings.json", *self.case.others)
        return {name: (self.home / name).read_bytes() for name in names if (self.home / name).is_file()}


Meet = Callable[[str], Person]


@pytest.fixture
def meet(request: pytest.FixtureRequest, served: Any, tmp_path: Path) -> Meet:
    """Somebody who has the program of this name; who cannot have it is skipped, and says why."""
    project = served.world.services.home.path / "work" / "external"
    project.mkdir(parents=True, exist_ok=True)

    def one(name: str) -> Person:
        if run([*ISOLATE, "true"], env=os.environ, cwd=project).code:
            pytest.skip(f"{name} was not run: {NOTHING_ELSE}")
        try:
            program = installed(PROGRAMS, name)
        except NotInstalled as error:
            pytest.skip(f"{name} was not run: {error}")
        node = request.getfixturevalue("node").folder / "node_modules" / "node" / "bin"
        return settled(CASES[name](project), tmp_path / name, program, node=node, home=served.world.services.home)

    return one


def settled(case: Case, folder: Path, program: Path, *, node: Path, home: Home) -> Person:
    own, bin_folder = folder / "home", folder / "bin"
    for made in (own, bin_folder):
        made.mkdir(parents=True)
    (bin_folder / case.name).symlink_to(program)
    for name, content in {case.file: case.before, **case.others}.items():
        if content is not None:
            (own / name).parent.mkdir(parents=True, exist_ok=True)
            (own / name).write_text(content, encoding="utf-8")
    env = {
        "HOME": str(own),
        "PATH": f"{bin_folder}:{node}:{SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": str(folder),
        "FENCEPOST_HOME": home.text,
        **case.variables,
    }
    return Person(home=own, project=home.path / "work" / "external", case=case, env=env)


@pytest.fixture(params=list(CASES))
def person(request: pytest.FixtureRequest, meet: Meet) -> Person:
    return meet(request.param)


def arguments(person: Person, *, approved: bool = True) -> list[str]:
    tools = person.case.approved if approved else ()
    return [
        "--agent",
        f"{'real' if approved else 'unasked'}-{person.case.name}",
        *(word for tool in tools for word in ("--approve", tool)),
    ]


@pytest.mark.requirement("connect.real-programs")
@pytest.mark.timeout(900)
async def test_a_connected_program_sends_and_receives_and_undoing_leaves_its_configuration_as_it_was(
    person: Person, served: Any
) -> None:
    before = person.held()
    await asyncio.to_thread(connect_and_undo, person)
    connected = await asyncio.to_thread(person.connect, *arguments(person))
    print(f"\n{person.case.name}: {' '.join(connected.out.splitlines()[-3:-1])}")
    async with served.world.agent(served.world.bob) as bob:
        await emptied(bob)
        working = asyncio.create_task(asyncio.to_thread(person.work))
        ids = await answer(bob, f"real-{person.case.name}", working)
        ran, told = await working
    assert ran.code == 0, ran
    offered = [fields for fields in told if fields.get("tools")]
    assert {name for name in NAMES if any(tool.endswith(name) for tool in offered[0]["tools"])} == NAMES
    assert ANSWER in "".join(offered[-1]["results"]), offered[-1]
    for record_id in ids:
        why = command_told(person, "why", record_id)
        assert {fact["fact"] for fact in why["facts"]} >= {"exposed", "acknowledged"}, why
    await asyncio.to_thread(undo_after_work, person, before)


@pytest.mark.requirement("connect.real-programs")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("person", [name for name in CASES if name != "pi"], indirect=True)
async def test_without_an_approval_a_program_that_nobody_watches_calls_nothing(person: Person, served: Any) -> None:
    await asyncio.to_thread(person.connect, *arguments(person, approved=False))
    if person.case.name == "codex":
        # It refuses by itself and asks nobody: the doctor is the one to say so.
        assert "approval_missing" in {finding["code"] for finding in command_told(person, "doctor")["findings"]}
    _, told = await asyncio.to_thread(person.work)
    assert told, "the program did not ask its model"
    async with served.world.agent(served.world.bob) as bob:
        records = await emptied(bob)
        assert f"unasked-{person.case.name}" not in {record["sender"]["name"] for record in records}
        agents = (await bob.call("list_agents"))["agents"]
    assert f"unasked-{person.case.name}" not in {agent["name"] for agent in agents}


@pytest.mark.requirement("connect.real-programs")
@pytest.mark.timeout(600)
async def test_a_program_connected_without_a_name_is_the_agent_that_its_environment_names(
    person: Person, served: Any
) -> None:
    approvals = [word for tool in person.case.approved for word in ("--approve", tool)]
    await asyncio.to_thread(person.connect, *approvals)
    ann, bob = served.world.ann, served.world.bob
    text = f"by {person.case.name}"
    calls = [("send_message", {"target": "bob", "message": text})]
    ran, _ = await asyncio.to_thread(person.work, calls, FENCEPOST_SESSION_ID=ann.agent_id)
    async with served.world.agent(bob) as reader:
        records = await emptied(reader)
    assert [(record["sender"]["name"], record["message"]) for record in records][-1:] == [("ann", text)], ran


@pytest.mark.requirement("connect.real-programs")
@pytest.mark.timeout(900)
async def test_no_program_cuts_off_the_longest_wait(meet: Meet, served: Any) -> None:
    people = [meet(name) for name in CASES]

    async def waited(person: Person) -> list[str]:
        tools = [word for tool in person.case.approved and ("wait_agent",) for word in ("--approve", tool)]
        await asyncio.to_thread(person.connect, "--agent", f"patient-{person.case.name}", *tools)
        ran, told = await asyncio.to_thread(person.work, [("wait_agent", {"timeout_ms": 60_000})])
        results: list[str] = told[-1].get("results") or [str(ran)]
        return results

    found = await asyncio.gather(*(waited(person) for person in people))
    cut = {
        person.case.name: results
        for person, results in zip(people, found, strict=True)
        if "timed_out" not in str(results)
    }
    assert cut == {}


async def emptied(bob: Any) -> list[Any]:
    """Acknowledge everything that lies there, of other tests too; return it, the oldest first."""
    page, records = await bob.call("receive_messages"), []
    while page["messages"]:
        records += page["messages"]
        page = await bob.call("receive_messages", ack_cursor=page["ack_cursor"])
    return records


async def answer(bob: Any, name: str, working: asyncio.Task[Any]) -> tuple[str, str]:
    """Wait for the program's message and answer it; return the ids of both."""
    received = await bob.call("receive_messages", timeout_ms=WAIT_MS)
    if not received["messages"]:
        pytest.fail(f"nothing came: {await working}")
    (message,) = received["messages"]
    assert (message["sender"]["name"], message["message"]) == (name, QUESTION)
    sent = await bob.call("send_message", target=name, message=ANSWER)
    assert (await bob.call("receive_messages", ack_cursor=received["ack_cursor"]))["messages"] == []
    return message["interaction_id"], sent["interaction_id"]


def command_told(person: Person, *words: str) -> Any:
    """Return what `fencepost ... --json` prints, whatever its exit code says of it."""
    command = Path(sys.executable).with_name("fencepost")
    told = run([command, *words, "--json"], env=person.env, cwd=person.project)
    assert told.out, told
    return json.loads(told.out)


def connect_and_undo(person: Person) -> None:
    """Where nobody but us has written in between, everything is byte for byte as it was."""
    before = person.held()
    person.connect(*arguments(person), path=SYSTEM_PATH)
    assert person.held() != before
    person.connect("--undo", path=SYSTEM_PATH)
    assert person.held() == before


def undo_after_work(person: Person, before: Mapping[str, bytes]) -> None:
    """Undo what the program has worked with. What the program itself has written into its file stays."""
    worked_with = person.held()
    person.connect("--undo")
    after = person.held()
    if not person.case.rewrites:
        assert after == before
        return
    state, left = json.loads(worked_with[person.case.file]), json.loads(after[person.case.file])
    del state["mcpServers"]["fencepost"]
    for document in (state, left):
        assert document.pop("mcpServers", {}) == {}
    assert left == state
    assert {name for name in after if name != person.case.file} == set(before) - {person.case.file}
