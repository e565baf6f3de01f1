"""Our lines in a git hook: where they stand, that nothing else changes, and what a shell makes of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.guard import script

PROGRAM = "/opt/some where/fencepost"
SHELLS = [b"#!/bin/sh\n", b"#!/usr/bin/env bash\n", b"#!/bin/bash -eu\n", b"#! /usr/bin/env -S zsh -f\n"]


@pytest.mark.parametrize("first", SHELLS)
def test_a_script_of_a_shell_is_known(first: bytes) -> None:
    assert script.is_shell(first + b"exit 0\n")


@pytest.mark.parametrize("text", [b"", b"exit 0\n", b"#!/usr/bin/env python3\n", b"#!/usr/bin/perl\n", b"\x7fELF\0#!"])
def test_anything_else_is_not_taken_for_one(text: bytes) -> None:
    assert not script.is_shell(text)


@pytest.mark.requirement("guard.existing-hooks-stay")
@given(first=st.sampled_from(SHELLS), rest=st.binary(max_size=200), hook=st.sampled_from(script.HOOKS))
def test_lines_that_are_put_in_and_taken_out_leave_the_script_as_it_was(first: bytes, rest: bytes, hook: str) -> None:
    if script.BEGIN in rest or script.END in rest:
        return
    text = first + rest
    once = script.with_guard(text, hook, PROGRAM)
    assert script.has_guard(once)
    assert once.startswith(first)
    assert once.endswith(rest)
    assert script.without_guard(once) == text
    assert script.with_guard(once, hook, PROGRAM) == once, "twice is once"
    assert script.without_guard(script.with_guard(once, hook, "/other")) == text


def test_what_was_made_by_us_is_known_again() -> None:
    for hook in script.HOOKS:
        assert script.is_only_ours(script.own(hook, PROGRAM), hook)
        assert script.is_only_ours(script.calling(hook, PROGRAM), hook)
        assert script.calls_another(script.calling(hook, PROGRAM), hook)
        assert not script.calls_another(script.own(hook, PROGRAM), hook)
        assert not script.is_only_ours(script.own(hook, PROGRAM) + b"echo more\n", hook)


def run(tmp_path: Path, text: bytes, *, code: int | None, given_text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a hook's text beside a `fencepost` that ends with a code, or none at all."""
    hook = tmp_path / "hook"
    hook.write_bytes(text)
    hook.chmod(0o755)
    if code is not None:
        program = tmp_path / "fencepost"
        program.write_text(f'#!/bin/sh\necho "asked: $*" >&2\ncat >{tmp_path}/given\nexit {code}\n')
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}" if code is not None else os.environ["PATH"]}
    return subprocess.run(
        [str(hook), "one", "two"], input=given_text, text=True, capture_output=True, env=env, timeout=20, check=False
    )


@pytest.mark.requirement("guard.fails-open")
@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/bin/sh -e", "#!/bin/bash -eu"])
@pytest.mark.parametrize(("code", "goes_on"), [(0, True), (1, True), (2, True), (7, True), (127, True), (8, False)])
def test_only_the_answer_that_somebody_holds_a_file_ends_the_hook(
    tmp_path: Path, first: str, code: int, goes_on: bool
) -> None:
    text = script.with_guard(f"{first}\necho behind $1 $2\nexit 0\n".encode(), "pre-commit", "/nowhere/fencepost")
    done = run(tmp_path, text, code=code)
    assert (done.returncode == 0) is goes_on
    assert ("behind one two" in done.stdout) is goes_on
    assert "asked: guard check --hook pre-commit" in done.stderr


@pytest.mark.requirement("guard.fails-open")
def test_without_a_fencepost_the_hook_says_so_and_goes_on(tmp_path: Path) -> None:
    text = script.with_guard(b"#!/bin/sh\nexit 3\n", "pre-commit", "/nowhere/fencepost")
    done = run(tmp_path, text, code=None)
    assert done.returncode == 3, "what stood there decides"
    assert "not installed" in done.stderr


@pytest.mark.requirement("guard.existing-hooks-stay")
@pytest.mark.parametrize("refs", ["", "refs/heads/a 1 refs/heads/a 2\n", "a $HOME `id` \\ 'q\nb 1 c 2\n"])
def test_what_git_gives_a_pre_push_hook_reaches_both(tmp_path: Path, refs: str) -> None:
    text = script.with_guard(b"#!/bin/sh\ncat\n", "pre-push", "/nowhere/fencepost")
    done = run(tmp_path, text, code=0, given_text=refs)
    assert done.stdout == refs
    assert (tmp_path / "given").read_text().rstrip("\n") == refs.rstrip("\n")


@pytest.mark.parametrize("hook", script.HOOKS)
def test_a_script_in_place_of_another_becomes_that_one(tmp_path: Path, hook: str) -> None:
    before = tmp_path / f"{hook}{script.ASIDE}"
    before.write_text('#!/bin/sh\necho "before $*"; cat; exit 5\n')
    before.chmod(0o755)
    text = script.calling(hook, "/nowhere/fencepost")
    done = run(tmp_path, text, code=0, given_text="refs\n")
    assert done.returncode == 5
    assert done.stdout.startswith("before one two\n")
    assert ("refs" in done.stdout) == (hook == "pre-push") or hook == "pre-commit"
    before.chmod(0o644)
    assert run(tmp_path, text, code=0).returncode == 0, "one that git would not have run is not run"
