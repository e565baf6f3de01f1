"""Names of files made canonical: one file one name, and never one outside the checkout."""

from __future__ import annotations

import ntpath
import os
import posixpath
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.errors import Refused
from fencepost.paths import Checkout, canonical, covered_name, folded, ignores_case, parts_inside
from fencepost_mailbox.domain.files import paths as stored

LINKS = st.sampled_from(("link", "loop", "up", "away", "deep/link"))
STEPS = st.lists(
    st.one_of(st.sampled_from(("a", "b", "..", ".", "", "deep", "new", "é", "e\u0301")), LINKS), min_size=1, max_size=7
)


@pytest.fixture(scope="module")
def world() -> Iterator[Path]:
    """A checkout with links inside, upwards, to itself, and away; beside it what is not its own."""
    with tempfile.TemporaryDirectory() as made:
        top = Path(made).resolve()
        root = top / "checkout"
        (root / ".git").mkdir(parents=True)
        (root / "deep" / "er").mkdir(parents=True)
        (root / "a").write_text("a")
        (top / "outside").mkdir()
        (top / "checkout-like").mkdir()
        (root / "link").symlink_to("deep")
        (root / "loop").symlink_to("loop")
        (root / "up").symlink_to("..")
        (root / "away").symlink_to(top / "outside")
        (root / "deep" / "link").symlink_to("../a")
        (top / "entrance").symlink_to(root)
        yield root


@pytest.fixture(scope="module")
def checkout(world: Path) -> Checkout:
    return Checkout.containing(world / "deep")


@pytest.mark.requirement("paths.never-outside-the-checkout")
@settings(max_examples=300)
@given(steps=STEPS, absolute=st.booleans(), base=st.sampled_from(("", "deep", "deep/er", "link")))
def test_whatever_is_asked_the_answer_lies_inside_the_checkout_and_is_the_same_file(
    checkout: Checkout, steps: list[str], absolute: bool, base: str
) -> None:
    text = "/".join(steps)
    if not text:
        return
    given_text = f"{checkout.root}/{text}" if absolute else text
    folder = None if absolute else f"{checkout.root}/{base}"
    real = os.path.realpath(given_text if given_text.startswith("/") else f"{folder}/{given_text}")
    inside = real == checkout.root or real.startswith(checkout.root + "/")
    if not inside:
        with pytest.raises(Refused, match="lies outside the checkout"):
            checkout.path(given_text, base=folder)
        return
    found = checkout.path(given_text, base=folder)
    assert stored.check_path(found) == found, "what is canonical here is canonical there"
    assert checkout.path(found) == found, "and stays so"
    assert unicodedata.normalize("NFC", os.path.relpath(real, checkout.root)) == found


@pytest.mark.requirement("paths.one-file-has-one-name")
def test_every_way_to_a_file_leads_to_one_name(checkout: Checkout, world: Path) -> None:
    for text, base in (
        ("a", None),
        ("./a", None),
        ("deep/../a", None),
        ("link/link", None),
        ("up/checkout/a", None),
        (str(world / "a"), None),
        (str(world.parent / "entrance" / "a"), None),
        ("../a", world / "deep"),
        ("../../a", world / "deep" / "er"),
    ):
        assert checkout.path(text, base=base) == "a", text
    assert checkout.path(".") == checkout.path("deep/..") == checkout.path(str(world)) == "."
    assert checkout.path("cafe\u0301") == "café"


@pytest.mark.requirement("paths.never-outside-the-checkout")
@pytest.mark.parametrize(
    "text", ["..", "../outside", "/etc/passwd", "away/x", "up", "up/outside", "../checkout-like/a", "deep/../../x"]
)
def test_what_lies_outside_is_refused_by_whatever_way(checkout: Checkout, text: str) -> None:
    with pytest.raises(Refused) as refused:
        checkout.path(text)
    assert refused.value.reason == "outside_checkout"
    assert "nothing was sent" in refused.value.message


@pytest.mark.parametrize("text", ["", "a\0b", "a\nb", "a\\b", "\udcff"])
def test_a_name_that_cannot_be_said_is_refused(checkout: Checkout, text: str) -> None:
    with pytest.raises(Refused) as refused:
        checkout.path(text)
    assert refused.value.reason == "invalid_path"


