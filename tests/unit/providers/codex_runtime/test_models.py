"""The catalogue of models: how it is read, kept and refreshed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from fencepost_providers.adapters.codex.models import FAILED_KEPT_MS, KEPT_MS, MODELS_MAX, Models, read
from fencepost_providers.domain.runtimes import Model


def catalogue(*names: str) -> bytes:
    return json.dumps({"models": [{"slug": name} for name in names]}).encode()


class Asked:
    """Answers each question when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.asked = asyncio.Event()
        self.answers: list[asyncio.Future[bytes]] = []
        self.models = Models(self, now_ms=lambda: self.now_ms)

    async def __call__(self) -> bytes:
        self.answers.append(asyncio.get_running_loop().create_future())
        self.asked.set()
        return await self.answers[-1]

    async def ask(self) -> asyncio.Task[Any]:
        return await self.get(refresh=True)

    async def get(self, *, refresh: bool) -> asyncio.Task[Any]:
        """Begin to get the catalogue; return once the program is asked."""
        self.asked.clear()
        task = asyncio.ensure_future(self.models.get(refresh=refresh))
        async with asyncio.timeout(5):
            await self.asked.wait()
        return task


@pytest.mark.requirement("codex.models")
def test_a_catalogue_is_read_in_its_order_with_the_default_effort_in_its_rank() -> None:
    entries = [
        {
            "slug": "b",
            "display_name": "B",
            "priority": 1,
            "default_reasoning_level": "medium",
            "supported_reasoning_levels": [{"effort": "low"}, {"effort": "high"}],
        },
        {"id": "a", "isDefault": False},
        {"slug": "codex-auto-review"},
        {"slug": "hidden", "visibility": "hide"},
        {"model": "c", "supported_reasoning_levels": None},
        "nonsense",
        {},
    ]
    first, *rest = read(json.dumps({"data": entries}).encode())
    assert first == Model(
        model="b", title="B", efforts=("low", "medium", "high"), default_effort="medium", is_default=True
    )
    assert [model.model for model in rest] == ["a", "c"]


@pytest.mark.requirement("codex.models")
@pytest.mark.parametrize("output", [b"", b"{}", b"[]", b"not json", b'{"models": {}}', b'{"models": [{}]}', b"\xff"])
def test_an_output_that_names_no_model_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(output)


def test_a_catalogue_has_a_limit() -> None:
    assert len(read(catalogue(*(f"m{number}" for number in range(MODELS_MAX + 1))))) == MODELS_MAX


@pytest.mark.requirement("codex.models")
async def test_a_list_is_kept_for_a_while_and_asked_for_again_after_it() -> None:
    asked = Asked()
    task = await asked.ask()
    asked.answers[0].set_result(catalogue("one"))
    assert [model.model for model in (await task).models] == ["one"]
    asked.now_ms += KEPT_MS - 1
    assert (await asked.models.get(refresh=False)).source == "live"
    assert len(asked.answers) == 1
    asked.now_ms += 1
    task = await asked.get(refresh=False)
    asked.answers[1].set_result(catalogue("two"))
    assert [model.model for model in (await task).models] == ["two"]


@pytest.mark.requirement("codex.models")
async def test_a_refresh_that_fails_keeps_the_list_and_says_why() -> None:
    asked = Asked()
    task = await asked.ask()
    asked.answers[0].set_result(catalogue("one"))
    await task
    task = await asked.ask()
    asked.answers[1].set_exception(TimeoutError())
    found = await task
    assert ([model.model for model in found.models], found.source) == (["one"], "live")
    assert "TimeoutError" in found.problem
    task = await asked.ask()
    asked.answers[2].set_result(catalogue("two"))
    assert (await task).problem == ""


@pytest.mark.requirement("codex.models")
async def test_without_any_list_a_failure_is_not_repeated_at_once() -> None:
    asked = Asked()
    task = await asked.ask()
    asked.answers[0].set_exception(OSError("no codex"))
    assert (await task).source == "unavailable"
    asked.now_ms += FAILED_KEPT_MS - 1
    assert "no codex" in (await asked.models.get(refresh=False)).problem
    assert len(asked.answers) == 1


@pytest.mark.requirement("codex.models")
@pytest.mark.parametrize(
    ("outcomes", "kept"),
    [
        (("older", "newer"), "newer"),
        (("older", OSError("broken")), "older"),
        ((OSError("broken"), "newer"), "newer"),
    ],
)
async def test_an_answer_to_an_older_question_never_replaces_that_to_a_newer_one(
    outcomes: tuple[str | Exception, ...], kept: str
) -> None:
    asked = Asked()
    tasks = [await asked.ask(), await asked.ask()]
    settle: Callable[[int], None] = lambda number: (  # noqa: E731
        asked.answers[number].set_exception(outcome)
        if isinstance(outcome := outcomes[number], Exception)
        else asked.answers[number].set_result(catalogue(outcome))
    )
    for number in (1, 0):  # the newer one is answered first
        settle(number)
        await tasks[number]
    assert [model.model for model in (await asked.models.get(refresh=False)).models] == [kept]
