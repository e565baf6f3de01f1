"""What writers and records tell Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fencepost_kit import metrics
from fencepost_kit.groupcommit import GroupCommit
from fencepost_kit.metrics import StepMetrics, WriterMetrics, gauge, store_info
from fencepost_kit.refusal import Malformed

pytestmark = [pytest.mark.requirement("kit.every-metric-is-documented-and-tells-no-content")]
SERVICE = {"service": "testing"}


class Writer:
    """A writer without a database."""

    def begin(self, *, whole: bool = False) -> object:
        return object()

    def commit_failed_cleanly(self, error: Exception) -> bool:
        return True

    def in_transaction(self) -> bool:
        return True

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class Operation:
    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def apply(self, _tx: object) -> str:
        if self._error is not None:
            raise self._error
        return "done"


async def test_a_writer_tells_its_counters_its_queue_and_the_time_of_every_commit() -> None:
    def told(_values: Sequence[Any]) -> None: ...

    writer: GroupCommit[Any] = GroupCommit(
        name="metered",
        open_writer=Writer,
        on_commit=told,
        on_fatal=lambda _: None,  # type: ignore[arg-type,return-value]
    )
    registry = CollectorRegistry()
    WriterMetrics(service="testing", registry=registry, writer=writer)
    await writer.start()
    first, *rest = [
        asyncio.ensure_future(writer.submit(Operation(error))) for error in (None, Malformed("no"), ValueError())
    ]
    await asyncio.sleep(0)
    assert registry.get_sample_value("fencepost_writer_queue_operations", SERVICE) in {0.0, 3.0}
    await asyncio.gather(first, *rest, return_exceptions=True)
    await writer.close()
    values = {
        name: registry.get_sample_value(f"fencepost_writer_{name}", SERVICE)
        for name in (
            "operations_total",
            "refused_total",
            "not_committed_total",
            "rerun_batches_total",
            "skipped_total",
            "queue_operations",
        )
    }
    assert values == {
        "operations_total": 3.0,
        "refused_total": 1.0,
        "not_committed_total": 1.0,
        "rerun_batches_total": 0.0,
        "skipped_total": 0.0,
        "queue_operations": 0.0,
    }
    batches = registry.get_sample_value("fencepost_writer_batches_total", SERVICE)
    assert batches
    assert registry.get_sample_value("fencepost_writer_commit_seconds_count", SERVICE) == batches


def steps() -> tuple[StepMetrics, Any]:
    registry = CollectorRegistry()
    made = StepMetrics(registry=registry)

    def read(step: str) -> SimpleNamespace:
        return SimpleNamespace(
            count=registry.get_sample_value("fencepost_record_step_seconds_count", {"step": step}),
            sum=registry.get_sample_value("fencepost_record_step_seconds_sum", {"step": step}),
        )

    return made, read


def test_each_step_of_a_request_is_told_in_seconds() -> None:
    made, read = steps()
    made.exposed(b"r", admitted_at_ms=1_000, at_ms=1_500)
    made.replied(b"r", admitted_at_ms=1_000, at_ms=4_000)
    assert (read("admitted_to_exposed").sum, read("exposed_to_replied").sum, read("admitted_to_replied").sum) == (
        0.5,
        2.5,
        3.0,
    )


def test_a_reply_to_what_this_process_did_not_see_exposed_tells_only_what_is_known() -> None:
    made, read = steps()
    made.replied(b"r", admitted_at_ms=1_000, at_ms=4_000)
    assert (read("exposed_to_replied").count, read("admitted_to_replied").count) == (0.0, 1.0)


def test_a_clock_that_went_back_makes_no_time_negative() -> None:
    made, read = steps()
    made.exposed(b"r", admitted_at_ms=2_000, at_ms=1_000)
    assert (read("admitted_to_exposed").count, read("admitted_to_exposed").sum) == (1.0, 0.0)


@pytest.mark.parametrize(("records", "known"), [(3, 1.0), (4, 0.0)])
def test_what_was_exposed_is_remembered_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, records: int, known: float
) -> None:
    monkeypatch.setattr(metrics, "EXPOSED_REMEMBERED_MAX", 3)
    made, read = steps()
    for number in range(records):
        made.exposed(bytes([number]), admitted_at_ms=0, at_ms=1)
    made.replied(bytes([0]), admitted_at_ms=0, at_ms=2)
    assert read("exposed_to_replied").count == known


def test_a_gauge_is_read_when_it_is_asked_and_a_store_is_told_by_its_epoch() -> None:
    registry = CollectorRegistry()
    now = [1]
    gauge(registry, "fencepost_things", "Things.", service="testing", read=lambda: now[0])
    now[0] = 2
    assert registry.get_sample_value("fencepost_things", SERVICE) == 2.0
    store_info(registry, service="testing", epoch="e", schema=3)
    assert registry.get_sample_value("fencepost_store_info", {**SERVICE, "epoch": "e", "schema": "3"}) == 1.0
