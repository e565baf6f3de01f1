"""A process that admits records until an armed fault point ends it: python victim.py DATABASE. Prints each key told."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fencepost_powercut.recording import Recording
from fencepost_powercut.workload import Script

from fencepost_kit import faults
from fencepost_mailbox.domain.values import Kind

RECORDS_MAX = 200


async def main(path: Path) -> None:
    """Admit one record after the other, each told before the next begins."""
    script = Script(path, Recording(), connect=sqlite3.connect)
    async with script.open():
        faults.arm_from_environment()
        faults.refuse_unknown()
        for number in range(RECORDS_MAX):
            await script.send(0, 1, Kind.INFORMATION, key=str(number))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
