"""Model directories for onnxruntime-genai."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from typing import TYPE_CHECKING

from keras_transformer.backend import keras_private
from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import write_manifest
from keras_transformer.export.bundle.metadata import check_metadata
from keras_transformer.export.data.report import Report
from keras_transformer.export.engines.files import check_tolerance, reported_tolerance
from keras_transformer.export.engines.genai.check import FILE, check_engine, greedy, is_installed
from keras_transformer.export.engines.genai.graph import ENGINE, end_ids, genai_spec, vocabulary_size
from keras_transformer.export.engines.greedy import check_greedy, examples
from keras_transformer.export.engines.hugging_face_tokenizer import tokenizer_json, write_hugging_face
from keras_transformer.export.engines.key_value_cache import float32_decoder, key_value_cache
from keras_transformer.export.engines.onnx_files import write_onnx
from keras_transformer.export.engines.past_present import KINDS, PAST, PRESENT, PastPresent, with_dots
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.onnx import convert as onnx
from keras_transformer.export.quantization.kept import check_models
from keras_transformer.export.quantization.precisions import Mode, precision_of
from keras_transformer.export.spec.functional import check_model
from keras_transformer.export.spec.language.spec import check_stepwise
from keras_transformer.export.writing.quantizing import quantize_in_place
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.engines.key_value_cache import KeyValueCache
    from keras_transformer.utils.types import Path


CONFIG = "genai_config.json"
_UNBOUNDED = 2048


def write_genai(
    model: keras.Model,
    directory: Path,
    *,
    max_length: int | None = None,
    quantize: Mode | None = None,
    tokenizer: bool = True,
    tolerance: float | None = None,
    metadata: JsonObject | None = None,
) -> Report:
    """Writes a decoder for onnxruntime-genai: `model.onnx`, `genai_config.json` and the files of the tokenizer.

    The directory is also a bundle for `verify_bundle`. Its graph is verified on probes and by greedy decoding of a batch of
    prompts in ONNX Runtime and, if onnxruntime-genai is installed, in the engine.

    Args:
        model: `LanguageModel` over a decoder whose cache is keys and values of one shape in all layers.
        directory: path of the directory to write. An existing bundle is replaced; other directories are not.
        max_length: int or None: largest number of tokens, prompt included. None: that of the model, or 2,048 if it is
            unlimited.
        quantize: as for `export`: "weight_int4", "int8", ..., a `Quantization`, or None for float32.
        tokenizer: bool. Whether to write the model's tokenizer, a `BytePair` or a `Bytes`, in Hugging Face's format.
        tolerance: largest difference allowed, as a share of each output's scale; by default what rounding explains.
        metadata: dict that describes the model, see `export`.

    Returns:
        A `Report`.

    Raises:
        InvalidModelError: the model is not such a decoder, `max_length` is too large, or its tokenizer is of another kind.
            Nothing is written.
        ParityError: the file does not compute what the model computes, or decodes other tokens.
        ConversionError: the converter fails, or the engine decodes other tokens.
        UnsupportedOpError: ONNX lacks an op.
        InvalidBundleError: the directory exists and is not a bundle.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=20))
    >>> report = write_genai(model, "/tmp/keras_transformer_doctest_genai")
    >>> report["onnx"].ratio <= 1e-5
    True
    """
    check_model(model)
    target = writing.check_target(directory)
    check_metadata(metadata)
    quantization = precision_of(quantize, model)
    check_tolerance(tolerance)
    cache = key_value_cache(model, ENGINE)
    length = _length(model, max_length)
    written_tokenizer = model.tokenizer if tokenizer else None
    if written_tokenizer is not None:
        tokenizer_json(written_tokenizer, ENGINE)  # Raises for unsupported kinds.
    model = float32_decoder(model)
    check_models([quantization], model, ["onnx"])
    check_stepwise(model, tolerance)
    rename = functools.partial(with_dots, caches=(PastPresent(cache),))
    spec = dataclasses.replace(genai_spec(model, tolerance), quantization=quantization, metadata=metadata or {})
    with writing.replacing(target) as work:
        manifest, artifact, spec = write_onnx(spec, work, rename=rename)
        prompts, max_new_tokens = examples(model, length)
        expected = model.generate(prompts, max_new_tokens=max_new_tokens)
        check_greedy(greedy(work / FILE, cache, prompts, max_new_tokens), expected, tolerance)
        if quantization is not None:
            artifact, manifest = quantize_in_place(artifact, spec, work, manifest)
        if written_tokenizer is not None:
            write_hugging_face(written_tokenizer, work, length, ENGINE)
        _write_json(work / CONFIG, genai_config(model, cache, length))
        if is_installed():
            check_engine(work, cache, prompts, max_new_tokens, end_ids(model))
        write_manifest(work, manifest)
    artifact.path = str(target / FILE)
    return Report(str(target), {onnx.ONNX: artifact}, reported_tolerance(quantization, tolerance))


def genai_config(model: keras.Model, cache: KeyValueCache, max_length: int | None) -> JsonObject:
    """Returns the content of `genai_config.json`.

    Args:
        model: `LanguageModel`.
        cache: its `KeyValueCache`.
        max_length: int: largest number of tokens.

    Returns:
        dict.
    """
    tokenizer = model.tokenizer
    start = model.start_id if model.start_id is not None else getattr(tokenizer, "start_id", None)
    pad = getattr(tokenizer, "pad_id", None)
    ends = end_ids(model)
    if pad is None:  # A token of the vocabulary, since it is looked up.
        pad = ends[0] if ends[0] < model.vocabulary_size else 0
    first, *others = ends
    roles = {"bos_token_id": start, "eos_token_id": [first, *others] if others else first, "pad_token_id": pad}
    decoder = {
        "session_options": {"log_id": ENGINE, "provider_options": []},
        "filename": FILE,
        "head_size": cache.head_dim,
        "hidden_size": int(model.backbone.output.shape[-1]),
        "num_attention_heads": max(getattr(layer, "num_heads", 1) for layer in keras_private.flatten_layers(model)),
        "num_hidden_layers": len(cache.paths),
        "num_key_value_heads": cache.num_heads,
        "inputs": {
            **{name: name for name in ("input_ids", "attention_mask", "position_ids")},
            **{f"past_{kind}_names": f"{PAST}%d.{kind}" for kind in KINDS},
        },
        "outputs": {
            "logits": "logits",
            **{f"present_{kind}_names": f"{PRESENT}%d.{kind}" for kind in KINDS},
        },
    }
    ids = {name: index for name, index in roles.items() if index is not None}
    described = {"type": "decoder", "vocab_size": vocabulary_size(model), "context_length": max_length, **ids}
    search = {"max_length": max_length, "do_sample": False, "num_beams": 1, "past_present_share_buffer": False}
    return {"model": {**described, "decoder": decoder}, "search": search}


def _length(model: keras.Model, max_length: int | None) -> int:
    most = model.max_length
    if max_length is None:
        return most or _UNBOUNDED
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 2:
        raise InvalidModelError(f"max_length must be an int of at least 2, not {max_length!r}")
    if most is not None and max_length > most:
        raise InvalidModelError(f"max_length is {max_length}; '{model.name}' is limited to {most} tokens")
    return max_length


def _write_json(path: pathlib.Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
