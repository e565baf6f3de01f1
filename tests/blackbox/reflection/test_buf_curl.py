"""A tool that has no copy of the protos reaches running services: `buf curl`, by reflection alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.home import MAILBOX, SESSIONS, read_address, read_credential
from fencepost_testing.processes import Services, short_home

BUF = Path(sys.executable).parent / "buf"
CALL_S_MAX = 30
pytestmark = [
    pytest.mark.skipif(not BUF.exists(), reason=f"needs buf beside Python: {BUF}"),
    pytest.mark.requirement("kit.tools-need-no-copy-of-the-protos"),
    pytest.mark.timeout(120),
]


@pytest.fixture
async def running() -> AsyncIterator[Services]:
    with short_home() as home:
        async with Services(home) as services:
            await services.start(SESSIONS, MAILBOX)
            yield services


def curl(services: Services, service: str, path: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `buf curl` against a service in a folder without protos; the token never stands on a command line."""
    headers = services.home.path / "headers"
    headers.touch(mode=0o600)
    headers.write_text(f"authorization: Bearer {read_credential(services.home.operator_credential)}\n")
    socket = str(read_address(services.home.address(service))).removeprefix("unix:")
    command = [str(BUF), "curl", "--protocol", "grpc", "--unix-socket", socket, "--header", f"@{headers}", *flags]
    return subprocess.run(
        [*command, f"http://localhost{path}"],
        cwd=services.home.path,
        capture_output=True,
        text=True,
        timeout=CALL_S_MAX,
        check=False,
    )


async def test_buf_curl_lists_services_and_methods_and_calls_describe_by_reflection_alone(running: Services) -> None:
    beside = [f"fencepost.mailbox.v1.{name}Service" for name in ("Context", "Evidence", "Files", "Tasks")]
    for service, full_name, others in (
        (MAILBOX, "fencepost.mailbox.v1.MailboxService", beside),
        (SESSIONS, "fencepost.sessions.v1.SessionsService", []),
    ):
        listed = curl(running, service, "", "--list-services")
        assert listed.returncode == 0, listed.stderr
        # The mailbox's process serves more than the mailbox, each with a service of its own.
        assert sorted(listed.stdout.split()) == sorted([full_name, *others, "grpc.health.v1.Health"])
        methods = curl(running, service, "", "--list-methods")
        assert f"{full_name}/Describe" in methods.stdout.split(), methods.stderr
        described = curl(running, service, f"/{full_name}/Describe", "--data", "{}")
        assert described.returncode == 0, described.stderr
        assert json.loads(described.stdout)["version"]
    headers = running.home.path / "headers"
    assert headers.stat().st_mode & 0o777 == 0o600
