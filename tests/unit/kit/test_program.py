"""What a service's process does around its own work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fencepost_testing.processes import environment, short_home

END_S_MAX = 20
OBJECTS_MIN = 10_000
PROGRAM = """
import gc, sys
from dataclasses import dataclass
from fencepost_kit.program import main
from fencepost_kit.settings import setting

@dataclass(frozen=True, kw_only=True)
class Settings:
    log_level: str = setting("info", about="level")

async def start(home, settings, stop):
    print(gc.get_freeze_count())
    return 0

sys.exit(main("mailbox", Settings, start, []))
"""


def test_what_a_service_has_loaded_is_not_walked_over_by_later_collections(tmp_path: Path) -> None:
    with short_home() as home:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM],
            capture_output=True,
            text=True,
            timeout=END_S_MAX,
            env=environment(home),
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > OBJECTS_MIN
