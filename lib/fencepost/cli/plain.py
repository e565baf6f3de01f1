"""Turns protocol messages into plain values for --json, and any text into what a terminal may show. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import Message

SCHEMA: Final = 1
BODY_PREFIX: Final = "  | "

# Characters that can move the cursor, change colours, or reorder what stands around them. Line feed and tab are
# harmless in running text and are handled where they are not.
_C0: Final = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_BIDI: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPED: Final = (*range(0x80, 0xA0), 0x2028, 0x2029, *_BIDI, *range(0xD800, 0xE000))
_TERMINAL: Final[dict[int, int | str]] = {**_C0, 0x7F: 0x2421, **{code: f"\\u{code:04x}" for code in _ESCAPED}}
_ONE_LINE: Final[dict[int, int | str]] = {**_TERMINAL, 0x09: " ", 0x0A: "⏎"}
_IN_JSON: Final = {code: f"\\u{code:04x}" for code in (0x7F, *_ESCAPED)}


def printable(text: str) -> str:
    """Return `text` with every character that a terminal would obey made visible; line breaks and tabs stay."""
    return text.translate(_TERMINAL)


def quoted(body: str, *, width: int | None = None) -> str:
    """Return a message's body for people: printable, every line behind BODY_PREFIX, with which no line of ours begins.

    So no sender can write a line that looks like another record, an open request or a command of ours; on a terminal
    of `width` cells long lines are broken here, for what the terminal itself wraps would begin at its edge.
    """
    lines = printable(body).split("\n")
    if width is not None:
        lines = [piece for line in lines for piece in _pieces(line.expandtabs(), max(1, width - len(BODY_PREFIX)))]
    return "\n".join(f"{BODY_PREFIX}{line}" for line in lines)


def _pieces(line: str, cells_max: int) -> list[str]:
    from rich.cells import chop_cells  # noqa: PLC0415 (only a terminal needs it)

    return chop_cells(line, cells_max) or [""]


def one_line(text: str) -> str:
    """Return `text` made printable and put on one line."""
    return text.translate(_ONE_LINE)


def document(fields: Mapping[str, Any]) -> str:
    """Return the JSON document of `fields` with its schema number.

    Text stays as it is, except that characters which a terminal would obey are written as escapes, which read back the
    same.
    """
    return json.dumps({"schema": SCHEMA, **fields}, indent=2, ensure_ascii=False).translate(_IN_JSON)


def line(fields: Mapping[str, Any]) -> str:
    """Return `fields` as `document` does, on one line: for streams, one document a line."""
    text = json.dumps({"schema": SCHEMA, **fields}, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_IN_JSON)


def enum_word(field: Any, number: int) -> str | None:
    """Return an enum value as one lower-case word without its type's prefix; None where it is unspecified."""
    if number == 0:
        return None
    value = field.enum_type.values_by_number.get(number)
    if value is None:
        return f"unknown_{number}"
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", field.enum_type.name).upper() + "_"
    return str(value.name).removeprefix(prefix).lower()


def plain(message: Message) -> dict[str, Any]:
    """Return every field of `message` under its own name.

    Enums become words, absent messages null, bytes hexadecimal digits.
    """
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [_one(field, item) for item in value]
    if field.message_type is not None and not message.HasField(field.name):
        return None
    return _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return plain(value)
    if field.enum_type is not None:
        return enum_word(field, value)
    return value.hex() if isinstance(value, bytes) else value
