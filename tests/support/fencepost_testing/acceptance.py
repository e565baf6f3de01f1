"""The whole system for an acceptance: installed services and commands, the real Codex, a model, a person.

Everything runs in one network in which nothing but loopback is, or with a person's own Codex in the network there is.
What a test learns comes from outside: from the command line, from each agent's own rollout, from the model's record.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fencepost.home import MAILBOX, MCP_EDGE, PROVIDERS, SESSIONS, Home
from fencepost_testing.acceptance_evidence import Rollout, rollout_at
from fencepost_testing.acceptance_terminal import Terminal
from fencepost_testing.codex_real import KEY, NATIVE, PORT, NoNamespace
from fencepost_testing.processes import END_S_MAX, MODULES, SUPPORT, Services, dying_with_us
from fencepost_testing.real_programs import ISOLATE, Ran, run

Json = Any
WAIT_S_MAX: Final = 60.0
# Most looks start a command, which takes half a second by itself.
LOOK_S: Final = 0.25
READY_LOOK_S: Final = 0.02
ANSWER_S_MAX: Final = 120
COMMAND_S_MAX: Final = 180
READY_S_MAX: Final = 15
ALL: Final = (SESSIONS, MAILBOX, MCP_EDGE, PROVIDERS)
# The login of the person, which no report may hold.
PLANTED: Final = "sk-planted-for-the-acceptance-0000"
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# What an agent of the acceptance is allowed to call unasked, and nothing else (M178).
APPROVED: Final = (
    "followup_task",
    "interrupt_agent",
    "list_agents",
    "receive_messages",
    "reply",
    "send_message",
    "wait_agent",
)


class Installed(Services):
    """Services of an installation, in a network of their own where `inside` says so."""

    def __init__(self, home: Home, *, python: Path, inside: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__(home)
        self._python = python
        self._inside = inside
        self._environment = environment

    def spawn(self, name: str, *, env: Mapping[str, str] | None = None) -> int:
        """See Services: the environment is the one that was given, and nothing of this process."""
        words = [*self._inside, str(self._python), "-P", "-m", MODULES[name]]
        return self.spawned(name, words, {**self._environment, **(env or {})})


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent that a person has created."""

    name: str
    agent_id: str
    workspace: Path


@dataclass(frozen=True, kw_only=True)
class Prompted:
    """What came of a person's words."""

    record_id: str
    thread: str
    turn_id: str
    outcome: str
    final: str


