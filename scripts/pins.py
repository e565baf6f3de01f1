"""Pin every dependency with its hashes below requirements/, or with --check fail where pyproject.toml asks for others.

The pins name no registry: whichever one the machine's own pip or uv is set to serves them, and the hashes decide.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "requirements"
COMPILE_SECONDS_MAX: Final = 120
FINGERPRINT: Final = "# Inputs: sha256:"
PIN: Final = re.compile(r"^([a-z0-9][a-z0-9-]*)==(\S+)((?: ;[^\\]*)?)", re.MULTILINE)
# A place belongs to a machine or to a company: neither may stand in a committed file.
PLACE: Final = re.compile(r"://|^\s*-(?:i|f|-index-url|-extra-index-url|-find-links)\b|file:|(?:^|\s)/\w", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class PinFile:
    """One file of pins: its name below requirements/, and what uv is asked to resolve for it."""

    name: str
    sources: tuple[str, ...]
    constrained_by: str | None


# The widest set comes first and constrains the others, so that one version of a package stands in all of them.
FILES: Final = (
    PinFile(name="dev.txt", sources=("pyproject.toml", "--group", "dev"), constrained_by=None),
    PinFile(name="runtime.txt", sources=("pyproject.toml",), constrained_by="dev.txt"),
    PinFile(name="build.txt", sources=("--group", "build"), constrained_by="dev.txt"),
)


def fingerprint(project: str) -> str:
    """Return a hash over everything in pyproject.toml that the pins are made from."""
    table = tomllib.loads(project)
    inputs = [table["project"]["requires-python"], table["project"]["dependencies"], table["dependency-groups"]]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def pins(text: str) -> dict[str, str]:
    """Return name -> version and marker of every pin; hashes are left out, since a registry may gain files."""
    return {name: version + marker.strip() for name, version, marker in PIN.findall(text)}


def faults(text: str, *, project: str, name: str) -> list[str]:
    """Return what is wrong with a file of pins as far as it can be told without a registry."""
    found = []
    if f"{FINGERPRINT}{fingerprint(project)}" not in text.splitlines():
        found.append(f"{FOLDER}/{name} was made from other dependencies than pyproject.toml names")
    if PLACE.search(text):
        found.append(f"{FOLDER}/{name} names a registry or a path")
    entries = re.split(r"\n(?=[a-z0-9])", text)
    found += [
        f"{FOLDER}/{name}: no hash for {entry.split('==')[0]}"
        for entry in entries
        if PIN.match(entry) and "--hash=sha256:" not in entry
    ]
    if not pins(text):
        found.append(f"{FOLDER}/{name} pins nothing")
    return found


def compile_into(folder: Path, *, project: str, upgrade: bool) -> None:
    """Resolve every file below `folder`/requirements; pins that stand there are kept wherever they still fit.

    Raises:
        subprocess.CalledProcessError: uv found no answer, or no registry.
    """
    for file in FILES:
        target = f"{FOLDER}/{file.name}"
        command = [
            str(Path(sys.executable).parent / "uv"), "pip", "compile", *file.sources, "--output-file", target,
            "--generate-hashes", "--universal", "--python-version", "3.11", "--no-emit-index-url",
            "--no-emit-find-links", "--custom-compile-command", "make pins", "--quiet",
        ]  # fmt: skip
        if file.constrained_by:
            command += ["--constraint", f"{FOLDER}/{file.constrained_by}"]
        if upgrade:
            command.append("--upgrade")
        subprocess.run(command, cwd=folder, check=True, timeout=COMPILE_SECONDS_MAX)
        path = folder / target
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(FINGERPRINT)]
        lines.insert(2, f"{FINGERPRINT}{fingerprint(project)}")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def check(project: str) -> list[str]:
    """Return every difference between the pins and what pyproject.toml asks for."""
    committed = {file.name: (ROOT / FOLDER / file.name).read_text(encoding="utf-8") for file in FILES}
    found = [fault for name, text in committed.items() for fault in faults(text, project=project, name=name)]
    every = pins(committed["dev.txt"])
    for name in ("runtime.txt", "build.txt"):
        found += [
            f"{FOLDER}/{name} and {FOLDER}/dev.txt disagree on {package}"
            for package, version in pins(committed[name]).items()
            if every.get(package, "").partition(";")[0] != version.partition(";")[0]
        ]
    if found:
        return found
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_inputs(folder)
        try:
            compile_into(folder, project=project, upgrade=False)
        except (OSError, subprocess.SubprocessError) as error:
            # Fingerprint, hashes and agreement were compared above; only a fresh resolution needs a registry.
            why = type(error).__name__
            print(f"pins: not resolved again ({why}); compared with pyproject.toml only", file=sys.stderr)
            return []
        for name, text in committed.items():
            fresh = pins((folder / FOLDER / name).read_text(encoding="utf-8"))
            differing = sorted(set(fresh.items()) ^ set(pins(text).items()))
            found += [f"{FOLDER}/{name} differs at {package} {version}" for package, version in differing]
    return found


def copy_inputs(folder: Path) -> None:
    """Copy what uv reads, so that a check never touches the tree."""
    shutil.copytree(ROOT / FOLDER, folder / FOLDER)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)


def main() -> int:
    """Make the pins, or compare them."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="change nothing; exit 1 where they differ")
    arguments.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    options = arguments.parse_args()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if not options.check:
        (ROOT / FOLDER).mkdir(exist_ok=True)
        compile_into(ROOT, project=project, upgrade=options.upgrade)
        return 0
    found = check(project)
    for fault in found:
        print(f"{fault}; run: make pins", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
