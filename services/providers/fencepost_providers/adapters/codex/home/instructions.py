"""The managed instructions: one text for Codex's developer instructions, and the same in the habitat's AGENTS.md.

Files of the workspace are neither read nor written: Codex finds them by itself. Source: R093-R099.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fencepost_providers.adapters.base import StartFailed
from fencepost_providers.adapters.codex.home import files
from fencepost_providers.domain.runtimes import Finding, Gravity

# The text travels as one argument, of which the system takes 128 KiB.
INSTRUCTIONS_BYTES_MAX: Final = 64 * 1024
NAME: Final = "AGENTS.md"
MARK: Final = "<!-- Written by Fencepost at each start of this agent; changes here are lost. -->"


def composed(texts: Sequence[str]) -> str:
    """Return the texts in their order, each once, blank ones left out.

    Raises:
        StartFailed: together they have over INSTRUCTIONS_BYTES_MAX bytes, or hold a NUL. Nothing is cut.
    """
    once = dict.fromkeys(text.strip() for text in texts if text.strip())
    whole = "\n\n".join(once)
    size = len(whole.encode())
    if size > INSTRUCTIONS_BYTES_MAX or "\0" in whole:
        what = f"{size} bytes, {INSTRUCTIONS_BYTES_MAX} at most" if "\0" not in whole else "there is a NUL in them"
        raise StartFailed(
            "invalid_instructions",
            f"the instructions of this agent cannot be given to Codex: {what}; nothing was started",
            hint="Shorten the common, class or agent instructions; what is long belongs into a file that they name.",
        )
    return whole


def write_habitat(habitat: Path, text: str) -> list[Finding]:
    """Write the habitat's AGENTS.md, or take ours away where there is nothing to say; another's file stays."""
    path = habitat / NAME
    wanted = f"{MARK}\n\n{text}\n".encode() if text else None
    try:
        found = files.read(path)
        ours = found is None or found.startswith(MARK.encode())
    except files.Unreadable:
        ours, found = False, None
    if not ours:
        return [
            Finding(
                code="habitat_instructions_foreign",
                gravity=Gravity.FACT,
                text=f"{path} is not ours and was left as it is; Codex gets the managed instructions all the same",
            )
        ]
    if wanted is None:
        files.remove(path)
    elif found != wanted:
        files.write(path, wanted)
    return []
