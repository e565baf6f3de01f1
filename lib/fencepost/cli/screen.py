"""What people see: sentences, tables that never cut an id, times and latencies; and the one place that prints."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from fencepost.cli.plain import document, one_line, quoted
from fencepost.errors import FencepostError

GAP_CELLS: Final = 2
TEXT_CELLS_MIN: Final = 16
NEVER: Final = "never"


def put(text: str, *, stream: TextIO | None = None) -> None:
    """Write `text` and a line end as UTF-8, whatever the locale says."""
    target = sys.stdout if stream is None else stream
    data = (text + "\n").encode("utf-8", "backslashreplace")
    buffer = getattr(target, "buffer", None)
    if buffer is None:
        target.write(data.decode("utf-8"))
    else:
        target.flush()
        buffer.write(data)
    target.flush()


def put_json(fields: Mapping[str, Any]) -> None:
    """Write the one JSON document of a command."""
    put(document(fields))


# Services speak to agents, whose verbs are the MCP tools; whoever sits at a shell has commands.
_VERBS: Final = {
    "send_message": "`fencepost message send`",
    "followup_task": "`fencepost message followup`",
    "receive_messages": "`fencepost message receive`",
    "wait_agent": "`fencepost message wait`",
    "list_agents": "`fencepost agent list`",
    "interrupt_agent": "`fencepost message interrupt`",
    "task_create_pool": "`fencepost task pool`",
    "task_get": "`fencepost task show`",
    "task_set_dependencies": "`fencepost task depend`",
    **{
        f"task_{verb.replace('-', '_')}": f"`fencepost task {verb}`"
        for verb in (
            *("assign", "start", "claim", "list", "history", "progress", "submit", "review", "integrate", "cancel"),
            *("finish-cancel", "fail", "retry", "reassign"),
        )
    },
    "context_publish": "`fencepost context publish`",
    "context_get": "`fencepost context show`",
    "context_list": "`fencepost context list`",
    "project_memory_update": "`fencepost memory update`",
    **{f"file_{verb}": f"`fencepost file {verb}`" for verb in ("reserve", "renew", "release", "check")},
    "file_reservations": "`fencepost file list`",
}
_TOOLS: Final = re.compile(rf"(?<![\w`])({'|'.join(_VERBS)})(?![\w`])")


def in_commands(hint: str) -> str:
    """Return a hint with the commands of the shell in place of the tools of MCP."""
    return _TOOLS.sub(lambda found: _VERBS[found[0]], hint)


def put_error(error: FencepostError, *, as_json: bool, extra: Mapping[str, str] | None = None) -> None:
    """Write an error to standard error: for people in sentences, under --json as one document."""
    hint = in_commands(error.hint)
    if as_json:
        fields = {
            "code": error.reason,
            "message": error.message,
            "hint": hint,
            "outcome": error.outcome,
            "state": {**error.state, **(extra or {})},
        }
        put(document({"error": fields}), stream=sys.stderr)
        return
    put(f"fencepost: {one_line(error.message)} ({error.reason})", stream=sys.stderr)
    if hint:
        put(f"  {one_line(hint)}", stream=sys.stderr)
    for name, value in (extra or {}).items():
        put(f"  {name}: {one_line(value)}", stream=sys.stderr)


def put_body(body: str) -> None:
    """Write what another agent wrote: no line of it can pass for one of ours, see quoted."""
    put(quoted(body, width=terminal_width()))


def terminal_width() -> int | None:
    """Return the cells of a line where standard output is a terminal, else None."""
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of a table. Only a `text` column may be shortened, and only on a terminal that is too narrow."""

    title: str
    text: bool = False
    right: bool = False


def colourful(stream: TextIO | None = None) -> bool:
    """Tell whether output may carry colours: on a terminal that has them, unless NO_COLOR is set."""
    target = sys.stdout if stream is None else stream
    return target.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, width: int | None = None) -> str:
    """Return rows in columns, aligned by terminal cells, so that wide characters keep the columns straight.

    Nothing wraps. Where `width` (by default the terminal's; none where there is no terminal) is too small, `text`
    columns are shortened with an ellipsis, never below TEXT_CELLS_MIN; ids stay whole even if a line runs over.
    """
    from rich.cells import cell_len  # noqa: PLC0415 (a tenth of a second that --json need not pay)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [[one_line(cell) for cell in row] for row in rows]
    natural = [
        max(cell_len(text) for text in (column.title, *(row[at] for row in cells))) for at, column in enumerate(columns)
    ]
    if width is None:
        width = terminal_width()
    widths = natural if width is None else fitted(columns, natural, width)
    bold = "bold" if colourful() else ""
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP_CELLS, 0, 0), header_style=bold)
    for column, cells_wide in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.right else "left"
        drawn.add_column(column.title, no_wrap=True, overflow="ellipsis", justify=justify, width=cells_wide)
    for row in cells:
        drawn.add_row(*(Text(cell) for cell in row))
    console = Console(
        width=sum(widths) + GAP_CELLS * len(widths),
        force_terminal=colourful(),
        color_system="standard" if colourful() else None,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(drawn)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def fitted(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Return the widths of columns on a terminal of `width` cells: the widest text gives way first, ids never."""
    widths = list(natural)
    texts = [at for at, column in enumerate(columns) if column.text]
    over = sum(widths) + GAP_CELLS * (len(widths) - 1) - width
    while over > 0:
        widest = max(texts, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= TEXT_CELLS_MIN:
            break
        widths[widest] -= 1
        over -= 1
    return widths


def moment(at_ms: int) -> str:
    """Return a time in the person's own zone, to the second."""
    return _local(at_ms).strftime("%Y-%m-%d %H:%M:%S") if at_ms else NEVER


def instant(at_ms: int) -> str:
    """Return the time of day in the person's own zone, to the millisecond."""
    return _local(at_ms).strftime("%H:%M:%S.") + f"{at_ms % 1000:03d}" if at_ms else NEVER


def _local(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone()


def span(span_ms: int) -> str:
    """Return a length of time in at most two units."""
    if span_ms < 0:
        return "-" + span(-span_ms)
    if span_ms < 1_000:
        return f"{span_ms} ms"
    if span_ms < 100_000:
        return f"{span_ms / 1000:.2f} s"
    minutes, hours = span_ms // 60_000, span_ms // 3_600_000
    if hours < 1:
        return f"{minutes} min {span_ms // 1000 % 60} s"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def ago(at_ms: int, now_ms: int) -> str:
    """Return how long ago something was."""
    return f"{span(max(0, now_ms - at_ms))} ago" if at_ms else NEVER
