"""Checking what was reported: what is looked at, what is never read, and what can come of it."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from fencepost_kit.refusal import Malformed

# Of one call, over all its files.
VERIFY_READ_BYTES_MAX: Final = 64 * 1024 * 1024
EVIDENCE_CHECKED_MAX: Final = 32
DETAIL_BYTES_MAX: Final = 512

_EVIDENCE: Final = re.compile(r"evi_[0-9a-f]{32}")
_TASK: Final = re.compile(r"task_[0-9a-f]{32}")
# Folders and files that hold credentials by custom, and git's own. Compared without regard to case.
_SECRET_FOLDERS: Final = frozenset(
    {".git", ".ssh", ".gnupg", ".aws", ".azure", ".gcloud", ".kube", ".docker", ".fencepost", ".password-store"}
)
_SECRET_FILES: Final = (
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    "credential*",
    "*.credential",
    "*credentials*",
    "secret*",
    "*.secret",
    "*secrets*",
    "*token*",
    "*password*",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "service-account*.json",
)


class Verdict(enum.IntEnum):
    """What came of a check; the numbers of EvidenceVerdict, and of the mailbox's Verdict."""

    VERIFIED = 1
    MISMATCH = 2
    UNAVAILABLE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class FileClaim:
    """A file with that content: of a commit, or of the checkout where `commit` is empty."""

    path: str
    sha256: str
    commit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitClaim:
    """Commits that are there."""

    commits: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffFileClaim:
    """A file that is there."""

    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunClaim:
    """A test that ended in some way."""


Claim = FileClaim | CommitClaim | DiffFileClaim | RunClaim


@dataclass(frozen=True, kw_only=True, slots=True)
class Reported:
    """A piece of evidence."""

    evidence_id: str
    claim: Claim


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What came of a check. `checkout` is empty where none was read."""

    evidence_id: str
    verdict: Verdict
    detail: str
    checkout: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A finding, and when the mailbox wrote it; 0 where it did not."""

    finding: Finding
    recorded_at_ms: int


def check_asked(task_id: str, evidence_ids: Sequence[str]) -> None:
    """Let a call pass whose ids can be meant.

    Raises:
        Malformed: they cannot; nothing was read.
    """
    if _TASK.fullmatch(task_id) is None:
        raise Malformed("task_id must be task_ and 32 hexadecimal digits; nothing was read")
    if not 1 <= len(evidence_ids) <= EVIDENCE_CHECKED_MAX:
        raise Malformed(f"evidence_ids must name 1 to {EVIDENCE_CHECKED_MAX} pieces; nothing was read")
    if not all(map(_EVIDENCE.fullmatch, evidence_ids)):
        raise Malformed("evidence_ids must be evi_ and 32 hexadecimal digits each; nothing was read")


def is_secret(path: str) -> bool:
    """Tell whether a path is one that holds credentials by custom: it is never read."""
    *folders, name = path.casefold().split("/")
    secret = any(folder in _SECRET_FOLDERS for folder in (*folders, name))
    return secret or any(fnmatchcase(name, pattern) for pattern in _SECRET_FILES)


def parts_of(path: str) -> list[str] | None:
    """Return the parts of a path that can only lie in the checkout; None where it could lead out of it."""
    parts = path.split("/")
    return None if "\0" in path or any(part in ("", ".", "..") for part in parts) else parts
