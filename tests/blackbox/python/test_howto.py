"""What the how-to of the Python client shows is run, block by block, against running services."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from fencepost import Client, FencepostError, NotWritten, Refused, Uncertain
from fencepost.home import MAILBOX, SESSIONS
from fencepost_testing.processes import Services, create_agents, home, services

__all__ = ["home", "services"]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "python-client.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FAILURES = (Refused, NotWritten, Uncertain)


async def run(page: str, names: dict[str, Any]) -> int:
    """Run the blocks of a page one after the other in one namespace; return how many there were."""
    blocks = list(BLOCKS.finditer(page))
    for block in blocks:
        # Counted from the top of the page, so that a traceback shows its line there.
        lines_before = page[: block.start(1)].count("\n")
        code = compile(
            "\n" * lines_before + block[1], str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        awaitable = eval(code, names)
        if inspect.isawaitable(awaitable):
            await awaitable
    return len(blocks)


class Losing:
    """Stands for a client whose answer is lost for good."""

    async def send(self, target: str, body: str) -> None:
        raise Uncertain("delivery_uncertain", "no answer came; it may or may not have been written")


@pytest.mark.requirement("ways.python-client-howto-runs")
async def test_every_block_of_the_page_runs_as_it_stands(
    services: Services, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await services.start(SESSIONS, MAILBOX)
    agents = await create_agents(services, "ada", "bob")
    monkeypatch.setenv("FENCEPOST_HOME", str(services.home.path))
    names: dict[str, Any] = {"ADA": agents["ada"].agent_id, "BOB": agents["bob"].agent_id}
    assert await run(PAGE.read_text(encoding="utf-8"), names) == 8
    assert capsys.readouterr().out == "ada The parser is merged.\nada Run the slow tests, please.\n"
    # The third branch of what the page shows cannot be had from services that work.
    assert await names["deliver"](Losing(), "bob", "hello") == "uncertain: delivery_uncertain"


@pytest.mark.requirement("ways.three-kinds-of-failure")
@pytest.mark.parametrize("kind", FAILURES)
def test_no_kind_of_failure_is_caught_as_another(kind: type[FencepostError]) -> None:
    assert issubclass(kind, FencepostError)
    assert [other for other in FAILURES if issubclass(kind, other)] == [kind]
    assert kind.outcome == {Refused: "refused", NotWritten: "not_written", Uncertain: "uncertain"}[kind]


@pytest.mark.requirement("ways.python-client-is-typed")
def test_every_public_call_says_what_it_returns_and_what_it_is_for() -> None:
    calls = {name: call for name, call in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert {"send", "request", "receive", "wait", "reply", "aclose"} <= set(calls)
    for name, call in calls.items():
        assert inspect.getdoc(call), name
        assert "return" in get_type_hints(call), name
    assert get_type_hints(Client.send)["return"].DESCRIPTOR.full_name == "fencepost.mailbox.v1.SendResponse"
    assert resources.files("fencepost").joinpath("py.typed").is_file()
