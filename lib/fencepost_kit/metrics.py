"""What a service tells Prometheus. Names and labels: docs/reference/metrics.md.

Labels are names from the contracts and the identity of a store, never anything that a caller sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from fencepost_kit.groupcommit import GroupCommit
from fencepost_kit.guard import Outcome

BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# From a record's one fact to another: an agent that is waiting takes milliseconds, one that is busy hours.
STEP_BUCKETS_S: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
EXPOSED_REMEMBERED_MAX: Final = 65_536

# One line a series saved: when a series was made says nothing that the start of the process does not.
disable_created_metrics()  # type: ignore[no-untyped-call]


def new_registry() -> CollectorRegistry:
    """Return a registry that holds what the system knows of this process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


def gauge(registry: CollectorRegistry, name: str, about: str, *, service: str, read: Callable[[], float]) -> None:
    """Tell a number that is read whenever somebody asks, on another thread."""
    Gauge(name, about, ("service",), registry=registry).labels(service).set_function(read)


def store_info(registry: CollectorRegistry, *, service: str, epoch: str, schema: int) -> None:
    """Tell which store this is: fencepost_store_info, always 1. A restored store has another epoch."""
    found = Gauge("fencepost_store_info", "The open store.", ("service", "epoch", "schema"), registry=registry)
    found.labels(service, epoch, str(schema)).set(1)


class Tally:
    """How many durations fell into each of BUCKETS_S, and their sum.

    Added to by one thread and read by another, without the lock that the library takes twice a call: what is read may
    lack the newest call in the sum and have it in the count.
    """

    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration; a bucket holds what is as long as its bound."""
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1
        self._sum += seconds

    def told(self) -> tuple[list[tuple[str, float]], float]:
        """Return the counts up to each bound, and the sum."""
        bounds = [*map(floatToGoString, BUCKETS_S), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True)), self._sum


class RpcMetrics(Collector):
    """An Observe for guarded(): the histogram fencepost_rpc_seconds with the labels service, method, outcome."""

    def __init__(self, *, service: str, registry: CollectorRegistry) -> None:
        self._service = service
        self._tallies: dict[tuple[str, str], Tally] = {}
        registry.register(self)

    def __call__(self, method: str) -> Mapping[Outcome, Callable[[float], None]]:
        """Return the observers of one method. Its three series stand from now on."""
        tallies = {outcome: Tally() for outcome in Outcome}
        self._tallies |= {(method, outcome.value): tally for outcome, tally in tallies.items()}
        return {outcome: tally.add for outcome, tally in tallies.items()}

    def collect(self) -> Iterator[Metric]:
        """Read the tallies as they stand."""
        found = HistogramMetricFamily(
            "fencepost_rpc_seconds",
            "Duration of RPCs from admission to answer.",
            labels=("service", "method", "outcome"),
        )
        for (method, outcome), tally in self._tallies.items():
            found.add_metric((self._service, method, outcome), *tally.told())
        yield found


class WriterMetrics(Collector):
    """The counters of a writer, its queue, and the histogram fencepost_writer_commit_seconds."""

    _COUNTERS: Final = (
        ("batches", "batches", "Batches of which at least one operation was tried."),
        ("operations", "operations", "Operations that were tried."),
        ("refused", "refused", "Operations that a rule refused; nothing of them is written."),
        ("skipped", "skipped", "Operations whose caller had left before they began."),
        ("rerun_batches", "rerun_batches", "Batches that were lost before COMMIT and run again one by one."),
        ("not_committed", "not_committed", "Operations that an error kept from being committed."),
    )

    def __init__(self, *, service: str, registry: CollectorRegistry, writer: GroupCommit[Any]) -> None:
        self._service = service
        self._writer = writer
        self._commits = Tally()
        writer.observe_commit = self._commits.add
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Read the counters as they stand."""
        seconds = HistogramMetricFamily(
            "fencepost_writer_commit_seconds", "Duration of COMMIT, until the batch is durable.", labels=("service",)
        )
        seconds.add_metric((self._service,), *self._commits.told())
        yield seconds
        counters = self._writer.counters
        for name, field, about in self._COUNTERS:
            counter = CounterMetricFamily(f"fencepost_writer_{name}", about, labels=("service",))
            counter.add_metric((self._service,), getattr(counters, field))
            yield counter
        for name, about, value in (
            ("largest_batch_operations", "Operations of the largest batch so far.", counters.largest_batch),
            ("queue_operations", "Operations that wait for the next batch.", self._writer.waiting),
        ):
            now = GaugeMetricFamily(f"fencepost_writer_{name}", about, labels=("service",))
            now.add_metric((self._service,), value)
            yield now


class StepMetrics:
    """The histogram fencepost_record_step_seconds: how long records take from one fact to the next, once durable.

    When a request was exposed is remembered for the EXPOSED_REMEMBERED_MAX newest of this process; where it is not
    known, as after a restart, exposed_to_replied is not told.
    """

    def __init__(self, *, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "fencepost_record_step_seconds",
            "Time of records from one fact to another.",
            ("step",),
            buckets=STEP_BUCKETS_S,
            registry=registry,
        )
        self._admitted_to_exposed = seconds.labels("admitted_to_exposed").observe
        self._exposed_to_replied = seconds.labels("exposed_to_replied").observe
        self._admitted_to_replied = seconds.labels("admitted_to_replied").observe
        self._exposed_at_ms: OrderedDict[bytes, int] = OrderedDict()

    def exposed(self, record_id: bytes, *, admitted_at_ms: int, at_ms: int) -> None:
        """Count a record that was shown for the first time."""
        self._admitted_to_exposed(_seconds(admitted_at_ms, at_ms))
        self._exposed_at_ms[record_id] = at_ms
        if len(self._exposed_at_ms) > EXPOSED_REMEMBERED_MAX:
            self._exposed_at_ms.popitem(last=False)

    def replied(self, record_id: bytes, *, admitted_at_ms: int, at_ms: int) -> None:
        """Count a request that its recipient answered."""
        self._admitted_to_replied(_seconds(admitted_at_ms, at_ms))
        exposed_at_ms = self._exposed_at_ms.pop(record_id, None)
        if exposed_at_ms is not None:
            self._exposed_to_replied(_seconds(exposed_at_ms, at_ms))


def _seconds(from_ms: int, until_ms: int) -> float:
    # The wall clock may have gone back meanwhile.
    return max(0, until_ms - from_ms) / 1000
