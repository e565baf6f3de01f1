"""The real services: under the supervisor, and alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import grpc
import pytest

from fencepost import up
from fencepost.common.v1 import common_pb2
from fencepost.home import MAILBOX, SERVICES, SESSIONS, Home
from fencepost.mailbox.v1 import mailbox_pb2, mailbox_pb2_grpc
from fencepost.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fencepost.up import Phase
from fencepost_kit.statuses import detail_of
from fencepost_testing.compose import Up, is_alive, until
from fencepost_testing.processes import Services, bearer, create_agents

START_S_MAX = 60.0


@pytest.fixture
def real(home: Home) -> Iterator[Services]:
    running = Services(home)
    try:
        yield running
    finally:
        try:
            running.close()
        finally:
            running.print_logs()


@pytest.mark.timeout(150)
@pytest.mark.requirement("up.in-order-by-readiness", "up.a-killed-ready-service-never-trips-the-cap")
def test_the_real_services_come_up_survive_a_kill_each_and_go_down(compose: Up) -> None:
    supervisor = compose.spawn(table=up.TABLE)
    until(lambda: up.status(compose.home).overall is up.Overall.READY, "readiness", timeout_s=START_S_MAX)
    before = {service.name: service.pid for service in up.status(compose.home).services}
    assert list(before) == list(SERVICES)
    for pid in before.values():
        assert pid is not None
        os.kill(pid, signal.SIGKILL)  # ours: a service that this test's supervisor started

    def all_again() -> bool:
        found = up.status(compose.home).services
        return all(service.phase is Phase.READY and service.pid != before[service.name] for service in found)

    until(all_again, "the restarts", timeout_s=START_S_MAX)
    assert {service.restarts for service in up.status(compose.home).services} == {1}
    after = [service.pid for service in up.status(compose.home).services]
    code, output = compose.end(supervisor)
    assert code == 0, output
    assert not any(is_alive(pid) for pid in [*after, *before.values()] if pid is not None)


@pytest.mark.timeout(120)
@pytest.mark.requirement("kit.every-call-is-authenticated", "kit.a-stale-socket-is-taken-over")
async def test_services_started_alone_know_their_agents_also_after_a_kill(real: Services) -> None:
    await real.start(SESSIONS, MAILBOX)
    agents = await create_agents(real, "Ada", "Bob")
    await real.restart(SESSIONS)
    await real.restart(MAILBOX)
    async with real.channel(SESSIONS) as channel:
        stub = sessions_pb2_grpc.SessionsServiceStub(channel)
        request = sessions_pb2.GetCallerRequest()
        answer = await stub.GetCaller(request, metadata=bearer(agents["Ada"].token), timeout=10)
        assert (answer.agent.name, answer.credential.role) == ("Ada", common_pb2.ROLE_AGENT)
    async with real.channel(MAILBOX) as channel:
        mailbox = mailbox_pb2_grpc.MailboxServiceStub(channel)
        described = await mailbox.Describe(
            mailbox_pb2.DescribeRequest(), metadata=bearer(agents["Bob"].token), timeout=10
        )
        assert described.epoch
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await mailbox.Describe(mailbox_pb2.DescribeRequest(), timeout=10)
        detail = detail_of(caught.value)
        assert detail is not None
        assert detail.reason == "unauthenticated"
