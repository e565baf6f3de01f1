"""What plugins of pytest may and may not do here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = re.compile(
    r"\bgrpc_(?:addr|server|channel|create_channel|stub|stub_cls|servicer|add_to_server|interceptors)\b"
)


@pytest.mark.requirement("ways.plugin-disturbs-nobody")
def test_only_the_tests_of_the_blocking_client_use_fixtures_of_pytest_grpc() -> None:
    used = {
        path.relative_to(ROOT).parts[1:3]
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__) and FIXTURES.search(path.read_text(encoding="utf-8"))
    }
    assert used == {("blackbox", "grpc")}


@pytest.mark.requirement("ways.plugin-disturbs-nobody")
def test_the_plugin_that_cannot_stand_beside_it_is_pinned_nowhere() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"^pytest-grpc-aio==", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.requirement("ways.plugin-disturbs-nobody")
def test_the_fake_server_of_the_plugin_is_off(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("grpc-fake") is False
