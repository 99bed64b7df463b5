"""TFLite files from the bytes of texts to the outputs of a model."""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.tokenizers import read_tokenizer, text_rows
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.data.report import Artifact, Report
from keras_transformer.export.engines.files import check_file_target
from keras_transformer.export.errors import InputError, InvalidBundleError, InvalidModelError, RunError
from keras_transformer.export.loading.load import SERVE, load
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.libraries import TFLITE
from keras_transformer.export.text.files.joined_files import check_equal, check_inputs
from keras_transformer.export.text.files.probe_texts import PROBE_TEXTS
from keras_transformer.export.text.files.spec import LENGTHS_SPEC, ROWS_SPEC, padded_ids
from keras_transformer.export.text.graph import IDS, SEGMENTS, TokenizeGraph
from keras_transformer.export.tflite.passes.joining import join
from keras_transformer.export.tflite.runtime import TFLiteRuntime
from keras_transformer.export.tflite.tree import read_file, write_file
from keras_transformer.export.writing.bundle_writer import export_spec
from keras_transformer.utils.types import JsonObject, Path, Tensor

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

_BATCH = 16


def write_text_tflite(bundle: Path, path: Path, signature: str = SERVE) -> Report:
    """Writes a TFLite file from the bytes of texts to the outputs of a model, from a bundle with a tokenizer.

    The file has one signature of built-in operators. It takes "bytes", uint8 `(batch, bytes)`, the UTF-8 of each text from
    the start of its row, and "lengths", int32 `(batch,)`, as the files of `export_tokenizer` do, and returns the outputs of
    the model. The weights are those of the bundle, quantized or not.

    The file is compared with the bundle on hard texts of many scripts before it appears.

    Args:
        bundle: path of the bundle of a model with a tokenizer.
        path: path of the file to write, which ends in `.tflite`. An existing file is replaced.
        signature: name of the signature of the model. One of fixed shapes, such as "serve_1x128" of `export(...,
            static={"batch": 1, "length": 128})`, takes that many texts, and longer ones are cut: the model has the static
            shapes that delegates need.

    Returns:
        A `Report`.

    Raises:
        InvalidBundleError: there is no bundle, or it has no tokenizer, no TFLite file or no such signature.
        InvalidModelError: the model takes something else too, or the tokenizer cannot be a graph.
        ParityError: the file returns something else.

    Example:

    >>> import numpy as np
    >>> from ai_edge_litert.interpreter import Interpreter
    >>> from keras_transformer import models, tasks
    >>> from keras_transformer.export import ExportOptions, export
    >>> from keras_transformer.text import Bytes
    >>> size = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> tokenizer = Bytes()
    >>> model = tasks.SequenceClassifier(models.BERT(size, tokenizer.vocabulary_size, max_sequence_length=16), num_classes=3)
    >>> bundle, path = "/tmp/keras_transformer_doctest", "/tmp/keras_transformer_doctest.tflite"
    >>> shape = {"batch": 1, "length": 16}
    >>> _ = export(model, bundle, ["tflite"], tokenizer=tokenizer, progress=False, options=ExportOptions(static=shape))
    >>> report = write_text_tflite(bundle, path, "serve_1x16")
    >>> classify = Interpreter(path).get_signature_runner("serve_1x16")
    >>> text = np.frombuffer("A fine film.".encode(), "uint8")
    >>> classify(bytes=text[None], lengths=np.array([len(text)], "int32"))["probabilities"].shape
    (1, 3)
    """
    start = time.perf_counter()
    target = check_file_target(path, ".tflite")
    directory = pathlib.Path(bundle)
    manifest = read_manifest(directory)
    tokenizer = read_tokenizer(directory, manifest)
    if tokenizer is None or manifest.tokenizer is None:
        raise InvalidBundleError(f"'{bundle}' has no tokenizer", Remedy.TOKENIZER)
    source = manifest.path(directory, TFLITE, signature)
    inputs, outputs = manifest.signature(signature)
    check_inputs(signature, inputs)
    options = _options(manifest.tokenizer.options, inputs)
    front = _front_spec(tokenizer, options, inputs)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        work = pathlib.Path(folder)
        export_spec(front, work / "front", [TFLITE], progress=False)
        joined = join(read_file(work / "front" / "model.tflite"), read_file(source), signature)
        write_file(joined, work / target.name)
        compared = _check(work / target.name, directory, signature, tokenizer, options)
        (work / target.name).replace(target)
    parity = [Parity(signature, each.name, 0.0, 1.0, 0.0) for each in outputs]
    artifact = Artifact(TFLITE, str(target), target.stat().st_size, time.perf_counter() - start, parity, compared)
    return Report(str(target), {TFLITE: artifact}, 0.0)


