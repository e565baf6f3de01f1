"""The real Codex with a model that obeys, in a network where nothing but loopback is."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost_providers.adapters.codex.adapter import CodexAdapter
from fencepost_testing import codex_model
from fencepost_testing.real_programs import ISOLATE

PORT: Final = 4100
READY_S_MAX: Final = 10
KEY: Final = "SCRIPTED_API_KEY"
NATIVE: Final = f"""\
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "read-only"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{PORT}/v1"
wire_api = "responses"
env_key = "{KEY}"
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[feedback]
enabled = false

[features]
plugins = false
"""


class NoNamespace(Exception):
    """A network of its own takes Linux, unshare, nsenter, ip, and the right to use them."""


@dataclass(frozen=True, kw_only=True)
class RealCodex:
    """An installed Codex, a person who uses it with a scripted model, and that model."""

    folder: Path
    model: Path
    program: Path
    short: Path

    def adapter(self) -> CodexAdapter:
        """An adapter that finds this program, and this person's home."""
        return CodexAdapter(environment=self.environment, compact_roots=(self.short,))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.folder / "person"),
            "PATH": f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            KEY: "none-is-needed",
        }

    def release(self, tag: str) -> None:
        """Let the model go on where it holds for this tag."""
        (self.model / tag).touch()

    def record(self) -> list[dict[str, Any]]:
        """What the model was asked, and how each request ended."""
        path = self.model / "record.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def asked(self) -> list[dict[str, Any]]:
        return [line for line in self.record() if line["event"] == "asked"]


@contextmanager
def real_codex(folder: Path, model: Path, program: Path) -> Iterator[RealCodex]:
    """Set a person up and serve the model while it lasts; `model` is the folder of that.

    Raises:
        NoNamespace: a network of its own cannot be had here.
    """
    for made in (folder / "bin", folder / "person/.codex", model):
        made.mkdir(parents=True, exist_ok=True)
    (folder / "person/.codex/config.toml").write_text(NATIVE, encoding="utf-8")
    words = [*ISOLATE, sys.executable, "-P", str(codex_model.__file__), "--port", str(PORT)]
    serving = subprocess.Popen([*words, "--folder", str(model)], stdin=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + READY_S_MAX
        while not (model / "ready").exists():
            if serving.poll() is not None or time.monotonic() > limit:
                raise NoNamespace(NoNamespace.__doc__)
            time.sleep(0.01)
        # Codex runs in the model's network: it reaches the model, and nothing else.
        inside = shlex.join(["nsenter", f"--net=/proc/{serving.pid}/ns/net", "--", str(program)])
        wrapper = folder / "bin" / "codex"
        wrapper.write_text(f'#!/bin/sh\nexec {inside} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        with tempfile.TemporaryDirectory(prefix="fpx") as short:
            yield RealCodex(folder=folder, model=model, program=program, short=Path(short))
    finally:
        serving.kill()
        serving.wait()
