"""The scripted program as it is, with a clock on its turns. Standard library only.

`python -IS stamped_program.py --program PROGRAM ...` runs PROGRAM with the other words. FOLDER/stamps gets a line for
each turn that begins or ends: "turn_started" or "turn_ended", the turn, and the nanoseconds of the system's monotonic
clock right before the program says so.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

SAID = ("turn_started", "turn_ended")


def loaded(path: str) -> Any:
    """Return the program as a module."""
    spec = importlib.util.spec_from_file_location("scripted_program", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(argv: list[str]) -> int:
    program = loaded(argv[argv.index("--program") + 1])
    say = program.Program.emit
    place = Path(argv[argv.index("--folder") + 1], "stamps") if "--folder" in argv else None

    def stamped(self: Any, frame: dict[str, Any]) -> None:
        at = time.monotonic_ns()
        say(self, frame)
        if frame.get("event") in SAID and place is not None:
            stamps = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(stamps, f"{frame['event']} {frame['turn']} {at}\n".encode())
            os.close(stamps)

    program.Program.emit = stamped
    code: int = program.main(argv)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv))
