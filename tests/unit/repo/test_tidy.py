"""House rules that no linter knows, held over the whole tree."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
FUNCTION_LINES_MAX: Final = 70
OWN: Final = frozenset(
    {
        "fencepost",
        "fencepost_kit",
        "fencepost_mailbox",
        "fencepost_mcp_edge",
        "fencepost_providers",
        "fencepost_sessions",
    }
)
FOLDERS_OF_CODE: Final = ("lib", "services", "scripts", "tests", "protos", "examples")
SUFFIXES_OF_CODE: Final = frozenset({".py", ".proto", ".sql", ".sh"})
# Put together from pieces, so that this file passes its own rule.
UNFINISHED: Final = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
SLEEP_REASON: Final = re.compile(r"#\s*sleep: \S+")

# Read by scripts/generate_sql.py and by tests; never imported by a running service.
DEVELOPMENT_ONLY: Final = re.compile(r"/store/(?:\w+/)?(?:dialect|statements|tables)\.py$")


def files(*folders: str) -> Iterator[Path]:
    """Yield the files of code below `folders` that people write: no generated stub."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            generated = re.search(r"_pb2(_grpc)?\.pyi?$", path.name) is not None
            if path.is_file() and path.suffix in SUFFIXES_OF_CODE and not generated:
                yield path


def python(*folders: str) -> Iterator[tuple[str, ast.Module, list[str]]]:
    """Yield name, tree and lines of every Python file below `folders`."""
    for path in files(*folders):
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8")
            yield str(path.relative_to(ROOT)), ast.parse(text), text.splitlines()


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.name, lines


def is_sleep(node: ast.AST) -> bool:
    """Tell whether `node` waits for time alone; asyncio.sleep(0), which only yields, does not."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"time", "asyncio"}
        and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
    )


def bare_sleeps(tree: ast.Module, lines: list[str]) -> Iterator[int]:
    """Yield the line of each sleep outside a loop without a written reason.

    Inside a loop a sleep is the pause of a poll whose condition decides; elsewhere it hopes that something happened.
    """
    polls = {
        id(inner)
        for loop in ast.walk(tree)
        if isinstance(loop, ast.While | ast.For | ast.AsyncFor)
        for inner in ast.walk(loop)
    }
    for node in ast.walk(tree):
        bare = isinstance(node, ast.Call) and is_sleep(node) and id(node) not in polls
        if bare and not SLEEP_REASON.search(lines[node.lineno - 1]):
            yield node.lineno


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [
        *project["project"]["dependencies"],
        *chain.from_iterable(project["project"]["optional-dependencies"].values()),
    ]
    found = (re.match(r"[A-Za-z0-9._-]+", dependency) for dependency in wanted)
    return {normalised(match[0]) for match in found if match}


def test_no_function_is_longer_than_a_page() -> None:
    found = [
        f"{name}: {function} has {lines} lines"
        for name, tree, _ in python("lib", "services")
        for function, lines in long_functions(tree)
    ]
    assert not found


def test_nothing_is_marked_as_unfinished() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files(*FOLDERS_OF_CODE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if UNFINISHED.search(line)
    ]
    assert not found


def test_no_test_waits_for_time_alone() -> None:
    found = [f"{name}:{line}" for name, tree, lines in python("tests") for line in bare_sleeps(tree, lines)]
    assert not found, f"wait for the condition, or write `# sleep: why` on the line: {found}"


def test_every_machine_of_histories_is_ended_before_it_began() -> None:
    machines, ended = set(), set()
    for name, tree, _ in python("tests"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and "RuleBasedStateMachine" in map(ast.unparse, node.bases):
                machines.add((name, node.name))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "ends_before_it_began":
                ended.update((name, ast.unparse(argument)) for argument in node.args)
    assert machines, "the search finds no machine at all: it is broken"
    assert machines == ended


def test_no_service_prints() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree, _ in python("services", "lib/fencepost_kit")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not found, f"services log, one JSON line an event: {found}"


def test_no_folder_hides_a_module_of_the_standard_library() -> None:
    # An importable folder named like a module of the standard library is imported in its place, by every program.
    packages = [path.parent for folder in ("lib", "services", "tests") for path in (ROOT / folder).rglob("__init__.py")]
    tops = [path for path in packages if not (path.parent / "__init__.py").exists()]
    assert not [str(path.relative_to(ROOT)) for path in tops if path.name in sys.stdlib_module_names]
    assert not list((ROOT / "tests").rglob("__init__.py")), "tests are no packages"


def test_nothing_that_runs_imports_what_only_generation_needs() -> None:
    # docs/decisions/statements.md: a service runs the text that was compiled from these modules.
    generated_from = {"dialect", "statements", "tables"}
    found = [
        f"{name}: {module}"
        for name, tree, _ in python("lib", "services")
        if not DEVELOPMENT_ONLY.search(name)
        for module in imported(tree)
        if module.partition(".")[0] in {"sqlalchemy", "sqlmodel"}
        or (".store." in module and module.rpartition(".")[2] in generated_from)
    ]
    assert not found, found


def test_everything_that_is_imported_is_a_declared_dependency() -> None:
    providers = importlib.metadata.packages_distributions()
    wanted = declared()
    found: dict[str, str] = {}
    for name, tree, _ in python("lib", "services"):
        if DEVELOPMENT_ONLY.search(name):
            continue
        for module in imported(tree):
            top = module.partition(".")[0]
            if top in OWN or top in sys.stdlib_module_names or top == "google":
                continue
            if not {normalised(provider) for provider in providers.get(top, [])} & wanted:
                found[top] = name
    assert not found, f"imported, but no dependency in pyproject.toml provides it: {found}"


def test_every_declared_dependency_is_imported() -> None:
    providers = importlib.metadata.packages_distributions()
    modules = {module for _, tree, _ in python("lib", "services") for module in imported(tree)}
    used = {normalised(provider) for module in modules for provider in providers.get(module.partition(".")[0], [])}
    # Both live in the namespace `google`, which several distributions share; stubs and refusals need one of each.
    if any(module.startswith("google.protobuf") for module in modules):
        used.add("protobuf")
    if any(module.startswith("google.rpc") for module in modules):
        used.add("googleapis-common-protos")
    else:
        used.discard("googleapis-common-protos")
    assert declared() <= used, f"declared, but imported nowhere: {sorted(declared() - used)}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\ntime.sleep(1)\n", [2]),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0.1)\n", [3]),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n", []),
        ("import time\nwhile True:\n    time.sleep(0.01)\n", []),
        ("import time\ntime.sleep(1)  # sleep: the clock itself is under test\n", []),
    ],
)
def test_a_sleep_counts_outside_a_poll_and_without_a_reason(source: str, expected: list[int]) -> None:
    assert list(bare_sleeps(ast.parse(source), source.splitlines())) == expected


@pytest.mark.parametrize(("lines", "too_long"), [(FUNCTION_LINES_MAX, False), (FUNCTION_LINES_MAX + 1, True)])
def test_the_limit_on_a_function_holds_at_both_sides(*, lines: int, too_long: bool) -> None:
    source = "def f():\n" + "    x = 1\n" * (lines - 1)
    assert bool(list(long_functions(ast.parse(source)))) is too_long
