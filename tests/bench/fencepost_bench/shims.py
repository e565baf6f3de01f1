"""What an agent program pays for its shim, and what its model reads of the tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fencepost_bench.rows import Plan, Row, alternating, median_of, percentile, spread
from fencepost_bench.setting import Setting

STARTS_A_WINDOW: Final = 8
TOOLS_LIST_BYTES: Final = 8192
ALL_TOOLS_LIST_BYTES: Final = 24 * 1024

PLANS: Final = (
    Plan(id="shim-start", goal=1.5),
    Plan(id="shim-memory", goal=1.5),
    Plan(id="tools-list", goal=1.0),
    Plan(id="tools-list-all", goal=1.0),
)


def shims(setting: Setting) -> list[Row]:
    """Measure every row of PLANS."""
    stdio = setting.stdio
    start, memory, tools, all_tools = PLANS
    rounds: Any = alternating(
        setting.windows,
        {
            "shim": lambda: stdio.ask("begin_shim", count=STARTS_A_WINDOW),
            "python": lambda: stdio.ask("begin_python", count=STARTS_A_WINDOW),
        },
    )

    def ratio(over: Sequence[Any]) -> float:
        return middle("shim", over) / middle("python", over)

    def middle(kind: str, over: Sequence[Any]) -> float:
        return median_of(over, lambda one: percentile(one[kind], 0.5))

    kib = [stdio.ask("memory") for _ in range(3)]
    bare, idle = median_of(kib, lambda one: one["bare"]), median_of(kib, lambda one: one["shim"])
    # The larger one counts: a shim that has carried calls has loaded what calls need.
    most = max(idle, *(one.get("used", 0) for one in kib))
    size, whole = stdio.ask("tools_list"), stdio.ask("tools_list", families="all")
    return [
        start.row(
            ratio(rounds),
            f"{1000 * middle('shim', rounds):.1f} ms to the answer to initialize, python -c pass "
            f"{1000 * middle('python', rounds):.1f} ms; {spread(rounds, ratio)}",
        ),
        memory.row(
            most / bare,
            f"{most / 1024:.1f} MiB resident{' after calls' if most > idle else ''}, {idle / 1024:.1f} before any; "
            f"bare interpreter {bare / 1024:.1f}",
        ),
        tools.row(size / TOOLS_LIST_BYTES, f"{size} bytes of {TOOLS_LIST_BYTES}"),
        all_tools.row(whole / ALL_TOOLS_LIST_BYTES, f"{whole} bytes of {ALL_TOOLS_LIST_BYTES}, every family of tools"),
    ]
