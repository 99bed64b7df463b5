"""A GGUF file as the folder of transformers that it could have been made from."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping

import numpy as np

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError, CorruptFileError
from keras_transformer.checkpoints.files.folder import Folder, TensorInfo
from keras_transformer.checkpoints.files.lazy_tensors import LazyTensor, as_lazy
from keras_transformer.checkpoints.gguf.architecture import Place
from keras_transformer.checkpoints.gguf.architectures import find_architecture
from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.checkpoints.gguf.layouts import Same
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.checkpoints.gguf.pooling import MODULES, pooling_files
from keras_transformer.checkpoints.gguf.tokenizer.tokenizer_files import token_settings, tokenizer_files
from keras_transformer.utils.types import JsonObject

# A class of transformers whose pooler GGUF files lack.
_WITHOUT_HEAD = "BertModel"
# Types whose names are safetensors' as well; blocks become float32.
_NUMBERS = ("F64", "F32", "F16", "BF16", "I8", "I16", "I32", "I64")


class GgufFolder(Folder):
    """A `Folder` whose tensors are in a GGUF file. Its config and the files of its tokenizer are written into a directory.

    Args:
        container: `Container`.
        directory: an empty directory.

    Raises:
        UnknownArchitectureError, ConfigError, CorruptFileError: the metadata are of an unknown architecture, incomplete or
            inconsistent.
    """

    def __init__(self, container: Container, directory: pathlib.Path) -> None:
        self.path, self.container = directory, container
        self.source = source = str(container.path)
        metadata = Metadata(container.metadata, source)
        if metadata.integer("split.count", 1) > 1:
            raise ConfigError(f"{source} is one of several files: merge them (llama-gguf-split --merge) first.")
        architecture = find_architecture(metadata.architecture, source)
        shapes = {name: tensor.shape for name, tensor in container.tensors.items()}
        extra = {name: container.read(name) for name in architecture.extra if name in shapes}
        values = architecture.config(metadata, shapes, extra) | token_settings(metadata)
        config = Config(values, source)
        self._stored = _stored({name: architecture.place(name, config) for name in shapes if name not in extra}, source)
        self.tensors = {name: self._info(name) for name in self._stored}
        self.config = Config(values, source, self.tensors)
        for name, content in {
            **tokenizer_files(metadata),
            **pooling_files(metadata),
            "config.json": _json(values),
        }.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(content)

    @property
    def default_task(self) -> str | None:
        """The task where a caller names none: the backbone alone, if the file has no head and no pooling."""
        has_head = self.config.get("architectures") != [_WITHOUT_HEAD] or (self.path / MODULES).is_file()
        return None if has_head else "backbone"

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor in the layout of transformers; float32 where the file has blocks."""
        stored, layout = self._stored[name]
        return layout.read(self.container.read(stored))

    def lazy(self, name: str) -> LazyTensor:
        """Returns a tensor as a lazy one, but reads all of it: blocks are decoded together."""
        return as_lazy(self.read(name))

    def _info(self, name: str) -> TensorInfo:
        stored, layout = self._stored[name]
        tensor = self.container.tensors[stored]
        dtype = tensor.kind if tensor.kind in _NUMBERS else "F32"
        return TensorInfo(self.container.path, layout.shape(tensor.shape), dtype, name)


def _stored(places: Mapping[str, Place], source: str) -> dict[str, tuple[str, Same]]:
    """The name in the file and the layout of each tensor, by its name in transformers."""
    found: dict[str, tuple[str, Same]] = {}
    for stored, place in places.items():
        if place.name in found:
            raise CorruptFileError(f"{source} has {place.name!r} twice, as {stored!r} too.")
        found[place.name] = stored, place.layout
    return found


def _json(values: JsonObject) -> bytes:
    return (json.dumps(values, indent=2) + "\n").encode()
