"""The arguments of the stdio shim that name an agent. Imported only where some are given."""

from __future__ import annotations

from fencepost.home import is_uuid

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

AGENT: Final = "--agent"
PROJECT: Final = "--project"
NAME_CHARS_MAX: Final = 64
PATH_BYTES_MAX: Final = 4096


class Asked:
    """The agent that the arguments name: its name, and the folder whose project it belongs to; None: where we run."""

    __slots__ = ("name", "project")

    def __init__(self, *, name: str, project: str | None) -> None:
        self.name = name
        self.project = project

    def words(self) -> list[str]:
        """Return the arguments that say the same."""
        return [AGENT, self.name] + ([] if self.project is None else [PROJECT, self.project])


def parse(words: Sequence[str]) -> Asked:
    """Return what `--agent NAME [--project DIR]` asks for; `--agent=NAME` says the same.

    Raises:
        ValueError: an unknown or repeated argument, a missing value, a project without an agent, a name that no agent
            can have, a path that is none. Its text says which.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in (AGENT, PROJECT):
            raise ValueError(f"unknown argument: {word}")
        if flag in found:
            raise ValueError(f"{flag} is given twice")
        if not equals:
            if not rest:
                raise ValueError(f"{flag} needs a value")
            value = rest.pop(0)
        found[flag] = value
    if AGENT not in found:
        raise ValueError(f"{PROJECT} goes with {AGENT}")
    return Asked(name=_name(found[AGENT]), project=_path(found.get(PROJECT)))


def _name(name: str) -> str:
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise ValueError(f"{AGENT} takes a name of 1 to {NAME_CHARS_MAX} printable characters")
    if is_uuid(name.lower()):
        raise ValueError(f"{AGENT} takes a name; an agent's UUID goes into FENCEPOST_SESSION_ID")
    return name


def _path(path: str | None) -> str | None:
    if path is not None and (not path or "\0" in path or len(path.encode("utf-8", "replace")) > PATH_BYTES_MAX):
        raise ValueError(f"{PROJECT} takes the path of a folder, at most {PATH_BYTES_MAX} bytes")
    return path
