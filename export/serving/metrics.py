"""Prometheus metrics of an HTTP application."""

from collections.abc import Mapping
from typing import Any

from keras_transformer.export.errors import MissingLibraryError

try:
    import prometheus_client
except ModuleNotFoundError as error:
    raise MissingLibraryError("a gateway", "prometheus-client", extra="serve") from error

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one application, by model."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._requests = self._of(
            prometheus_client.Counter, "requests", "Completed requests, by HTTP status.", "status"
        )
        self._retries = self._of(prometheus_client.Counter, "retries", "Requests retried after the death of a replica.")
        self._seconds = self._of(
            prometheus_client.Histogram,
            "request_seconds",
            "Seconds from the last byte of a request to its response.",
            buckets=_SECONDS,
        )
        self._batches = self._of(
            prometheus_client.Histogram, "batch_examples", "Examples computed with a request's own.", buckets=_SIZES
        )
        self._waiting = self._of(prometheus_client.Gauge, "requests_in_progress", "Requests not answered yet.")
        self._engine = self._of(
            prometheus_client.Gauge, "engine", "Figures of the engine of a language model.", "figure"
        )

    def _of(self, kind: Any, name: str, description: str, *labels: str, **options: object) -> Any:
        return kind(f"keras_transformer_{name}", description, ["model", *labels], registry=self._registry, **options)

    def began(self, model: str) -> None:
        """Counts a received request."""
        self._waiting.labels(model).inc()

    def ended(self, began: str, model: str, status: int, seconds: float) -> None:
        """Counts an answered request.

        Args:
            began: str: the model of `began`, which may not have been known.
            model: str.
            status: int: HTTP status.
            seconds: float.
        """
        self._waiting.labels(began).dec()
        self._requests.labels(model, str(status)).inc()
        self._seconds.labels(model).observe(seconds)

    def retried(self, model: str) -> None:
        """Counts a request that was sent to another replica after its replica died."""
        self._retries.labels(model).inc()

    def computed(self, model: str, examples: int) -> None:
        """Counts a batch of `examples` examples."""
        self._batches.labels(model).observe(examples)

    def text(self, figures: Mapping[str, Mapping[str, object]]) -> tuple[bytes, str]:
        """Returns all metrics as bytes, and their content type.

        Args:
            figures: dict of model to dict of name to number.
        """
        for model, found in figures.items():
            for name, value in found.items():
                if isinstance(value, (int, float)):
                    self._engine.labels(model, name).set(value)
        return prometheus_client.generate_latest(self._registry), prometheus_client.CONTENT_TYPE_LATEST
