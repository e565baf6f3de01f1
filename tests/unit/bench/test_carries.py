"""The bench of the carrier: what is noted of a scripted program, and what becomes of rows that cannot be measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from fencepost_bench import carries, carrying
from fencepost_bench.setting import Setting

from fencepost_testing.codex_real import NoNamespace
from fencepost_testing.real_programs import NotInstalled

BARE_S_MAX = 5.0


async def test_a_bare_turn_of_the_scripted_program_is_timed_by_what_the_program_notes(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    program = carrying.Scripted(str(tmp_path / "agent"), str(tmp_path / "beside"))
    await program.start()
    try:
        took = [await program.bare() for _ in range(3)]
    finally:
        await program.close()
    assert all(0 < nanoseconds < BARE_S_MAX * 1e9 for nanoseconds in took)
    said = [line.split()[0] for line in (tmp_path / "beside" / "stamps").read_text().splitlines()]
    assert said == ["turn_started", "turn_ended"] * 3


@pytest.mark.parametrize("error", [NotInstalled("codex is not here"), NoNamespace("no network")])
def test_rows_of_codex_are_left_out_with_the_reason_and_without_a_goal_where_it_cannot_run(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> Path:
        raise error

    monkeypatch.setattr(carries, "present", missing)
    monkeypatch.delenv(carries.PROGRAM_VARIABLE, raising=False)
    with Setting(1) as setting:
        rows = carries.codex_carries(setting)
    assert [row.id for row in rows] == [plan.id for plan in carries.CODEX_PLANS]
    assert {(row.ratio, row.goal, row.detail) for row in rows} == {(None, None, f"left out: {error}")}


def test_what_is_allowed_is_a_bare_start_with_four_syncs_and_eight_echoes_and_for_a_wake_three_and_eight() -> None:
    yardstick = {"p50": 0.001, "p99": 0.002}
    one = {
        "requests": {"start": [0.0225], "wake": [0.011]},
        "bare": [0.0105],
        "sync": yardstick,
        "echo": yardstick,
    }
    rows = carries._rows(carries.PLANS, [one, one])
    assert [round(row.ratio or 0, 3) for row in rows] == [1.0, round(0.0225 / 0.0345, 3), 1.0, 0.5]
    assert [row.id for row in rows] == ["carry-start", "carry-start-p99", "carry-wake", "carry-wake-p99"]


def test_a_stamp_that_is_still_being_written_counts_for_nothing() -> None:
    lines = ["turn_started other 7\n", "turn_started mine 1234\n", "turn_ended mine 5678\n"]
    text, at = "".join(lines), {"turn_started": 1234, "turn_ended": 5678}
    for seen in range(len(text) + 1):
        whole = [line for number, line in enumerate(lines) if seen >= len("".join(lines[: number + 1]))]
        expected = {line.split()[0]: at[line.split()[0]] for line in whole if " mine " in line}
        assert carrying.stamps_of("mine", text[:seen]) == expected
