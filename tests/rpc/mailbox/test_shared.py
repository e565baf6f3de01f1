"""Contexts, memory and files as a client calls them: who may, what a refusal looks like, what an answer says."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import pytest

from fencepost.common.v1 import common_pb2 as common
from fencepost.mailbox.v1 import context_pb2 as cpb
from fencepost.mailbox.v1 import files_pb2 as fpb
from fencepost_kit.identity import Role
from fencepost_kit.ids import uuid_text
from fencepost_mailbox.context_servicer import RULES as CONTEXT_RULES
from fencepost_mailbox.domain.context.values import CONTEXT_BYTES_MAX
from fencepost_mailbox.file_servicer import RULES as FILE_RULES
from fencepost_testing.mailboxes import PROJECT
from fencepost_testing.served_mailbox import CONTEXT_DESCRIPTOR, FILE_DESCRIPTOR, Refusal, ServedMailbox, uuid_of

AGENTS = {Role.AGENT, Role.COORDINATOR}
# Written out again from the contracts' comments.
MAY = {
    "PublishContext": AGENTS | {Role.OPERATOR},
    "GetContext": AGENTS | {Role.OPERATOR},
    "ListContexts": AGENTS | {Role.OPERATOR},
    "ListContextVersions": AGENTS | {Role.OPERATOR},
    "BootstrapProject": AGENTS | {Role.OPERATOR},
    "UpdateProjectMemory": AGENTS | {Role.OPERATOR},
    "GetProjectMemory": AGENTS | {Role.OPERATOR},
    "ListProjectMemory": AGENTS | {Role.OPERATOR},
    "ReserveFiles": AGENTS,
    "RenewFiles": AGENTS,
    "ReleaseFiles": AGENTS | {Role.OPERATOR},
    "ListReservations": AGENTS | {Role.OPERATOR},
    "CheckFiles": AGENTS | {Role.OPERATOR},
}
PROJECT_ID = uuid_text(PROJECT)


def new_id() -> str:
    return str(uuid.uuid4())


def reserving(*paths: str, **options: Any) -> fpb.ReserveFilesRequest:
    return fpb.ReserveFilesRequest(paths=paths, **{"request_id": new_id(), **options})


@pytest.mark.requirement("context.belongs-to-one-project")
def test_the_rules_are_those_of_the_contract() -> None:
    rules = {**CONTEXT_RULES, **FILE_RULES}
    assert {name: set(rule.roles) for name, rule in rules.items()} == MAY
    methods = [*CONTEXT_DESCRIPTOR.methods, *FILE_DESCRIPTOR.methods]
    assert {method.name for method in methods} == set(MAY)


@pytest.mark.parametrize("method", MAY)
async def test_nobody_and_no_service_calls_these(served: ServedMailbox, method: str) -> None:
    descriptor = CONTEXT_DESCRIPTOR if method in CONTEXT_RULES else FILE_DESCRIPTOR
    pb = cpb if method in CONTEXT_RULES else fpb
    ask = getattr(pb, descriptor.methods_by_name[method].input_type.name)()
    for who, status in ((None, grpc.StatusCode.UNAUTHENTICATED), ("service", grpc.StatusCode.PERMISSION_DENIED)):
        with pytest.raises(Refusal) as refused:
            await served.call(who, method, ask)
        assert refused.value.status is status


async def test_a_context_goes_from_one_agent_to_another_and_to_the_operator(served: ServedMailbox) -> None:
    content = "ü" * (CONTEXT_BYTES_MAX // 2)
    ask = cpb.PublishContextRequest(key="api", content=content, pinned=True, request_id=new_id())
    made = await served.call("ann", "PublishContext", ask)
    assert (made.key, made.version, made.duplicate) == ("api", 1, False)
    assert (await served.call("ann", "PublishContext", ask)).duplicate
    got = (await served.call("bob", "GetContext", cpb.GetContextRequest(key="api"))).context
    assert (got.content, got.content_bytes, got.pinned) == (content, CONTEXT_BYTES_MAX, True)
    assert got.publisher == common.AgentRef(agent_id=uuid_of("ann"), name="ann")
    assert got.newest_version == 1
    listed = await served.call("operator", "ListContexts", cpb.ListContextsRequest(project_id=PROJECT_ID))
    assert [(one.key, one.content) for one in listed.contexts] == [("api", "")]
    versions = await served.call("ann", "ListContextVersions", cpb.ListContextVersionsRequest(key="api"))
    assert [one.version for one in versions.contexts] == [1]
    with pytest.raises(Refusal) as refused:
        await served.call("eve", "GetContext", cpb.GetContextRequest(key="api"))
    assert (refused.value.status, refused.value.reason) == (grpc.StatusCode.NOT_FOUND, "not_found")


async def test_memory_is_changed_by_who_has_read_it_and_shown_to_who_begins(served: ServedMailbox) -> None:
    ask = cpb.UpdateProjectMemoryRequest(content="build with make", request_id=new_id())
    assert (await served.call("ann", "UpdateProjectMemory", ask)).version == 1
    late = cpb.UpdateProjectMemoryRequest(content="mine", request_id=new_id())
    with pytest.raises(Refusal) as refused:
        await served.call("bob", "UpdateProjectMemory", late)
    assert (refused.value.status, refused.value.reason) == (grpc.StatusCode.ABORTED, "version_conflict")
    assert refused.value.detail.state["version"] == "1"
    assert refused.value.detail.state["by"] == uuid_of("ann")
    begin = await served.call("cyd", "BootstrapProject", cpb.BootstrapProjectRequest())
    assert (begin.project_id, begin.memory.content, begin.memory.version) == (PROJECT_ID, "build with make", 1)
    assert [(one.agent.name, one.role) for one in begin.agents] == [
        ("ann", common.ROLE_AGENT),
        ("bob", common.ROLE_AGENT),
        ("cyd", common.ROLE_AGENT),
    ]
    kept = await served.call("ann", "GetProjectMemory", cpb.GetProjectMemoryRequest(version=1))
    assert kept.memory.author.name == "ann"
    history = await served.call("ann", "ListProjectMemory", cpb.ListProjectMemoryRequest())
    assert [(one.version, one.content) for one in history.versions] == [(1, "")]
    nothing = await served.call("eve", "GetProjectMemory", cpb.GetProjectMemoryRequest())
    assert (nothing.memory.version, nothing.memory.content) == (0, "")


@pytest.mark.requirement("files.a-refusal-is-an-answer")
async def test_that_another_holds_a_file_is_an_answer_with_everything_about_it(served: ServedMailbox) -> None:
    first = await served.call("ann", "ReserveFiles", reserving("src/a.py", "src/b.py", reason="split it"))
    assert first.reserved
    assert first.reservation_id
    refused = await served.call("bob", "ReserveFiles", reserving("src", mode=fpb.RESERVATION_MODE_SHARED))
    assert not refused.reserved
    assert refused.reservation_id == ""
    assert [(one.path, one.held.path, one.held.holder.name) for one in refused.conflicts] == [
        ("src", "src/a.py", "ann"),
        ("src", "src/b.py", "ann"),
    ]
    held = refused.conflicts[0].held
    assert (held.reason, held.expires_at_ms, held.reservation_id) == (
        "split it",
        first.expires_at_ms,
        first.reservation_id,
    )
    assert (held.mode, held.generation, held.attempt_id) == (fpb.RESERVATION_MODE_EXCLUSIVE, 1, "")
    checked = await served.call("bob", "CheckFiles", fpb.CheckFilesRequest(paths=["src/a.py"]))
    assert (checked.free, [one.held.holder.name for one in checked.conflicts]) == (False, ["ann"])
    ask = fpb.CheckFilesRequest(paths=["src/a.py"], project_id=PROJECT_ID)
    assert not (await served.call("operator", "CheckFiles", ask)).free
    listed = await served.call("bob", "ListReservations", fpb.ListReservationsRequest(holder="ann"))
    assert [one.path for one in listed.reservations] == ["src/a.py", "src/b.py"]


async def test_what_is_held_is_renewed_released_and_told_again(served: ServedMailbox) -> None:
    ask = reserving("a", globs=["b/*"])
    first = await served.call("ann", "ReserveFiles", ask)
    renew = fpb.RenewFilesRequest(paths=["a"], duration_seconds=3600, request_id=new_id())
    renewed = await served.call("ann", "RenewFiles", renew)
    assert (renewed.renewed, renewed.expires_at_ms > first.expires_at_ms) == (1, True)
    release = fpb.ReleaseFilesRequest(globs=["b/*"], request_id=new_id())
    assert (await served.call("ann", "ReleaseFiles", release)).released == 1
    again = await served.call("ann", "ReserveFiles", ask)
    assert (again.reserved, again.lapsed, again.duplicate) == (False, True, True)
    ask = fpb.ReleaseFilesRequest(everything=True, holder_id=uuid_of("ann"), request_id=new_id())
    assert (await served.call("operator", "ReleaseFiles", ask)).released == 1
    lost = fpb.RenewFilesRequest(reservation_ids=[first.reservation_id], request_id=new_id())
    with pytest.raises(Refusal) as refused:
        await served.call("ann", "RenewFiles", lost)
    assert (refused.value.status, refused.value.reason) == (grpc.StatusCode.ABORTED, "reservation_lost")


@pytest.mark.parametrize(
    "ask",
    [
        reserving("a", request_id="not a UUID"),
        reserving("a", mode=7),
        reserving("a", attempt_id="not a UUID"),
        reserving("/a"),
        reserving(),
        reserving("a", duration_seconds=3601),
        fpb.RenewFilesRequest(reservation_ids=["x"], request_id=new_id()),
        cpb.PublishContextRequest(key="k", content="c", request_id=""),
    ],
    ids=["request id", "mode", "attempt", "path", "nothing", "duration", "reservation id", "no request id"],
)
async def test_what_is_malformed_is_refused_as_that(served: ServedMailbox, ask: Any) -> None:
    method = type(ask).__name__.removesuffix("Request")
    with pytest.raises(Refusal) as refused:
        await served.call("ann", method, ask)
    assert refused.value.status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.requirement("context.lives-as-long-as-its-project-is-open")
async def test_a_call_is_noted_as_the_projects_activity(served: ServedMailbox) -> None:
    await served.call("ann", "GetProjectMemory", cpb.GetProjectMemoryRequest())
    assert served.mailbox.mirror.called_at_ms()[PROJECT] == served.clock.now_ms()
    await served.call("operator", "GetProjectMemory", cpb.GetProjectMemoryRequest(project_id=PROJECT_ID))
    assert set(served.mailbox.mirror.called_at_ms()) == {PROJECT}
