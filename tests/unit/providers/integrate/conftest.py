"""Integrations over real repositories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost_testing.integration_desk import IntegrationDesk, an_integration_desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[IntegrationDesk]:
    async with an_integration_desk(tmp_path) as made:
        yield made
