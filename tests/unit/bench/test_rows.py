"""Rows, their goals, and the arithmetic of windows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import run
from fencepost_bench.rows import Better, Plan, Row, Unmeasured, alternating, as_json, percentile, spread, table

ROOT = Path(__file__).resolve().parents[3]
END_S_MAX = 30


def a_row(ratio: float | None, goal: float | None, better: Better = "lower") -> Row:
    return Row(id="x", ratio=ratio, goal=goal, better=better, detail="so; and so")


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        (a_row(1.5, 1.5), False),
        (a_row(1.51, 1.5), True),
        (a_row(0.6, 0.6, "higher"), False),
        (a_row(0.59, 0.6, "higher"), True),
        (a_row(99.0, None), False),
        (a_row(None, 1.5), False),
    ],
)
def test_a_row_misses_its_goal_on_the_wrong_side_of_it_and_not_on_it(row: Row, missed: bool) -> None:
    assert row.missed is missed


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        (a_row(2.25, 1.5), False),
        (a_row(2.26, 1.5), True),
        (a_row(0.4, 0.6, "higher"), False),
        (a_row(0.39, 0.6, "higher"), True),
        (a_row(None, 1.5), False),
    ],
)
def test_with_slack_a_row_may_be_beyond_its_goal_by_that_part_of_it(row: Row, missed: bool) -> None:
    assert row.misses(slack=0.5) is missed


def test_the_table_marks_what_is_over_its_goal_and_what_was_not_measured() -> None:
    shown = table([a_row(1.0, 1.5), a_row(2.0, 1.5), a_row(None, 1.5), a_row(3.0, None)], 120).splitlines()
    marks = ["ok", "MISS", "none", "reported"]
    assert [mark in line for mark, line in zip(marks, shown[1:], strict=True)] == [True] * 4


def test_every_other_round_runs_in_reversed_order() -> None:
    order: list[str] = []
    found = alternating(3, {name: (lambda name=name: order.append(name) or name) for name in ("a", "b")})  # type: ignore[misc]
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found == [{"a": "a", "b": "b"}] * 3


def test_the_spread_of_equal_windows_is_their_value_and_the_same_in_every_run() -> None:
    assert spread([2.0, 2.0], lambda over: sum(over) / len(over)) == "p5..p95 2.00..2.00, 2 windows"
    unequal = [1.0, 5.0, 9.0]
    assert spread(unequal, max) == spread(unequal, max)


def test_a_percentile_is_one_of_the_samples_and_nothing_has_none() -> None:
    samples = [float(number) for number in range(100)]
    assert [percentile(samples, part) for part in (0.0, 0.5, 0.99, 1.0)] == [0.0, 50.0, 99.0, 99.0]
    with pytest.raises(Unmeasured):
        percentile([], 0.5)


def test_the_file_is_a_list_of_rows_with_their_five_fields() -> None:
    rows = json.loads(as_json([a_row(1.23456, 1.5), Plan(id="y", better="higher").unmeasured("why")]))
    assert rows[0] == {"id": "x", "ratio": 1.2346, "goal": 1.5, "better": "lower", "detail": "so; and so"}
    assert rows[1] == {"id": "y", "ratio": None, "goal": None, "better": "higher", "detail": "not measured: why"}


def test_no_two_rows_have_one_name() -> None:
    names = [plan.id for part in run.PARTS for plan in part.plans]
    assert len(set(names)) == len(names)


def test_every_row_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "performance.md").read_text(encoding="utf-8")
    names = [plan.id for part in run.PARTS for plan in part.plans]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--only", "no-such-row"], "durable-16"), (["--windows", "0"], "--windows is 1 to")]
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(arguments: list[str], told: str) -> None:
    program = [sys.executable, str(ROOT / "tests" / "bench" / "run.py"), *arguments]
    done = subprocess.run(program, capture_output=True, text=True, timeout=END_S_MAX, check=False)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_part_that_fails_leaves_its_rows_unmeasured_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> list[Row]:
        raise OSError("no disk\nand more")

    part = run.Part(plans=(Plan(id="a", goal=1.0), Plan(id="b")), measure=fail)
    rows = run.measured(part, None)
    assert [(row.id, row.ratio, row.detail) for row in rows] == [
        ("a", None, "not measured: no disk"),
        ("b", None, "not measured: no disk"),
    ]
    assert "and more" in capsys.readouterr().err
