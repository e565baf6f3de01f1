"""The documentation keeps up with the tree: links lead somewhere, and what the code names is explained."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
LINK: Final = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
OUTCOMES: Final = frozenset({"Refused", "NotWritten", "Uncertain"})
VARIABLE: Final = re.compile(r"FENCEPOST_[A-Z]+(?:_[A-Z]+)*")


def documents() -> list[Path]:
    return sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "examples").rglob("*.md"))


def prose(path: Path) -> str:
    """Return a document without its fenced examples, which may show links of other places."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {word.replace(" ", "-") for word in words}


def dead_links(path: Path) -> Iterator[str]:
    for link in LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        leads = target.exists() and target.is_relative_to(ROOT)
        if not leads or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("lib", "services"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" not in path.name:
                yield path, ast.parse(path.read_text(encoding="utf-8"))


def class_reason(node: ast.AST) -> str | None:
    """Return the code of `reason = "..."`, with or without an annotation."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.AST = node.targets[0]
    elif isinstance(node, ast.AnnAssign):
        target = node.target
    else:
        return None
    return text_of(node.value) if isinstance(target, ast.Name) and target.id == "reason" else None


def raised_reason(node: ast.AST) -> str | None:
    """Return the code that is given to one of the client library's outcomes where it is made."""
    made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OUTCOMES and node.args
    return text_of(node.args[0]) if made and isinstance(node, ast.Call) else None


def text_of(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def reasons() -> dict[str, str]:
    """Return every stable reason code of the tree, with a file where it stands."""
    return {
        code: str(path.relative_to(ROOT))
        for path, tree in sources()
        for node in ast.walk(tree)
        if (code := class_reason(node) or raised_reason(node))
    }


def number(node: ast.AST | None) -> int | None:
    """Return the value of a whole number, or of a product of whole numbers."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = number(node.left), number(node.right)
        return left * right if left is not None and right is not None else None
    return None


def constants() -> dict[str, set[int]]:
    """Return every named number of the tree with its values."""
    found: dict[str, set[int]] = {}
    for _, tree in sources():
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = number(node.value)
                if value is not None:
                    found.setdefault(node.target.id, set()).add(value)
    return found


def variables() -> set[str]:
    """Return every environment variable whose whole name stands in the code as a string."""
    return {
        node.value
        for _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value)
    }


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_the_documentation_leads_somewhere(path: Path) -> None:
    assert not list(dead_links(path))


def test_every_page_below_docs_is_reachable_from_the_readme() -> None:
    seen = {ROOT / "README.md"}
    queue = list(seen)
    while queue:
        page = queue.pop()
        for link in LINK.findall(prose(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in seen:
                seen.add(target)
                queue.append(target)
    assert not [str(page.relative_to(ROOT)) for page in documents() if page not in seen]


def test_every_dependency_is_justified() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [entry for group in project["dependency-groups"].values() for entry in group if isinstance(entry, str)]
    extras = [entry for extra in project["project"]["optional-dependencies"].values() for entry in extra]
    named = project["project"]["dependencies"] + extras + groups
    wanted = {re.split(r"[<>=;\[ ]", entry, maxsplit=1)[0] for entry in named}
    page = (ROOT / "docs" / "decisions" / "dependencies.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE))
    assert wanted - explained == set(), "no line in docs/decisions/dependencies.md"
    assert explained - wanted == set(), "explained there, but no longer a dependency"


def test_every_reason_code_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    missing = {reason: place for reason, place in reasons().items() if f"`{reason}`" not in page}
    assert not missing, f"no line in docs/reference/errors.md: {missing}"


def test_every_environment_variable_is_explained() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    assert not sorted(name for name in variables() if f"`{name}`" not in page)


def test_every_limit_of_the_reference_is_the_one_in_the_code() -> None:
    page = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
    stated = re.findall(r"`([A-Z][A-Z0-9_]+)` = (\d+)", page)
    known = constants()
    assert len(stated) >= 20
    assert [(name, value) for name, value in stated if int(value) not in known.get(name, set())] == []


def test_a_table_of_a_page_begins_with_its_head_and_is_one_piece() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    torn = []
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            head = table.splitlines()[:2]
            if len(head) < 2 or not re.fullmatch(r"\|(?: *:?-+:? *\|)+", head[1]):
                torn.append((page.name, head[0][:40]))
    assert torn == []


def test_the_glossary_gives_every_word_one_meaning_in_alphabetical_order() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\*\*([^*]+)\*\*", page, re.MULTILINE)
    assert [word for word, times in Counter(words).items() if times > 1] == []
    assert words == sorted(words, key=str.lower)
    assert len(words) >= 20


def test_every_verb_of_the_makefile_is_named_by_its_own_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE))
    explained = set(re.findall(r"^([a-z0-9-]+):.*## \S", makefile, re.MULTILINE))
    assert phony == explained
