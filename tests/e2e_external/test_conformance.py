"""The official conformance suite against the HTTP face, in both eras, held to a baseline that names every gap."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

BASELINE = Path(__file__).with_name("baseline.toml")
GOOD = {"SUCCESS", "INFO"}
# Scenarios in which nothing may fail but what the baseline names.
WANTED = {
    "2025-11-25": {"server-initialize", "ping", "tools-list", "dns-rebinding-protection"},
    "2026-07-28": {
        "tools-list",
        "http-header-validation",
        "caching",
        "dns-rebinding-protection",
        "server-stateless",
    },
}


def gaps(era: str) -> set[str]:
    entries = tomllib.loads(BASELINE.read_text(encoding="utf-8"))["gap"]
    assert all(entry["why"] for entry in entries)
    return {check for entry in entries if era in entry["eras"] for check in entry["checks"]}


def outcomes(folder: Path) -> dict[str, str]:
    """scenario/check -> its worst status."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*/checks.json")):
        scenario = re.sub(r"-20\d\d-\d\d-\d\dT.*$", "", file.parent.name).removeprefix("server-")
        checks: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        for check in checks:
            key = f"{scenario}/{check['id']}"
            if found.get(key, "SUCCESS") in GOOD:
                found[key] = check["status"]
    return found


@pytest.mark.requirement("http.official-suite")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_the_official_suite_finds_what_the_baseline_says_and_nothing_else(
    node: Any, authorizing: Any, tmp_path: Path, era: str
) -> None:
    async with authorizing as port:
        url = f"http://127.0.0.1:{port}/mcp"
        arguments = ("--suite", "all", "--spec-version", era, "--output-dir", str(tmp_path))
        _, out, err = await node.run("conformance", "server", "--url", url, *arguments)
    found = outcomes(tmp_path)
    assert WANTED[era] <= {key.split("/")[0] for key in found}, out + err
    failed = {key for key, status in found.items() if status not in GOOD}
    known = gaps(era)
    assert failed - known == set(), "fails, and the baseline does not say why"
    assert known - failed == set(), "passes by now: take it out of the baseline"
    passed = sum(status in GOOD for status in found.values())
    print(f"conformance {era}: {passed} checks pass, {len(failed)} gaps, each in the baseline")
