"""Evidence of tasks: what is reported in a form that can be checked, and the check; rows of the tasks' family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.mcp import profiles
from fencepost.mcp.families.tasks import EVIDENCE_IDS_MAX, LIMIT, MAYBE, REQUEST_ID, TASK
from fencepost.mcp.kinds import Choice, Count, Flag, Kind, Problem, Prose, Several
from fencepost.mcp.tool import Hints, Lost, Tool

# The mailbox's own limits, told before anything is asked of it; a test holds both to be the same.
EVIDENCE_PATH_BYTES_MAX: Final = 1024
TEST_LABEL_BYTES_MAX: Final = 256
EXIT_CODE_MAX: Final = 255
EVIDENCE_ID_BYTES_MAX: Final = 64
COMMIT_BYTES_MAX: Final = 64

KINDS: Final = ("file", "commit", "diff", "test")
OUTCOMES: Final = ("passed", "failed", "not_run")
_COMMIT: Final = Prose(bytes_max=COMMIT_BYTES_MAX)
_ID: Final = Prose(bytes_max=EVIDENCE_ID_BYTES_MAX)
# What each kind says, and what of it cannot be left out.
_SAYS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "file": (frozenset({"path", "sha256", "commit"}), frozenset({"path", "sha256"})),
    "commit": (frozenset({"commit"}), frozenset({"commit"})),
    "diff": (frozenset({"path", "base", "head"}), frozenset()),
    "test": (frozenset({"label", "outcome", "exit_code", "summary"}), frozenset({"label", "outcome"})),
}
_ALWAYS: Final = frozenset({"task_id", "kind", "note", "request_id"})

_WORDS: Final[dict[str, Kind]] = {
    "path": Prose(bytes_max=EVIDENCE_PATH_BYTES_MAX),
    "sha256": Prose(bytes_max=64),
    "commit": _COMMIT,
    "base": _COMMIT,
    "head": _COMMIT,
    "label": Prose(bytes_max=TEST_LABEL_BYTES_MAX),
    "outcome": Choice(words=OUTCOMES),
    "exit_code": Count(least=-EXIT_CODE_MAX, most=EXIT_CODE_MAX),
    "summary": MAYBE,
}


def _together(arguments: Mapping[str, Any]) -> None:
    kind = arguments["kind"]
    may, must = _SAYS[kind]
    for name in arguments:
        if name not in may | _ALWAYS:
            raise Problem(f"{name} says nothing of a {kind}, which has {', '.join(sorted(may))}")
    for name in sorted(must):
        if name not in arguments:
            raise Problem(f"{name} is missing, which a {kind} has")
    if kind == "diff" and {"path", "base", "head"} & set(arguments) not in ({"path"}, {"base", "head"}):
        raise Problem("a diff has a path, or base and head")


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="evidence_add",
        family=profiles.TASKS,
        description=(
            "Report evidence that can be checked: file (path, sha256, commit?), commit, diff (path, or base and head),"
            " test (label, outcome). Paths relative to your checkout, full commit ids."
        ),
        arguments={
            "task_id": TASK,
            "kind": Choice(words=KINDS),
            **_WORDS,
            "note": MAYBE,
            "request_id": REQUEST_ID,
        },
        required=("task_id", "kind"),
        hints=Hints(destructive=False),
        lost=Lost.SETTLE,
        together=_together,
        returns="`evidence_id`, `task_id`, `reported_at`, `duplicate`, `request_id`",
    ),
    Tool(
        name="evidence_list",
        family=profiles.TASKS,
        description="A task's evidence. verify: look first, in the assignee's checkout; verdict tells what was found.",
        arguments={
            "task_id": TASK,
            "evidence_ids": Several(of=_ID, most=EVIDENCE_IDS_MAX),
            "verify": Flag(),
            "cursor": _ID,
            "limit": LIMIT,
        },
        required=("task_id",),
        hints=Hints(destructive=False, idempotent=True),
        lost=Lost.ASK_AGAIN,
        returns="`evidence` (`evidence_id`, `kind` and what it says, `reporter`, `reported_at`, `note`, `verdict`,"
        " `verified_at`, `verified_for`, `checkout`, `detail`), `next_cursor`",
    ),
)
