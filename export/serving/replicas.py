"""Replicas without a server: a model that runs batches of requests, or an engine that generates text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import ExportError, RunError
from keras_transformer.export.formats import chosen_backend
from keras_transformer.export.loading.load import load
from keras_transformer.export.runtime.cancellation import is_cancelled
from keras_transformer.export.serving.batching import run_batched
from keras_transformer.export.serving.requests import RequestError
from keras_transformer.export.verification.comparison import compare
from keras_transformer.export.verification.verify import kept_limit
from keras_transformer.utils.types import JsonObject, Path

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.runtime.runtime_model import RuntimeModel
    from keras_transformer.generation import Engine

_UNHEALTHY = "the model does not compute what it computed when it was exported"


class ArrayReplica:
    """The signatures of a bundle, with batched execution.

    Args:
        bundle: path of the bundle.
        backend: a key of `FORMATS`; None for the one that `load` takes by default.
        max_batch_size: int >= 1: largest number of examples in a call.
        num_threads: int >= 1: threads of a call.
    """

    def __init__(
        self, bundle: Path, backend: str | None = None, max_batch_size: int = 32, num_threads: int = 1
    ) -> None:
        manifest = read_manifest(bundle)
        backend = chosen_backend(manifest, backend)
        names = served_signatures(manifest, backend)
        self.models: dict[str, RuntimeModel] = {
            name: load(bundle, backend, name, num_threads, check=not at) for at, name in enumerate(names)
        }
        self._max_batch_size = max_batch_size
        self._limit = kept_limit(manifest, backend)
        probes = read_probes(bundle)
        self._probes = {name: probes[name][0] for name in self.models if probes.get(name)}
        self.check_health()

    def run(
        self, requests: Sequence[tuple[str, dict[str, np.ndarray]]]
    ) -> tuple[list[dict[str, np.ndarray] | Exception], list[int]]:
        """Runs several requests.

        Args:
            requests: list of pairs of the signature's name and checked arrays.

        Returns:
            List of dicts of arrays or `RequestError`s; and the sizes of the calls.
        """
        results: list[Any] = [None] * len(requests)
        sizes: list[int] = []
        for name, model in self.models.items():
            indices = [index for index, (signature, _) in enumerate(requests) if signature == name]
            found, calls = run_batched(model, [requests[index][1] for index in indices], self._max_batch_size)
            sizes += calls
            for index, result in zip(indices, found, strict=True):
                results[index] = self._request_error(result) if isinstance(result, RunError) else result
        return results, sizes

    def check_health(self) -> None:
        """Computes a probe of each signature.

        Raises:
            ExportError: the model does not compute what it computed when it was exported.
        """
        for name, probe in self._probes.items():
            found = self.models[name](probe.inputs)
            for output, expected in probe.outputs.items():
                each = compare(found[output], expected, probe.rounding.get(output), self._limit)
                if expected.dtype.kind == "f" and not each.is_accepted:
                    raise ExportError(
                        f"{_UNHEALTHY}: '{output}' of signature '{name}' differs by {each.difference:.3g}"
                    )

    def _request_error(self, error: RunError) -> RequestError:
        """The error of a failed request: 500 if the replica is faulty, otherwise 422 for the values.

        Nobody reads that of a cancelled one, whose failure says nothing of the replica.
        """
        if is_cancelled():
            return RequestError(504, "cancelled")
        try:
            self.check_health()
        except ExportError:
            return RequestError(500, _UNHEALTHY)
        return RequestError(422, f"these values cannot be computed: {str(error.reason).splitlines()[0][:200]}")


class EngineReplica:
    """An engine with the application of `generation.engine.http`.

    Args:
        engine: `generation.Engine`.
        name: str: name of the model for clients.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        from keras_transformer.generation.engine.http import application

        self.engine = engine
        self._application = application(engine, name)

    async def complete(self, body: bytes, path: str = "/v1/completions") -> AsyncGenerator[JsonObject, None]:
        """Runs one request for completions.

        Args:
            body: bytes of JSON.
            path: str: that of completions or of chat completions.

        Yields:
            The ASGI messages of the response. Closing the generator cancels the request.
        """
        messages: asyncio.Queue[Any] = asyncio.Queue(maxsize=64)
        gone = asyncio.Event()
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        scope = {**_SCOPE, "path": path, "raw_path": path.encode()}
        task = asyncio.create_task(self._application(scope, receive, messages.put))
        task.add_done_callback(lambda done: messages.put_nowait(None) if not messages.full() else None)
        try:
            while not (task.done() and messages.empty()):
                message = await messages.get()
                if message is not None:
                    yield message
        finally:
            gone.set()
            if not task.done():
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def is_healthy(self) -> JsonObject:
        """The figures of the engine; raises `ExportError` if it is closed."""
        self.check_health()
        return self.engine.stats()

    def check_health(self) -> None:
        """Raises `ExportError` if the engine is closed."""
        if not self.engine.is_open:
            raise ExportError("the engine is closed")

    async def predict(self, signature: str, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        """Raises `RequestError`: a language model is asked for texts."""
        raise RequestError(400, "this is a language model")


class TextReplica(EngineReplica):
    """A language model of a bundle in an engine.

    Args:
        bundle: path of the bundle.
        name: str: name of the model for clients.
        backend: a key of `FORMATS`; None for the one that `load` takes by default.
        num_threads: int >= 1.
        options: options of `generation.Engine`.
    """

    def __init__(
        self, bundle: Path, name: str, backend: str | None = None, num_threads: int = 1, **options: Any
    ) -> None:
        from keras_transformer.generation import Engine

        super().__init__(Engine(load(bundle, backend, num_threads=num_threads), **options).warm_up(), name)


_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
    "client": None,
    "server": None,
}


def served_signatures(manifest: Manifest, backend: str) -> list[str]:
    """Returns the names of the signatures for requests, the default one first.

    Signatures of fixed shapes of TFLite are omitted: the runtime chooses them.
    """
    names = manifest.files_of(backend)
    bases = "|".join(map(re.escape, [*names, "extend"]))
    fixed = {name for name in names if re.fullmatch(rf"(?:{bases})(_\d+)+", name)}
    return [name for name in names if name not in fixed]
