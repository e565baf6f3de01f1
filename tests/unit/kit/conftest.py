"""Fixtures of the kit's tests."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.home import Home
from fencepost_kit import faults, logs
from fencepost_testing.processes import long_home_and_runtime, short_home


@pytest.fixture
def logged() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Configure logs for one test; call it for the lines so far."""
    root, grpc_log = logging.getLogger(), logging.getLogger("grpc")
    before = list(root.handlers), root.level, grpc_log.level, logging.raiseExceptions
    stream = io.StringIO()
    logs.configure("testing", "debug", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level, grpc_log.level, logging.raiseExceptions = before
    logging.captureWarnings(capture=False)


@pytest.fixture
def disarmed() -> Iterator[None]:
    """Leave no fault armed, whatever the test did."""
    points = dict(faults.POINTS)
    yield
    faults.arm("")
    faults.POINTS.clear()
    faults.POINTS.update(points)


@pytest.fixture
def home() -> Iterator[Home]:
    """A throw-away home, not yet created."""
    with short_home() as found:
        yield found


@pytest.fixture
def long_home_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Home, Path]]:
    """A home over the socket limit, and the runtime folder that the environment names."""
    with long_home_and_runtime() as (home, runtime):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        yield home, runtime


@pytest.fixture
def long_home(long_home_in: tuple[Home, Path]) -> Home:
    """A home over the socket limit."""
    return long_home_in[0]
