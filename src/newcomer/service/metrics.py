"""Figures of a running service, as Prometheus reads them; of all workers together.

Workers share their figures in the folder that ``PROMETHEUS_MULTIPROC_DIR`` names. It has to be set before this module
is loaded.
"""

import os
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

SHARED = "PROMETHEUS_MULTIPROC_DIR"
MEDIA = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TENTHS = tuple(tenth / 10 for tenth in range(1, 11))


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self.seconds = Histogram(
            "newcomer_request_seconds", "How long requests took.", labels, buckets=SECONDS, registry=registry
        )
        self.in_flight = Gauge(
            "newcomer_requests_in_flight",
            "Requests that are being answered.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.rejected = Counter(
            "newcomer_requests_rejected",
            "Requests that were refused, by kind of problem.",
            ("kind",),
            registry=registry,
        )
        self.questions = Counter("newcomer_questions", "Questions answered.", ("ask",), registry=registry)
        self.probability = Histogram(
            "newcomer_first_answer_probability",
            "The probability of first answers.",
            ("ask",),
            buckets=TENTHS,
            registry=registry,
        )
        self.changes = Counter("newcomer_changes", "Changes of the store.", ("kind",), registry=registry)
        self.reloads = Counter("newcomer_model_reloads", "Models loaded anew.", ("outcome",), registry=registry)

    def text(self, now: Mapping[str, float]) -> bytes:
        """All figures, and what the store holds ``now``."""
        shown = CollectorRegistry() if SHARED in os.environ else self._registry
        if shown is not self._registry:
            MultiProcessCollector(shown)  # type: ignore[no-untyped-call]
        state = _State(now)
        shown.register(state)
        try:
            return generate_latest(shown)
        finally:
            shown.unregister(state)


class _State(Collector):
    """Figures that are as they are at the moment."""

    def __init__(self, now: Mapping[str, float]) -> None:
        self._now = now

    def collect(self) -> Iterator[Metric]:
        for name, value in self._now.items():
            yield GaugeMetricFamily(f"newcomer_{name}", f"{name.replace('_', ' ').capitalize()}.", value)
