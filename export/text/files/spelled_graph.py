"""The graph of a tokenizer behind the operator of onnxruntime-extensions that spells strings as bytes."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.export.text.files import extensions
from keras_transformer.export.text.files.probe_texts import PROBE_TEXTS
from keras_transformer.export.text.files.spec import padded_ids
from keras_transformer.export.text.graph import IDS, SEGMENTS, TokenizeGraph
from keras_transformer.export.text.steps import flag, gather, indices, repeated
from keras_transformer.export.writing.bundle_writer import export_spec
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

_CODES, _SPELLED_MASK = "codes", "spelled"
_BATCH = 16
_TEXTS = tuple(text.replace("\x00", "") for text in PROBE_TEXTS)


def spelled_graph(
    tokenizer: Tokenizer,
    options: Mapping[str, Any],
    outputs: Sequence[ArraySpec],
    onnx_options: OnnxOptions | None,
    work: pathlib.Path,
) -> onnx.ModelProto:
    """The verified graph from what `extensions.spelling` returns to the inputs of a model.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.
        options: dict of how texts are encoded.
        outputs: the inputs of the model.
        onnx_options: `OnnxOptions`, or None for the defaults.
        work: folder to write into.

    Raises:
        InvalidModelError: the tokenizer cannot be a graph.
        ParityError: the graph returns other ids.
    """
    graph = TokenizeGraph(tokenizer, options)
    special = np.frombuffer(extensions.SPECIAL.encode(), "uint8")

    def encode(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        codes, width = tf.cast(tensors[_CODES], tf.int32), tf.shape(tensors[_CODES])[1]
        place = indices(tf.reshape(tensors[_SPELLED_MASK] > 0, [-1]))
        values, rows = tf.gather(tf.reshape(codes, [-1]), place), place // tf.maximum(width, 1)
        values, rows = tf.concat([values, [ord("a")]], 0), tf.concat([rows, tf.shape(codes)[:1]], 0)
        is_special = values == extensions.SPECIAL_ID
        item, offset = repeated(1 + (len(special) - 1) * flag(is_special))
        values = tf.where(tf.gather(is_special, item), gather(special, offset), tf.gather(values, item))
        arrays = graph.encoded(values, tf.gather(rows, item), tf.shape(codes)[0])
        arrays[SEGMENTS] = tf.zeros_like(arrays[IDS])
        return {each.name: tf.cast(arrays[each.name], each.dtype) for each in outputs}

    axes = (None, None), ("batch", "bytes")
    inputs = (ArraySpec(_CODES, "int64", *axes), ArraySpec(_SPELLED_MASK, "int64", *axes))
    probes = []
    for texts in probe_batches():
        arrays = padded_ids(tokenizer.encode(texts, **options), tokenizer)
        arrays[SEGMENTS] = np.zeros_like(arrays[IDS])
        expected = {each.name: arrays[each.name].astype(each.dtype) for each in outputs}
        probes.append(Probe(_spelled(texts), f"{len(texts)} texts", expected))
    spec = ExportSpec({"spelled": Signature(encode, inputs, probes, is_repeatable=True)}, 1e-6, onnx=onnx_options)
    export_spec(spec, work / "front", [ONNX], progress=False)
    return onnx.load(str(work / "front" / "model.onnx"))


def probe_batches() -> list[list[str]]:
    """Texts on which files are compared, without U+0000: a text of C ends there."""
    return [list(_TEXTS[at : at + _BATCH]) for at in range(0, len(_TEXTS), _BATCH)]


def _spelled(texts: Sequence[str]) -> dict[str, np.ndarray]:
    """What the operator returns for texts, the special token apart from the bytes of others."""
    rows = []
    for text in texts:
        parts = [list(part.encode()) for part in text.split(extensions.SPECIAL)]
        rows.append(parts[0] + [code for part in parts[1:] for code in (extensions.SPECIAL_ID, *part)])
    width = max(map(len, rows))
    codes = np.array([row + [0] * (width - len(row)) for row in rows], "int64").reshape(len(rows), width)
    return {_CODES: codes, _SPELLED_MASK: (np.arange(width) < [[len(row)] for row in rows]).astype("int64")}
