"""Read a home's tasks from the mailbox's database, read-only: `python audit.py HOME`. Prints one JSON document.

For looking only. The tables are Fencepost's own and change with its versions; programs ask the services.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any, Final

STATES: Final = {6: "integrated", 8: "cancelled"}
# Running, asked to stop, and both when nobody knows.
EXECUTED: Final = "SELECT count(*) FROM task WHERE phase IN (4, 5, 6, 7)"


def audit(database: Path) -> dict[str, Any]:
    """Return each task's state, revision and version, and the versions of its events; and what is still open."""
    opened = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
    try:
        tasks = {
            f"task_{task_id.hex()}": {
                "state": STATES.get(state, str(state)),
                "revision": revision,
                "version": version,
                "events": [
                    found
                    for (found,) in opened.execute(
                        "SELECT version FROM task_event WHERE task_id = ? ORDER BY sequence", (task_id,)
                    )
                ],
            }
            for task_id, state, revision, version in opened.execute(
                "SELECT task_id, state, revision, version FROM task ORDER BY sequence"
            )
        }
        ((supervised,),) = opened.execute("SELECT count(*) FROM supervision")
        ((executed,),) = opened.execute(EXECUTED)
        ((integrity,),) = opened.execute("PRAGMA integrity_check")
    finally:
        opened.close()
    return {"tasks": tasks, "supervised": supervised, "executed": executed, "integrity": integrity}


if __name__ == "__main__":
    print(json.dumps(audit(Path(sys.argv[1]).resolve() / "mailbox" / "mailbox.db")))
