"""Compile every service's SQLAlchemy Core statements to the text that its store runs, or with --check compare them.

Statements are written with SQLAlchemy, and the services run without it: importing it would be most of the time that a
service needs to come back after a crash, and half of its memory (docs/decisions/statements.md).
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import textwrap
from pathlib import Path

from sqlalchemy import Executable
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import ClauseElement

ROOT = Path(__file__).resolve().parent.parent
# Packages with a module of statements, each with the text that it runs beside it.
STORES = (
    "mailbox/fencepost_mailbox/store",
    "mailbox/fencepost_mailbox/store/context",
    "mailbox/fencepost_mailbox/store/evidence",
    "mailbox/fencepost_mailbox/store/files",
    "mailbox/fencepost_mailbox/store/tasks",
    "mailbox/fencepost_mailbox/store/threads",
    "providers/fencepost_providers/store",
    "sessions/fencepost_sessions/store",
)
WIDTH = 116


def compiled(statement: str | Executable) -> str:
    """Return a statement as the text of the sqlite3 driver, with named parameters."""
    if isinstance(statement, str):
        return statement
    assert isinstance(statement, ClauseElement), "a statement can be compiled"
    result = statement.compile(dialect=sqlite.dialect(paramstyle="named"))
    text = str(result)
    for name, value in result.params.items():
        if value is not None:  # a constant of the statement, not a parameter of the call
            assert isinstance(value, int), "constants are numbers"
            text = re.sub(rf":{name}\b", str(int(value)), text)
    return text


def module(store: str) -> str:
    """Return the generated module of a store."""
    package = ".".join(store.split("/")[1:])
    statements = importlib.import_module(f"{package}.statements")
    lines = [
        f'"""Generated from {package}.statements by scripts/generate_sql.py: `make proto`. Do not edit."""',
        "",
        "from typing import Final",
        "",
    ]
    for name, value in vars(statements).items():
        if name.isupper() and not name.startswith("_") and isinstance(value, str | Executable):
            words = textwrap.wrap(" ".join(compiled(value).split()), WIDTH, break_long_words=False)
            lines += [f'{name}: Final = """\\', *words[:-1], f'{words[-1]}"""']
    return "\n".join(lines) + "\n"


def main() -> int:
    """Generate, or compare with what is committed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true")
    check: bool = arguments.parse_args().check
    stale = 0
    for store in STORES:
        target = ROOT / "services" / store / "sqlite_statements.py"
        fresh = module(store)
        if check and (not target.exists() or target.read_text(encoding="utf-8") != fresh):
            print(f"stale statements: {target.relative_to(ROOT)}; run: make proto", file=sys.stderr)
            stale += 1
        elif not check:
            target.write_text(fresh, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
