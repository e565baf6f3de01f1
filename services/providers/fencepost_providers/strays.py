"""Whether the child of an earlier start of this service is certainly gone. M155.

Children die with this service (fencepost_providers.processes); this looks, where a look can tell, before the lease of
that life is given up early. Where it cannot tell, the lease ends by its term.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def mark_of(pid: int) -> str:
    """Return what tells this process from a later one of the same number; empty where the system does not say."""
    if sys.platform != "linux" or pid <= 0:
        return ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # Behind the command's closing bracket; the 20th of them is the start in clock ticks since the boot.
    fields = stat.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def is_gone(pid: int, mark: str) -> bool:
    """Tell whether a process is certainly gone. An unknown one is not."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    now = mark_of(pid)
    return bool(mark and now) and now != mark
