"""Files that start a home at login: what they say, what systemd says of them, and what installing leaves alone."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.care.login import MARK, Kind, Unit, install, kind_of_system, unit_of
from fencepost.errors import Refused
from fencepost.home import Home

ANALYZE = shutil.which("systemd-analyze")
VERIFY_S_MAX = 30
ODD = 'o d%d$HOME "q" \\b é'
pytestmark = [pytest.mark.requirement("care.services-start-at-login-on-request")]


def made(home: Path, kind: Kind = Kind.SYSTEMD, **env: str) -> Unit:
    return unit_of(Home(home), kind, env={"HOME": "/people/ann", **env})


def test_the_system_decides_what_is_made() -> None:
    assert (kind_of_system("linux"), kind_of_system("darwin")) == (Kind.SYSTEMD, Kind.LAUNCHD)


def test_the_default_home_has_the_plain_name_and_others_one_of_their_own() -> None:
    plain = made(Path("/people/ann/.fencepost"))
    assert plain.path == Path("/people/ann/.config/systemd/user/fencepost.service")
    other, third = made(Path("/srv/one")), made(Path("/srv/two"))
    assert re.fullmatch(r"fencepost-[0-9a-f]{8}\.service", other.path.name)
    assert len({plain.path, other.path, third.path}) == 3
    assert other.path.name in other.enable[-1]
    assert made(Path("/srv/one"), XDG_CONFIG_HOME="/etc/mine").path.parent == Path("/etc/mine/systemd/user")
    assert made(Path("/srv/one"), XDG_CONFIG_HOME="relative").path == other.path


@pytest.mark.parametrize("kind", Kind)
def test_a_path_that_no_such_file_can_hold_is_refused(kind: Kind) -> None:
    with pytest.raises(Refused):
        made(Path("/srv/a\nExecStartPre=evil"), kind)


def test_the_launchd_agent_runs_the_compose_of_that_home_and_no_other() -> None:
    home = Path(f"/srv/{ODD}<&>")
    unit = made(home, Kind.LAUNCHD)
    plain = plistlib.loads(unit.content.encode())
    assert plain["ProgramArguments"] == [sys.executable, "-P", "-m", "fencepost.up", "--home", str(home)]
    assert unit.path == Path(f"/people/ann/Library/LaunchAgents/{plain['Label']}.plist")
    assert (plain["Umask"], plain["KeepAlive"]) == (0o077, {"SuccessfulExit": False})
    assert plain["StandardErrorPath"] == f"{home}/logs/launchd.log"


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("home", ["/people/ann/.fencepost", f"/srv/{ODD}"])
def test_systemd_takes_the_unit_without_a_complaint(tmp_path: Path, home: str) -> None:
    unit = made(Path(home))
    path = tmp_path / unit.path.name
    path.write_text(unit.content)
    done = subprocess.run(
        [str(ANALYZE), "--user", "verify", str(path)],
        env={**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=VERIFY_S_MAX,
        check=False,
    )
    mine = [line for line in done.stderr.splitlines() if unit.path.name in line]
    assert mine == []
    assert done.returncode == 0, done.stderr


def test_words_are_quoted_for_systemd() -> None:
    (line,) = [line for line in made(Path(f"/srv/{ODD}")).content.splitlines() if line.startswith("ExecStart=")]
    assert line.endswith('"--home" "/srv/o d%%d$$HOME \\"q\\" \\\\b é"')


def test_installing_writes_the_file_once(tmp_path: Path) -> None:
    unit = made(Path("/srv/one"), XDG_CONFIG_HOME=str(tmp_path))
    assert install(unit)
    assert unit.path.read_text() == unit.content
    assert not install(unit)
    assert [path.name for path in unit.path.parent.iterdir()] == [unit.path.name]
    assert stat.S_ISREG(unit.path.lstat().st_mode)


def test_an_older_file_of_ours_is_replaced_and_another_is_left_alone(tmp_path: Path) -> None:
    unit = made(Path("/srv/one"), XDG_CONFIG_HOME=str(tmp_path))
    unit.path.parent.mkdir(parents=True)
    unit.path.write_text(f"# {MARK}, long ago\n")
    assert install(unit)
    assert unit.path.read_text() == unit.content
    for foreign in ("[Service]\n", "\udce9"):
        unit.path.write_text(foreign, errors="surrogateescape")
        before = unit.path.read_bytes()
        with pytest.raises(Refused):
            install(unit)
        assert unit.path.read_bytes() == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    unit = made(Path("/srv/one"), XDG_CONFIG_HOME=str(tmp_path))
    unit.path.parent.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_text(f"# {MARK}\n")
    unit.path.symlink_to(target)
    with pytest.raises(Refused):
        install(unit)
    assert target.read_text() == f"# {MARK}\n"
