"""Kinds of arguments: the JSON schema that each shows, and the checker that holds values to it.

A schema may say less than its checker, which keeps it short; it never says more. Standard library only.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.home import is_uuid

TARGET_CHARS_MAX: Final = 64
MOMENT_CHARS_MAX: Final = 40
CHECKOUT_BYTES_MAX: Final = 4096


class Problem(Exception):
    """An argument is not what the schema allows. The text names the argument and never repeats its value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A string with something in it."""

    chars_max: int
    # Limit of its UTF-8 form, where that is the one that counts.
    bytes_max: int | None = None
    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": self.chars_max}
        return shape | ({"description": self.description} if self.description else {})

    def check(self, name: str, value: object) -> Any:
        """Return the value, unchanged. Raises Problem."""
        if not isinstance(value, str):
            raise Problem(f"{name} must be a string")
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise Problem(f"{name} holds half of a surrogate pair, which is no Unicode text") from None
        if self.bytes_max is not None and size > self.bytes_max:
            raise Problem(f"{name} has {size} bytes of UTF-8, at most {self.bytes_max} fit")
        if len(value) > self.chars_max:
            raise Problem(f"{name} has {len(value)} characters, at most {self.chars_max} are allowed")
        if not value or value.isspace():
            raise Problem(f"{name} is blank: it needs at least one character that is not white space")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Target(Text):
    """One agent: an exact name or a UUID, never a group."""

    chars_max: int = TARGET_CHARS_MAX
    description: str = "Exact name or UUID of one agent; list_agents shows both."

    def check(self, name: str, value: object) -> Any:
        """Return the target, unchanged. Raises Problem."""
        text = Text.check(self, name, value)
        if text != text.strip():
            raise Problem(f"{name} has white space around it: give the exact name or UUID")
        folded = text.casefold()
        if folded in _BROADCASTS or folded.startswith("class:"):
            raise Problem(f"{name} must be one agent: there is no broadcast")
        if any(char < " " or char == "\x7f" for char in text):
            raise Problem(f"{name} holds a control character: no agent has such a name")
        return text


_BROADCASTS: Final = frozenset({"all", "*", "broadcast", "everyone"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole:
    """A whole number in a range."""

    least: int
    most: int
    default: int
    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {
            "type": "integer",
            "minimum": self.least,
            "maximum": self.most,
            "default": self.default,
        }
        return shape | ({"description": self.description} if self.description else {})

    def check(self, name: str, value: object) -> Any:
        """Return the number. Raises Problem."""
        # JSON has one kind of number, so 5.0 is a whole one; true is none, though Python counts it as 1.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise Problem(f"{name} must be a whole number from {self.least} to {self.most}")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]
    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {"type": "string", "enum": list(self.words)}
        return shape | ({"description": self.description} if self.description else {})

    def check(self, name: str, value: object) -> Any:
        """Return the word. Raises Problem."""
        if not isinstance(value, str) or value not in self.words:
            raise Problem(f"{name} must be one of {', '.join(self.words)}")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Prose:
    """A text of which the bytes count; `blank` where it may be empty."""

    bytes_max: int
    blank: bool = False
    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {"type": "string"}
        return shape | ({"description": self.description} if self.description else {})

    def check(self, name: str, value: object) -> Any:
        """Return the text, unchanged. Raises Problem."""
        if value == "" and self.blank:
            return value
        return Text(chars_max=self.bytes_max, bytes_max=self.bytes_max).check(name, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent(Target):
    """A target whose schema is short."""

    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {"type": "string"}
        return shape | ({"description": self.description} if self.description else {})


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignee(Agent):
    """One agent, or the absolute path of the checkout that it works in."""

    description: str = "An agent, or the path of its checkout."

    def check(self, name: str, value: object) -> Any:
        """Return the target or path, unchanged. Raises Problem."""
        if isinstance(value, str) and value.startswith("/"):
            return Text(chars_max=CHECKOUT_BYTES_MAX, bytes_max=CHECKOUT_BYTES_MAX).check(name, value)
        return Agent.check(self, name, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Uuid:
    """A UUID, in any case."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "string", "format": "uuid"}

    def check(self, name: str, value: object) -> Any:
        """Return the UUID in lower case, which is the one form that services take. Raises Problem."""
        if not isinstance(value, str) or not is_uuid(value.lower()):
            raise Problem(f"{name} must be a UUID: 36 characters, hexadecimal digits and dashes")
        return value.lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """True or false, and nothing that only looks like it."""

    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {"type": "boolean"}
        return shape | ({"description": self.description} if self.description else {})

    def check(self, name: str, value: object) -> Any:
        """Return the value. Raises Problem."""
        if not isinstance(value, bool):
            raise Problem(f"{name} must be true or false")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """A whole number in a range, without a default that the schema tells."""

    least: int
    most: int
    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {"type": "integer"}
        return shape | ({"description": self.description} if self.description else {})

    def check(self, name: str, value: object) -> Any:
        """Return the number. Raises Problem."""
        return Whole(least=self.least, most=self.most, default=self.least).check(name, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A moment as ISO 8601 text with its offset from UTC."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        return {"type": "string", "format": "date-time"}

    def check(self, name: str, value: object) -> Any:
        """Return the moment in Unix milliseconds. Raises Problem."""
        problem = Problem(f"{name} must be a moment as ISO 8601 has it, with its offset: 2026-01-31T18:00:00Z")
        if not isinstance(value, str) or len(value) > MOMENT_CHARS_MAX or "T" not in value.upper():
            raise problem
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise problem from None
        if moment.tzinfo is None:
            raise problem
        since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        at_ms = since // datetime.timedelta(milliseconds=1)
        if at_ms < 1:
            raise problem
        return at_ms


@dataclass(frozen=True, kw_only=True, slots=True)
class Several:
    """A list of values of one kind, from `least` to `most`."""

    of: Kind
    most: int
    least: int = 0
    description: str = ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {"type": "array", "items": self.of.schema(), "maxItems": self.most}
        return shape | ({"description": self.description} if self.description else {})

    def check(self, name: str, value: object) -> Any:
        """Return the values, each checked. Raises Problem."""
        if not isinstance(value, list):
            raise Problem(f"{name} must be a list")
        if not self.least <= len(value) <= self.most:
            raise Problem(f"{name} has {len(value)} entries, {self.least} to {self.most} are allowed")
        return [self.of.check(f"{name}[{place}]", entry) for place, entry in enumerate(value)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """An object with named values, some of which it must have; it takes no others."""

    values: Mapping[str, Kind] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        shape: dict[str, Any] = {
            "type": "object",
            "properties": {name: kind.schema() for name, kind in self.values.items()},
        }
        return shape | ({"required": list(self.required)} if self.required else {}) | {"additionalProperties": False}

    def check(self, name: str, value: object) -> Any:
        """Return the values that were given, each checked. Raises Problem."""
        if not isinstance(value, dict):
            raise Problem(f"{name} must be an object")
        takes = ", ".join(self.values)
        if any(key not in self.values for key in value):
            raise Problem(f"{name} has a field that is none of its own: {takes}")
        for key in self.required:
            if key not in value:
                raise Problem(f"{name}.{key} is missing")
        return {key: self.values[key].check(f"{name}.{key}", given) for key, given in value.items()}


Kind = Text | Whole | Choice | Prose | Uuid | Flag | Count | Moment | Several | Record
