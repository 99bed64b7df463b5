"""Decoders as `.litertlm` files for LiteRT-LM."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.report import Artifact, Report
from keras_transformer.export.engines.files import check_file_target, check_tolerance, reported_tolerance, write_tflite
from keras_transformer.export.engines.hugging_face_tokenizer import KINDS, write_hugging_face
from keras_transformer.export.engines.key_value_cache import float32_decoder, key_value_cache
from keras_transformer.export.engines.litertlm.check import (
    check_engine,
    check_greedy,
    fitting_prompt,
    is_installed,
    with_start_token,
)
from keras_transformer.export.engines.litertlm.graph import ENGINE, litertlm_spec
from keras_transformer.export.errors import (
    ConversionError,
    InvalidModelError,
    MissingLibraryError,
)
from keras_transformer.export.quantization.kept import check_models
from keras_transformer.export.quantization.options import KEPT
from keras_transformer.export.quantization.precisions import Mode, precision_of
from keras_transformer.export.spec.functional import check_model
from keras_transformer.export.spec.language.spec import check_stepwise
from keras_transformer.export.tflite import convert as tflite
from keras_transformer.export.writing.quantizing import quantize_in_place
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.utils.errors import library_exceptions

if TYPE_CHECKING:
    from types import ModuleType

    import keras

    from keras_transformer.utils.types import Path


NAME = "litertlm"
FILE = "model.litertlm"
_UNBOUNDED = 512
_BUCKETS = (32, 128)
_SENTENCEPIECE = "sentencepiece"
# The chat template: the messages unchanged, concatenated. The engine passes texts as lists of parts.
_TEMPLATE = (
    "{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}"
)


def write_litertlm(
    model: keras.Model,
    path: Path,
    *,
    max_length: int | None = None,
    prefill_buckets: Sequence[int] = _BUCKETS,
    quantize: Mode | None = None,
    tolerance: float | None = None,
) -> Report:
    """Writes a decoder for LiteRT-LM: one file with the graphs, the tokenizer and the metadata.

    The graphs are verified on probes and by greedy decoding in LiteRT and, if litert-lm is installed, in the engine.

    Args:
        model: `LanguageModel` over a decoder whose cache is keys and values of one shape in all layers, with a tokenizer:
            a `SentencePiece`, a `BytePair` or a `Bytes`.
        path: path of the file to write, which ends in `.litertlm`. An existing file is replaced.
        max_length: int or None: largest number of tokens, prompt included. None: that of the model, or 512 if it is
            unlimited. For a model of limited length, the limit of the file is lower by the longest chunk minus one,
            because the engine pads chunks.
        prefill_buckets: ints: the lengths of the chunks of prompts. Default (32, 128).
        quantize: as for `export`: "int8", "weight_int4", ..., a `Quantization`, or None for float32.
        tolerance: largest difference allowed, as a share of each output's scale; by default what rounding explains.

    Returns:
        A `Report`.

    Raises:
        InvalidModelError: the model is not such a decoder, or the engine does not support its tokenizer. Nothing is written.
        InvalidBundleError: the file cannot be written.
        MissingLibraryError: litert-lm-builder is not installed.
        ParityError: the graphs do not compute what the model computes.
        ConversionError: the converter fails, or the engine decodes another text.
        UnsupportedOpError: TFLite lacks an op.

    Example:

    ```python
    report = write_litertlm(model, "model.litertlm", max_length=512, quantize="int8")
    print(report)
    ```
    """
    start = time.perf_counter()
    check_model(model)
    target = check_file_target(path, f".{NAME}", ", by which the engine recognizes the format")
    library = _builder()
    quantization = precision_of(quantize, model)
    key_value_cache(model, ENGINE)
    _check_tokenizer(model)
    check_tolerance(tolerance)
    slots, buckets = _sizes(model, max_length, prefill_buckets)
    model = float32_decoder(model)
    check_models([quantization], model, ["tflite"])
    check_stepwise(model, tolerance)
    spec = litertlm_spec(model, slots, buckets, tolerance)
    folds_factors = quantization is None or quantization.mode not in KEPT
    spec = dataclasses.replace(spec, quantization=quantization, folds_factors=folds_factors)
    text = fitting_prompt(model, slots)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        work = pathlib.Path(folder)
        artifact = _write_graphs(spec, work, model, text)
        _pack(library, work, model, slots)
        if is_installed():
            check_engine(work / FILE, work / tflite.FILE, spec, model, *text)
        os.replace(work / FILE, target)
    seconds, size = time.perf_counter() - start, target.stat().st_size
    artifact = dataclasses.replace(artifact, format=NAME, path=str(target), size=size, seconds=seconds)
    return Report(str(target), {NAME: artifact}, reported_tolerance(quantization, tolerance))


def _builder() -> ModuleType:
    try:
        return importlib.import_module("litert_lm_builder")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "litert_lm_builder":
            raise
        raise MissingLibraryError("writing a .litertlm file", "litert-lm-builder") from error


def _check_tokenizer(model: keras.Model) -> None:
    kinds = (_SENTENCEPIECE, *KINDS)
    if model.tokenizer is None:
        raise InvalidModelError(f"{ENGINE} takes text: '{model.name}' needs a tokenizer ({', '.join(kinds)})")
    if model.tokenizer.kind not in kinds:
        raise InvalidModelError(
            f"{ENGINE} reads tokenizers of the kinds {', '.join(kinds)}, not {model.tokenizer.kind}"
        )


def _sizes(model: keras.Model, max_length: int | None, buckets: Sequence[int]) -> tuple[int, list[int]]:
    """The number of slots of the cache and the lengths of chunks that fit it."""
    for name, sizes in (("max_length", [max_length or 2]), ("prefill_buckets", list(buckets) or [0])):
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 2 for size in sizes):
            raise InvalidModelError(
                f"{name} takes ints of at least 2, not {max_length if name == 'max_length' else buckets!r}"
            )
    most = model.max_length
    if max_length is not None and most is not None and max_length > most:
        raise InvalidModelError(f"max_length is {max_length}; '{model.name}' is limited to {most} tokens")
    slots = max_length or most or _UNBOUNDED
    fitting = sorted({min(bucket, max(slots // 2, 2)) for bucket in buckets})
    if most is not None:
        slots = min(slots, most - fitting[-1] + 1)
    return slots, fitting


def _write_graphs(spec: ExportSpec, work: pathlib.Path, model: keras.Model, text: tuple[str, int]) -> Artifact:
    """Writes and verifies `model.tflite`; returns its `Artifact`."""
    artifact, manifest = write_tflite(spec, work)
    prompt, new = text
    check_greedy(work / tflite.FILE, spec, model, with_start_token(model, prompt), new)
    if spec.quantization is not None:
        artifact = quantize_in_place(artifact, spec, work, manifest)[0]
    return artifact


def _pack(library: ModuleType, work: pathlib.Path, model: keras.Model, slots: int) -> None:
    """Writes the sections into the file."""
    (work / "metadata.pb").write_bytes(_metadata(model, slots))
    packed = library.LitertLmFileBuilder()
    producer = library.Metadata(key="Authors", value="keras_transformer", dtype=library.DType.STRING)
    packed.add_system_metadata(producer)
    packed.add_llm_metadata(str(work / "metadata.pb"))
    if model.tokenizer.kind == _SENTENCEPIECE:
        model.tokenizer.save(work / "tokenizer")
        packed.add_sentencepiece_tokenizer(str(work / "tokenizer" / "sentencepiece.model"))
    else:
        write_hugging_face(model.tokenizer, work, slots, ENGINE)
        packed.add_hf_tokenizer(str(work / "tokenizer.json"))
    packed.add_tflite_model(str(work / tflite.FILE), library.TfLiteModelType.PREFILL_DECODE)
    try:
        with open(work / FILE, "wb") as file:
            packed.build(file)
    except library_exceptions() as error:
        raise ConversionError(NAME, error) from error


def _metadata(model: keras.Model, slots: int) -> bytes:
    """The serialized `LlmMetadata`."""
    proto = "litert_lm_builder.runtime.proto"
    llm_metadata_pb2, sampler_params_pb2 = (
        importlib.import_module(f"{proto}.{name}") for name in ("llm_metadata_pb2", "sampler_params_pb2")
    )

    metadata = llm_metadata_pb2.LlmMetadata(max_num_tokens=slots, jinja_prompt_template=_TEMPLATE)
    if model.start_id is not None:
        metadata.start_token.token_ids.ids.append(model.start_id)
    # The engine requires an end token: a model without one gets an id outside its vocabulary.
    for end_id in as_end_ids(model.end_id) or (model.vocabulary_size,):
        metadata.stop_tokens.add().token_ids.ids.append(end_id)
    metadata.llm_model_type.generic_model.SetInParent()
    metadata.sampler_params.type = sampler_params_pb2.SamplerParameters.TOP_K
    metadata.sampler_params.k = 1
    metadata.sampler_params.p = 1.0
    metadata.sampler_params.temperature = 1.0
    metadata.supports_thinking = metadata.supports_function_calling = False
    return metadata.SerializeToString()
