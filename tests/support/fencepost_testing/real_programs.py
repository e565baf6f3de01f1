"""Real agent programs, each pinned and in a folder of its own, and how one is run where nothing but loopback is.

`python -m fencepost_testing.real_programs FOLDER [NAME...]` installs them ahead of the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INSTALL_S_MAX: Final = 600
RUN_S_MAX: Final = 90
# Names what is installed in a folder; written last.
MARK: Final = "installed.txt"
# The network of a program: its own, with loopback and nothing else.
ISOLATE: Final = ("unshare", "-n", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "isolated")


@dataclass(frozen=True, kw_only=True)
class Package:
    """What a program is installed as, and what starts it, below the folder of the installation."""

    name: str
    version: str
    command: str
    # Started by Node 22: what the file says by itself takes whatever Node the machine has.
    by_node: bool = False

    @property
    def pinned(self) -> str:
        return f"{self.name}@{self.version}"


# Always by version: left to itself npm takes an older release that goes with an older Node.
PACKAGES: Final[Mapping[str, Package]] = {
    "codex": Package(
        name="@openai/codex",
        version="0.171.0",
        command="node_modules/@openai/codex-*/vendor/*/bin/codex",
    ),
    "claude": Package(
        name="@anthropic-ai/claude-code",
        version="2.1.332",
        command="node_modules/@anthropic-ai/claude-code/bin/claude.exe",
    ),
    "opencode": Package(name="opencode-ai", version="1.18.33", command="node_modules/opencode-ai/bin/opencode.exe"),
    "gemini": Package(name="@google/gemini-cli", version="0.61.0", command="node_modules/.bin/gemini", by_node=True),
    "pi": Package(
        name="@earendil-works/pi-coding-agent", version="1.6.0", command="node_modules/.bin/pi", by_node=True
    ),
}


class NotInstalled(Exception):
    """A program could not be installed; the text says why."""


def installed(root: Path, name: str) -> Path:
    """Return what starts a program; install it first where its version is not there. NotInstalled where that fails."""
    package, folder = PACKAGES[name], root / name
    if not _has(folder, package):
        _install(package, folder)
        (folder / MARK).write_text(package.pinned, encoding="utf-8")
    return present(root, name)


def present(root: Path, name: str) -> Path:
    """Return what starts a program that was installed before. NotInstalled where its version is not there."""
    package, folder = PACKAGES[name], root / name
    if not _has(folder, package):
        raise NotInstalled(f"{package.pinned} is not installed here; `make e2e` installs it")
    found = sorted(folder.glob(package.command))
    if not found:
        raise NotInstalled(f"{package.pinned} has no {package.command}: its binary for this machine is missing")
    return found[0]


def _has(folder: Path, package: Package) -> bool:
    mark = folder / MARK
    return mark.is_file() and mark.read_text(encoding="utf-8") == package.pinned


def _install(package: Package, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled(f"npm is not here, and {package.pinned} comes by it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"private": True}), encoding="utf-8")
    command = [npm, "install", "--omit=dev", "--no-audit", "--no-fund", "--no-progress", package.pinned]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{package.pinned} was not there after {INSTALL_S_MAX} s") from None
    if done.returncode:
        raise NotInstalled(f"{package.pinned}: npm ended with {done.returncode}: {done.stderr.strip()[-300:]}")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"status {self.code}\n--- output\n{self.out[-4000:]}\n--- errors\n{self.err[-4000:]}"


def run(words: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path, seconds: float = RUN_S_MAX) -> Ran:
    """Run a command to its end, in a session of its own that ends with it."""
    child = subprocess.Popen(
        [str(word) for word in words],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        return Ran(code=-int(signal.SIGKILL), out=out, err=f"{err}\nended after {seconds} s")
    return Ran(code=child.returncode, out=out, err=err)


def main(root: str, names: Iterable[str]) -> None:
    for name in names or PACKAGES:
        print(installed(Path(root), name))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
