"""Fakes of services under the real supervisor."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from fencepost.home import Home
from fencepost_testing.compose import FAKES, Up
from fencepost_testing.processes import Services, short_home


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as found:
        yield found


@pytest.fixture
def compose(home: Home) -> Iterator[Up]:
    compose = Up(home)
    try:
        yield compose
    finally:
        try:
            compose.close()
        finally:
            sys.stdout.write(compose.logs())


@pytest.fixture
def fakes(home: Home) -> Iterator[Services]:
    """Fake services started one by one, without a supervisor."""
    running = Services(home, modules=FAKES)
    try:
        yield running
    finally:
        try:
            running.close()
        finally:
            running.print_logs()
