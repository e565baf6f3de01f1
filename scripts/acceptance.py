"""Accept what is shipped: build the wheel, install it by itself, and run the acceptance with the real Codex on it.

    python scripts/acceptance.py            the model is scripted, and nothing but loopback is there
    python scripts/acceptance.py --real     a person's own Codex, account and network; only where all of REAL is set

Both leave build/acceptance/report.json and report.md, or real.json and real.md. See docs/howto/acceptance.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PLACE: Final = ROOT / "build" / "acceptance"
BUILD_S_MAX: Final = 120
INSTALL_S_MAX: Final = 900
RUN_S_MAX: Final = 3600
REFUSED: Final = 2
OPT_IN: Final = "FENCEPOST_E2E_REAL"
CODEX: Final = "FENCEPOST_E2E_CODEX"
CODEX_HOME: Final = "FENCEPOST_E2E_CODEX_HOME"
VERSION: Final = "FENCEPOST_E2E_CODEX_VERSION"
APPROVE: Final = "FENCEPOST_E2E_APPROVE_TOOLS"
MODEL: Final = "FENCEPOST_E2E_MODEL"
EFFORT: Final = "FENCEPOST_E2E_EFFORT"
# What a person has to say before a model of theirs is asked, and what each of it is.
REAL: Final[Mapping[str, str]] = {
    OPT_IN: "1: you agree that your account is used",
    CODEX: "the absolute path of the codex to be run",
    CODEX_HOME: "the absolute path of the Codex home that is logged in, usually ~/.codex",
    VERSION: "the version that this codex must have",
}


class Refused(Exception):
    """Nothing was started; the text says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A wheel, and the environment that has it and what it needs, and nothing else."""

    wheel: Path
    venv: Path

    @property
    def scripts(self) -> Path:
        """Where its commands are."""
        return self.venv / "bin"


@dataclass(frozen=True, kw_only=True)
class Real:
    """What a person has said."""

    codex: Path
    codex_home: Path
    version: str
    approve: bool
    model: str
    effort: str


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _do(words: Sequence[str | Path], *, seconds: int, cwd: Path = ROOT) -> None:
    """Run an installer with the person's own registry settings; refuse where it fails."""
    away = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    env = {name: value for name, value in os.environ.items() if name not in away}
    try:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"{words[0]} did not end within {seconds} s") from None
    if done.returncode:
        raise Refused(f"{' '.join(str(word) for word in words[:5])} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def installed(place: Path = PLACE) -> Installation:
    """Build the wheel of this tree and install it; an environment that has this very wheel is kept.

    Raises:
        Refused: it cannot be built or installed.
    """
    wheels = place / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    # By the pinned builder of this environment: nothing is fetched.
    _do([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels], seconds=BUILD_S_MAX)
    (wheel,) = wheels.glob("*.whl")
    made = Installation(wheel=wheel, venv=place / "venv")
    pins = ROOT / "requirements" / "runtime.txt"
    mark, wanted = made.venv / "installed.txt", f"{digest(wheel)} {digest(pins)} {sys.version}"
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return made
    shutil.rmtree(made.venv, ignore_errors=True)
    _do([sys.executable, "-m", "venv", "--without-pip", made.venv], seconds=BUILD_S_MAX)
    program, python = Path(sys.executable).with_name("uv"), made.scripts / "python"
    uv: list[str | Path] = [program, "pip", "install", "--quiet", "--python", python]
    _do([*uv, "--compile-bytecode", "--require-hashes", "-r", pins], seconds=INSTALL_S_MAX)
    _do([*uv, "--compile-bytecode", "--no-deps", "--no-index", wheel], seconds=INSTALL_S_MAX)
    mark.write_text(wanted, encoding="utf-8")
    return made


def real(environment: Mapping[str, str]) -> Real:
    """Return what a person has said.

    Raises:
        Refused: something is not said, or not so; nothing was started.
    """
    missing = [f"    {name}={what}" for name, what in REAL.items() if not environment.get(name)]
    if missing:
        raise Refused(
            "A run with your own Codex and account takes your word. Nothing was started; set\n" + "\n".join(missing)
        )
    if environment[OPT_IN] != "1":
        raise Refused(f"{OPT_IN} is {environment[OPT_IN]!r} and not 1. Nothing was started.")
    codex, home = Path(environment[CODEX]), Path(environment[CODEX_HOME])
    if not codex.is_absolute() or not os.access(codex, os.X_OK) or codex.is_dir():
        raise Refused(f"{CODEX} must be the absolute path of a program that can be run. Nothing was started.")
    if not home.is_absolute() or not home.is_dir():
        raise Refused(f"{CODEX_HOME} must be the absolute path of a folder. Nothing was started.")
    return Real(
        codex=codex,
        codex_home=home,
        version=environment[VERSION],
        approve=environment.get(APPROVE) == "1",
        model=environment.get(MODEL, ""),
        effort=environment.get(EFFORT, ""),
    )


def plan(said: Real, approved: Sequence[str]) -> str:
    """Return what a real run will do, for the person whose account it uses."""
    model = said.model or "as your Codex home has it"
    effort = said.effort or "as your Codex home has it"
    tools = f"approved in the two agents' private homes, and nowhere else: {', '.join(approved)}"
    if not said.approve:
        tools = (
            f"none is approved; where your policy asks, the run waits and fails. {APPROVE}=1 approves {len(approved)}"
        )
    return f"""\
This run uses your own Codex and your account:
  program      {said.codex}, which must be {said.version}
  login        copied from {said.codex_home} into the private homes of two agents; never into the report
  model        {model}; effort {effort}
  requests     about 30 to your model, in plain English, on two empty repositories
  tools        {tools}
  trust        of two empty folders of the run, in those private homes, for the terminals that are attached
It writes
  a throw-away Fencepost home with two agents, removed at the end
  two conversations into {said.codex_home}/sessions and its index, where you find them afterwards
  build/acceptance/real.json and real.md
It answers no prompt for trust or login, and changes no file of yours."""


def chosen(said: Real) -> dict[str, str]:
    """Return the variables by which the tests learn of a real run."""
    return {name: value for name, value in os.environ.items() if name in {*REAL, APPROVE, MODEL, EFFORT}} | {
        OPT_IN: "1",
        CODEX: str(said.codex),
    }


def run(made: Installation, *, extra: Mapping[str, str], select: Sequence[str]) -> int:
    """Run the acceptance on an installation; return its exit code."""
    away = {OPT_IN, CODEX, CODEX_HOME, VERSION, APPROVE, MODEL, EFFORT}
    env = {name: value for name, value in os.environ.items() if name not in away}
    env |= {"FENCEPOST_E2E_INSTALLATION": str(made.venv), "FENCEPOST_E2E_WHEEL": str(made.wheel), **extra}
    words = [sys.executable, "-m", "pytest", "-q", "-s", *select]
    return subprocess.run(words, cwd=ROOT, env=env, timeout=RUN_S_MAX, check=False).returncode


def main() -> int:
    """Run the acceptance; print where its report is."""
    arguments = argparse.ArgumentParser(description="Accept what is shipped.")
    arguments.add_argument("--real", action="store_true", help="with your own Codex and account")
    arguments.add_argument("--plan", action="store_true", help="with --real: only say what would be done")
    wanted = arguments.parse_args()
    try:
        extra: dict[str, str] = {}
        select = ["tests/e2e_external/test_acceptance.py", "tests/e2e_external/test_acceptance_kills.py"]
        if wanted.real:
            said = real(os.environ)
            sys.path.insert(0, str(ROOT / "tests" / "support"))
            from fencepost_testing.acceptance import APPROVED  # noqa: PLC0415 (support of tests is not always there)

            print(plan(said, APPROVED), flush=True)
            if wanted.plan:
                return 0
            extra, select = chosen(said), ["tests/e2e_external/test_acceptance.py"]
        made = installed()
        print(f"installed {made.wheel.name} ({digest(made.wheel)[:12]}) into {made.venv.relative_to(ROOT)}", flush=True)
        code = run(made, extra=extra, select=select)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return REFUSED
    name = "real" if wanted.real else "report"
    print(f"report: {(PLACE / f'{name}.md').relative_to(ROOT)}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
