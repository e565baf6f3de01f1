"""One row of the tool table: what a tool is called, what it takes, and what a lost answer of it means.

Standard library only.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fencepost.mcp import profiles
from fencepost.mcp.kinds import Kind, Problem

# A name in an error text is repeated only where it is this short and plain; longer ones could carry a body.
NAMED_CHARS_MAX: Final = 40


class Lost(enum.Enum):
    """What the shim does about a call whose answer was lost with the edge."""

    # A mutation: asks what became of its key, never calls again.
    SETTLE = "settle"
    # Repeating it changes nothing: asks again within the call's budget.
    ASK_AGAIN = "ask again"
    # It may have acted and has no key: says that it is not known, never calls again.
    TELL = "tell"


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """MCP annotations. What is left out of the wire form is what the protocol assumes anyway."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = True

    def wire(self) -> dict[str, bool]:
        """Return the annotations, all four of them: clients differ in what they assume."""
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }

    def brief(self) -> dict[str, bool]:
        """Return the annotations that say something else than the protocol assumes of a tool without them."""
        if self.read_only:
            return {"readOnlyHint": True}
        return {} if self.destructive else {"destructiveHint": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """One row of the table."""

    name: str
    family: str = profiles.MESSAGING
    description: str
    arguments: Mapping[str, Kind] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    hints: Hints
    lost: Lost
    # True where it names files: they are made canonical on the machine of the checkout, before the edge sees the call.
    placed: bool = False
    # What holds for the arguments together; raises Problem.
    together: Callable[[Mapping[str, Any]], None] | None = None
    # What its result holds besides `operation`, for the documentation.
    returns: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        shape: dict[str, Any] = {
            "type": "object",
            "properties": {name: argument.schema() for name, argument in self.arguments.items()},
        }
        if self.required:
            shape["required"] = list(self.required)
        return shape | {"additionalProperties": False}

    def wire(self) -> dict[str, Any]:
        """Return the tool as tools/list shows it."""
        told: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema(),
        }
        hints = self.hints.wire() if self.family == profiles.MESSAGING else self.hints.brief()
        return told | ({"annotations": hints} if hints else {})

    def warped(self, names: Mapping[str, str]) -> Tool:
        """Return the tool under the other name that `names` has for it, with other names in its description too."""
        return replace(self, name=names[self.name], description=renamed(self.description, names))

    def check(self, arguments: object) -> dict[str, Any]:
        """Return the arguments that were given. Defaults are not filled in. Raises Problem."""
        if not isinstance(arguments, dict):
            raise Problem("arguments must be an object")
        for name in arguments:
            if name not in self.arguments:
                raise Problem(self._unknown(name))
        for name in self.required:
            if name not in arguments:
                raise Problem(f"{name} is missing")
        checked = {name: self._checked(name, value) for name, value in arguments.items()}
        if self.together is not None:
            self.together(checked)
        return checked

    def _checked(self, name: str, value: object) -> Any:
        if value is None:
            optional = name not in self.required
            raise Problem(f"{name} is null" + (": leave it out instead" if optional else ", but it is required"))
        return self.arguments[name].check(name, value)

    def _unknown(self, name: str) -> str:
        if name.casefold() in _FORGERIES:
            return f"{name} is no argument: the sender is known by its credential, and keys are made by Fencepost"
        takes = f"{self.name} takes {', '.join(self.arguments) or 'no arguments'}"
        return f"{named(name, 'argument')}: {takes}"


# Fields by which a caller may try to speak for somebody else, or to choose its own key.
_FORGERIES: Final = frozenset(
    {"sender", "from", "origin", "source", "agent", "agent_id", "session_id", "idempotency_key", "idempotencykey"}
)


def named(name: str, what: str) -> str:
    """Return what is unknown, with its name where that can carry no body."""
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) <= NAMED_CHARS_MAX
    return f"unknown {what} {name}" if plain else f"unknown {what}"


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names of tools, each where it stands as a word of its own."""
    pattern = "|".join(sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![A-Za-z0-9_])(?:{pattern})(?![A-Za-z0-9_])", lambda found: names[found[0]], text)
