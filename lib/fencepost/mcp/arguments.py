"""The arguments of the stdio shim that name an agent. Imported only where some are given."""

from __future__ import annotations

from fencepost.home import is_uuid

# Not imported from typing, which would be the most expensive import of the stdio shim.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

AGENT: Final = "--agent"
PROJECT: Final = "--project"
# What the server offers, under which names, and what it calls itself.
TOOLS: Final = "--tools"
NAMES: Final = "--names"
SERVER: Final = "--server-name"
FLAGS: Final = (AGENT, PROJECT, TOOLS, NAMES, SERVER)
NAME_CHARS_MAX: Final = 64
PATH_BYTES_MAX: Final = 4096


class Asked:
    """The agent that the arguments name: its name, and the folder whose project it belongs to; None: where we run."""

    __slots__ = ("folder", "name", "project")

    def __init__(self, *, name: str, project: str | None) -> None:
        self.name = name
        self.project = project
        # The agent's folder of the home, once the name is held.
        self.folder: str | None = None

    def words(self) -> list[str]:
        """Return the arguments that say the same."""
        return [AGENT, self.name] + ([] if self.project is None else [PROJECT, self.project])


class Given:
    """Every argument of a server: the agent that it is to be, if one is named, and the texts of the others."""

    __slots__ = ("asked", "names", "server", "tools")

    def __init__(self, *, asked: Asked | None, tools: str | None, names: str | None, server: str | None) -> None:
        self.asked = asked
        self.tools = tools
        self.names = names
        self.server = server


def parse(words: Sequence[str]) -> Asked:
    """Return what `--agent NAME [--project DIR]` asks for; `--agent=NAME` says the same.

    Raises:
        ValueError: an unknown or repeated argument, a missing value, a project without an agent, a name that no agent
            can have, a path that is none. Its text says which.
    """
    return _asked(_found(words, (AGENT, PROJECT)))


def given(words: Sequence[str]) -> Given:
    """Return everything that a server's arguments say; what it is to offer is not read yet.

    Raises:
        ValueError: see parse.
    """
    found = _found(words, FLAGS)
    asked = _asked(found) if AGENT in found or PROJECT in found else None
    return Given(asked=asked, tools=found.get(TOOLS), names=found.get(NAMES), server=found.get(SERVER))


def _asked(found: Mapping[str, str]) -> Asked:
    if AGENT not in found:
        raise ValueError(f"{PROJECT} goes with {AGENT}")
    return Asked(name=_name(found[AGENT]), project=_path(found.get(PROJECT)))


def _found(words: Sequence[str], flags: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in flags:
            raise ValueError(f"unknown argument: {word}")
        if flag in found:
            raise ValueError(f"{flag} is given twice")
        if not equals:
            if not rest:
                raise ValueError(f"{flag} needs a value")
            value = rest.pop(0)
        found[flag] = value
    return found


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
