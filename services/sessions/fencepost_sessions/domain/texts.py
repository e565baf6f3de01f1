"""Short visible texts that programs and people are named by."""

from __future__ import annotations

import unicodedata
from typing import Final

# Control, format (invisible marks and bidirectional overrides), surrogate, unassigned, line and paragraph separator.
REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"})


def bytes_of(text: str) -> int:
    """Return how many bytes a text takes."""
    return len(text.encode("utf-8", "surrogatepass"))


def word_flaw(text: str, bytes_max: int) -> str | None:
    """Return what is wrong with `text` as one line of visible text, as the end of a sentence about it, or None."""
    if not text:
        return "is empty"
    if bytes_of(text) > bytes_max:
        return f"is longer than {bytes_max} bytes"
    if any(unicodedata.category(char) in REFUSED_CATEGORIES for char in text):
        return "holds a control, invisible or unassigned character"
    if text != text.strip():
        return "begins or ends with white space"
    return None
