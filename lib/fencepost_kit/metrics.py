"""Durations of RPCs by method and outcome, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from fencepost_kit.guard import Outcome

BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RpcMetrics:
    """An Observe for guarded(): the histogram fencepost_rpc_seconds with the labels service, method, outcome.

    Labels are names from the contracts, never anything that a caller sent.
    """

    def __init__(self, *, service: str, registry: CollectorRegistry) -> None:
        self._service = service
        self._seconds = Histogram(
            "fencepost_rpc_seconds",
            "Duration of RPCs from admission to answer.",
            ("service", "method", "outcome"),
            buckets=BUCKETS_S,
            registry=registry,
        )

    def __call__(self, method: str) -> Callable[[Outcome, float], None]:
        """Return the observer of one method, its three label sets looked up once."""
        observers = {outcome: self._seconds.labels(self._service, method, outcome.value).observe for outcome in Outcome}

        def observe(outcome: Outcome, seconds: float) -> None:
            observers[outcome](seconds)

        return observe
