"""UUIDs as 16 bytes inside, as canonical lower-case text of 36 characters outside."""

from __future__ import annotations

import re
import uuid
from typing import Final

from fencepost_kit.refusal import Malformed

_CANONICAL: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def is_canonical(text: str) -> bool:
    """Tell whether `text` is a UUID in canonical lower-case form."""
    return _CANONICAL.fullmatch(text) is not None


def uuid_bytes(text: str, *, what: str) -> bytes:
    """Return the 16 bytes of a canonical UUID.

    Raises:
        Malformed: any other text; `what` names the field.
    """
    if not is_canonical(text):
        raise Malformed(
            f"{what} is not a UUID in lower-case form of 36 characters; nothing was written",
            hint=f"Give {what} as it was printed when it was created.",
        )
    return uuid.UUID(text).bytes


def uuid_text(value: bytes) -> str:
    """Return the canonical text of 16 bytes."""
    return str(uuid.UUID(bytes=value))
