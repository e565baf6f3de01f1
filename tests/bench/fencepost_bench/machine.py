"""What the system tells of a process: processor time, resident memory, bytes written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fencepost_bench.rows import Unmeasured


def cpu_s(pid: int) -> float | None:
    """Return the processor seconds of all threads of a process so far; None where the system does not tell finely."""
    try:
        if sys.platform != "linux":
            return None
        nanoseconds = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
        return nanoseconds / 1e9
    except (OSError, IndexError, ValueError):
        return _cpu_ticks_s(pid)


def _cpu_ticks_s(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process in KiB.

    Raises:
        Unmeasured: the system does not tell.
    """
    try:
        if sys.platform == "linux":
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1])
        return int(subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=True).stdout)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise Unmeasured(f"the memory of a process: {error}") from error


def written_bytes() -> int:
    """Return how many bytes this process has caused to be written to storage.

    Raises:
        Unmeasured: the system does not tell.
    """
    try:
        for line in Path("/proc/self/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
    except (OSError, ValueError, IndexError) as error:
        raise Unmeasured(f"bytes written to disk: {error}") from error
    raise Unmeasured("bytes written to disk: not told here")
