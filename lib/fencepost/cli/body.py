"""A message's text: from exactly one place, whole, and checked before anything is sent."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Final

from fencepost.client import BODY_BYTES_MAX
from fencepost.errors import Refused

# So much of standard input is counted to say how far over the limit it is.
COUNTED_BYTES_MAX: Final = 16 * 1024 * 1024


def read_body(text: str | None, *, stdin: bool, file: Path | None) -> str:
    """Return the text of a message, byte for byte.

    Raises:
        Refused: none or more than one of the three sources; over BODY_BYTES_MAX bytes, with the size; blank; not UTF-8;
            a file that cannot be read. Nothing was sent.
    """
    refuse_unless_one_source(text, stdin=stdin, file=file)
    if text is not None:
        # Arguments that were not UTF-8 carry their bytes as surrogates.
        raw, over = os.fsencode(text), ""
    elif file is not None:
        raw, over = _read_file(file)
    else:
        raw = sys.stdin.buffer.read(COUNTED_BYTES_MAX)
        over = "at least " if len(raw) == COUNTED_BYTES_MAX else ""
    if len(raw) > BODY_BYTES_MAX:
        raise _too_long(f"{over}{len(raw)}")
    try:
        body = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(
            "invalid_message",
            f"the text is not UTF-8 (byte {error.start}); nothing was sent",
            hint="Convert it to UTF-8.",
        ) from None
    if not body.strip():
        raise Refused("invalid_message", "the text is empty or blank; nothing was sent")
    return body


def refuse_unless_one_source(text: str | None, *, stdin: bool, file: Path | None) -> None:
    """Refuse a command whose text comes from nowhere, or from several places.

    Raises:
        Refused: none or more than one of the three. Nothing was sent.
    """
    if (text is not None) + stdin + (file is not None) != 1:
        raise Refused(
            "invalid_arguments",
            "give the text exactly once: as an argument, with --stdin, or with --file; nothing was sent",
        )


def _read_file(file: Path) -> tuple[bytes, str]:
    try:
        with file.open("rb") as opened:
            facts = os.fstat(opened.fileno())
            if stat.S_ISREG(facts.st_mode) and facts.st_size > BODY_BYTES_MAX:
                raise _too_long(str(facts.st_size))
            raw = opened.read(COUNTED_BYTES_MAX)
    except OSError as error:
        raise Refused("invalid_arguments", f"{file} cannot be read: {error.strerror}; nothing was sent") from None
    return raw, "at least " if len(raw) == COUNTED_BYTES_MAX else ""


def _too_long(size: str) -> Refused:
    return Refused(
        "invalid_message",
        f"the text has {size} bytes, and a message takes {BODY_BYTES_MAX}; nothing was sent",
        hint="Put it in a file that the recipient can read, and send the path.",
        state={"bytes_max": str(BODY_BYTES_MAX)},
    )
