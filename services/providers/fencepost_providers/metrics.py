"""What this service tells Prometheus besides what every service does: docs/reference/metrics.md."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from fencepost_kit.metrics import STEP_BUCKETS_S


class Told:
    """The counters of the carrier."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.carried = Counter(
            "fencepost_carried", "Claims, by what came of them.", ("step", "outcome"), registry=registry
        )
        self.turns = Counter(
            "fencepost_bound_turns", "Requests whose turn has ended, by how.", ("outcome",), registry=registry
        )
        self.starts = Counter("fencepost_runtime_starts", "Starts of runtimes.", ("outcome",), registry=registry)
        self.submit_seconds = Histogram(
            "fencepost_submit_seconds",
            "From the first word to a program until its answer.",
            ("step",),
            buckets=STEP_BUCKETS_S,
            registry=registry,
        )
