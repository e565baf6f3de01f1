"""Projects: the scope of agent names and of record order."""

from __future__ import annotations

import enum
import unicodedata
from dataclasses import dataclass

from fencepost_sessions.domain.limits import NAME_INPUT_BYTES_MAX, PROJECTS_MAX, ROW_FRAME_BYTES
from fencepost_sessions.domain.names import flaw_of
from fencepost_sessions.domain.paths import name_from_location, project_location
from fencepost_sessions.domain.refusals import (
    ConflictingKind,
    InvalidLocation,
    InvalidName,
    InvalidToolsProfile,
    LimitReached,
)
from fencepost_sessions.domain.tools import tools_flaw


class ProjectKind(enum.IntEnum):
    """What a location is; the numbers are those of fencepost.sessions.v1.ProjectKind."""

    GIT = 1
    FOLDER = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A project. `number` counts projects in the order of their creation."""

    project_id: bytes
    number: int
    kind: ProjectKind
    location: str
    name: str
    created_at_ms: int
    # What its agents are offered where nothing is set for one itself; empty: whatever servers ask for.
    tools_profile: str = ""


def project_bytes(project: Project) -> int:
    """Return at least the bytes that a project takes in a message."""
    texts = (project.name, project.location, project.tools_profile)
    return ROW_FRAME_BYTES + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectPlace:
    """A valid answer to: which project is meant, and what would it be called."""

    kind: ProjectKind
    location: str
    name: str


def project_place(*, kind: int, location: str, name: str) -> ProjectPlace:
    """Return where a project is; an empty name takes the last part of the location.

    Raises:
        InvalidLocation: no kind, or not an absolute canonical path.
        InvalidName: over NAME_CHARS_MAX, padded, or with controls. Unlike agents, two projects may share a name.
    """
    if kind not in set(ProjectKind):
        raise InvalidLocation(
            "the kind of a project is git or folder; nothing was written", hint="Say what the location is."
        )
    checked = project_location(location)
    if not name:
        return ProjectPlace(kind=ProjectKind(kind), location=checked, name=name_from_location(checked))
    too_long = len(name.encode("utf-8", "surrogatepass")) > NAME_INPUT_BYTES_MAX
    shown = name if too_long else unicodedata.normalize("NFC", name)
    flaw = flaw_of(shown)
    if flaw is not None:
        raise InvalidName(f"the project's name {flaw}; nothing was written", hint="Choose another name, or give none.")
    return ProjectPlace(kind=ProjectKind(kind), location=checked, name=shown)


def project_tools(text: str) -> str:
    """Return which tools a project's agents are offered; empty takes the setting back.

    Raises:
        InvalidToolsProfile: it names something else than families.
    """
    flaw = tools_flaw(text) if text else None
    if flaw is not None:
        raise InvalidToolsProfile(f"the tools profile {flaw}; nothing was written", hint="An empty text clears it.")
    return text


def check_same_kind(standing: Project, place: ProjectPlace) -> None:
    """Let the project that stands at a location answer for it.

    Raises:
        ConflictingKind: it was created as another kind.
    """
    if standing.kind is not place.kind:
        raise ConflictingKind(
            f"the project at this location is of kind {standing.kind.name.lower()}; nothing was written",
            hint="Ask for it with the kind that it has.",
            state={"kind": standing.kind.name.lower()},
        )


def check_room_for_project(standing: int) -> None:
    """Let one more project in.

    Raises:
        LimitReached: PROJECTS_MAX stand.
    """
    if standing >= PROJECTS_MAX:
        raise LimitReached(
            f"the home holds {PROJECTS_MAX} projects, as many as it can; nothing was written",
            hint="Use a project that stands, or another FENCEPOST_HOME.",
            state={"projects_max": str(PROJECTS_MAX)},
        )
