"""What `fencepost status` says of services that look alive and are not."""

from __future__ import annotations

import os
import signal

import pytest

from fencepost import __version__
from fencepost_testing.command import Person
from fencepost_testing.processes import Services, short_home


@pytest.mark.requirement("cli.status-asks-now")
@pytest.mark.timeout(120)
def test_a_service_that_hangs_is_not_called_ready_and_nor_is_the_whole() -> None:
    with short_home() as home:
        operator = Person(services=Services(home))
        try:
            operator("up", "--detach", "--json").document["running"]
            before = operator("status", "--json").document
            services = {item["name"]: item for item in before["services"]}
            assert (before["overall"], {item["health"] for item in services.values()}) == ("ready", {"serving"})
            assert {item["version"] for item in services.values()} == {__version__}
            for name, item in services.items():
                os.kill(item["pid"], signal.SIGSTOP)
                try:
                    document = operator("status", "--json").document
                    told = operator("status").out
                finally:
                    os.kill(item["pid"], signal.SIGCONT)
                found = {other["name"]: other["health"] for other in document["services"]}
                assert (document["overall"], found[name]) == ("degraded", "not answering")
                assert f"Problem: {name} is not answering" in told
                assert "degraded" in told.splitlines()[0]
            assert operator("status", "--json").document["overall"] == "ready"
            unknown = operator("up", "--service", "nosuch", "--json")
            assert (unknown.code, unknown.error["code"]) == (1, "unknown_service")
        finally:
            operator("down", "--json")
