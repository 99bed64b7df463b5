"""Saving of Keras models as GGUF files."""

from __future__ import annotations

import math
import pathlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from keras_transformer.checkpoints.checkpoint import Checkpoint, checkpoint_of
from keras_transformer.checkpoints.errors import UnexpectedTensorError
from keras_transformer.checkpoints.gguf.architecture import Place
from keras_transformer.checkpoints.gguf.architectures import written_architecture
from keras_transformer.checkpoints.gguf.kinds import KINDS, Kinds, encoded, is_float32
from keras_transformer.checkpoints.gguf.library import library
from keras_transformer.checkpoints.gguf.pooling import pooling_metadata
from keras_transformer.checkpoints.gguf.sameness import check_same
from keras_transformer.checkpoints.gguf.tokenizer.tokenizer_metadata import tokenizer_metadata
from keras_transformer.checkpoints.tensors_of_model import TensorsOfModel
from keras_transformer.checkpoints.transfers import make_transfers
from keras_transformer.checkpoints.writing import checkpoint_like
from keras_transformer.utils.atomic_write import replacing_file
from keras_transformer.utils.types import JsonObject, Path

if TYPE_CHECKING:
    import gguf


_VERSION = 2


def to_gguf(
    model: keras.Model, file: Path, *, quantize: str | None = None, like: Path | None = None, verbose: int = 1
) -> None:
    """Saves a model as a GGUF file for llama.cpp: settings, tensors, tokenizer and chat template.

    Vectors and tables of positions are float32. The file appears when it is complete. Memory: that of one tensor.

    Args:
        model: `keras.Model` of `from_huggingface` or `from_gguf`, possibly trained further: a language model of Llama,
            Mistral, Qwen 2 or 3, Gemma 1 to 3, GPT-2 or T5, or a BERT, which is written without its pooler.
        file: str or path. A file there is replaced.
        quantize: the type of the matrices. "F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1" or "Q4_0": with 4 and 5
            bits, embedding and head become Q8_0. "Q6_K", "Q5_K" or "Q4_K": embedding and head become Q6_K; rows that are no
            multiple of 256 become Q8_0, Q5_1 and Q5_0. "Q4_K_M" or "Q5_K_M": llama.cpp's mixtures of Q4_K or Q5_K with Q6_K.
            Rows that are no multiple of 32 become F16. Defaults to the types of the checkpoint, F32 where it had blocks.
            Other types need data: `llama-quantize` of llama.cpp makes them from a file of "F32" or "F16".
        like: see `to_huggingface`.
        verbose: int. 1 for a progress bar, 0 for none.

    Raises:
        ValueError: `quantize` is none of these.
        CheckpointError: the checkpoint of the model is unknown or another one.
        UnknownArchitectureError: llama.cpp has no such architecture, or it is not supported here.
        ConfigError: a GGUF file cannot describe the model, such as another activation than the usual one.
        UnexpectedTensorError: it has no place for a tensor, such as that of a classifier.
        InvalidTokenizerError: it has no name for the way in which the tokenizer splits text.
        ImportError: the gguf package is not installed.

    Example:

    >>> to_gguf(from_huggingface("SmolLM2-135M"), "smollm2.gguf", quantize="Q8_0")  # doctest: +SKIP

    Reference: the specification of GGUF, and llama.cpp's conversion of the checkpoints of transformers.
    """
    if quantize is not None and quantize not in KINDS:
        raise ValueError(f"quantize must be None or one of {', '.join(KINDS)}. Received: {quantize!r}")
    checkpoint = checkpoint_of(model) if like is None else checkpoint_like(like)
    content = _Content(model, checkpoint, quantize)
    path = pathlib.Path(file).resolve()
    with replacing_file(path) as partial:
        content.write(partial, verbose)


class _Written(NamedTuple):
    """A tensor of the file: its name in the checkpoint, its layout, its shape and its kind."""

    source: str
    layout: Any
    shape: tuple[int, ...]
    kind: str


