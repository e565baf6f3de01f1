"""What every acceptance test of one run shares: the installation that is judged, the program, the report."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from fencepost.home import Home
from fencepost_testing.acceptance import APPROVED, Stage, a_stage
from fencepost_testing.acceptance_report import Report, hashed
from fencepost_testing.acceptance_scenes import plays
from fencepost_testing.codex_real import NoNamespace
from fencepost_testing.real_programs import NotInstalled, installed

ROOT: Final = Path(__file__).resolve().parents[3]
PROGRAMS: Final = ROOT / "build" / "e2e" / "programs"
REPORTS: Final = ROOT / "build" / "acceptance"
VERSION_S_MAX: Final = 20


def script() -> ModuleType:
    """Return scripts/acceptance.py, which builds and installs."""
    spec = importlib.util.spec_from_file_location("acceptance_script", ROOT / "scripts" / "acceptance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is judged: an installed wheel, and the Codex that it runs. `said` is of a person whose account is used."""

    scripts: Path
    wheel: Path
    program: Path
    said: Any = None

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """A stage on which nothing runs yet; who cannot have it is skipped, and says why."""
        if self.said is not None:
            with a_real_stage(self) as stage:
                yield stage
            return
        try:
            with a_stage(self.scripts, self.program) as stage:
                stage.play(*plays())
                yield stage
        except NoNamespace as error:
            pytest.skip(f"codex was not run: {error}")


@contextmanager
def a_real_stage(judged: Judged) -> Iterator[Stage]:
    """A throw-away home, and a person's own Codex home, account and network."""
    said = judged.said
    told = subprocess.run(
        [said.codex, "--version"], capture_output=True, text=True, timeout=VERSION_S_MAX, check=True
    ).stdout
    assert told.split()[-1] == said.version, f"{said.codex} is {told.strip()} and not {said.version}"
    with tempfile.TemporaryDirectory(prefix="fpa", ignore_cleanup_errors=True) as text:
        folder = Path(text).resolve()
        (folder / "bin").mkdir()
        (folder / "bin/codex").symlink_to(said.codex)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
        environment = {
            **kept,
            "PATH": f"{folder / 'bin'}:{kept['PATH']}",
            "CODEX_HOME": str(said.codex_home),
            "FENCEPOST_HOME": str(folder / "h"),
        }
        settings = [
            *(("--model", said.model) if said.model else ()),
            *(("--effort", said.effort) if said.effort else ()),
        ]
        yield Stage(
            folder=folder,
            home=Home(folder / "h"),
            scripts=judged.scripts,
            environment=environment,
            settings=tuple(settings),
            approved=APPROVED if said.approve else (),
        )


@pytest.fixture(scope="session")
def judged() -> Judged:
    """The wheel of this tree in an environment of its own, and the pinned Codex, or the person's."""
    building = script()
    given, wheel = os.environ.get("FENCEPOST_E2E_INSTALLATION"), os.environ.get("FENCEPOST_E2E_WHEEL")
    made = building.Installation(wheel=Path(wheel), venv=Path(given)) if given and wheel else building.installed()
    if os.environ.get(building.OPT_IN):
        said = building.real(os.environ)
        return Judged(scripts=made.scripts, wheel=made.wheel, program=said.codex, said=said)
    named = os.environ.get("FENCEPOST_CODEX_PROGRAM")
    try:
        program = Path(named) if named else installed(PROGRAMS, "codex")
    except NotInstalled as error:
        pytest.skip(f"codex was not run: {error}")
    return Judged(scripts=made.scripts, wheel=made.wheel, program=program)


@pytest.fixture(scope="session")
def acceptance(judged: Judged) -> Iterator[Report]:
    """The report, written once everything was judged: what is not in it was not shown."""
    report = Report(artifacts={"wheel": hashed(judged.wheel), "codex": hashed(judged.program)})
    yield report
    if report.scenes:
        written = report.write(REPORTS, "report" if judged.said is None else "real")
        print(f"\nreport: {written.relative_to(ROOT)}")
