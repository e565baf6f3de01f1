"""Paths as the directory keeps them: text only, the file system is never asked."""

from __future__ import annotations

from fencepost_sessions.domain.limits import NAME_CHARS_MAX, PATH_BYTES_MAX
from fencepost_sessions.domain.names import flaw_of
from fencepost_sessions.domain.refusals import InvalidLocation, InvalidWorkspace

GIT_FOLDER = ".git"


def path_flaw(text: str) -> str | None:
    """Return what is wrong with `text` as an absolute canonical path, or None."""
    if not text.startswith("/"):
        return "is not an absolute path"
    if len(text.encode("utf-8", "surrogatepass")) > PATH_BYTES_MAX:
        return f"is longer than {PATH_BYTES_MAX} bytes"
    if "\0" in text:
        return "holds a NUL character"
    if text != "/" and any(part in {"", ".", ".."} for part in text[1:].split("/")):
        return "is not canonical: it holds an empty part, '.' or '..'"
    return None


def workspace_path(text: str) -> str:
    """Return a workspace; empty means unknown.

    Raises:
        InvalidWorkspace: not an absolute canonical path of at most PATH_BYTES_MAX bytes.
    """
    flaw = path_flaw(text) if text else None
    if flaw is not None:
        raise InvalidWorkspace(f"the workspace {flaw}; nothing was written", hint="Give the folder's full real path.")
    return text


def project_location(text: str) -> str:
    """Return a project's location.

    Raises:
        InvalidLocation: not an absolute canonical path of at most PATH_BYTES_MAX bytes.
    """
    flaw = path_flaw(text)
    if flaw is not None:
        raise InvalidLocation(f"the location {flaw}; nothing was written", hint="Give the folder's full real path.")
    return text


def name_from_location(location: str) -> str:
    """Return the display name of a project at `location`: its last part, without what a name cannot hold.

    The common directory of a repository is its .git folder: the repository is named by the folder around it.
    """
    parts = [part for part in location.split("/") if part]
    if len(parts) > 1 and parts[-1] == GIT_FOLDER:
        parts.pop()
    last = parts[-1].removesuffix(GIT_FOLDER) or parts[-1] if parts else ""
    name = "".join(char for char in last if flaw_of(f"x{char}x") is None)[:NAME_CHARS_MAX].strip()
    return name if flaw_of(name) is None else "project"
