"""The options that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.client import IDEMPOTENCY_KEY_BYTES_MAX, new_key
from fencepost.errors import Refused

# Pages that a listing follows before it says that there is more.
PAGES_MAX: Final = 100

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text for people.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        help="Repeating a command with the same key and content answers the first receipt; 1 to 256 bytes of printable"
        " text.",
    ),
]
Text = Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The text, unless --stdin or --file gives it.")]
Stdin = Annotated[bool, typer.Option("--stdin", help="Read the text from standard input, byte for byte.")]
FromFile = Annotated[
    Path | None, typer.Option("--file", metavar="PATH", help="Read the text from a file, byte for byte.")
]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="Exact name or UUID of an agent.")]
RecordId = Annotated[str, typer.Argument(metavar="ID", help="Id of a record: inf_, ask_, rep_ or ntc_ and 32 digits.")]


def key_or_new(key: str | None) -> str:
    """Return the key that was given, checked, or a new one."""
    if key is None:
        return new_key("cli")
    if not 1 <= len(key.encode("utf-8", "surrogateescape")) <= IDEMPOTENCY_KEY_BYTES_MAX or not key.isprintable():
        raise Refused(
            "invalid_idempotency_key",
            f"an idempotency key is 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes of printable text; nothing was sent",
        )
    return key
