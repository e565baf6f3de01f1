"""A throw-away home with its services, a repository with a checkout for each agent, and the person who owns them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agents import git, run


class House:
    """Everything of one run, in one folder. What the person does, the command `fencepost` does."""

    def __init__(self) -> None:
        self.folder: Final = Path(tempfile.mkdtemp(prefix="fp-")).resolve()
        self.home: Final = self.folder / "home"
        # The project's main checkout.
        self.main: Final = self.folder / "main"
        self._is_up = False
        self._command: Final = str(Path(sys.executable).with_name("fencepost"))

    def fencepost(self, *words: str) -> str:
        """Run `fencepost ...` as the person who owns the home, in the project, and return what it prints."""
        ran = run(self.main, self._command, *words, env={"FENCEPOST_HOME": str(self.home)}, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"fencepost {' '.join(words)} ended with {ran.returncode}: {ran.stderr.strip()}")
        return ran.stdout

    def up(self) -> None:
        """Start the services, and return when they are ready."""
        self._is_up = True
        self.fencepost("up", "--detach")

    def down(self) -> None:
        """Stop the services."""
        self.fencepost("down")
        self._is_up = False

    def found(self, files: Mapping[str, str]) -> None:
        """Make the repository, with a first commit."""
        self.main.mkdir()
        git(self.main, "person", "init", "-q", "-b", "main")
        for name, content in files.items():
            (self.main / name).write_text(content, encoding="utf-8")
        git(self.main, "person", "add", *files)
        git(self.main, "person", "commit", "-q", "-m", "Begin")

    def worktree(self, name: str) -> Path:
        """Give an agent a worktree of the repository, on a branch of its own."""
        git(self.main, "person", "worktree", "add", "-q", "-b", name, str(self.folder / name))
        return self.folder / name

    def clone(self, name: str) -> Path:
        """Give an agent a clone."""
        git(self.folder, "person", "clone", "-q", str(self.main), str(self.folder / name))
        return self.folder / name

    def agent(self, name: str, checkout: Path, *, role: str = "agent") -> dict[str, Any]:
        """Create an agent, and return the entry for an MCP configuration that the command prints, with every tool."""
        words = ("agent", "create", name, "--role", role, "--workspace", str(checkout), "--tools", "all", "--json")
        server: dict[str, Any] = json.loads(self.fencepost(*words))["connect"]["mcp"]["mcpServers"]["fencepost"]
        return {**server, "env": {**server["env"], "FENCEPOST_TOOLS": "all"}}

    def keep_credential(self, server: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the credential that a server would use, and return a server that uses the copy."""
        kept = self.folder / "kept.credential"
        shutil.copy(self.home / "agents" / server["env"]["FENCEPOST_SESSION_ID"] / "credential", kept)
        env = {name: value for name, value in server["env"].items() if name != "FENCEPOST_SESSION_ID"}
        return {**server, "env": {**env, "FENCEPOST_CREDENTIAL_FILE": str(kept)}}

    def remove(self) -> None:
        """Stop what may still run, and remove the folder."""
        try:
            if self._is_up:
                self.down()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


def without_ours() -> None:
    """Forget the agent that this program itself may be started for: it speaks for others."""
    for name in [name for name in os.environ if name.startswith("FENCEPOST_")]:
        del os.environ[name]
