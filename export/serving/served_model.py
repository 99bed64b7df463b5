"""A model behind the HTTP application, wherever it is computed."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Protocol

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.errors import ExportError
from keras_transformer.export.serving.replicas import served_signatures
from keras_transformer.export.serving.requests import Limits, Reader
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.data.array_spec import ArraySpec
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.utils.types import Path

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class ReplicaDiedError(Exception):
    """A replica ended before its response; the request can be sent to another."""


# What `Replicas.is_healthy` raises, or a limit of its time.
UNHEALTHY = (ExportError, ReplicaDiedError, TimeoutError)


class Replicas(Protocol):
    """What computes a model: threads of this process, or processes of a cluster.

    The methods raise `RequestError` and `ReplicaDiedError`.
    """

    async def predict(self, signature: str, arrays: dict[str, np.ndarray], /) -> tuple[dict[str, np.ndarray], int]:
        """Returns the outputs, and the number of examples of the batch."""
        ...

    def complete(self, body: bytes, path: str, /) -> AsyncGenerator[JsonObject, None]:
        """Yields the ASGI messages of a response to a path of OpenAI's API."""
        ...

    async def is_healthy(self) -> JsonObject | None:
        """Raises one of `UNHEALTHY` if no replica can respond; returns figures, or None."""


@dataclasses.dataclass
class ServedModel:
    """A model that clients may ask.

    Args:
        name: str: its name for clients.
        replicas: `Replicas`.
        reader: `Reader` of a model of arrays; None for a language model.
        described: dict: the description of the model for `/v1/models/NAME`.
        outputs: dict of signature to its outputs, tuples of `ArraySpec`.
        platform: str: what computes it.
    """

    name: str
    replicas: Replicas
    reader: Reader | None
    described: JsonObject = dataclasses.field(default_factory=dict)
    outputs: dict[str, tuple[ArraySpec, ...]] = dataclasses.field(default_factory=dict)
    platform: str = ""


def served_bundle(bundle: Path, name: str | None, backend: str, replicas: Replicas, limits: Limits) -> ServedModel:
    """Returns the `ServedModel` of a bundle, which loads no model.

    Args:
        bundle: path of the bundle.
        name: str, or None for the name of its folder.
        backend: a key of `FORMATS`, such as "onnx".
        replicas: `Replicas`.
        limits: `Limits`.
    """
    path, manifest = pathlib.Path(bundle), read_manifest(bundle)
    name = name or path.resolve().name
    reader, outputs = None, {}
    if manifest.generation is None:
        specs = {each: manifest.signature(each) for each in checked_signatures(manifest, backend)}
        outputs = {each: found for each, (_, found) in specs.items()}
        options = {} if manifest.tokenizer is None else manifest.tokenizer.options
        inputs = {each: found for each, (found, _) in specs.items()}
        reader = Reader(inputs, limits, read_tokenizer(path, manifest), options)
    platform = f"keras_transformer_{backend}"
    return ServedModel(name, replicas, reader, _described(name, manifest), outputs, platform)


def checked_signatures(manifest: Manifest, backend: str) -> list[str]:
    """`served_signatures`; `InvalidBundleError` if the bundle has none for the backend."""
    manifest.artifact(backend)
    return served_signatures(manifest, backend)


def _described(name: str, manifest: Manifest) -> JsonObject:
    signatures = {each: record.to_dict() for each, record in manifest.signatures.items()}
    return {"id": name, "object": "model", "signatures": signatures, "metadata": manifest.metadata}
