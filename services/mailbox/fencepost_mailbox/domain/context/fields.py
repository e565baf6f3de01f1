"""What may be a key, a content and a memory; which version a writer must have read (T090 to T095)."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost_mailbox.domain.context.refusals import ContextLimit, InvalidContext
from fencepost_mailbox.domain.context.values import (
    CONTEXT_BYTES_MAX,
    CONTEXT_KEY_BYTES_MAX,
    CONTEXT_KEYS_MAX,
    CONTEXTS_LISTED_DEFAULT,
    CONTEXTS_LISTED_MAX,
    MEMORY_BYTES_MAX,
    VERSION_MAX,
)
from fencepost_mailbox.domain.tasks.refusals import VersionConflict


def _invalid(field: str, rule: str) -> InvalidContext:
    return InvalidContext(f"{field} {rule}; nothing was written", state={"field": field})


def _size(text: str, field: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise _invalid(field, "is not valid Unicode text") from None


def check_key(key: str) -> str:
    """Return a context's key: 1 to CONTEXT_KEY_BYTES_MAX bytes, printable, no white space.

    Raises:
        InvalidContext: it is none.
    """
    if not 1 <= _size(key, "key") <= CONTEXT_KEY_BYTES_MAX:
        raise _invalid("key", f"has 1 to {CONTEXT_KEY_BYTES_MAX} bytes")
    if not key.isprintable() or any(character.isspace() for character in key):
        raise _invalid("key", "is printable text without white space")
    return key


def check_prefix(prefix: str) -> str:
    """Return the beginning of keys that are asked for; it may be empty.

    Raises:
        InvalidContext: no key can begin so.
    """
    return check_key(prefix) if prefix else prefix


def check_content(content: str) -> str:
    """Return a context's content: 1 byte to CONTEXT_BYTES_MAX of UTF-8, not only white space.

    Raises:
        InvalidContext: it is blank, too long or no Unicode.
    """
    size = _size(content, "content")
    if size > CONTEXT_BYTES_MAX:
        raise InvalidContext(
            f"content has {size} bytes, at most {CONTEXT_BYTES_MAX} fit; nothing was written",
            hint="Put the long part into a file of the repository, and publish its path.",
            state={"field": "content", "bytes": str(size), "bytes_max": str(CONTEXT_BYTES_MAX)},
        )
    if not content or content.isspace():
        raise _invalid("content", "must not be blank")
    return content


def check_memory(content: str) -> str:
    """Return a project's memory: up to MEMORY_BYTES_MAX of UTF-8. Empty forgets.

    Raises:
        InvalidContext: it is too long or no Unicode.
    """
    size = _size(content, "content")
    if size > MEMORY_BYTES_MAX:
        raise InvalidContext(
            f"the memory has {size} bytes, at most {MEMORY_BYTES_MAX} fit; nothing was written",
            hint="Keep what every agent needs at its start, and publish the rest as contexts.",
            state={"field": "content", "bytes": str(size), "bytes_max": str(MEMORY_BYTES_MAX)},
        )
    return content


def check_version(version: int, field: str) -> int:
    """Return a version that is asked for or expected: 0 or more.

    Raises:
        InvalidContext: it is negative, or larger than any.
    """
    if not 0 <= version <= VERSION_MAX:
        raise _invalid(field, "counts from 1")
    return version


def page_size(asked: int) -> int:
    """Return how many entries a page has; 0 asks for the default.

    Raises:
        InvalidContext: outside 1..CONTEXTS_LISTED_MAX.
    """
    if not 0 <= asked <= CONTEXTS_LISTED_MAX:
        raise _invalid("page_size", f"must be 0 or 1 to {CONTEXTS_LISTED_MAX}")
    return asked or CONTEXTS_LISTED_DEFAULT


def check_expected(expected: int, newest: int, what: str, state: Mapping[str, str]) -> None:
    """Let a write go on that rests on the newest version.

    Raises:
        VersionConflict: it rests on another; `state` says how it stands, without content.
    """
    if expected != newest:
        raise VersionConflict(
            f"{what} is at version {newest}, and this call rests on version {expected}; nothing was written",
            hint="Read the newest version, bring your change into it, and write again with its version.",
            state={"version": str(newest), **state},
        )


def check_room(keys: int) -> None:
    """Let one more key of a project pass.

    Raises:
        ContextLimit: it has CONTEXT_KEYS_MAX.
    """
    if keys >= CONTEXT_KEYS_MAX:
        raise ContextLimit(
            f"the project has {CONTEXT_KEYS_MAX} contexts; nothing was written",
            hint="Publish under a key that stands, or let a person look at context list.",
            state={"keys_max": str(CONTEXT_KEYS_MAX)},
        )
