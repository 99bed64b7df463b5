"""The Ray Serve application of a bundle."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from keras_transformer.export.bundle.manifest import read_manifest, signature_specs
from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.errors import ExportError, MissingLibraryError
from keras_transformer.export.formats import DEFAULT_BACKEND
from keras_transformer.export.serving.batching import Batching
from keras_transformer.export.serving.gateway import Gateway, ReplicaDiedError
from keras_transformer.export.serving.replicas import ArrayReplica, TextReplica, served_signatures
from keras_transformer.export.serving.requests import Limits, Reader, RequestError
from keras_transformer.utils.types import Path

try:
    # An extra, which may not be installed.
    import ray.exceptions  # pyright: ignore[reportMissingImports]
    from ray import serve  # pyright: ignore[reportMissingImports]
    from ray.serve.exceptions import (  # pyright: ignore[reportMissingImports]
        BackPressureError,
        DeploymentUnavailableError,
    )
except ModuleNotFoundError as error:
    raise MissingLibraryError("ray_application", "ray", extra="serve") from error

_DEAD = (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError, ray.exceptions.OwnerDiedError)
_OURS = (BackPressureError, DeploymentUnavailableError, *_DEAD)  # Errors of Ray that a retry can fix.
_MANY = 10_000


def ray_application(
    bundle: Path,
    *,
    name: str | None = None,
    backend: str = DEFAULT_BACKEND,
    num_replicas: int = 1,
    num_threads: int = 1,
    batching: Batching | None = None,
    limits: Limits | None = None,
    num_gateways: int = 1,
    cpus_per_replica: float | None = None,
    engine_options: dict[str, Any] | None = None,
) -> serve.Application:
    """Returns the Ray Serve application of a bundle: an HTTP gateway and replicas of the model.

    A model of arrays serves `POST /v1/models/NAME:predict` like TensorFlow Serving; concurrent requests are batched.
    A language model serves `POST /v1/completions` like OpenAI, whole or as a stream, with continuous batching in each
    replica. Both serve `/v1/models`, `/health`, and `/metrics` for Prometheus.

    Errors are JSON with a reason: 400 for an invalid request, 404 for another model, 413 for a request that is too large,
    422 for values that the model cannot compute, 429 (with Retry-After) when all slots are taken, 504 for a timeout.
    When a replica dies, its requests are retried on another, and streams continue; the gateway loads no model. A replica
    whose outputs differ from the bundle's probes is replaced.

    Args:
        bundle: path of the bundle; every node of the cluster must have it there.
        name: str: name of the model for clients. None for the name of the bundle's folder.
        backend: "onnx" (default), "tflite" or "saved_model".
        num_replicas: int >= 1. Each loads the model. Default 1.
        num_threads: int >= 1: threads of a call. Default 1.
        batching: `Batching`: how requests are batched; `max_waiting` is for all replicas, each of which accepts twice
            `max_batch_size` requests in addition. None for its defaults.
        limits: `Limits` of a request, or None for its defaults.
        num_gateways: int >= 1: number of HTTP processes. Default 1.
        cpus_per_replica: float >= 0: CPUs that Ray reserves for a replica. None for `num_threads`.
        engine_options: dict of options of `generation.Engine`, for a language model.

    Returns:
        `ray.serve.Application`, for `ray.serve.run`.

    Raises:
        InvalidBundleError: the bundle does not exist, or lacks the backend.
        ExportError: a value is out of range.

    Example:

    ```python
    from ray import serve

    serve.run(ray_application("bundle", num_replicas=2))
    ```

    Request: `curl localhost:8000/v1/models/bundle:predict -d '{"inputs": {"x": [[1, 2, 3, 4]]}}'`
    """
    bundle = pathlib.Path(bundle).resolve()
    manifest = read_manifest(bundle)
    if not served_signatures(manifest, backend):
        raise ExportError(f"the bundle has no {backend} artifact; it has {', '.join(manifest['artifacts'])}")
    for figure, value in (("num_replicas", num_replicas), ("num_threads", num_threads), ("num_gateways", num_gateways)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ExportError(f"{figure} must be a positive integer. Received: {value!r}")
    batching, limits, name = batching or Batching(), limits or Limits(), name or bundle.name
    options = {
        "num_replicas": num_replicas,
        "max_queued_requests": batching.max_waiting,
        "ray_actor_options": {"num_cpus": num_threads if cpus_per_replica is None else cpus_per_replica},
        "health_check_period_s": 5,
    }
    own = (str(bundle), backend, num_threads)
    if manifest.get("generation") is None:
        options["max_ongoing_requests"] = 2 * batching.max_batch_size
        replicas = _configured(ArrayDeployment, **options).bind(own, batching)
    else:
        engine = {
            "max_batch_size": batching.max_batch_size,
            "max_waiting": batching.max_waiting,
            **(engine_options or {}),
        }
        options["max_ongoing_requests"] = engine["max_batch_size"] + engine["max_waiting"]
        replicas = _configured(TextDeployment, **options).bind(own, name, engine)
    gateways = _configured(GatewayDeployment, num_replicas=num_gateways)
    return gateways.bind(replicas, str(bundle), backend, name, limits)


def _configured(deployment: Any, **options: Any) -> Any:
    """A deployment, as its decorator has made it, with options."""
    return deployment.options(**options)


@serve.deployment
class ArrayDeployment:
    """A replica of a model of arrays."""

    def __init__(self, own: tuple[str, str, int], batching: Batching) -> None:
        bundle, backend, num_threads = own
        self._replica = ArrayReplica(bundle, backend, batching.max_batch_size, num_threads)
        predict: Any = self.predict
        predict.set_max_batch_size(batching.max_batch_size)
        predict.set_batch_wait_timeout_s(batching.wait_ms / 1000)

    @serve.batch
    async def predict(self, requests: Any) -> Any:
        """The results of pairs of signature and arrays: pairs of the outputs, or an error, and the batch size."""
        results, sizes = await asyncio.to_thread(self._replica.run, requests)
        return [(result, max(sizes)) for result in results]

    async def ready(self) -> bool:
        """Returns True when the replica runs."""
        return True

    def check_health(self) -> None:
        """Raises if the model does not compute its probes: Ray then replaces the replica."""
        self._replica.check_health()


@serve.deployment
class TextDeployment:
    """A replica of a language model."""

    def __init__(self, own: tuple[str, str, int], name: str, engine_options: dict[str, Any]) -> None:
        bundle, backend, num_threads = own
        self._replica = TextReplica(bundle, name, backend, num_threads, **engine_options)

    async def complete(self, body: bytes) -> AsyncIterator[Any]:
        """The ASGI messages of the response to a body."""
        async for message in self._replica.complete(body):
            yield message

    async def ready(self) -> bool:
        """Returns True when the replica runs."""
        return True

    def check_health(self) -> None:
        """Raises if the engine is closed."""
        self._replica.check_health()


class _Forward:
    """The application of the gateway that runs in this process; it has nothing to do at the start and the end."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        await serve.get_replica_context().servable_object.gateway.application(scope, receive, send)


