"""Names of agents: what is accepted, when two are the same, and when a released one is free again (M022, M023).

A name is kept in Unicode normal form C and shown as it was given. Two names are the same when their keys are equal:
the key does not see case or normal form. Whatever is accepted can be found again by any spelling of the same text,
and by nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from fencepost_sessions.domain.limits import NAME_CHARS_MAX, NAME_INPUT_BYTES_MAX, QUARANTINE_MS
from fencepost_sessions.domain.refusals import InvalidName, NameQuarantined
from fencepost_sessions.domain.texts import REFUSED_CATEGORIES

RESERVED: Final = frozenset({"all", "*", "broadcast"})
RESERVED_PREFIX: Final = "class:"

# Any common spelling of a UUID: dashed or bare, with braces, as a URN, in any case.
_UUID_SHAPED: Final = re.compile(
    r"(?:urn:uuid:)?\{?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\}?", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Name:
    """An accepted name: `text` as shown, `key` as compared."""

    text: str
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedName:
    """A name that an agent gave up, and when."""

    key: str
    agent_id: bytes
    released_at_ms: int


def name_key(text: str) -> str:
    """Return what two spellings of one name have in common.

    Canonical caseless matching of the Unicode standard: folding alone does not keep text normalised, so it is
    decomposed on both sides of the fold.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold()))


def is_uuid_shaped(text: str) -> bool:
    """Tell whether `text` could be taken for a UUID."""
    return _UUID_SHAPED.fullmatch(text) is not None


def is_reserved(text: str) -> bool:
    """Tell whether `text` is a word that addresses many, in any case."""
    key = name_key(text)
    return key in RESERVED or key.startswith(RESERVED_PREFIX)


def flaw_of(text: str) -> str | None:
    """Return what is wrong with `text` as a name of anything, as the end of a sentence about it, or None."""
    if not text:
        return "is empty"
    if len(text) > NAME_CHARS_MAX:
        return f"is longer than {NAME_CHARS_MAX} characters"
    if any(unicodedata.category(char) in REFUSED_CATEGORIES for char in text):
        return "holds a control, invisible or unassigned character"
    if text != text.strip():
        return "begins or ends with white space"
    return None


def agent_name(text: str) -> Name:
    """Return `text` as a name, in normal form C.

    Raises:
        InvalidName: empty, over NAME_CHARS_MAX, padded, with a control or invisible character, shaped like a UUID, or
            a word that addresses many.
    """
    if len(text.encode("utf-8", "surrogatepass")) > NAME_INPUT_BYTES_MAX:
        raise _refused(f"is longer than {NAME_CHARS_MAX} characters")
    shown = unicodedata.normalize("NFC", text)
    flaw = flaw_of(shown)
    if flaw is None and is_uuid_shaped(shown):
        flaw = "has the shape of a UUID"
    if flaw is None and is_reserved(shown):
        flaw = "is reserved for addressing many agents"
    if flaw is not None:
        raise _refused(flaw)
    return Name(text=shown, key=name_key(shown))


def check_quarantine(released: ReleasedName | None, *, agent_id: bytes, now_ms: int) -> None:
    """Let `agent_id` take a name that was released, if it may.

    The agent that released it may take it back at once: nobody can mistake it for another.

    Raises:
        NameQuarantined: another agent released it less than QUARANTINE_MS ago. A clock that went back lengthens the
            time.
    """
    if released is None or released.agent_id == agent_id:
        return
    free_in_ms = released.released_at_ms + QUARANTINE_MS - now_ms
    if free_in_ms > 0:
        raise NameQuarantined(
            "another agent gave this name up a moment ago; nothing was written",
            hint=f"The name is free in {free_in_ms} ms: send the same call then, or choose another name.",
            state={"free_in_ms": str(free_in_ms)},
        )


def _refused(flaw: str) -> InvalidName:
    return InvalidName(
        f"the name {flaw}; nothing was written",
        hint=f"Use 1 to {NAME_CHARS_MAX} visible characters that are no UUID and not all, *, broadcast or class:...",
    )
