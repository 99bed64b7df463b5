"""What a gateway counts, in the form that Prometheus reads."""

from keras_transformer.export.errors import MissingLibraryError

try:
    import prometheus_client
except ModuleNotFoundError as error:
    raise MissingLibraryError("a gateway", "prometheus-client", extra="serve") from error

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one gateway.

    Args:
        model: str: the label `model` of every figure.
    """

    def __init__(self, model):
        self._registry = prometheus_client.CollectorRegistry()
        self._model = model
        self._requests = self._of(prometheus_client.Counter, "requests", "Requests answered, by HTTP status.", "status")
        self._retries = self._of(prometheus_client.Counter, "retries", "Requests sent again as their replica died.")
        self._seconds = self._of(
            prometheus_client.Histogram,
            "request_seconds",
            "From a request's last byte to its answer.",
            buckets=_SECONDS,
        )
        self._batches = self._of(
            prometheus_client.Histogram, "batch_examples", "Examples computed with a request's own.", buckets=_SIZES
        )
        self._waiting = self._of(prometheus_client.Gauge, "requests_in_progress", "Requests not answered yet.")

    def _of(self, kind, name, words, *labels, **options):
        return kind(f"keras_transformer_{name}", words, ["model", *labels], registry=self._registry, **options)

    def began(self):
        """A request came."""
        self._waiting.labels(self._model).inc()

    def ended(self, status, seconds):
        """It was answered."""
        self._waiting.labels(self._model).dec()
        self._requests.labels(self._model, str(status)).inc()
        self._seconds.labels(self._model).observe(seconds)

    def retried(self):
        """A replica died with a request, which went to another."""
        self._retries.labels(self._model).inc()

    def computed(self, examples):
        """So many examples were computed at once."""
        self._batches.labels(self._model).observe(examples)

    def text(self):
        """All figures; bytes, and their content type."""
        return prometheus_client.generate_latest(self._registry), prometheus_client.CONTENT_TYPE_LATEST
