"""Signatures that take raw text, with the tokenizer as part of the SavedModel's graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.bundle.tokenizers import encode_texts
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.formats import formats_with
from keras_transformer.generation.prompts import frame_of
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.tasks.decoding.generate_graph import generate_graph
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import keras

    from keras_transformer.text import Tokenizer

_TEXT = ArraySpec("text", "string", (None,), ("batch",))
_PROBES = (["A man with a dog."], ["Zwölf Boxkämpfer", "jagen Viktor quer", "über den großen Sylter Deich."])
_NEW_TOKENS = 6


def add_text_signature(spec: ExportSpec, model: keras.Model | None = None) -> None:
    """Adds `serve_text`, or for a language model `generate_text`, to a spec, where the tokenizer can be a graph.

    The reference outputs are computed with the tokenizer outside the graph, so that verification covers the tokenizer in
    the file as well.

    Args:
        spec: an `ExportSpec` with a tokenizer, changed in place.
        model: the `LanguageModel`, or None.
    """
    from keras_transformer.text import GraphError

    if getattr(model, "source_shape", None) is not None:
        return  # The source is not text.
    tokenizer, options = spec.tokenizer, spec.tokenizer_options or {}
    try:
        graph = tokenizer.graph()
    except GraphError:
        return
    name = "serve_text" if model is None else "generate_text"
    if model is None:
        signature = _serve(spec.signatures["serve"], tokenizer, graph, options)
    else:
        signature = _generate(model, tokenizer, graph)
    if signature is not None:
        spec.signatures[name] = signature
        spec.modules += (graph,)


def _serve(serve: Signature, tokenizer: Tokenizer, graph: Any, options: Mapping[str, object]) -> Signature | None:
    names = [spec.name for spec in serve.inputs]
    if set(names) - {"token_ids", "padding_mask", "segment_ids"}:
        return None

    def serve_text(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        arrays = _padded(graph(tensors["text"], **options), tokenizer)
        return serve.function({name: arrays[name] for name in names})

    probes = []
    for texts in _PROBES:
        arrays = encode_texts(texts, tokenizer, options, serve.inputs)
        try:
            outputs = serve.function({name: tf.convert_to_tensor(array) for name, array in arrays.items()})
        except ValueError:  # The text is too long for the model; other signatures verify it.
            continue
        expected = {name: np.asarray(value) for name, value in outputs.items()}
        probes.append(Probe({"text": np.array(texts)}, f"{len(texts)} texts", expected))
    return Signature(serve_text, (_TEXT,), probes, formats=formats_with("takes_text")) if probes else None


def _generate(model: keras.Model, tokenizer: Tokenizer, graph: Any) -> Signature | None:
    generate = generate_graph(model)

    def generate_text(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        ids = graph(tensors["text"], **frame_of(tokenizer, model.start_id, model.is_encoder_decoder))
        if not model.is_encoder_decoder and model.start_id is not None:
            ids = tf.concat([tf.fill([ids.nrows(), 1], model.start_id), ids], axis=1)
        arrays = _padded(ids, tokenizer)
        if model.is_encoder_decoder:
            inputs = {"source_token_ids": arrays["token_ids"], "source_padding_mask": arrays["padding_mask"]}
        else:
            inputs = {"token_ids": arrays["token_ids"], "lengths": tf.cast(ids.row_lengths(), tf.int32)}
        results = generate({**inputs, "max_new_tokens": tensors["max_new_tokens"]})
        new = tf.RaggedTensor.from_tensor(results["new_token_ids"], lengths=_lengths(results, model.end_id))
        if model.is_encoder_decoder:
            return {"new_text": graph.detokenize(new)}
        # A text that continues another begins with the space that joins them.
        before, whole = graph.detokenize(ids), graph.detokenize(tf.concat([ids, new], axis=1))
        start = tf.strings.length(before)
        return {"new_text": tf.strings.substr(whole, start, tf.strings.length(whole) - start)}

    inputs = (_TEXT, ArraySpec("max_new_tokens", "int32", (), ()))
    probes = []
    for texts in _PROBES:
        try:
            outputs = model.generate(texts, max_new_tokens=_NEW_TOKENS)
        except ValueError:  # The text is too long for the model; other signatures verify it.
            continue
        arrays = {"text": np.array(texts), "max_new_tokens": np.array(_NEW_TOKENS, "int32")}
        probes.append(Probe(arrays, f"{len(texts)} texts", {"new_text": np.array(outputs)}))
    return Signature(generate_text, inputs, probes, formats=formats_with("takes_text")) if probes else None


def _lengths(results: dict[str, Tensor], end_id: int | Sequence[int] | None) -> Tensor:
    """The lengths of the texts without their end token, which decoding need not skip."""
    tokens, lengths = results["new_token_ids"], results["new_lengths"]
    ends = as_end_ids(end_id)
    if not ends:
        return lengths
    last = tf.gather(tokens, lengths - 1, batch_dims=1)
    return lengths - tf.cast(tf.reduce_any(last[:, None] == tf.constant(ends), axis=1), lengths.dtype)


def _padded(ids: tf.RaggedTensor, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Ragged ids as padded ids and a mask."""
    mask = tf.sequence_mask(ids.row_lengths(), tf.cast(ids.bounding_shape()[1], tf.int64))
    token_ids = ids.to_tensor(tokenizer.pad_id or 0)
    # The templates of all tokenizers that can be a graph have one segment.
    return {"token_ids": token_ids, "padding_mask": mask, "segment_ids": tf.zeros_like(token_ids)}