def test_a_glob_has_its_folder_made_canonical_and_its_wildcards_left(checkout: Checkout, world: Path) -> None:
    assert checkout.glob("link/*.py") == "deep/*.py"
    assert checkout.glob("*.py", base=world / "deep") == "deep/*.py"
    assert checkout.glob("**/x") == "**/x"
    assert checkout.glob(f"{world}/deep/**") == "deep/**"
    assert checkout.glob("./deep/./a*/./b") == "deep/a*/b"
    for text in ("*/../../x", "../*", "away/*"):
        with pytest.raises(Refused):
            checkout.glob(text)


def test_a_text_with_a_star_is_a_glob_unless_a_file_is_called_so(checkout: Checkout, world: Path) -> None:
    (world / "st*r").write_text("")
    assert checkout.sorted_out(["st*r", "a", "./a", "*.py", "no?e"]) == (["st*r", "a"], ["*.py", "no?e"])


def test_a_checkout_is_found_from_below_and_a_worktree_is_one_of_its_own(world: Path, tmp_path: Path) -> None:
    assert Checkout.containing(world / "deep" / "er").root == str(world)
    assert Checkout.containing(world / "a").root == str(world)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / "tree" / "sub").mkdir()
    assert Checkout.containing(tmp_path / "tree" / "sub").root == str(tmp_path.resolve() / "tree")
    assert Checkout.containing(tmp_path).root == str(tmp_path.resolve()), "without a repository the folder itself"
    with pytest.raises(Refused) as refused:
        Checkout.containing(tmp_path / "none")
    assert refused.value.reason == "not_found"


@pytest.mark.requirement("paths.one-file-has-one-name")
def test_where_case_does_not_count_a_name_is_given_as_it_stands_on_disk(tmp_path: Path) -> None:
    (tmp_path / "Src").mkdir()
    (tmp_path / "Src" / "Main.py").write_text("")
    checkout = Checkout(root=str(tmp_path.resolve()), ignore_case=True)
    assert checkout.path("src/MAIN.py") == "Src/Main.py"
    assert checkout.path("SRC/New.py") == "Src/New.py"
    shutil.rmtree(tmp_path / "Src")
    assert checkout.path("src/MAIN.py") == "src/MAIN.py"


def test_whether_case_counts_is_told_without_writing(tmp_path: Path) -> None:
    assert ignores_case(tmp_path) is False, "an empty folder says nothing"
    (tmp_path / ".git").mkdir()
    before = sorted(tmp_path.iterdir())
    assert ignores_case(tmp_path) is Path(tmp_path, ".GIT").exists()
    assert sorted(tmp_path.iterdir()) == before
    assert ignores_case(tmp_path / "none") is False


@pytest.mark.parametrize(
    ("path", "root", "flavour", "ignore_case", "parts"),
    [
        ("/r/a/b", "/r", posixpath, False, ("a", "b")),
        ("/r", "/r", posixpath, False, ()),
        ("/rx/a", "/r", posixpath, False, None),
        ("/R/a", "/r", posixpath, False, None),
        ("/R/A", "/r", posixpath, True, ("A",)),
        ("/a", "/", posixpath, False, ("a",)),
        ("C:\\r\\a\\b", "c:\\R", ntpath, False, ("a", "b")),
        ("C:/r/a", "C:\\r\\", ntpath, False, ("a",)),
        ("D:\\r\\a", "C:\\r", ntpath, False, None),
        ("\\\\host\\share\\r\\a", "\\\\HOST\\share\\r", ntpath, False, ("a",)),
    ],
)
def test_the_core_tells_inside_from_outside_by_text_alone(
    path: str, root: str, flavour: object, ignore_case: bool, parts: tuple[str, ...] | None
) -> None:
    assert parts_inside(path, root, flavour=flavour, ignore_case=ignore_case) == parts  # type: ignore[arg-type]


@given(st.lists(st.text(min_size=1, max_size=6), max_size=4))
def test_what_the_core_makes_canonical_the_mailbox_takes(parts: list[str]) -> None:
    try:
        made = canonical(parts)
    except Refused:
        return
    assert stored.check_path(made) == made
    assert canonical(made.split("/") if parts else []) == made


@given(st.text(max_size=20))
def test_a_name_of_a_repository_always_has_one_that_can_be_asked_about(name: str) -> None:
    made = covered_name(name)
    assert stored.check_path(made) == made


@given(st.text(max_size=20))
def test_both_sides_fold_alike(text: str) -> None:
    assert folded(text) == stored.folded(text)
