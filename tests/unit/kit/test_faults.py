"""Fault points."""

from __future__ import annotations

import dis
import signal
import subprocess
import sys
import time

import pytest

from fencepost_kit import faults
from fencepost_kit.faults import DELAY_MS_MAX, FAULTS_MAX, InjectedFault, InvalidFaults

pytestmark = pytest.mark.usefixtures("disarmed")

POINT = faults.register("testing.point", "in the middle of a test")


@pytest.fixture(autouse=True)
def _registered() -> None:
    faults.register(POINT, "in the middle of a test")


def test_nothing_is_armed_without_the_variable() -> None:
    faults.arm_from_environment({})
    assert faults.ARMED is False


@pytest.mark.requirement("kit.faults-cost-one-read-when-off")
def test_a_point_that_is_off_costs_one_attribute_read() -> None:
    def hot() -> None:
        if faults.ARMED:
            faults.hit("testing.point")

    before_jump = [step.opname for step in dis.get_instructions(hot)]
    first_jump = next(index for index, name in enumerate(before_jump) if "JUMP" in name)
    loads = [name for name in before_jump[:first_jump] if name.startswith("LOAD")]
    assert loads == ["LOAD_GLOBAL", "LOAD_ATTR"]


def test_an_error_is_raised_at_the_named_hit_and_only_there() -> None:
    faults.arm("testing.point=error@3")
    assert faults.ARMED
    faults.hit(POINT)
    faults.hit(POINT)
    with pytest.raises(InjectedFault) as caught:
        faults.hit(POINT)
    assert isinstance(caught.value, OSError)
    faults.hit(POINT)


def test_without_a_number_the_first_hit_is_meant_and_with_a_star_every_one() -> None:
    faults.arm("testing.point=error")
    with pytest.raises(InjectedFault):
        faults.hit(POINT)
    faults.hit(POINT)
    faults.arm("testing.point=error@*")
    for _ in range(3):
        with pytest.raises(InjectedFault):
            faults.hit(POINT)


def test_a_delay_stalls_for_its_time() -> None:
    faults.arm("testing.point=delay_ms:30")
    started = time.monotonic()
    faults.hit(POINT)
    assert time.monotonic() - started >= 0.03


def test_other_points_are_left_alone() -> None:
    faults.register("testing.other", "elsewhere")
    faults.arm("testing.other=error@*")
    faults.hit(POINT)


def test_several_entries_hold_side_by_side() -> None:
    faults.register("testing.other", "elsewhere")
    faults.arm(" testing.point=error@1 ; testing.other=error@2;; testing.point=error@2 ")
    faults.hit("testing.other")
    for point in (POINT, POINT, "testing.other"):
        with pytest.raises(InjectedFault):
            faults.hit(point)


@pytest.mark.parametrize(
    "text",
    [
        "testing.point",
        "testing.point=",
        "testing.point=explode",
        "testing.point=delay_ms",
        "testing.point=delay_ms:x",
        f"testing.point=delay_ms:{DELAY_MS_MAX + 1}",
        "testing.point=kill@0",
        "testing.point=kill@-1",
        "testing.point=kill@x",
        ";".join(["testing.point=error"] * (FAULTS_MAX + 1)),
    ],
)
def test_a_malformed_entry_is_refused_and_nothing_changes(text: str) -> None:
    faults.arm("testing.point=error@*")
    with pytest.raises(InvalidFaults):
        faults.arm(text)
    with pytest.raises(InjectedFault):
        faults.hit(POINT)


def test_the_limits_themselves_are_taken() -> None:
    faults.arm(";".join(["testing.point=error"] * FAULTS_MAX))
    faults.arm(f"testing.point=delay_ms:{DELAY_MS_MAX}@9")


@pytest.mark.requirement("kit.a-fault-that-cannot-fire-is-refused")
def test_a_fault_at_a_point_that_does_not_exist_is_refused_with_those_that_do() -> None:
    faults.arm("testing.piont=kill")
    with pytest.raises(InvalidFaults, match=r"testing\.piont") as caught:
        faults.refuse_unknown()
    assert "testing.point" in caught.value.hint
    faults.arm("testing.point=kill")
    assert faults.armed() == ("testing.point",)
    faults.refuse_unknown()


@pytest.mark.requirement("kit.a-fault-that-cannot-fire-is-refused")
@pytest.mark.parametrize(
    ("name", "refused"),
    [("mailbox.commit.after", False), ("testing.other.point", True), ("mailbx.commit.after", True)],
    ids=["another service's", "ours, misspelt", "nobody's"],
)
def test_points_of_other_services_are_left_to_them(name: str, refused: bool) -> None:
    faults.POINTS.clear()
    faults.register(POINT, "in the middle of a test")
    faults.arm(f"{name}=kill")
    if refused:
        with pytest.raises(InvalidFaults):
            faults.refuse_unknown()
    else:
        faults.refuse_unknown()


@pytest.mark.parametrize("name", ["", "single", "Upper.case", "a..b", "a.b-c", ".a", "a."])
def test_a_points_name_is_dotted_lower_case(name: str) -> None:
    with pytest.raises(ValueError, match="not a fault point name"):
        faults.register(name, "never")


@pytest.mark.parametrize(("action", "code"), [("kill", -signal.SIGKILL), ("exit", faults.EXIT_CODE)])
def test_a_deadly_fault_ends_the_process_at_the_named_hit(action: str, code: int) -> None:
    program = (
        "from fencepost_kit import faults\n"
        "faults.register('a.b', 'here')\n"
        "faults.arm_from_environment()\n"
        "for turn in range(3):\n"
        "    print(turn, flush=True)\n"
        "    if faults.ARMED:\n"
        "        faults.hit('a.b')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"FENCEPOST_FAULTS": f"a.b={action}@2"},
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (code, [b"0", b"1"])
