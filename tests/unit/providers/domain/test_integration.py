"""What git's words mean, and what of a repository's configuration is taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost_kit.refusal import STATE_PAIR_BYTES_MAX, STATE_PAIRS_MAX
from fencepost_providers.domain.integration import (
    FILES_NAMED_MAX,
    Changes,
    author_name,
    changes_of,
    conflicts_of,
    dirty_of,
    files_in_words,
    files_named,
    filtered_of,
    programs_off,
)
from fencepost_providers.repository import checkout
from fencepost_providers.repository.checkout import in_the_way


def test_what_git_says_is_read_by_its_separators_and_no_name_confuses_it() -> None:
    assert changes_of(b"A\0a b\nc\0M\0D\0D\0\xff\0T\0link\0") == Changes(
        added=frozenset({"a b\nc"}), deleted=frozenset({"\udcff"}), changed=frozenset({"D", "link"})
    )
    assert dirty_of(b" M a b\0UU \xff\0") == ["a b", "�"]
    assert conflicts_of(b"0123\0a\nb\0c\0") == ["a\nb", "c"]
    assert filtered_of(b"a\0filter\0lfs\0b\0filter\0unspecified\0c\0filter\0unset\0d\0filter\0set\0") == ["a", "d"]


@pytest.mark.requirement("integration.conflicts-are-refused-with-their-files")
@pytest.mark.parametrize("count", [0, 1, FILES_NAMED_MAX, FILES_NAMED_MAX + 1, 1000])
def test_a_refusal_names_a_bounded_number_of_files_and_says_how_many_there_are(count: int) -> None:
    names = [f"{number:04}" for number in range(count)]
    state = files_named([*names, *names])
    assert state.pop("files") == str(count)
    assert list(state.values()) == names[:FILES_NAMED_MAX]
    # Room is left for what a refusal says besides.
    assert len(state) + 2 <= STATE_PAIRS_MAX
    assert all(len(value.encode()) <= STATE_PAIR_BYTES_MAX for value in files_named(["z" * 900]).values())


def test_files_in_a_sentence_are_few() -> None:
    assert [files_in_words("abcde"[:count]) for count in (1, 3, 4)] == ["a", "a, b, c", "a, b, c and 1 more"]


@pytest.mark.requirement("integration.runs-no-foreign-program")
def test_every_program_that_a_configuration_names_is_taken_away() -> None:
    names = [
        "filter.a.b.clean",
        "filter.x.process",
        "filter.x.required",
        "merge.m.driver",
        "merge.ff",
        "diff.d.textconv",
    ]
    assert programs_off([*names, "diff.external", "merge.a=b.driver"]) == [
        ("filter.a.b.clean", ""),
        ("filter.a.b.required", "false"),
        ("filter.x.process", ""),
        ("filter.x.required", "false"),
        ("merge.m.driver", "false"),
        ("diff.d.textconv", ""),
        ("merge.a=b.driver", "false"),
    ]


@pytest.mark.requirement("integration.a-merge-names-the-coordinator")
def test_an_author_has_a_name_that_git_takes() -> None:
    assert [author_name(name) for name in ("Cyd", "a <b>\n c", "...", "<>")] == [
        "Cyd",
        "a b c",
        "Fencepost coordinator",
        "Fencepost coordinator",
    ]


@pytest.mark.requirement("integration.all-or-nothing")
def test_what_stands_in_the_way_is_what_the_old_state_did_not_have(tmp_path: Path) -> None:
    for name in ("file", "folder/known", "folder/unknown", "taken/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    changes = Changes(
        added=frozenset({"new", "file", "folder", "file2/a", "link/a", "was/b", "taken/y"}),
        deleted=frozenset({"folder/known", "was"}),
        changed=frozenset(),
    )
    (tmp_path / "file2").touch()
    (tmp_path / "was").touch()
    assert in_the_way(str(tmp_path), changes) == ["file", "file2", "folder/unknown", "link"]


@pytest.mark.requirement("integration.all-or-nothing")
def test_a_folder_of_more_than_is_looked_through_is_in_the_way_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cache/a", "cache/deep/b"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    comes = Changes(added=frozenset({"cache"}), deleted=frozenset(), changed=frozenset())
    monkeypatch.setattr(checkout, "WALKED_ENTRIES_MAX", 3)
    assert in_the_way(str(tmp_path), comes) == ["cache/a", "cache/deep/b"]
    monkeypatch.setattr(checkout, "WALKED_ENTRIES_MAX", 2)
    assert in_the_way(str(tmp_path), comes) == ["cache"]
