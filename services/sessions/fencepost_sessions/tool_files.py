"""The files in agents' folders that show which MCP tools are offered: one line, for its servers to read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from fencepost.home import TOOLS_NAME, Home
from fencepost_kit.files import write_private
from fencepost_sessions.domain.identifiers import uuid_text


class HomeToolFiles:
    """ToolFiles in a home. Blocking work runs on a thread, so that a slow disk stalls no heartbeat."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def show(self, profiles: Mapping[bytes, str]) -> None:
        """Make each agent's file hold its profile, durably; no file where that, or the agent's folder, is not there."""
        places = {self._home.agent_folder(uuid_text(agent_id)): text for agent_id, text in profiles.items()}
        await asyncio.to_thread(_show, places)


def _show(places: Mapping[Path, str]) -> None:
    for folder, text in places.items():
        place = folder / TOOLS_NAME
        content = f"{text}\n".encode("ascii")
        if not text:
            place.unlink(missing_ok=True)
        elif _content(place) != content:
            with contextlib.suppress(FileNotFoundError):
                write_private(place, content)


def _content(place: Path) -> bytes | None:
    try:
        return place.read_bytes()
    except OSError:
        return None