class _Content:
    """What is written, checked before anything is.

    Args:
        model: `keras.Model`.
        checkpoint: its `Checkpoint`.
        kind: of the matrices, or None.
    """

    def __init__(self, model: keras.Model, checkpoint: Checkpoint, kind: str | None) -> None:
        self._config, self._kind = checkpoint.config, kind
        self._architecture = written_architecture(self._config)
        known = checkpoint.architecture.base_prefix
        self._prefixes = (known,) if isinstance(known, str) else known
        self._tensors = TensorsOfModel(make_transfers(checkpoint.entries, model), checkpoint)
        self._extra = self._architecture.extra_tensors(self._config)
        placed = {source: self._place(source) for source in self._tensors.names if not self._is_dropped(source)}
        self._kinds = Kinds(kind or "F32", [place.name for place in placed.values()])
        self._written = {place.name: self._tensor(source, place) for source, place in placed.items()}
        self._metadata = self._settings() | pooling_metadata(checkpoint, self._architecture.name)
        self._metadata |= tokenizer_metadata(model, checkpoint)
        shapes = {name: each.shape for name, each in self._written.items()}
        check_same(checkpoint, self._architecture, self._metadata, shapes, self._extra)

    def _settings(self) -> JsonObject:
        general: JsonObject = {"general.architecture": self._architecture.name, "general.type": "model"}
        kinds = [each.kind for each in self._written.values() if len(each.shape) > 1]
        general |= {"general.file_type": self._kinds.file_type(kinds), "general.quantization_version": _VERSION}
        return general | self._architecture.metadata(self._config)

    def _is_dropped(self, source: str) -> bool:
        dropped = self._architecture.dropped
        return dropped is not None and re.search(dropped, self._plain(source)) is not None

    def _place(self, source: str) -> Place:
        """The name in the file of a tensor of the checkpoint, and its layout."""
        place = self._architecture.stored_place(self._plain(source), self._config)
        if place is None:
            raise UnexpectedTensorError(
                f"GGUF files of {self._architecture.name!r} have no place for the tensor {source!r}."
            )
        return place

    def _tensor(self, source: str, place: Place) -> _Written:
        shape = place.layout.shape(self._tensors.shape(source))
        if self._kind is None and not is_float32(place.name, shape):
            stored = self._tensors.dtype(source).name
            kind = {"float16": "F16", "bfloat16": "BF16"}.get(stored, "F32")
        else:
            kind = self._kinds.of(place.name, shape)
        return _Written(source, place.layout, shape, kind)

    def _plain(self, source: str) -> str:
        """The name of a tensor with the prefix that the architecture has in transformers' class of the file."""
        if source.startswith("lm_head."):
            return source
        prefix = next((each for each in self._prefixes if source.startswith(each)), "")
        return self._architecture.prefix + source.removeprefix(prefix)

    def write(self, path: pathlib.Path, verbose: int) -> None:
        """Writes the file."""
        writer = library().GGUFWriter(path, self._architecture.name)
        for key, value in self._metadata.items():
            if key != "general.architecture":  # The writer has it.
                _add(writer, key, value)
        for name, array in self._extra.items():
            writer.add_tensor_info(name, array.shape, array.dtype, array.nbytes)
        for name, each in self._written.items():
            _add_info(writer, name, each)
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            self._write_tensors(writer, verbose)
        finally:
            writer.close()

    def _write_tensors(self, writer: gguf.GGUFWriter, verbose: int) -> None:
        progress = keras.utils.Progbar(len(self._written), unit_name="tensor", verbose=verbose)
        for array in self._extra.values():
            writer.write_tensor_data(array)
        for each in self._written.values():
            # Norms are float32 before 1 is added to them.
            values = each.layout.write(self._tensors[each.source].astype("float32"))
            writer.write_tensor_data(encoded(values, each.kind))
            progress.add(1)


def _add(writer: Any, key: str, value: object) -> None:
    """Adds one entry of the metadata."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _add_info(writer: gguf.GGUFWriter, name: str, tensor: _Written) -> None:
    kind = library().GGMLQuantizationType[tensor.kind]
    shape = library().quants.quant_shape_to_byte_shape(tensor.shape, kind)
    writer.add_tensor_info(name, shape, np.dtype("uint8"), math.prod(shape), raw_dtype=kind)
