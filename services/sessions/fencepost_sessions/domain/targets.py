"""What a target means: an exact name or a UUID, never a group, never a guess (M022, M023, M024)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from fencepost_sessions.domain.agents import Agent
from fencepost_sessions.domain.identifiers import is_canonical, uuid_bytes, uuid_text
from fencepost_sessions.domain.limits import AMBIGUOUS_NAMED_MAX, NAME_INPUT_BYTES_MAX, NEAR_MISSES_MAX
from fencepost_sessions.domain.names import flaw_of, is_reserved, is_uuid_shaped, name_key
from fencepost_sessions.domain.refusals import AmbiguousTarget, InvalidTarget, NotFound


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetId:
    """A target that names an agent by its UUID."""

    agent_id: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetName:
    """A target that names an agent by its exact name; `key` finds the near misses too."""

    text: str
    key: str


def target_of(text: str) -> TargetId | TargetName:
    """Return what `text` addresses.

    Raises:
        InvalidTarget: padded, empty, over-long or with controls; a word that addresses many; a UUID that is not in
            canonical form.
    """
    if len(text.encode("utf-8", "surrogatepass")) > NAME_INPUT_BYTES_MAX:
        raise _refused("is too long for a name")
    shown = unicodedata.normalize("NFC", text)
    if is_canonical(shown.lower()):
        return TargetId(agent_id=uuid_bytes(shown.lower(), what="target"))
    flaw = flaw_of(shown)
    if flaw is None and is_uuid_shaped(shown):
        flaw = "is a UUID in another form than the dashed one of 36 characters"
    if flaw is None and is_reserved(shown):
        flaw = "addresses many agents, and every message has exactly one recipient"
    if flaw is not None:
        raise _refused(flaw)
    return TargetName(text=shown, key=name_key(shown))


def resolve_name(target: TargetName, candidates: Sequence[Agent]) -> Agent:
    """Return the one agent of `candidates`, which all have the target's key, whose name is exactly the target.

    Raises:
        NotFound: none; near misses in case are named.
        AmbiguousTarget: several projects have one.
    """
    exact = [agent for agent in candidates if agent.name == target.text]
    if len(exact) == 1:
        return exact[0]
    if exact:
        named = ", ".join(sorted(uuid_text(agent.project_id) for agent in exact)[:AMBIGUOUS_NAMED_MAX])
        raise AmbiguousTarget(
            f"{len(exact)} projects have an agent of this name",
            hint=f"Name the project, or use the agent's UUID. Projects: {named}.",
            state={"matches": str(len(exact))},
        )
    near = sorted({agent.name for agent in candidates})[:NEAR_MISSES_MAX]
    if near:
        spelled = " or ".join(f'"{name}"' for name in near)
        raise NotFound(
            "no agent has exactly this name", hint=f"Names match exactly, case included; there is {spelled}."
        )
    raise unknown_agent()


def unknown_agent() -> NotFound:
    """Return the one answer for an agent that does not exist and for one that the caller may not see."""
    return NotFound("there is no such agent", hint="List the agents to see their exact names and UUIDs.")


def _refused(flaw: str) -> InvalidTarget:
    return InvalidTarget(
        f"the target {flaw}; nothing was written", hint="Name one agent by its exact name or its UUID, without padding."
    )
