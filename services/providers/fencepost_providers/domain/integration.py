"""Bringing accepted work into the main checkout: what is asked, what was meant, and what git's words mean. T051."""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost_kit.refusal import STATE_PAIR_BYTES_MAX, Malformed
from fencepost_providers.domain.carried import clipped
from fencepost_providers.domain.refusals import InvalidCommit

COMMIT_LENGTHS: Final = {"sha1": 40, "sha256": 64}
# Files that a refusal names.
FILES_NAMED_MAX: Final = 10
NOTE_BYTES_MAX: Final = 8192
SUBJECT_CHARACTERS_MAX: Final = 64
# Numbers of fencepost.mailbox.v1.TaskState.
ACCEPTED: Final = 5
INTEGRATED: Final = 6
# Reserved never to be routed (RFC 2606): nobody's mail address.
MAIL_DOMAIN: Final = "fencepost.invalid"

_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_TASK: Final = re.compile(r"task_[0-9a-f]{32}")
_NOT_IN_A_NAME: Final = re.compile(r"[\x00-\x1f<>\"',;:\\.]+")


class Kind(enum.IntEnum):
    """How work came into the main checkout; the numbers of IntegrationKind, and of the mailbox's Integration."""

    RECORDED = 1
    MERGED = 2
    CONTAINED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A call. The same request_id with another content is another call, and refused."""

    task_id: str
    commit: str
    note: str
    expected_version: int
    request_id: str
    coordinator_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFacts:
    """A task as the mailbox tells it, as far as it is needed here. `state` is fencepost.mailbox.v1.TaskState."""

    task_id: str
    project_id: str
    state: int
    version: int
    assignee_id: str
    archived: bool = False
    issuer_id: str = ""
    reviewer_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a project lies: the common directory of a repository, or a folder."""

    location: str
    is_git: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What the mailbox wrote."""

    task_id: str
    revision: int
    version: int
    at_ms: int
    sequence: int
    duplicate: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """A branch that is about to move from `old_id` to `new_id` in `checkout`, on disk before it does."""

    request_id: str
    task_id: str
    coordinator_id: str
    commit_id: str
    note: str
    checkout: str
    branch: str
    old_id: str
    new_id: str
    written_at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrated:
    """What came of a call. `branch` and `head` are empty where no checkout was looked at."""

    recorded: Recorded
    kind: Kind
    branch: str = ""
    head: str = ""
    fast_forward: bool = False
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """Paths that differ between two trees."""

    added: frozenset[str]
    deleted: frozenset[str]
    changed: frozenset[str]

    @property
    def written(self) -> Sequence[str]:
        """Paths that get a content."""
        return sorted(self.added | self.changed)


def check_wanted(wanted: Wanted) -> None:
    """Let a call pass whose fields can be meant.

    Raises:
        InvalidCommit: the commit is no full object id.
        Malformed: another field is none.
    """
    if wanted.commit and _COMMIT.fullmatch(wanted.commit) is None:
        raise InvalidCommit(
            "the commit must be a full object id, 40 or 64 lower-case hexadecimal digits; nothing was written",
            hint="`git rev-parse NAME` gives the id of a branch or tag.",
        )
    if _TASK.fullmatch(wanted.task_id) is None:
        raise Malformed("task_id must be task_ and 32 hexadecimal digits; nothing was written")
    try:
        canonical = str(uuid.UUID(wanted.request_id)) == wanted.request_id
    except ValueError:
        canonical = False
    if not canonical:
        raise Malformed("request_id must be a UUID; nothing was written")
    if wanted.expected_version < 0:
        raise Malformed("expected_version counts from 1, and 0 checks nothing; nothing was written")
    if len(wanted.note.encode("utf-8", "surrogatepass")) > NOTE_BYTES_MAX:
        raise Malformed(f"the note must have at most {NOTE_BYTES_MAX} bytes; nothing was written")


def files_named(files: Iterable[str]) -> dict[str, str]:
    """Return the state of a refusal that names files: at most FILES_NAMED_MAX of them, and how many there are."""
    ordered = sorted(set(files))
    state = {"files": str(len(ordered))}
    for number, name in enumerate(ordered[:FILES_NAMED_MAX], start=1):
        state[f"file_{number}"] = clipped(as_text(name), STATE_PAIR_BYTES_MAX)
    return state


def as_text(name: str) -> str:
    """Return a path of git's as it can be told: in one line, and nothing that a terminal obeys.

    Who makes a file gives it its name, and it stands in a sentence that an agent or a person reads.
    """
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def files_in_words(files: Iterable[str]) -> str:
    """Return the first of these files for a sentence."""
    ordered = sorted(set(files))
    shown = ", ".join(map(as_text, ordered[:3]))
    return f"{shown} and {len(ordered) - 3} more" if len(ordered) > 3 else shown


def author_name(name: str) -> str:
    """Return a name as git takes it in a commit."""
    clean = " ".join(_NOT_IN_A_NAME.sub(" ", name).split())
    return clean or "Fencepost coordinator"


def author_mail(agent_id: str) -> str:
    """Return the address of an agent: local, and never routed."""
    return f"{agent_id}@{MAIL_DOMAIN}"


def merge_message(wanted: Wanted, branch: str) -> str:
    """Return the message of the merge commit."""
    return f"Integrate {wanted.task_id}\n\nMerges {wanted.commit}\ninto {branch.removeprefix('refs/heads/')}.\n"


def changes_of(raw: bytes) -> Changes:
    """Read `git diff-tree -r -z --no-renames --name-status`."""
    fields = raw.split(b"\0")
    added: set[str] = set()
    deleted: set[str] = set()
    changed: set[str] = set()
    for status, path in zip(fields[0::2], fields[1::2], strict=False):
        group = {b"A": added, b"D": deleted}.get(status[:1], changed)
        group.add(path.decode("utf-8", "surrogateescape"))
    return Changes(added=frozenset(added), deleted=frozenset(deleted), changed=frozenset(changed))


def dirty_of(raw: bytes) -> list[str]:
    """Read `git status --porcelain=v1 -z --no-renames`: the paths that it names."""
    return [entry[3:].decode("utf-8", "replace") for entry in raw.split(b"\0") if len(entry) > 3]


def conflicts_of(raw: bytes) -> list[str]:
    """Read `git merge-tree -z --name-only` with conflicts: the paths behind the tree's id."""
    return [one.decode("utf-8", "replace") for one in raw.split(b"\0")[1:] if one]


def filtered_of(raw: bytes) -> list[str]:
    """Read `git check-attr -z filter`: the paths that a program would have to convert."""
    fields = raw.split(b"\0")
    rows = zip(fields[0::3], fields[1::3], fields[2::3], strict=False)
    return [path.decode("utf-8", "replace") for path, _, value in rows if value not in (b"unspecified", b"unset")]


def programs_off(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return settings that take away every program which a repository's own configuration names.

    A merge driver becomes one that fails, so that its files are conflicts; a filter becomes none at all.
    """
    found: list[tuple[str, str]] = []
    for name in names:
        section, _, rest = name.partition(".")
        driver, _, key = rest.rpartition(".")
        if not driver:
            continue
        if section == "filter" and key in ("clean", "smudge", "process"):
            found += [(name, ""), (f"filter.{driver}.required", "false")]
        elif section == "merge" and key == "driver":
            found.append((name, "false"))
        elif section == "diff" and key in ("command", "textconv"):
            found.append((name, ""))
    return found


def ancestors(path: str) -> Iterable[str]:
    """Return the folders above a path, nearest last, without the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: number + 1]) for number in range(len(parts))]