@serve.deployment(max_ongoing_requests=_MANY, ray_actor_options={"num_cpus": 0})
@serve.ingress(_Forward())
class GatewayDeployment:
    """The HTTP gateway of a bundle."""

    def __init__(self, replicas: Any, bundle: Path, backend: str, name: str, limits: Limits) -> None:
        manifest = read_manifest(bundle)
        reader = None
        if manifest.get("generation") is None:
            names = served_signatures(manifest, backend)
            inputs = {each: signature_specs(manifest, each)[0] for each in names}
            tokenizer_options = manifest.get("tokenizer", {}).get("options", {})
            reader = Reader(inputs, limits, read_tokenizer(pathlib.Path(bundle), manifest), tokenizer_options)
        self.gateway = Gateway(name, _Replicas(replicas), reader, limits, _described(name, manifest))


class _Replicas:
    """Replicas behind a handle of Ray; its errors in the gateway's terms."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._streaming = handle.options(stream=True)

    async def predict(self, signature: str, arrays: dict[str, Any]) -> tuple[dict[str, Any], int]:
        try:
            result, examples = await self._handle.predict.remote((signature, arrays))
        except _OURS as error:
            raise _translated(error) from error
        if isinstance(result, RequestError):
            raise result
        return result, examples

    async def complete(self, body: bytes) -> AsyncGenerator[Any, None]:
        response = self._streaming.complete.remote(body)
        try:
            async for message in response:
                yield message
        except (GeneratorExit, asyncio.CancelledError):
            response.cancel()
            raise
        except _OURS as error:
            raise _translated(error) from error

    async def is_healthy(self) -> None:
        with contextlib.suppress(BackPressureError):  # A busy replica is healthy.
            await self._handle.ready.remote()


def _translated(error: Exception) -> Exception:
    is_full = isinstance(error, BackPressureError)
    return RequestError(429, "all slots are taken: try again later") if is_full else ReplicaDiedError()


def _described(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    keys = ("inputs", "outputs")
    signatures = {each: {key: record[key] for key in keys} for each, record in manifest["signatures"].items()}
    return {"id": name, "object": "model", "signatures": signatures, "metadata": manifest.get("metadata", {})}
