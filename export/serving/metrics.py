"""Prometheus metrics of a gateway."""

from typing import Any

from keras_transformer.export.errors import MissingLibraryError

try:
    import prometheus_client
except ModuleNotFoundError as error:
    raise MissingLibraryError("a gateway", "prometheus-client", extra="serve") from error

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one gateway.

    Args:
        model: str: value of the label `model`.
    """

    def __init__(self, model: str) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._model = model
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

    def _of(self, kind: Any, name: str, description: str, *labels: str, **options: Any) -> Any:
        return kind(f"keras_transformer_{name}", description, ["model", *labels], registry=self._registry, **options)

    def began(self) -> None:
        """Counts a received request."""
        self._waiting.labels(self._model).inc()

    def ended(self, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._waiting.labels(self._model).dec()
        self._requests.labels(self._model, str(status)).inc()
        self._seconds.labels(self._model).observe(seconds)

    def retried(self) -> None:
        """Counts a request that was sent to another replica after its replica died."""
        self._retries.labels(self._model).inc()

    def computed(self, examples: int) -> None:
        """Counts a batch of `examples` examples."""
        self._batches.labels(self._model).observe(examples)

    def text(self) -> tuple[bytes, str]:
        """Returns all metrics as bytes, and their content type."""
        return prometheus_client.generate_latest(self._registry), prometheus_client.CONTENT_TYPE_LATEST