def _options(options: Mapping[str, object], inputs: Sequence[ArraySpec]) -> JsonObject:
    """How texts are encoded: those for a fixed length are cut."""
    length = inputs[0].shape[1]
    return (
        dict(options) if length is None else {**options, "max_length": min(length, options.get("max_length") or length)}
    )


def _front_spec(tokenizer: Tokenizer, options: Mapping[str, object], inputs: Sequence[ArraySpec]) -> ExportSpec:
    """The spec of the graph from bytes to the inputs of a model."""
    batch, length = inputs[0].shape
    graph = TokenizeGraph(tokenizer, options, length)

    def encode(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        arrays = graph(tensors)
        arrays[SEGMENTS] = tf.zeros_like(arrays[IDS])
        found = {each.name: tf.cast(arrays[each.name], each.dtype) for each in inputs}
        # Delegates need shapes that are known before the call.
        return found if length is None else {name: tf.reshape(each, [batch, length]) for name, each in found.items()}

    given = tuple(_fixed(each, batch) for each in (ROWS_SPEC, LENGTHS_SPEC))
    probes = []
    for texts in _batches(batch):
        expected = _arrays(texts, tokenizer, options, inputs)
        probes.append(Probe(text_rows(texts), f"{len(texts)} texts", expected))
    return ExportSpec({"front": Signature(encode, given, probes, is_repeatable=True)}, 1e-6)


def _arrays(
    texts: list[str], tokenizer: Any, options: Mapping[str, object], inputs: Sequence[ArraySpec]
) -> dict[str, np.ndarray]:
    """The inputs of a model for texts."""
    arrays = padded_ids(tokenizer.encode(texts, **options), tokenizer, inputs[0].shape[1])
    arrays[SEGMENTS] = np.zeros_like(arrays[IDS])
    return {each.name: arrays[each.name].astype(each.dtype) for each in inputs}


def _fixed(spec: ArraySpec, batch: int | None) -> ArraySpec:
    """The spec of an input for a fixed number of texts, or any."""
    if batch is None:
        return spec
    return ArraySpec(spec.name, spec.dtype, (batch, *spec.shape[1:]), (None, *spec.axes[1:]))


def _batches(batch: int | None) -> list[list[str]]:
    """Texts on which files are compared, as many at a time as the file takes."""
    size = batch or _BATCH
    return [list(PROBE_TEXTS[at : at + size]) for at in range(0, len(PROBE_TEXTS) - size + 1, size)]


def _check(
    path: pathlib.Path, directory: pathlib.Path, name: str, tokenizer: Tokenizer, options: Mapping[str, object]
) -> int:
    """Compares the file with the signature of the bundle; returns the number of texts.

    Raises:
        ParityError: an output differs.
    """
    joined, model = TFLiteRuntime(str(path), name, 1), load(directory, TFLITE, name)
    compared = 0
    for number, texts in enumerate(_batches(model.inputs[0].shape[0])):
        arrays = _arrays(texts, tokenizer, options, model.inputs)
        try:
            expected = model(arrays)
        except (InputError, RunError):  # A text is longer than the model allows.
            continue
        found = joined(text_rows(texts))
        for output, array in found.items():
            check_equal(TFLITE, output, f"texts {number}", array, expected[output])
        compared += len(texts)
    if not compared:
        raise InvalidModelError(f"signature '{name}' takes none of the texts that it would be compared on")
    return compared
