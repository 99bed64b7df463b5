"""Signatures that take raw text: the tokenizer inside the SavedModel, so that a server needs nothing beside it."""

import numpy as np
import tensorflow as tf

from keras_transformer.export.bundle.tokenizers import encode_texts
from keras_transformer.export.formats import formats_with
from keras_transformer.export.spec.export_spec import ArraySpec, Probe, Signature
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.tasks.decoding.generate_graph import generate_graph

_TEXT = ArraySpec("text", "string", (None,), ("batch",))
_PROBES = (["A man with a dog."], ["Zwölf Boxkämpfer", "jagen Viktor quer", "über den großen Sylter Deich."])
_NEW_TOKENS = 6


def add_text_signature(spec, tokenizer, options, model=None):
    """Adds `serve_text`, or for a language model `generate_text`, to a spec, where the tokenizer can be a graph.

    What the signature must give is computed with the tokenizer outside the graph, so that verifying the file proves the
    tokenizer in it as well.

    Args:
        spec: an `ExportSpec`, changed in place.
        tokenizer: a tokenizer of `keras_transformer.text`.
        options: dict of how texts are encoded.
        model: the `LanguageModel`, or None.
    """
    from keras_transformer.text import GraphError

    if getattr(model, "source_shape", None) is not None:
        return  # Its source is no text.
    try:
        graph = tokenizer.graph()
    except GraphError:
        return
    if model is not None:
        name, signature = "generate_text", _generate(model, tokenizer, graph)
    else:
        name, signature = "serve_text", _serve(spec.signatures["serve"], tokenizer, graph, options or {})
    if signature is not None:
        spec.signatures[name] = signature
        spec.modules += (graph,)


def _serve(serve, tokenizer, graph, options):
    names = [spec.name for spec in serve.inputs]
    if set(names) - {"token_ids", "padding_mask"}:
        return None

    def serve_text(tensors):
        arrays = _padded(graph(tensors["text"], **options), tokenizer)
        return serve.function({name: arrays[name] for name in names})

    probes = []
    for texts in _PROBES:
        arrays = encode_texts(texts, tokenizer, options, serve.inputs)
        try:
            outputs = serve.function({name: tf.convert_to_tensor(array) for name, array in arrays.items()})
        except ValueError:  # A model too small for the text; the other signatures prove it.
            continue
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        probes.append(Probe({"text": np.array(texts)}, f"{len(texts)} texts", outputs))
    return Signature(serve_text, (_TEXT,), probes, formats=formats_with("takes_text")) if probes else None


def _generate(model, tokenizer, graph):
    generate = generate_graph(model)

    def generate_text(tensors):
        ids = graph(tensors["text"], end=model.is_encoder_decoder and tokenizer.end_id is not None)
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
        except ValueError:  # A model too small for the text; the other signatures prove it.
            continue
        arrays = {"text": np.array(texts), "max_new_tokens": np.array(_NEW_TOKENS, "int32")}
        probes.append(Probe(arrays, f"{len(texts)} texts", {"new_text": np.array(outputs)}))
    return Signature(generate_text, inputs, probes, formats=formats_with("takes_text")) if probes else None


def _lengths(results, end_id):
    """The lengths of the texts without their end, which need not be a token that decoding leaves out."""
    tokens, lengths = results["new_token_ids"], results["new_lengths"]
    ends = as_end_ids(end_id)
    if not ends:
        return lengths
    last = tf.gather(tokens, lengths - 1, batch_dims=1)
    return lengths - tf.cast(tf.reduce_any(last[:, None] == tf.constant(ends), axis=1), lengths.dtype)


def _padded(ids, tokenizer):
    """Ragged ids as what a model takes."""
    mask = tf.sequence_mask(ids.row_lengths(), tf.cast(ids.bounding_shape()[1], tf.int64))
    return {"token_ids": ids.to_tensor(tokenizer.pad_id or 0), "padding_mask": mask}
