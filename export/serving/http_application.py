"""Bundles as an ASGI application whose runtimes compute in the same process."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import chosen_backend
from keras_transformer.export.loading.load import available_cores
from keras_transformer.export.serving.batching import Batching
from keras_transformer.export.serving.gateway import Gateway
from keras_transformer.export.serving.local_replicas import LocalReplicas, check_sessions
from keras_transformer.export.serving.replicas import ArrayReplica, EngineReplica, TextReplica
from keras_transformer.export.serving.requests import Limits
from keras_transformer.export.serving.served_model import ServedModel, checked_signatures, served_bundle

if TYPE_CHECKING:
    from keras_transformer.generation import Engine
    from keras_transformer.utils.http.access import Access
    from keras_transformer.utils.http.guard import Guard
    from keras_transformer.utils.types import Path

Bundles: TypeAlias = "Path | Sequence[Path] | Mapping[str, Path]"
# Runtimes that compute one call after another: each thread loads its own. See `TFLiteRuntime`.
_ONE_CALL = ("tflite",)
_GREEDY = Batching(wait_ms=0)


def http_application(
    bundles: Bundles,
    *,
    backend: str | None = None,
    sessions: int | None = None,
    num_threads: int = 1,
    batching: Batching | None = None,
    limits: Limits | None = None,
    access: Access | None = None,
    engine_options: Mapping[str, object] | None = None,
) -> Guard:
    """Returns the ASGI application of bundles that are computed in the threads of this process.

    A model of arrays serves `POST /v2/models/NAME/infer` of the Open Inference Protocol, with tensors as JSON or binary, and
    `POST /v1/models/NAME:predict` like TensorFlow Serving, and `POST /v1/embeddings` like OpenAI where there are a
    tokenizer and an output "embedding" or "pooled". Requests that wait are computed together. A language model serves
    `POST /v1/completions` and `POST /v1/chat/completions` like OpenAI, whole or as a stream, with continuous batching. All
    serve `/v1/models`, `/v2`, `/health`, and `/metrics` for Prometheus.

    Errors are JSON with a reason: 400 for an invalid request, 401 and 403 for one that `access` does not allow, 404 for an
    unknown model, 408 for a body that does not arrive, 413 for one that is too large, 422 for values that the model cannot
    compute, 429 (with Retry-After) when all slots are taken, 503 while the server ends, 504 for a timeout.

    Args:
        bundles: path of a bundle, a list of paths, or a dict of name to path. Without a name a model has that of its folder.
        backend: a key of `FORMATS`; None for the one that `load` takes by default.
        sessions: int >= 1: number of threads for each bundle, or None for one for each `num_threads` cores.
        num_threads: int >= 1: threads of a call. Default 1.
        batching: `Batching`, or None for 32 examples without waiting.
        limits: `Limits` of a request, or None for its defaults.
        access: `Access`, or None for the key of the environment, if there is one, any host, and no page of a browser.
        engine_options: dict of options of `generation.Engine`, for language models.

    Returns:
        `Guard`, for `run_server`, or for any ASGI server.

    Raises:
        InvalidBundleError: a bundle does not exist, or is damaged.
        ExportError: a bundle lacks the backend, or a value is out of range.
        MissingLibraryError: the extra `serve` is not installed.

    Example:

    ```python
    run_server(http_application(["classifier", "tagger"]), port=8000)
    ```
    """
    options: dict[str, Any] = {"sessions": sessions, "num_threads": num_threads, "batching": batching, "limits": limits}
    options |= {"backend": backend, "access": access, "engine_options": engine_options}
    return local_gateway(bundles, **options).application


def local_gateway(
    bundles: Bundles,
    *,
    backend: str | None = None,
    sessions: int | None = None,
    num_threads: int = 1,
    batching: Batching | None = None,
    limits: Limits | None = None,
    access: Access | None = None,
    engine_options: Mapping[str, object] | None = None,
) -> Gateway:
    """The `Gateway` of `http_application`, with the same arguments."""
    named = _named(bundles)
    sessions = max(1, available_cores() // num_threads) if sessions is None else sessions
    check_sessions(sessions)
    batching, limits = batching or _GREEDY, limits or Limits()
    options = {"max_batch_size": batching.max_batch_size, "max_waiting": batching.max_waiting, **(engine_options or {})}

    def opened(bundle: pathlib.Path, name: str) -> ServedModel:
        manifest = read_manifest(bundle)
        own = chosen_backend(manifest, backend)
        checked_signatures(manifest, own)
        if manifest.generation is not None:
            replicas: TextReplica | LocalReplicas = TextReplica(bundle, name, own, sessions * num_threads, **options)
        else:
            count = sessions if own in _ONE_CALL else 1
            loaded = [ArrayReplica(bundle, own, batching.max_batch_size, num_threads) for _ in range(count)]
            replicas = LocalReplicas((loaded * sessions)[:sessions], batching)
        return served_bundle(bundle, name, own, replicas, limits)

    return Gateway([opened(path, name) for name, path in named], limits, 0, access)


def engine_gateway(engine: Engine, name: str, limits: Limits, access: Access) -> Gateway:
    """The `Gateway` of the engine of one language model.

    Args:
        engine: `generation.Engine`.
        name: str: name of the model for clients.
        limits: `Limits`.
        access: `Access`.
    """
    described = {"id": name, "object": "model"}
    model = ServedModel(name, EngineReplica(engine, name), None, described, platform="keras_transformer_engine")
    return Gateway([model], limits, 0, access)


def _named(bundles: Bundles) -> list[tuple[str, pathlib.Path]]:
    """Pairs of name and path."""
    if isinstance(bundles, Mapping):
        return [(name, pathlib.Path(path)) for name, path in bundles.items()]
    paths = [bundles] if isinstance(bundles, (str, os.PathLike)) else bundles
    named = [(pathlib.Path(path).resolve().name, pathlib.Path(path)) for path in paths]
    names = [name for name, _ in named]
    if len({*names}) < len(names):  # Before they are loaded.
        raise ExportError(f"bundles need different names: {', '.join(names)}; name them, as in {{'a': 'path'}}")
    return named