@dataclass(kw_only=True)
class Stage:
    """The system, and a person at its command line."""

    folder: Path
    home: Home
    scripts: Path
    environment: Mapping[str, str]
    inside: tuple[str, ...] = ()
    model: Path | None = None
    # What agents are created with, and which tools they may call unasked.
    settings: tuple[str, ...] = ()
    approved: tuple[str, ...] = APPROVED
    agents: dict[str, Agent] = field(default_factory=dict)

    # --- the services -------------------------------------------------------------------------------------------------

    @contextmanager
    def up(self) -> Iterator[None]:
        """`fencepost up`, as a person runs it, until left."""
        self.home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "up.log").open("ab") as log:
            words = [*self.inside, str(self.scripts / "fencepost"), "up"]
            child = subprocess.Popen(
                dying_with_us(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self.environment)
            )
        try:
            self.until(lambda: self._all_ready(child), "all services being ready")
            yield
        finally:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(END_S_MAX * 2)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def _all_ready(self, child: subprocess.Popen[bytes]) -> bool:
        assert child.poll() is None, (self.folder / "up.log").read_text()
        told = self.command("status", "--json")
        return told.code == 0 and json.loads(told.out)["overall"] == "ready"

    # --- the person ---------------------------------------------------------------------------------------------------

    def command(self, *words: str, seconds: float = COMMAND_S_MAX) -> Ran:
        """`fencepost WORDS`, to its end."""
        return self._run(words, self.environment, seconds)

    def _run(self, words: Sequence[str], env: Mapping[str, str], seconds: float) -> Ran:
        return run([*self.inside, self.scripts / "fencepost", *words], env=env, cwd=self.folder, seconds=seconds)

    def told(self, *words: str) -> Json:
        """What `fencepost WORDS --json` says; it must succeed."""
        ran = self.command(*words, "--json")
        assert ran.code == 0, f"fencepost {' '.join(words)}: {ran}\n{self.logs()}"
        return json.loads(ran.out)

    def create(self, name: str) -> Agent:
        """Create an agent of Codex whose workspace is an empty repository of its own (M169 M179); it is not started."""
        workspace = self.folder / "workspaces" / name
        workspace.mkdir(parents=True)
        subprocess.run(["git", "init", "--quiet", str(workspace)], check=True, env=dict(self.environment))
        project = self.folder / "workspaces"
        words = ("--provider", "codex", "--project", str(project), "--workspace", str(workspace), *self.settings)
        made = self.told("agent", "create", name, *words)
        agent = Agent(name=name, agent_id=made["agent"]["agent_id"], workspace=workspace)
        self.agents[name] = agent
        return agent

    def start(self, name: str) -> Json:
        """Approve tools in the agent's own home alone (M178) and start it; returns its runtime."""
        if self.approved:
            self.told("agent", "tools", name, *(word for tool in self.approved for word in ("--approve", tool)))
        return self.told("agent", "start", name, "--wait-s", "60")["runtime"]

    def acting(self, name: str, *words: str) -> Json:
        """What `fencepost WORDS --json` says to an agent in whose environment it is typed."""
        session = {"FENCEPOST_SESSION_ID": self.agents[name].agent_id}
        words = (*words, "--json")
        ran = self._run(words, {**self.environment, **session}, COMMAND_S_MAX)
        assert ran.code == 0, f"fencepost {' '.join(words)}: {ran}\n{self.logs()}"
        return json.loads(ran.out)

    def prompt(self, name: str, text: str, *, wait_s: int = ANSWER_S_MAX) -> Prompted:
        """Say something to an agent as a person, and wait for the end of the turn that answers it."""
        told = self.told("agent", "prompt", name, text, "--wait-s", str(wait_s))
        explained = told["explained"]
        binding = explained["binding"]
        assert (binding or {}).get("state") == "published", f"{explained}\n{self.logs()}"
        return Prompted(
            record_id=told["record_id"],
            thread=binding["provider_session_id"],
            turn_id=binding["provider_turn_id"],
            outcome=binding["outcome"],
            final=binding["final_text"],
        )

    def why(self, record_id: str) -> Json:
        return self.told("why", record_id)

    def runtime(self, name: str) -> Json:
        """What runs for an agent now."""
        return self.told("agent", "show", name)["runtime"]

    def ready(self, name: str, *, after_generation: int = 0) -> Json:
        """Wait until an agent runs in a later life than that."""

        def look() -> Json:
            ran = self.command("agent", "show", name, "--json")
            found = json.loads(ran.out).get("runtime") if ran.code == 0 else None
            return found if found and found["state"] == "ready" and found["generation"] > after_generation else None

        return self.until(look, f"{name} being ready after generation {after_generation}")

    def rollout(self, name: str) -> Rollout:
        """What Codex has written of an agent's conversation."""
        runtime = self.runtime(name)
        return rollout_at(Path(runtime["private_home"], "sessions"), runtime["conversation_id"])

    def bound(self, request_id: str) -> Json:
        """Wait until a turn has taken a request, and return which."""
        return self.until(lambda: self.why(request_id)["binding"], f"{request_id} being bound to a turn")

    def answer(self, request_id: str, *, within_s: float = WAIT_S_MAX) -> Json:
        """Wait for the answer to a request, and return its record."""
        reply_id = self.until(
            lambda: self.why(request_id)["reply_id"], f"the answer to {request_id}", within_s=within_s
        )
        return self.told("message", "show", reply_id)["record"]

    def trust(self, name: str) -> None:
        """Say in an agent's own Codex home, as its person may, that its workspace is trusted (M180)."""
        with Path(self.runtime(name)["private_home"], "config.toml").open("a", encoding="utf-8") as file:
            file.write(f'\n[projects."{self.agents[name].workspace}"]\ntrust_level = "trusted"\n')

    def attach(self, name: str) -> Terminal:
        """`fencepost agent attach NAME` in a terminal, once that is opened."""
        words = [*self.inside, str(self.scripts / "fencepost"), "agent", "attach", name]
        return Terminal(words, self.environment, self.folder)

    # --- looking ------------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], Any], what: str, *, within_s: float = WAIT_S_MAX) -> Any:
        """Look until something is so, and return it."""
        end = time.monotonic() + within_s
        while not (found := condition()):
            assert time.monotonic() < end, f"{what} did not happen within {within_s} s\n{self.logs()}"
            time.sleep(LOOK_S)
        return found

    def logs(self) -> str:
        """The ends of all logs."""
        paths = [*sorted(self.home.logs.glob("*.log")), *sorted(self.home.path.glob("agents/*/logs/*.log"))]
        return "".join(f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}\n" for path in paths)

    def record(self) -> list[Json]:
        """What the model was asked, and how each request ended."""
        assert self.model is not None
        path = self.model / "record.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def schema(self) -> Json:
        """The tools of ours as they were exposed to the model."""
        assert self.model is not None
        return json.loads((self.model / "schema.json").read_text(encoding="utf-8"))

    def native_files(self) -> dict[str, str]:
        """The digests of what a person has in the Codex home: configuration and login."""
        native = Path(self.environment.get("CODEX_HOME") or Path(self.environment["HOME"], ".codex"))
        names = ("config.toml", "auth.json", "AGENTS.md")
        return {
            name: hashlib.sha256((native / name).read_bytes()).hexdigest()
            for name in names
            if (native / name).is_file()
        }

    def approvals(self, name: str) -> dict[str, str]:
        """How the tools of every MCP server stand in an agent's own Codex home."""
        text = Path(self.runtime(name)["private_home"], "config.toml").read_text(encoding="utf-8")
        servers = tomllib.loads(text).get("mcp_servers", {})
        return {
            tool: str(settings.get("approval_mode"))
            for server in servers.values()
            for tool, settings in server.get("tools", {}).items()
        }

    def asked(self) -> list[Json]:
        return [line for line in self.record() if line["event"] == "asked"]

    def release(self, tag: str) -> None:
        """Let the model go on where it holds for this tag."""
        assert self.model is not None
        (self.model / tag).touch()

    def play(self, *plays: Json) -> None:
        """Say what the model does."""
        assert self.model is not None
        (self.model / "plays.json").write_text(json.dumps(plays), encoding="utf-8")


