"""Times as people give them: from now, or on the clock."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Annotated, Final

import typer

from fencepost.errors import Refused

StartBy = Annotated[
    str | None,
    typer.Option(
        "--start-by",
        metavar="TIME",
        help="When it must have been started: +90s, +30m, +2h, +1d, or 2026-12-31T18:00, local unless it names a zone.",
    ),
]

_FROM_NOW: Final = re.compile(r"\+([1-9][0-9]{0,6})([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, *, now_ms: int) -> int:
    """Return the time that `text` means, in Unix milliseconds.

    Raises:
        Refused: it is none. Nothing was sent.
    """
    from_now = _FROM_NOW.fullmatch(text)
    if from_now:
        return now_ms + int(from_now[1]) * _UNIT_MS[from_now[2]]
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise Refused(
            "invalid_arguments",
            "a time is +N and one of s, m, h, d, or written like 2026-12-31T18:00; nothing was sent",
        ) from None


def start_deadline(text: str | None, request_id: str | None) -> int:
    """Return the start deadline of a command, 0 where none was given.

    Raises:
        Refused: it is none, or counts from now in a command that may be repeated.
    """
    if text is None:
        return 0
    if text.startswith("+") and request_id is not None:
        raise Refused(
            "invalid_arguments",
            "with --request-id give a time on the clock: one from now would be another each time; nothing was sent",
        )
    return moment_ms(text, now_ms=int(time.time() * 1000))
