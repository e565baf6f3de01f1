"""A server that is told its agent by name gets no agent that is being deleted, and creates none in its place."""

from __future__ import annotations

from typing import Any, cast

import pytest

from fencepost.cli.project import Location
from fencepost.client import Sessions
from fencepost.errors import Refused
from fencepost.sessions.v1 import sessions_pb2 as pb
from fencepost.take import take

HERE = Location(kind=pb.PROJECT_KIND_FOLDER, path="/w", name="w")


class Directory:
    """Sessions with one project and one agent, which is being deleted."""

    async def list_projects(self, _ask: Any) -> pb.ListProjectsResponse:
        return pb.ListProjectsResponse(projects=[pb.Project(project_id="p", location=HERE.path, name="w")])

    async def get_agent(self, _ask: Any) -> pb.GetAgentResponse:
        return pb.GetAgentResponse(agent=pb.Agent(agent_id="a", name="ann", state=pb.AGENT_STATE_DELETING))


@pytest.mark.requirement("sessions.deleting-takes-authority-at-once")
async def test_a_name_whose_agent_is_being_deleted_is_refused_and_nobody_is_created() -> None:
    with pytest.raises(Refused) as refused:
        await take(cast("Sessions", Directory()), name="ann", location=HERE, workspace="/w")
    assert refused.value.reason == "agent_deleted"
    assert "nothing was created" in refused.value.message