@contextmanager
def loopback(folder: Path) -> Iterator[tuple[str, ...]]:
    """Serve the model in a network of its own; yields the words that run something in there.

    Raises:
        NoNamespace: such a network cannot be had here.
    """
    folder.mkdir(parents=True)
    words = [*ISOLATE, sys.executable, "-P", "-m", "fencepost_testing.acceptance_model"]
    env = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    serving = subprocess.Popen(
        [*words, "--port", str(PORT), "--folder", str(folder)], stdin=subprocess.DEVNULL, env=env
    )
    try:
        limit = time.monotonic() + READY_S_MAX
        while not (folder / "ready").exists():
            if serving.poll() is not None or time.monotonic() > limit:
                raise NoNamespace(NoNamespace.__doc__)
            time.sleep(READY_LOOK_S)
        yield ("nsenter", f"--net=/proc/{serving.pid}/ns/net", "--")
    finally:
        serving.kill()
        serving.wait()


@contextmanager
def a_stage(scripts: Path, program: Path) -> Iterator[Stage]:
    """A home in which nothing runs yet, a person who uses Codex with the scripted model, and that model."""
    with tempfile.TemporaryDirectory(prefix="fpa", ignore_cleanup_errors=True) as text:
        folder = Path(text).resolve()
        for made in (folder / "bin", folder / "person/.codex"):
            made.mkdir(parents=True)
        (folder / "bin/codex").symlink_to(program)
        (folder / "person/.codex/config.toml").write_text(NATIVE, encoding="utf-8")
        (folder / "person/.codex/auth.json").write_text(json.dumps({"OPENAI_API_KEY": PLANTED}), encoding="utf-8")
        environment = {
            "HOME": str(folder / "person"),
            "PATH": f"{folder / 'bin'}:{SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "FENCEPOST_HOME": str(folder / "h"),
            KEY: "none-is-needed",
        }
        with loopback(folder / "model") as inside:
            yield Stage(
                folder=folder,
                home=Home(folder / "h"),
                scripts=scripts,
                environment=environment,
                inside=inside,
                model=folder / "model",
            )
