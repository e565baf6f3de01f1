"""The servers of ours that run as this user: from /proc where there is one, else from ps."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost.doctor.entries import is_ours
from fencepost.home import HOME_VARIABLE

PROCESSES_MAX: Final = 32_768
FILE_BYTES_MAX: Final = 256 * 1024
PS_MS_MAX: Final = 5_000
# Who takes over the children of those that have ended.
ADOPTERS: Final = frozenset({"systemd", "init", "launchd", "tini", "dumb-init", "docker-init", "catatonit"})
_ETIME: Final = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """One server of ours. `home` is None where it cannot be told."""

    pid: int
    arguments: tuple[str, ...]
    started_s: float
    home: str | None
    # True where the program that started it has ended.
    orphan: bool


def running(*, proc: Path = Path("/proc")) -> list[Process]:
    """Return our running servers; what cannot be read, or ends meanwhile, is left out."""
    if (proc / "self" / "stat").exists():
        return list(_from_proc(proc))
    try:
        answer = subprocess.run(
            ["ps", "-axww", "-o", "pid=,ppid=,uid=,etime=,command="],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PS_MS_MAX / 1000,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return from_ps(answer.stdout.decode("utf-8", "replace"), uid=os.geteuid(), now_s=time.time())


def from_ps(text: str, *, uid: int, now_s: float) -> list[Process]:
    """Return our servers in what ps printed: pid, parent, user, time since the start, command. Pure."""
    rows = [line.split(None, 4) for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 5]
    names = {row[0]: os.path.basename(row[4].split()[0]) for row in rows}  # noqa: PTH119 (any text)
    found = []
    for pid, parent, user, since, command in rows[:PROCESSES_MAX]:
        words = tuple(command.split())
        elapsed = _ETIME.fullmatch(since)
        if user != str(uid) or elapsed is None or not is_ours(words):
            continue
        days, hours, minutes, seconds = (int(part or 0) for part in elapsed.groups())
        started_s = now_s - (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
        orphan = parent == "1" and names.get("1", "") in ADOPTERS
        found.append(Process(pid=int(pid), arguments=words, started_s=started_s, home=None, orphan=orphan))
    return found


def _from_proc(proc: Path) -> Iterator[Process]:
    boot_s = next(
        (float(line.split()[1]) for line in _read(proc / "stat").splitlines() if line.startswith("btime ")), 0.0
    )
    tick = os.sysconf("SC_CLK_TCK")
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    for pid in pids[:PROCESSES_MAX]:
        folder = proc / str(pid)
        words = tuple(_read(folder / "cmdline").removesuffix("\0").split("\0"))
        try:
            if not is_ours(words) or folder.stat().st_uid != os.geteuid():
                continue
        except OSError:
            continue
        # The name of the program stands in parentheses and may hold anything.
        fields = _read(folder / "stat").rpartition(")")[2].split()
        if len(fields) < 20:
            continue
        parent = int(fields[1])
        orphan = parent == 1 and _read(proc / "1" / "comm").strip() in ADOPTERS
        variables = dict(item.partition("=")[::2] for item in _read(folder / "environ").split("\0"))
        yield Process(
            pid=pid,
            arguments=words,
            started_s=boot_s + int(fields[19]) / tick,
            home=variables.get(HOME_VARIABLE) if variables else None,
            orphan=orphan,
        )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
