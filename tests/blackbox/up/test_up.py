"""The supervisor as a process, over fake services."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost import up
from fencepost.home import Home
from fencepost.up import Overall, Phase, start
from fencepost.up.logfile import LINE_BYTES_MAX
from fencepost_testing.compose import TABLE, Up, is_alive, until
from fencepost_testing.processes import Services, environment

NAMES = ["alpha", "beta", "gamma"]


@pytest.mark.requirement("up.in-order-by-readiness")
def test_services_start_in_order_each_ready_before_the_next_and_stop_in_reverse(compose: Up) -> None:
    supervisor = compose.spawn()
    status = compose.ready()
    assert [(service.name, service.phase, service.restarts) for service in status.services] == [
        (name, Phase.READY, 0) for name in NAMES
    ]
    assert all(service.pid and is_alive(service.pid) for service in status.services)
    assert status.pid == supervisor.pid
    code, output = compose.end(supervisor)
    assert code == 0, output
    assert compose.events() == [
        *((name, event) for name in NAMES for event in ("started", "ready")),
        *((name, event) for name in reversed(NAMES) for event in ("stopping", "stopped")),
    ]
    assert "everything is ready" in output
    assert not any(is_alive(pid) for pid in compose.pids())
    assert up.status(compose.home).overall is Overall.STOPPED


def test_chosen_services_bring_what_they_need_and_nothing_more(compose: Up) -> None:
    supervisor = compose.spawn("--services", "beta")
    assert [service.name for service in compose.ready().services] == ["alpha", "beta"]
    assert compose.end(supervisor)[0] == 0


@pytest.mark.requirement("up.a-killed-ready-service-never-trips-the-cap")
def test_a_killed_service_is_started_again_however_often_and_the_others_are_left_alone(compose: Up) -> None:
    supervisor = compose.spawn("--services", "beta", env={"FENCEPOST_UP_CRASH_EXITS_MAX": "2"})
    others = {service.name: service.pid for service in compose.ready().services if service.name != "beta"}
    for turn in range(1, 5):
        pid = compose.service("beta").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)  # ours: a fake that this test's supervisor started
        until(
            lambda turn=turn: compose.service("beta").restarts == turn and compose.service("beta").phase is Phase.READY,  # type: ignore[misc]
            "the restart",
        )
    status = compose.ready()
    assert {service.name: service.pid for service in status.services if service.name != "beta"} == others
    assert compose.service("beta").last_end.startswith("was ended by SIGKILL")
    assert compose.end(supervisor)[0] == 0


@pytest.mark.requirement("up.a-crash-loop-ends")
def test_a_service_that_ends_soon_after_readiness_is_given_up_at_the_cap_and_the_others_stay(compose: Up) -> None:
    supervisor = compose.spawn(
        "--services", "beta", env={"FENCEPOST_UP_CRASH_EXITS_MAX": "3", "FENCEPOST_UP_BACKOFF_MS_MIN": "10"}
    )
    compose.ready()
    compose.plan("beta", exit_when_ready=5)
    pid = compose.service("beta").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)  # ours: a fake that this test's supervisor started
    until(lambda: compose.service("beta").phase is Phase.CRASH_LOOP, "the crash loop's end")
    status = compose.overall(Overall.DEGRADED)
    assert [service.phase for service in status.services] == [Phase.READY, Phase.CRASH_LOOP]
    assert "beta exited with 5" in status.problem
    assert "(3 times in a row)" in status.problem
    assert str(compose.home.log("beta")) in status.problem
    code, output = compose.end(supervisor)
    assert code == 0, output


@pytest.mark.requirement("up.a-crash-loop-ends")
def test_a_service_that_cannot_start_ends_the_whole_with_its_last_words_and_its_log(compose: Up) -> None:
    compose.plan("beta", exit=3, say="the disk is on fire")
    code, output = compose.run(env={"FENCEPOST_UP_CRASH_EXITS_MAX": "3", "FENCEPOST_UP_BACKOFF_MS_MIN": "10"})
    assert code == 1
    assert "beta exited with 3 before it was ready (3 times in a row); it is not started again" in output
    assert "the disk is on fire" in output
    assert str(compose.home.log("beta")) in output
    assert compose.events().count(("beta", "started")) == 3
    assert ("gamma", "started") not in compose.events()
    assert compose.events()[-1] == ("alpha", "stopped")
    assert not any(is_alive(pid) for pid in compose.pids())
    status = up.status(compose.home)
    assert (status.running, status.overall) == (False, Overall.FAILED)
    assert "beta exited with 3" in status.problem


def test_a_service_that_refuses_to_start_is_not_tried_again(compose: Up) -> None:
    compose.home.prepare()
    compose.home.socket("alpha").write_text("in the way")
    code, output = compose.run()
    assert code == 1
    assert "is not a socket; nothing was touched" in output
    assert compose.events() == [("alpha", "started")]
    assert compose.home.socket("alpha").read_text() == "in the way"


@pytest.mark.requirement("up.in-order-by-readiness")
def test_a_service_that_is_never_ready_is_stopped_at_its_limit_and_named(compose: Up) -> None:
    compose.plan("beta", hang=True)
    table = tuple(replace(row, ready_ms_max=700) if row.name == "beta" else row for row in TABLE)
    code, output = compose.run(table=table)
    assert code == 1
    assert "beta was not ready within 0.7 s; it is not started again" in output
    assert ("gamma", "started") not in compose.events()
    assert not any(is_alive(pid) for pid in compose.pids())


@pytest.mark.requirement("up.in-order-by-readiness")
def test_a_server_that_somebody_else_started_does_not_count_as_ready(compose: Up) -> None:
    alone = Services(compose.home, modules={"alpha": "fencepost_testing.fakes.alpha"})
    try:
        pid = alone.spawn("alpha")
        until(lambda: ("alpha", "ready") in compose.events(), "the other server")
        code, output = compose.run()
        assert code == 1
        assert f"by process {pid}" in output
        assert alone.is_alive("alpha")
    finally:
        alone.close()


@pytest.mark.requirement("up.one-supervisor-per-home")
def test_a_second_supervisor_is_refused_with_the_owners_pid_and_since_when(compose: Up) -> None:
    first = compose.spawn("--services", "alpha")
    status = compose.ready()
    for arguments in ((), ("--detach",)):
        code, output = compose.run("--services", "alpha", *arguments)
        assert code == 1
        assert f"process {first.pid} keeps the services of {compose.home.path} up since 20" in output
        assert "nothing was started" in output
    assert compose.ready() == status
    assert compose.end(first)[0] == 0


@pytest.mark.requirement("kit.children-do-not-outlive-their-parent")
def test_children_die_with_a_killed_supervisor_and_the_next_one_starts_clean(compose: Up) -> None:
    first = compose.spawn("--services", "beta")
    pids = [service.pid for service in compose.ready().services]
    first.kill()
    first.communicate(timeout=10)
    until(lambda: not any(is_alive(pid) for pid in pids if pid), "the end of the children")
    status = up.status(compose.home)
    assert not status.running
    assert "ended without stopping" in status.problem
    second = compose.spawn("--services", "beta")
    compose.ready()
    assert compose.end(second)[0] == 0


@pytest.mark.requirement("up.a-stop-joins-every-child")
def test_a_service_that_ignores_sigterm_is_killed_after_the_grace(compose: Up) -> None:
    compose.plan("beta", stubborn=True)
    supervisor = compose.spawn("--services", "beta", env={"FENCEPOST_UP_GRACE_MS": "300"})
    compose.ready()
    started = time.monotonic()
    code, _ = compose.end(supervisor)
    assert code == 0
    assert 0.3 <= time.monotonic() - started < 10
    assert ("beta", "refused_to_stop") in compose.events()
    assert compose.events()[-1] == ("alpha", "stopped")
    assert not any(is_alive(pid) for pid in compose.pids())


@pytest.mark.requirement("up.a-stop-joins-every-child")
def test_a_second_signal_cuts_the_grace_short(compose: Up) -> None:
    compose.plan("alpha", stubborn=True)
    supervisor = compose.spawn("--services", "alpha", env={"FENCEPOST_UP_GRACE_MS": "60000"})
    compose.ready()
    supervisor.send_signal(signal.SIGINT)
    until(lambda: ("alpha", "refused_to_stop") in compose.events(), "the first signal's effect")
    code, _ = compose.end(supervisor, signal.SIGINT)
    assert code == 0
    assert not any(is_alive(pid) for pid in compose.pids())


@pytest.mark.requirement("up.a-stop-joins-every-child")
def test_a_stop_during_the_start_leaves_nothing_running(compose: Up) -> None:
    compose.plan("beta", hang=True)
    supervisor = compose.spawn()
    until(lambda: ("beta", "started") in compose.events(), "the start of beta")
    code, output = compose.end(supervisor)
    assert code == 0, output
    assert ("gamma", "started") not in compose.events()
    assert not any(is_alive(pid) for pid in compose.pids())


@pytest.mark.requirement("up.detached-means-ready-or-gone")
def test_detached_it_returns_when_everything_is_ready_and_stop_ends_it(compose: Up) -> None:
    code, output = compose.run("--detach")
    assert code == 0, output
    status = up.status(compose.home)
    assert (status.running, status.overall) == (True, Overall.READY)
    assert f"alpha, beta, gamma are ready (process {status.pid})" in output
    assert status.pid is not None
    assert os.getsid(status.pid) == status.pid
    result = up.stop(compose.home, 20)
    assert (result.was_running, result.stopped, result.pid) == (True, True, status.pid)
    assert not any(is_alive(pid) for pid in compose.pids())
    assert not is_alive(status.pid)


@pytest.mark.requirement("up.detached-means-ready-or-gone")
def test_a_detached_start_that_fails_says_why_and_where_the_log_is(compose: Up) -> None:
    compose.plan("alpha", exit=78, say="no room")
    code, output = compose.run("--services", "alpha", "--detach")
    assert code == 1
    assert "not started. alpha exited with 78 before it was ready" in output
    assert "no room" in output
    assert f"Log: {compose.home.log('alpha')}" in output
    # One log, the one that says most, and no sentence with two ends.
    assert (output.count("Log: "), ".." in output) == (1, False)
    assert not up.status(compose.home).running
    assert not any(is_alive(pid) for pid in compose.pids())


@pytest.mark.requirement("up.detached-means-ready-or-gone")
def test_a_detached_start_that_is_not_ready_at_its_limit_is_stopped_again(
    compose: Up, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    compose.plan("alpha", hang=True)
    for name, value in environment(compose.home).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(start, "DETACH_MS_MAX", 4_000)
    assert up.run(compose.home, detach=True, services=["alpha"], table=TABLE) == 1
    assert "not ready within 4 s; everything was stopped again" in capfd.readouterr().err
    assert not up.status(compose.home).running
    assert not any(is_alive(pid) for pid in compose.pids())


@pytest.mark.requirement("up.detached-means-ready-or-gone")
def test_a_detached_start_that_is_interrupted_leaves_nothing_running(compose: Up) -> None:
    compose.plan("alpha", hang=True)
    starter = compose.spawn("--services", "alpha", "--detach")
    until(lambda: ("alpha", "started") in compose.events(), "the start of alpha")
    compose.end(starter, signal.SIGINT)
    assert not up.status(compose.home).running
    assert not any(is_alive(pid) for pid in compose.pids())


def test_a_status_file_that_cannot_be_written_is_told_once_and_stops_nothing(compose: Up) -> None:
    compose.home.prepare()
    compose.home.up_status.mkdir()
    supervisor = compose.spawn("--services", "alpha")
    until(lambda: ("alpha", "ready") in compose.events(), "readiness")
    code, output = compose.end(supervisor)
    assert code == 0
    assert output.count("cannot be written") == 1
    assert compose.events()[-1] == ("alpha", "stopped")


@pytest.mark.requirement("up.a-stop-joins-every-child")
def test_a_stop_that_takes_longer_than_its_time_says_so_and_goes_on(compose: Up) -> None:
    compose.plan("alpha", stubborn=True)
    assert compose.run("--services", "alpha", "--detach", env={"FENCEPOST_UP_GRACE_MS": "1500"})[0] == 0
    result = up.stop(compose.home, 0.2)
    assert (result.was_running, result.stopped) == (True, False)
    until(lambda: not up.status(compose.home).running, "the end of the supervisor")


@pytest.mark.requirement("up.logs-are-bounded")
def test_what_services_write_is_in_their_logs_which_are_turned_at_their_limit(compose: Up) -> None:
    compose.plan("alpha", chatter=200)
    limit = 2 * LINE_BYTES_MAX
    supervisor = compose.spawn(
        "--services", "alpha", env={"FENCEPOST_UP_LOG_BYTES_MAX": str(limit), "FENCEPOST_UP_LOG_FILES_MAX": "2"}
    )
    compose.ready()
    assert compose.end(supervisor)[0] == 0
    logs = sorted(compose.home.logs.glob("alpha.log*"))
    assert [path.name for path in logs] == ["alpha.log", "alpha.log.1"]
    assert all(0 < path.stat().st_size <= limit and path.stat().st_mode & 0o777 == 0o600 for path in logs)
    lines = [line for path in reversed(logs) for line in path.read_text().splitlines()]
    numbers = [int(line.split()[0]) for line in lines if line[:1].isdigit()]
    assert numbers == list(range(numbers[0], 200))
    assert json.loads(lines[-1])["event"] == "stopped"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads a process's environment in /proc")
def test_a_service_is_not_lent_the_identity_of_the_shell_that_starts_it(compose: Up) -> None:
    lent = {"FENCEPOST_SESSION_ID": "x", "FENCEPOST_CREDENTIAL_FILE": "y", "FENCEPOST_GENERATION": "1"}
    supervisor = compose.spawn("--services", "alpha", env={**lent, "FENCEPOST_OTHER": "kept"})
    pid = compose.ready().services[0].pid
    environ = Path(f"/proc/{pid}/environ").read_text().split("\0")
    names = {entry.partition("=")[0] for entry in environ}
    assert not names & set(lent)
    assert {"FENCEPOST_OTHER", "FENCEPOST_HOME"} <= names
    assert compose.end(supervisor)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (("--services", "delta"), {}, "there is no service 'delta'"),
        ((), {"FENCEPOST_UP_GRACE": "1"}, "FENCEPOST_UP_GRACE: unknown setting"),
        ((), {"FENCEPOST_UP_GRACE_MS": "-1"}, "FENCEPOST_UP_GRACE_MS: must be between 0 and"),
    ],
)
def test_wrong_names_and_settings_are_refused_before_anything_is_made(
    compose: Up, arguments: tuple[str, ...], env: dict[str, str], words: str
) -> None:
    code, output = compose.run(*arguments, env=env)
    assert code == 1
    assert words in output
    assert not compose.home.path.exists()


def test_a_table_of_the_settings_file_that_belongs_to_no_service_is_refused(compose: Up) -> None:
    compose.home.prepare()
    compose.home.settings.write_text("[mailbx]\ndrain_ms = 1\n")
    code, output = compose.run()
    assert code == 1
    assert "[mailbx] belongs to no service; nothing was started" in output


@pytest.mark.requirement("kit.a-home-path-over-the-limit-is-refused-first")
@pytest.mark.parametrize("arguments", [(), ("--detach",)])
def test_a_home_path_over_the_socket_limit_is_refused_before_anything_is_made(
    home: Home, arguments: tuple[str, ...]
) -> None:
    compose = Up(Home(home.path.parent / ("x" * 120)))
    # No short folder either: the temporary folder's own path is over the limit too.
    distant = home.path.parent / ("t" * 120)
    distant.mkdir(mode=0o700)
    code, output = compose.run(*arguments, env={"TMPDIR": str(distant), "XDG_RUNTIME_DIR": ""})
    assert code == 1
    assert "shorter FENCEPOST_HOME" in output
    assert not compose.home.path.exists()
    compose.close()
