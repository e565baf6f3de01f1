"""Agents: each has a name, a checkout of its own, and tools that it calls. What it does is printed as it happens."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mcp_client import McpClient

WAIT_MS: Final = 20_000
PROGRAM_S_MAX: Final = 40
# Whoever commits, commits under a name of its own, whatever the machine is set to.
_GIT: Final = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
_STARTED: Final = time.monotonic()


class Refused(Exception):
    """A tool answered with an error. `answer` has its code, its message, what was written, and what to do."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['code']}: {answer['message']}")
        self.answer = answer


def say(text: str = "") -> None:
    """Print a line at once."""
    print(text, flush=True)


def tell(who: str, what: str) -> None:
    """Print a line of the timeline."""
    say(f"{time.monotonic() - _STARTED:6.2f}  {who:<9} {what}")


def git(folder: Path, name: str, *arguments: str) -> str:
    """Run git in a checkout as somebody, and return what it prints."""
    person = {f"GIT_{part}_NAME": name for part in ("AUTHOR", "COMMITTER")}
    person |= {f"GIT_{part}_EMAIL": f"{name}@example.invalid" for part in ("AUTHOR", "COMMITTER")}
    return run(folder, "git", *arguments, env=_GIT | person).stdout.strip()


def run(
    folder: Path, *words: str, env: Mapping[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what came of it."""
    return subprocess.run(
        words,
        cwd=folder,
        env={**_outside(), **(env or {})},
        check=check,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        stdin=subprocess.DEVNULL,
        # Ctrl-C is for this program, which then ends everything in order.
        start_new_session=True,
    )


def _outside() -> dict[str, str]:
    # A git hook that started us says by variables which repository is meant; ours are others.
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


class Agent:
    """One agent, whose tools are a child process: the MCP server of its configuration, started in its checkout."""

    # The names that people gave to tasks, for the timeline: every agent sees the same ids.
    titles: Final[dict[str, str]] = {}

    def __init__(self, name: str, checkout: Path, server: Mapping[str, Any], client: McpClient) -> None:
        self.name = name
        self.checkout = checkout
        self.server = server
        self.client = client
        self._told: list[dict[str, Any]] = []

    @classmethod
    async def begin(cls, name: str, checkout: Path, server: Mapping[str, Any]) -> Agent:
        """Begin a life of an agent."""
        return cls(name, checkout, server, await McpClient.spawn(server, cwd=checkout))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and return its answer. Raises Refused."""
        # A request id makes a call repeatable: whoever repeats it with the same id does nothing twice.
        if tool.startswith(("task_", "evidence_add")) and tool not in {"task_list", "task_get", "task_history"}:
            arguments = {**arguments, "request_id": str(uuid.uuid4())}
        answer, is_error = await self.client.call(tool, arguments)
        tell(self.name, f"{tool:<22} {shown_arguments(arguments):<30} {shown_answer(answer)}".rstrip())
        if is_error:
            raise Refused(answer)
        return answer

    async def refused(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that is expected to refuse, and return its error."""
        try:
            answer = await self.call(tool, **arguments)
        except Refused as refused:
            return refused.answer
        raise AssertionError(f"{tool} of {self.name} should have been refused: {answer}")

    async def told(self, kind: str, task_id: str = "") -> dict[str, Any]:
        """Wait until this agent is notified of something, mostly about a task, and return that task as it was then."""
        while True:
            for at, notification in enumerate(self._told):
                task = notification.get("task") or {}
                if notification["kind"] == kind and task.get("id") in {task_id, None}:
                    del self._told[at]
                    return dict(task)
            answer, is_error = await self.client.call("agent_wait", {"timeout_ms": WAIT_MS})
            if is_error:
                raise Refused(answer)
            if answer["timed_out"]:
                raise AssertionError(f"{self.name} was not told: {kind} {self.titles.get(task_id, '')}")
            self._take(answer["notification"])

    async def yields(self) -> int:
        """End a turn: read what is left to be read, call agent_ready, and return what is still supervised."""
        answer, _ = await self.client.call("agent_wait", {"timeout_ms": 0})
        while not answer["timed_out"]:
            self._take(answer["notification"])
            answer, _ = await self.client.call("agent_wait", {"timeout_ms": 0})
        ready = await self.call("agent_ready")
        return int(ready["pending_count"])

    def _take(self, notification: dict[str, Any]) -> None:
        self._told.append(notification)
        task = notification.get("task")
        about = self.title(task) if task else ""
        tell(self.name, f"{'agent_wait':<22} {'':<30} told: {notification['kind']} {about}".rstrip())

    def title(self, task: Mapping[str, Any]) -> str:
        """Return what the timeline calls a task."""
        return self.titles.get(task["id"], str(task["id"]))

    async def pages(self, tool: str, key: str, **arguments: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return every entry of a list, page by page, and the last page."""
        entries: list[dict[str, Any]] = []
        answer = await self.call(tool, **arguments)
        while True:
            entries += answer[key]
            if not answer["next_cursor"]:
                return entries, answer
            answer = await self.call(tool, **arguments, cursor=answer["next_cursor"])

    def check(self, command: str) -> bool:
        """Run a command of a task's acceptance in this checkout, and tell whether it succeeds."""
        ran = run(self.checkout, sys.executable, "-B", "-c", command, check=False)
        told = "succeeds" if ran.returncode == 0 else f"fails: {ran.stderr.splitlines()[-1]}"
        tell(self.name, f'$ python -c "{command}"')
        tell(self.name, f"  {told}")
        return ran.returncode == 0

    def commit(self, files: Mapping[str, str], message: str) -> str:
        """Write files, commit them, and return the commit's full id."""
        for name, content in files.items():
            (self.checkout / name).write_text(content, encoding="utf-8")
        git(self.checkout, self.name, "add", *files)
        git(self.checkout, self.name, "commit", "-q", "-m", message)
        commit = git(self.checkout, self.name, "rev-parse", "HEAD")
        tell(self.name, f"$ git commit {' '.join(files)}: {commit[:10]}")
        return commit

    def catch_up(self, project: Path) -> None:
        """Bring what was integrated meanwhile into this checkout."""
        git(self.checkout, self.name, "pull", "-q", "--no-rebase", "--no-edit", str(project), "main")


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Return what is worth seeing of a call."""
    words: list[str] = []
    for name, value in arguments.items():
        if name == "task_id":
            words.append(Agent.titles.get(value, value))
        elif name == "description":
            words.append(value.split(":")[0].lower())
        elif name in _SHOWN:
            words.append(_SHOWN[name].format(value))
        elif name == "accepted":
            words.append("accepted" if value else "rejected")
        elif name == "commit":
            words.append(value[:10])
    return " ".join(words)


_SHOWN: Final = {"to": "to {}", "revision": "revision {}", "key": "{}", "file_path": "{}"}
_TOLD: Final = {"state": "{}", "version": "version {}", "free": "free: {}", "pending_count": "{} supervised"}


def shown_answer(answer: Mapping[str, Any]) -> str:
    """Return what is worth seeing of an answer."""
    if "code" in answer:
        return f"REFUSED {answer['code']}"
    if "reserved" in answer:
        return "reserved" if answer["reserved"] else f"NOT RESERVED, held by {answer['holder']['name']}"
    if "integration" in answer:
        return f"{answer['state']}: {answer['integration']}"
    if "agents" in answer and "memory" not in answer:
        return ", ".join(agent["name"] for agent in answer["agents"])
    if "messages" in answer:
        return ", ".join(f"{one['message']!r} of {one['sender']['name']}" for one in answer["messages"])
    if "delivery" in answer and "message_id" in answer:
        return f"{answer['delivery']}"
    if "tasks" in answer:
        return f"{len(answer['tasks'])} tasks, {answer['pending_count']} supervised"
    if "events" in answer:
        return " ".join(event["action"] for event in answer["events"])
    return next((words.format(answer[name]) for name, words in _TOLD.items() if name in answer), "")
