"""The ledger docs/requirements.toml and the tests agree: a promise nobody tests, or a test nobody promised, fails here.

Tests are read as text, never imported: a broken test module must not hide what it cites.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
LEDGER: Final = ROOT / "docs" / "requirements.toml"
ID: Final = re.compile(r"[a-z][a-z0-9]*(?:\.[a-z0-9]+(?:-[a-z0-9]+)*)+")
# Highest number of each series of specification rows.
ROW_NUMBER_MAX: Final = {"M": 187, "R": 241, "T": 102}
FIELDS: Final = frozenset({"promise", "rows", "source"})


def ledger() -> dict[str, dict[str, Any]]:
    return tomllib.loads(LEDGER.read_text(encoding="utf-8"))


def is_requirement_mark(node: ast.AST) -> bool:
    """Tell whether `node` is a call of pytest.mark.requirement, wherever it stands: decorator, pytestmark, param."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "requirement"
        and isinstance(node.func.value, ast.Attribute)
        and node.func.value.attr == "mark"
    )


def citations(source: str) -> Iterator[tuple[int, str | None]]:
    """Yield line and id of every citation; None where an id is not written out as a string."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and is_requirement_mark(node):
            if not node.args:
                yield node.lineno, None
            for argument in node.args:
                written = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                yield node.lineno, argument.value if written else None  # type: ignore[attr-defined]


def cited() -> Mapping[str, list[str]]:
    """Return id -> places that cite it, over every test of the tree."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for line, name in citations(path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(ROOT)}:{line}"
            assert name is not None, f"{place}: write the id out as a string, so that the ledger can find it"
            found.setdefault(name, []).append(place)
    return found


@pytest.mark.requirement("repo.every-promise-is-proved")
def test_every_cited_promise_stands_in_the_ledger() -> None:
    known = ledger()
    unknown = {name: places for name, places in cited().items() if name not in known}
    assert not unknown, f"cited, but not in docs/requirements.toml: {unknown}"


@pytest.mark.requirement("repo.every-promise-is-proved")
def test_every_promise_of_the_ledger_is_proved_by_a_test() -> None:
    orphans = sorted(set(ledger()) - set(cited()))
    assert not orphans, f"promised, but cited by no test: {orphans}"


def test_every_entry_has_exactly_its_three_fields_and_an_id_in_words() -> None:
    for name, entry in ledger().items():
        assert ID.fullmatch(name), f"{name}: an id reads area.promise-in-words"
        assert set(entry) == FIELDS, f"{name}: has {sorted(entry)}, wants {sorted(FIELDS)}"
        assert isinstance(entry["promise"], str), name
        assert entry["promise"].strip().endswith("."), f"{name}: a promise is a sentence"
        assert isinstance(entry["source"], str), name
        assert entry["source"].strip(), f"{name}: say where the promise comes from"
        assert isinstance(entry["rows"], list), name


def test_every_row_named_by_the_ledger_is_one_of_the_specification() -> None:
    for name, entry in ledger().items():
        for row in entry["rows"]:
            shape = re.fullmatch(r"([MRT])(\d{3})", row)
            assert shape, f"{name}: {row!r} is no row"
            assert 1 <= int(shape[2]) <= ROW_NUMBER_MAX[shape[1]], f"{name}: there is no row {row}"
        assert len(set(entry["rows"])) == len(entry["rows"]), f"{name}: names a row twice"


def test_no_promise_is_made_twice() -> None:
    said = Counter(" ".join(entry["promise"].lower().split()).rstrip(".") for entry in ledger().values())
    assert not [promise for promise, times in said.items() if times > 1]


def test_a_citation_is_found_in_a_decorator_a_module_mark_and_a_parameter() -> None:
    source = """
import pytest
pytestmark = pytest.mark.requirement("a.module")
@pytest.mark.requirement("a.first", "a.second")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("a.parameter"))])
def test_x(x): ...
"""
    assert {name for _, name in citations(source)} == {"a.module", "a.first", "a.second", "a.parameter"}


def test_a_citation_that_is_not_a_plain_string_is_reported() -> None:
    assert list(citations('import pytest\npytestmark = pytest.mark.requirement(f"a.{1}")\n')) == [(2, None)]
    assert list(citations("import pytest\npytestmark = pytest.mark.requirement()\n")) == [(2, None)]
