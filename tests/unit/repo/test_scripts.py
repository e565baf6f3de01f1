"""The scripts that keep the tree in order judge rightly on small inputs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
CHILD_SECONDS_MAX: Final = 30

PROJECT: Final = """
[project]
requires-python = ">=3.11"
dependencies = ["alpha>=1"]
[dependency-groups]
dev = ["beta"]
"""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its own module up while it is made.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def pin_file(*, fingerprint: str, body: str = "alpha==1.0 \\\n    --hash=sha256:00\n    # via x\n") -> str:
    return f"# made by uv\n#    make pins\n# Inputs: sha256:{fingerprint}\n{body}"


def test_the_committed_pins_are_made_from_the_dependencies_that_stand_in_the_project_file() -> None:
    pins = script("pins")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for file in pins.FILES:
        text = (ROOT / "requirements" / file.name).read_text(encoding="utf-8")
        assert pins.faults(text, project=project, name=file.name) == []


def test_pins_made_from_other_dependencies_are_faulty() -> None:
    pins = script("pins")
    good = pin_file(fingerprint=pins.fingerprint(PROJECT))
    assert pins.faults(good, project=PROJECT, name="x.txt") == []
    [fault] = pins.faults(good, project=PROJECT.replace("alpha>=1", "alpha>=2"), name="x.txt")
    assert "other dependencies" in fault


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("alpha==1.0\n", "no hash"),
        ("alpha==1.0 \\\n    --hash=sha256:00\n--find" + "-links somewhere\n", "registry or a path"),
        ("alpha @ file:///there \\\n    --hash=sha256:00\n", "registry or a path"),
        ("", "pins nothing"),
    ],
)
def test_a_pin_without_hash_or_with_a_place_is_faulty(body: str, words: str) -> None:
    pins = script("pins")
    text = pin_file(fingerprint=pins.fingerprint(PROJECT), body=body)
    assert any(words in fault for fault in pins.faults(text, project=PROJECT, name="x.txt"))


@pytest.mark.requirement("repo.nothing-of-one-machine-is-committed")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("see /" + "work/main/docs", True),
        ("cd /" + "root", True),
        ("ht" + "tps://p" + "ypi" + ".or" + "g/si" + "mple", True),
        ("--index-" + "url=x", True),
        ("connect to 10." + "1.2.3", True),
        ("the framework/rooted page", False),
        ("/home/" + "you/.fencepost", False),
        ("127.0.0.1 and 10.1", False),
        ("${HOME}/work", False),
    ],
)
def test_a_place_of_one_machine_is_told_from_ordinary_text(*, line: str, found: bool) -> None:
    assert bool(list(script("places").faults_in(line))) is found


@pytest.mark.parametrize(
    ("version", "fits"), [((3, 10), False), ((3, 11), True), ((3, 14), True), ((3, 15), False), (None, False)]
)
def test_set_up_accepts_exactly_the_supported_versions(*, version: tuple[int, int] | None, fits: bool) -> None:
    assert script("bootstrap").fits(version) is fits


def a_python(folder: Path, body: str) -> Path:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.requirement("repo.set-up-from-python-and-make-alone")
def test_set_up_names_the_package_to_install_where_python_lacks_venv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = a_python(tmp_path, 'case "$2" in *ensurepip*) exit 1;; *) echo 3 11;; esac')
    with pytest.raises(SystemExit) as ended:
        script("bootstrap").make_venv(str(bare), str(tmp_path / "venv"))
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "sudo apt install python3-venv" in said
    assert "python3.11-venv" in said
    assert not (tmp_path / "venv").exists()


def test_set_up_never_replaces_a_folder_that_is_no_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letters").write_text("dear", encoding="utf-8")
    with pytest.raises(SystemExit):
        script("bootstrap").make_venv(sys.executable, str(tmp_path))
    assert "Nothing was changed" in capsys.readouterr().err
    assert (tmp_path / "letters").read_text(encoding="utf-8") == "dear"


@pytest.mark.requirement("repo.set-up-from-python-and-make-alone")
def test_set_up_on_an_old_python_alone_says_which_are_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = script("bootstrap")
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 10, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        bootstrap.choose_python()
    said = capsys.readouterr().err
    assert "needs Python 3.11 to 3.14" in said
    assert "make test PYTHON=" in said


def test_a_second_set_up_has_nothing_to_do(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    for stamp in (".runtime-ready", ".dev-ready"):
        (venv / stamp).write_text("", encoding="utf-8")
    done = subprocess.run(
        ["make", "-q", f"VENV={venv}", f"{venv}/.dev-ready"],
        cwd=ROOT,
        env=dict(os.environ),
        timeout=CHILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0


def test_the_check_refuses_a_step_it_does_not_know() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "check.py", "no-such-step"],
        capture_output=True,
        timeout=CHILD_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 2


BREAKING: Final = """syntax = "proto3";
package a.v1;
// A message.
message A {{
  // A field.
  {kind} one = 1;
}}
"""


def a_repository(folder: Path, *tags: str) -> Path:
    """A repository whose protos have a text in field one, committed and tagged."""
    (folder / "protos" / "a" / "v1").mkdir(parents=True)
    (folder / "protos" / "buf.yaml").write_text((ROOT / "protos" / "buf.yaml").read_text())
    (folder / "protos" / "a" / "v1" / "a.proto").write_text(BREAKING.format(kind="string"))
    person = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*person, "commit", "-q", "-m", "a"), *(("tag", t) for t in tags)):
        subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=CHILD_SECONDS_MAX)
    return folder


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ([], None),
        (["nightly", "v1", "v1.2", "1.2.3", "v1.2.3rc1", "v1.2.3-rc.1"], None),
        (["v0.9.0", "v0.10.0", "v0.2.11"], "v0.10.0"),
    ],
)
def test_the_last_release_is_the_highest_number_and_no_candidate(tags: list[str], found: str | None) -> None:
    assert script("breaking").newest(tags) == found


@pytest.mark.requirement("repo.protos-break-no-released-client")
def test_without_a_release_or_a_history_the_comparison_says_so_and_passes(tmp_path: Path) -> None:
    breaking = script("breaking")
    assert breaking.compare(tmp_path)[0]
    assert breaking.compare(tmp_path)[1].startswith(f"{breaking.SKIPPED}no history")
    repository = a_repository(tmp_path / "r", "nightly")
    assert breaking.compare(repository) == (True, f"{breaking.SKIPPED}no release tag (v1.2.3) yet")
    assert script("check").SKIPPED == breaking.SKIPPED


@pytest.mark.requirement("repo.protos-break-no-released-client")
def test_an_added_field_passes_and_a_changed_one_fails_against_the_last_release(tmp_path: Path) -> None:
    breaking = script("breaking")
    repository = a_repository(tmp_path, "v0.1.0")
    proto = repository / "protos" / "a" / "v1" / "a.proto"
    proto.write_text(BREAKING.format(kind="string").replace("one = 1;", "one = 1;\n  // More.\n  string two = 2;"))
    assert breaking.compare(repository) == (True, "compared with v0.1.0")
    proto.write_text(BREAKING.format(kind="int32"))
    good, said = breaking.compare(repository)
    assert not good
    assert said.startswith("compared with v0.1.0\n")
    assert "a.proto" in said


def again_in(folder: Path, *tests: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script over a folder where these tests are noted as failed."""
    again = script("again")
    note = folder / "note"
    note.write_text(json.dumps(dict.fromkeys(tests, True)))
    monkeypatch.setattr(again, "ROOT", folder)
    monkeypatch.setattr(again, "NOTE", note)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_two.py").write_text("def test_good(): pass\ndef test_bad(): raise ValueError\n")
    return again


def test_a_test_that_failed_and_passes_alone_is_named_as_unsteady(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    again = again_in(tmp_path, "test_two.py::test_good", monkeypatch=monkeypatch)
    assert again.main() == 0
    assert "UNSTEADY, to be mended: test_two.py::test_good" in capfd.readouterr().out


def test_a_test_that_fails_again_fails_with_whatever_failed_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    again = again_in(tmp_path, "test_two.py::test_good", "test_two.py::test_bad", monkeypatch=monkeypatch)
    assert again.main() == 1
    assert "UNSTEADY" not in capfd.readouterr().out


def test_nothing_noted_and_more_than_a_few_are_not_run_again(tmp_path: Path) -> None:
    again = script("again")
    assert again.failed(tmp_path / "nothing") == []
    assert "no test is noted" in again.refusal([])
    few = [f"test_{number}" for number in range(again.TESTS_MAX)]
    assert again.refusal(few) is None
    assert f"at most {again.TESTS_MAX}" in again.refusal([*few, "one more"])
