"""The Ray Serve application of a bundle."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.errors import ExportError, MissingLibraryError
from keras_transformer.export.formats import chosen_backend
from keras_transformer.export.serving.batching import Batching
from keras_transformer.export.serving.gateway import Gateway
from keras_transformer.export.serving.replicas import ArrayReplica, TextReplica
from keras_transformer.export.serving.requests import Limits, RequestError
from keras_transformer.export.serving.served_model import ReplicaDiedError, checked_signatures, served_bundle
from keras_transformer.utils.http.access import Access
from keras_transformer.utils.types import JsonObject, Path

if TYPE_CHECKING:
    import numpy as np
    from starlette.types import Receive, Scope, Send

try:
    # An extra, which may not be installed.
    import ray.exceptions  # pyright: ignore[reportMissingImports]
    from ray import serve  # pyright: ignore[reportMissingImports]
    from ray.serve.exceptions import (  # pyright: ignore[reportMissingImports]
        BackPressureError,
        DeploymentUnavailableError,
    )
except ModuleNotFoundError as error:
    raise MissingLibraryError("ray_application", "ray", extra="ray") from error

_DEAD = (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError, ray.exceptions.OwnerDiedError)
_OURS = (BackPressureError, DeploymentUnavailableError, *_DEAD)  # Errors of Ray that a retry can fix.
_MANY = 10_000


def ray_application(
    bundle: Path,
    *,
    name: str | None = None,
    backend: str | None = None,
    num_replicas: int = 1,
    num_threads: int = 1,
    batching: Batching | None = None,
    limits: Limits | None = None,
    num_gateways: int = 1,
    cpus_per_replica: float | None = None,
    engine_options: JsonObject | None = None,
    access: Access | None = None,
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
        backend: a key of `FORMATS`; None for the one that `load` takes by default.
        num_replicas: int >= 1. Each loads the model. Default 1.
        num_threads: int >= 1: threads of a call. Default 1.
        batching: `Batching`: how requests are batched; `max_waiting` is for all replicas, each of which accepts twice
            `max_batch_size` requests in addition. None for its defaults.
        limits: `Limits` of a request, or None for its defaults.
        num_gateways: int >= 0: number of HTTP processes, behind Ray's own servers. 0: only the replicas, whose handle
            `ray_gateway` takes. Default 1.
        cpus_per_replica: float >= 0: CPUs that Ray reserves for a replica. None for `num_threads`.
        engine_options: dict of options of `generation.Engine`, for a language model.
        access: `Access`, or None for the key of the environment, if there is one, any host, and no page of a browser.

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
    backend = chosen_backend(manifest, backend)
    checked_signatures(manifest, backend)
    for figure, value in (("num_replicas", num_replicas), ("num_threads", num_threads), ("num_gateways", num_gateways)):
        least = 0 if figure == "num_gateways" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ExportError(f"{figure} must be an integer from {least}. Received: {value!r}")
    access = access or Access.of_address("")  # The environment is that of this process.
    batching, limits, name = batching or Batching(), limits or Limits(), name or bundle.name
    own = (str(bundle), backend, num_threads)
    cpus = num_threads if cpus_per_replica is None else cpus_per_replica
    replicas = _replicas(own, name, num_replicas, cpus, batching, engine_options or {})
    if not num_gateways:
        return replicas
    options = {"num_replicas": num_gateways, "graceful_shutdown_timeout_s": limits.timeout_s}
    return _configured(GatewayDeployment, **options).bind(replicas, str(bundle), backend, name, limits, access)


def _replicas(
    own: tuple[str, str, int], name: str, number: int, cpus: float, batching: Batching, engine_options: JsonObject
) -> serve.Application:
    """The application of the replicas alone."""
    options: dict[str, object] = {
        "num_replicas": number,
        "max_queued_requests": batching.max_waiting,
        "ray_actor_options": {"num_cpus": cpus},
        "health_check_period_s": 5,
    }
    if read_manifest(own[0]).generation is None:
        options["max_ongoing_requests"] = 2 * batching.max_batch_size
        return _configured(ArrayDeployment, **options).bind(own, batching)
    engine = {"max_batch_size": batching.max_batch_size, "max_waiting": batching.max_waiting, **engine_options}
    options["max_ongoing_requests"] = engine["max_batch_size"] + engine["max_waiting"]
    return _configured(TextDeployment, **options).bind(own, name, engine)


def ray_gateway(handle: Any, bundle: Path, name: str | None, backend: str, limits: Limits, access: Access) -> Gateway:
    """Returns the `Gateway` of replicas behind a handle of Ray.

    Args:
        handle: `ray.serve.handle.DeploymentHandle` of the replicas.
        bundle: path of the bundle.
        name: str: name of the model for clients, or None for that of its folder.
        backend: a key of `FORMATS`, such as "onnx".
        limits: `Limits`.
        access: `Access`.
    """
    return Gateway([served_bundle(bundle, name, backend, _Replicas(handle), limits)], limits, access=access)


def _configured(deployment: Any, **options: object) -> Any:
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

    def __init__(self, own: tuple[str, str, int], name: str, engine_options: JsonObject) -> None:
        bundle, backend, num_threads = own
        self._replica = TextReplica(bundle, name, backend, num_threads, **engine_options)

    async def complete(self, body: bytes, path: str) -> AsyncIterator[JsonObject]:
        """The ASGI messages of the response to a body."""
        async for message in self._replica.complete(body, path):
            yield message

    async def ready(self) -> bool:
        """Returns True when the replica runs."""
        return True

    def check_health(self) -> None:
        """Raises if the engine is closed."""
        self._replica.check_health()


class _Forward:
    """The application of the gateway that runs in this process; it has nothing to do at the start and the end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        deployed: Any = serve.get_replica_context().servable_object
        await deployed.gateway.application(scope, receive, send)


@serve.deployment(max_ongoing_requests=_MANY, ray_actor_options={"num_cpus": 0})
@serve.ingress(_Forward())
class GatewayDeployment:
    """The HTTP gateway of a bundle."""

    def __init__(self, replicas: Any, bundle: Path, backend: str, name: str, limits: Limits, access: Access) -> None:
        self.gateway = ray_gateway(replicas, bundle, name, backend, limits, access)


class _Replicas:
    """Replicas behind a handle of Ray; its errors in the gateway's terms."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._streaming = handle.options(stream=True)

    async def predict(self, signature: str, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        try:
            result, examples = await self._handle.predict.remote((signature, arrays))
        except _OURS as error:
            raise _translated(error) from error
        if isinstance(result, RequestError):
            raise result
        return result, examples

    async def complete(self, body: bytes, path: str) -> AsyncGenerator[JsonObject, None]:
        response = self._streaming.complete.remote(body, path)
        try:
            async for message in response:
                yield message
        except (GeneratorExit, asyncio.CancelledError):
            response.cancel()
            raise
        except _OURS as error:
            raise _translated(error) from error

    async def is_healthy(self) -> None:
        try:
            with contextlib.suppress(BackPressureError):  # A busy replica is healthy.
                await self._handle.ready.remote()
        except (ray.exceptions.RayError, DeploymentUnavailableError) as error:
            raise ReplicaDiedError from error


def _translated(error: Exception) -> Exception:
    is_full = isinstance(error, BackPressureError)
    return RequestError(429, "all slots are taken: try again later") if is_full else ReplicaDiedError()
