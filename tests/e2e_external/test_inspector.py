"""The official inspector lists and calls tools, through the shim and by the URL."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

NAMES = [
    "send_message",
    "followup_task",
    "receive_messages",
    "wait_agent",
    "reply",
    "interrupt_agent",
    "list_agents",
]


def way(served: Any, kind: str) -> list[str]:
    if kind == "url":
        header = f"Authorization: Bearer {served.world.ann.token}"
        return [f"http://127.0.0.1:{served.port}/mcp", "--transport", "http", "--header", header]
    variables = served.world.variables(served.world.ann)
    named = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    return [sys.executable, "-P", "-m", "fencepost.mcp.shim", *named]


@pytest.mark.requirement("http.both-eras")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["shim", "url"])
async def test_the_inspector_lists_and_calls_tools(node: Any, served: Any, kind: str) -> None:
    async def told(*arguments: str) -> Any:
        if kind == "url":
            words = ["--cli", *way(served, kind), *arguments]
        else:
            program, *rest = way(served, kind)
            words = ["--cli", *arguments, *rest[3:], "--", program, *rest[:3]]
        status, out, err = await node.run("mcp-inspector", *words)
        assert status == 0, out + err
        return json.loads(out)

    assert [tool["name"] for tool in (await told("--method", "tools/list"))["tools"]] == NAMES
    send = ("--method", "tools/call", "--tool-name", "send_message")
    sent = await told(*send, "--tool-arg", "target=bob", "message=by the inspector")
    assert sent["structuredContent"]["recipient"]["name"] == "bob"
    listed = await told("--method", "tools/call", "--tool-name", "list_agents")
    assert [agent["name"] for agent in listed["structuredContent"]["agents"]] == ["ann", "bob"]
