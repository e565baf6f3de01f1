"""What the supervisor hands to the services that it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.home import SERVICES, Home
from fencepost.up.settings import PORTS_RESERVED, UpSettings, metrics_variables, read
from fencepost.up.table import TABLE
from fencepost_kit.exposition import PORT_MAX
from fencepost_kit.settings import InvalidSettings

pytestmark = [pytest.mark.requirement("up.one-number-gives-every-service-its-metrics-port")]


def test_without_a_number_no_service_gets_a_port(tmp_path: Path) -> None:
    assert metrics_variables(UpSettings(), Home(tmp_path), {}) == {}


def test_one_number_gives_each_service_the_next_port(tmp_path: Path) -> None:
    assert metrics_variables(UpSettings(metrics_port=9464), Home(tmp_path), {}) == {
        "FENCEPOST_SESSIONS_METRICS_PORT": "9464",
        "FENCEPOST_MAILBOX_METRICS_PORT": "9465",
        "FENCEPOST_MCP_EDGE_METRICS_PORT": "9466",
        "FENCEPOST_PROVIDERS_METRICS_PORT": "9467",
    }


def test_a_port_of_a_services_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "fencepost.toml").write_text("[mailbox]\nmetrics_port = 0\n[up]\nmetrics_port = 9464\n")
    home = Home(tmp_path)
    settings = read(home, TABLE, {})
    given = metrics_variables(settings, home, {"FENCEPOST_SESSIONS_METRICS_PORT": "1"})
    assert given == {"FENCEPOST_MCP_EDGE_METRICS_PORT": "9466", "FENCEPOST_PROVIDERS_METRICS_PORT": "9467"}


def test_the_number_leaves_room_for_every_service(tmp_path: Path) -> None:
    home, name = Home(tmp_path), "FENCEPOST_UP_METRICS_PORT"
    most = PORT_MAX - PORTS_RESERVED
    assert read(home, TABLE, {name: str(most)}).metrics_port + len(SERVICES) <= PORT_MAX
    with pytest.raises(InvalidSettings):
        read(home, TABLE, {name: str(most + 1)})
