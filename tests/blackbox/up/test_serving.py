"""One service as a process: signals, takeover, refusals to start."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.home import SOCKET_PATH_BYTES_MAX, Home
from fencepost_kit.files import owner_of
from fencepost_kit.serve import EXIT_REFUSED
from fencepost_testing.compose import Up, until
from fencepost_testing.processes import Services, dying_with_us, environment


def events(services: Services, name: str) -> list[str]:
    return [json.loads(line)["event"] for line in services.log(name).splitlines() if line.startswith("{")]


@pytest.mark.requirement("kit.a-stop-ends-in-its-time")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_drains_and_the_process_ends_with_0(fakes: Services, home: Home, number: int) -> None:
    await fakes.start("alpha")
    fakes.signal("alpha", number)
    assert fakes.join("alpha") == 0
    assert events(fakes, "alpha") == ["serving", "ready", "stopping", "stopped"]
    assert sorted(path.name for path in home.run.iterdir()) == ["alpha.lock"]


@pytest.mark.requirement("kit.a-stop-ends-in-its-time")
async def test_a_second_signal_ends_the_process_at_once(fakes: Services, home: Home) -> None:
    compose = Up(home)
    compose.plan("alpha", slow_stop=True)
    await fakes.start("alpha")
    fakes.signal("alpha", signal.SIGTERM)
    until(lambda: ("alpha", "stopping") in compose.events(), "the first signal's effect")
    fakes.signal("alpha", signal.SIGTERM)
    assert fakes.join("alpha") == 128 + signal.SIGTERM


@pytest.mark.requirement("kit.a-stale-socket-is-taken-over")
async def test_what_a_killed_service_left_is_taken_over_by_the_next(fakes: Services, home: Home) -> None:
    await fakes.start("alpha")
    first = fakes.pid("alpha")
    fakes.kill("alpha")
    assert home.socket("alpha").exists()
    assert owner_of(home.lock("alpha")) is None
    await fakes.start("alpha")
    owner = owner_of(home.lock("alpha"))
    assert owner is not None
    assert owner.pid == fakes.pid("alpha") != first


@pytest.mark.requirement("kit.one-server-per-socket")
async def test_a_second_process_is_refused_with_the_pid_of_the_first_which_goes_on(fakes: Services, home: Home) -> None:
    await fakes.start("alpha")
    other = Services(home, modules={"alpha": "fencepost_testing.fakes.alpha"})
    other.spawn("alpha")
    assert other.join("alpha") == EXIT_REFUSED
    assert f"alpha is served in this home by process {fakes.pid('alpha')}; nothing was touched" in other.log("alpha")
    await fakes.ready("alpha")


def start_in(home: Home) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        dying_with_us(sys.executable, "-P", "-m", "fencepost_testing.fakes.alpha"),
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.requirement("kit.a-home-path-over-the-limit-is-refused-first")
def test_a_home_for_which_no_folder_is_short_enough_is_told_in_words_and_creates_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", "/" + "t" * SOCKET_PATH_BYTES_MAX)
    long = Home(home.path.parent / ("x" * SOCKET_PATH_BYTES_MAX))
    ended = start_in(long)
    assert ended.returncode == EXIT_REFUSED
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("alpha: the socket paths of the home")
    assert "Choose a shorter FENCEPOST_HOME" in last
    assert not long.path.exists()


@pytest.mark.requirement("kit.a-home-that-cannot-be-written-is-refused")
@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a folder that not even root can write to: /sys")
def test_a_home_that_cannot_be_created_is_told_in_words() -> None:
    ended = start_in(Home("/sys/fencepost"))
    assert ended.returncode == EXIT_REFUSED
    assert "/sys/fencepost cannot be created" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.requirement("kit.a-socket-is-its-owners-alone")
def test_a_home_that_others_can_write_to_is_refused(home: Home) -> None:
    home.path.mkdir()
    home.path.chmod(0o777)
    ended = start_in(home)
    assert ended.returncode == EXIT_REFUSED
    assert "open to other users" in ended.stderr.splitlines()[-1]
    assert not home.run.exists()


@pytest.mark.requirement("kit.a-fault-that-cannot-fire-is-refused")
@pytest.mark.parametrize("fault", ["no.such=kill", "nonsense"])
def test_faults_that_mean_nothing_here_are_refused(home: Home, fault: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "fencepost_testing.fakes.alpha"],
        env=environment(home, {"FENCEPOST_FAULTS": fault}),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode == EXIT_REFUSED
    assert "FENCEPOST_FAULTS" in ended.stderr
    assert not home.path.exists()
