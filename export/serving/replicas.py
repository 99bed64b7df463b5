"""What a replica does, with no server around it: a model that computes requests together, or an engine that writes text."""

import asyncio
import re

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.errors import ExportError, RunError
from keras_transformer.export.formats import DEFAULT_BACKEND
from keras_transformer.export.runtime.loading import load
from keras_transformer.export.serving.batch_execution import run_batched
from keras_transformer.export.serving.requests import RequestError
from keras_transformer.export.verification.verify import difference_and_scale

_UNHEALTHY = "the model does not compute what it computed when it was exported"


class ArrayReplica:
    """The signatures of a bundle, each computed for several requests at once.

    Args:
        bundle: path of the bundle.
        backend: "onnx", "tflite" or "saved_model".
        max_batch_size: int >= 1: the most examples of a call.
        num_threads: int >= 1: of one call.
    """

    def __init__(self, bundle, backend=DEFAULT_BACKEND, max_batch_size=32, num_threads=1):
        manifest = read_manifest(bundle)
        record = manifest["artifacts"].get(backend, {"signatures": {}})
        names = served_signatures(manifest, backend)
        self.models = {name: load(bundle, backend, name, num_threads, check=not at) for at, name in enumerate(names)}
        self._max_batch_size = max_batch_size
        self._tolerance = record.get("tolerance", manifest["tolerance"])
        probes = read_probes(bundle)
        self._probes = {name: probes[name][0] for name in self.models if probes.get(name)}
        self.check_health()

    def run(self, asks):
        """Answers several requests.

        Args:
            asks: list of pairs of the signature's name and checked arrays.

        Returns:
            List of dicts of arrays or `RequestError`s; and the sizes of the calls.
        """
        answers, sizes = [None] * len(asks), []
        for name, model in self.models.items():
            places = [place for place, (signature, _) in enumerate(asks) if signature == name]
            found, calls = run_batched(model, [asks[place][1] for place in places], self._max_batch_size)
            sizes += calls
            for place, answer in zip(places, found, strict=True):
                answers[place] = self._blamed(answer) if isinstance(answer, RunError) else answer
        return answers, sizes

    def check_health(self):
        """Computes a probe of each signature.

        Raises:
            ExportError: the model does not compute what it computed when it was exported.
        """
        for name, probe in self._probes.items():
            found = self.models[name](probe.inputs)
            for output, expected in probe.outputs.items():
                difference, scale = difference_and_scale(found[output], expected)
                if expected.dtype.kind == "f" and not difference <= self._tolerance * scale:
                    raise ExportError(f"{_UNHEALTHY}: '{output}' of signature '{name}' differs by {difference:.3g}")

    def _blamed(self, error):
        """Whose fault it is that a request cannot be computed: its values', or the replica's."""
        try:
            self.check_health()
        except ExportError:
            return RequestError(500, _UNHEALTHY)
        return RequestError(422, f"these values cannot be computed: {str(error.reason).splitlines()[0][:200]}")


class TextReplica:
    """A language model of a bundle in an engine, behind `generation.http`.

    Args:
        bundle: path of the bundle.
        name: str: what clients call the model.
        backend: "onnx", "tflite" or "saved_model".
        num_threads: int >= 1.
        options: of `generation.Engine`.
    """

    def __init__(self, bundle, name, backend=DEFAULT_BACKEND, num_threads=1, **options):
        from keras_transformer.generation import Engine
        from keras_transformer.generation.engine.http import application

        self.engine = Engine(load(bundle, backend, num_threads=num_threads), **options).warm_up()
        self._application = application(self.engine, name)

    async def complete(self, body):
        """Answers one request for text.

        Args:
            body: bytes of JSON.

        Yields:
            The messages of ASGI that answer it. To close the generator is to go away: its text ends.
        """
        messages, gone = asyncio.Queue(maxsize=64), asyncio.Event()
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        task = asyncio.create_task(self._application(_SCOPE, receive, messages.put))
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

    def check_health(self):
        """Raises `ExportError` where the engine has ended."""
        if not self.engine.is_open:
            raise ExportError("the engine is closed")


_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/completions",
    "raw_path": b"/v1/completions",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json")],
    "client": None,
    "server": None,
}


def served_signatures(manifest, backend):
    """Names of the signatures of a bundle that requests may name, the default one first.

    Those of fixed shapes, of TFLite, are found by the runtime itself; a language model's steps are not for clients.
    """
    names = manifest["artifacts"].get(backend, {"signatures": {}})["signatures"]
    fixed = {name for name in names for other in names if re.fullmatch(rf"{re.escape(other)}(_\d+)+", name)}
    return [name for name in names if name not in fixed]
