"""File reservations: which agent works on which files. Paths are named on the machine of the checkout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.mcp import profiles
from fencepost.mcp.families.tasks import CURSOR, LIMIT, READS, REQUEST_ID
from fencepost.mcp.kinds import Agent, Choice, Count, Flag, Kind, Problem, Prose, Several, Uuid
from fencepost.mcp.tool import Hints, Lost, Tool

# The mailbox's own limits, told before anything is asked of it; a test holds both to be the same.
FILE_PATH_BYTES_MAX: Final = 4096
FILE_PATHS_MAX: Final = 100
FILE_REASON_BYTES_MAX: Final = 1024
RESERVATION_S_MAX: Final = 3600

INSTRUCTIONS: Final = (
    "Files: reserve what you are about to change by file_reserve, all of it or nothing; renew it while you work,"
    " release it when you have done. reserved: false names who holds it: work on something else, or ask that agent."
    " file_check tells whether you may write now."
)

_PATH: Final = Prose(bytes_max=FILE_PATH_BYTES_MAX)
_WRITES: Final = Hints(destructive=False)
_SECONDS: Final = Count(least=1, most=RESERVATION_S_MAX)
_MORE: Final = Several(of=_PATH, most=FILE_PATHS_MAX - 1)
_HELD: Final[Mapping[str, Kind]] = {"file_path": _PATH, "more_paths": _MORE, "reservation_id": Uuid()}


def _named(arguments: Mapping[str, Any]) -> None:
    if not {"file_path", "more_paths", "reservation_id"} & set(arguments):
        raise Problem("file_path or reservation_id is needed")


def _named_or_everything(arguments: Mapping[str, Any]) -> None:
    others = {"file_path", "more_paths", "reservation_id"} & set(arguments)
    if bool(others) == arguments.get("everything", False):
        raise Problem("file_path, reservation_id, or everything alone is needed")


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        name="file_reserve",
        family=profiles.FILES,
        description=(
            "Reserve files before you change them: relative to the repository's root; folders, and globs with * ? **,"
            " cover what is below. All of them or none, 300 s by default."
        ),
        arguments={
            "file_path": _PATH,
            "more_paths": _MORE,
            "duration_seconds": _SECONDS,
            "reason": Prose(bytes_max=FILE_REASON_BYTES_MAX),
            "shared": Flag(),
            "scope": Choice(words=("project", "checkout")),
            "attempt_id": Uuid(),
            "request_id": REQUEST_ID,
        },
        required=("file_path",),
        hints=_WRITES,
        lost=Lost.SETTLE,
        placed=True,
        returns="`file_path`, `reserved`, `expires_at`, `reservation_id`, `request_id`; where nothing is reserved"
        " `holder`, `reason`, `conflicts`, `more_conflicts`; `lapsed` where it is held no more",
    ),
    Tool(
        name="file_renew",
        family=profiles.FILES,
        description="Put the end of a reservation of yours off. What has expired is reserved anew.",
        arguments={**_HELD, "duration_seconds": _SECONDS, "request_id": REQUEST_ID},
        hints=_WRITES,
        lost=Lost.SETTLE,
        placed=True,
        together=_named,
        returns="`renewed` (how many paths), `expires_at`, `duplicate`, `request_id`",
    ),
    Tool(
        name="file_release",
        family=profiles.FILES,
        description="Give up files that you have reserved, or everything.",
        arguments={**_HELD, "everything": Flag(), "request_id": REQUEST_ID},
        hints=_WRITES,
        lost=Lost.SETTLE,
        placed=True,
        together=_named_or_everything,
        returns="`released` (how many paths), `duplicate`, `request_id`",
    ),
    Tool(
        name="file_reservations",
        family=profiles.FILES,
        description="List what is reserved now, by whom, until when, and why; of one file or folder, or of one holder.",
        arguments={"file_path": _PATH, "holder": Agent(), "cursor": CURSOR, "limit": LIMIT},
        hints=READS,
        lost=Lost.ASK_AGAIN,
        placed=True,
        returns="`reservations`, `next_cursor`",
    ),
    Tool(
        name="file_check",
        family=profiles.FILES,
        description="Tell whether you may write to files now. Changes nothing.",
        arguments={"file_path": _PATH, "more_paths": _MORE},
        required=("file_path",),
        hints=READS,
        lost=Lost.ASK_AGAIN,
        placed=True,
        returns="`free`, `conflicts`, `more_conflicts`, `checked_at`",
    ),
)
