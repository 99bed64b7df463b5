"""ONNX files that take strings, or return them, by onnxruntime-extensions."""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from onnx import TensorProto, compose, helper

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.bundle.manifest import artifact_path, read_manifest, signature_specs
from keras_transformer.export.bundle.tokenizers import BYTES, LENGTHS, encode_texts, read_tokenizer
from keras_transformer.export.bundle_writer import export_spec
from keras_transformer.export.engines.files import check_file_target
from keras_transformer.export.errors import InputError, InvalidBundleError, InvalidModelError, ParityError
from keras_transformer.export.onnx.library import NAME
from keras_transformer.export.onnx.options import PLAIN_OPSET, OnnxOptions
from keras_transformer.export.reporting.report import Artifact, Parity, Report
from keras_transformer.export.runtime.loading import SERVE, load
from keras_transformer.export.spec.export_spec import ArraySpec, ExportSpec, Probe, Signature
from keras_transformer.export.text import extensions
from keras_transformer.export.text.graph import IDS, MASK, SEGMENTS, TokenizeGraph
from keras_transformer.export.text.probe_texts import PROBE_TEXTS
from keras_transformer.export.text.spec import DETOKENIZE, TOKENIZE, padded_ids
from keras_transformer.export.text.steps import flag, gather, indices, repeated
from keras_transformer.utils.types import Path, Tensor

TEXT = "text"
_CODES, _SPELLED_MASK = "codes", "spelled"
_BATCH = 16
# The operators read strings as those of C: a text ends before U+0000.
_TEXTS = tuple(text.replace("\x00", "") for text in PROBE_TEXTS)


def write_text_onnx(bundle: Path, path: Path, signature: str | None = None) -> Report:
    """Writes an ONNX file that takes strings, or returns them, from a bundle with a tokenizer.

    The file runs where the library of onnxruntime-extensions is registered: `SessionOptions.register_custom_ops_library` in
    Python, C++, Java and C#. Of that library only the step between strings and bytes is used. Ids come from the same graph as
    in `export_tokenizer`, so that they are those of Keras.

    The file is compared with the bundle on hard texts of many scripts before it appears: ids and texts must be equal.

    Args:
        bundle: path of the bundle: of a model with a tokenizer, or of a tokenizer, as `export_tokenizer` writes it.
        path: path of the file to write, which ends in `.onnx`. An existing file is replaced.
        signature: name of the signature. None for that which takes texts: "serve" of a model, whose file maps "text",
            strings `(B,)`, to the outputs of the model; or "tokenize". "detokenize" for a file that maps "token_ids" and
            "padding_mask" to "text".

    Returns:
        A `Report`.

    Raises:
        InvalidBundleError: there is no bundle, or it has no tokenizer, no ONNX file or no such signature.
        InvalidModelError: the model takes something else too, or the tokenizer cannot be a graph.
        MissingLibraryError: onnxruntime-extensions is not installed.
        ParityError: the file returns something else.

    A text ends before U+0000, as strings do in C.

    Example:

    ```python
    export(model, "reviews", ["onnx"], tokenizer=tokenizer)
    write_text_onnx("reviews", "reviews.onnx")

    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    session = onnxruntime.InferenceSession("reviews.onnx", options)
    session.run(None, {"text": ["A fine film."]})
    ```
    """
    start = time.perf_counter()
    target = check_file_target(path, ".onnx")
    extensions.session_options()
    directory = pathlib.Path(bundle)
    manifest = read_manifest(directory)
    tokenizer = read_tokenizer(directory, manifest)
    if tokenizer is None:
        raise InvalidBundleError(f"'{bundle}' has no tokenizer: pass one to export")
    known = manifest["signatures"]
    name = signature or next(each for each in (SERVE, TOKENIZE, next(iter(known))) if each in known)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        work = pathlib.Path(folder)
        if name == DETOKENIZE:
            model = _with_reading(_loaded(directory, manifest, name))
            onnx.save(model, str(work / target.name))
            _check_reading(work / target.name, tokenizer)
        else:
            model = _with_spelling(directory, manifest, name, tokenizer, work)
            onnx.save(model, str(work / target.name))
            _check_spelling(work / target.name, directory, name, tokenizer)
        (work / target.name).replace(target)
    parity = [Parity(name, each.name, 0.0, 1.0, 0.0) for each in model.graph.output]
    artifact = Artifact(NAME, str(target), target.stat().st_size, time.perf_counter() - start, parity, len(_TEXTS))
    return Report(str(target), {NAME: artifact}, 0.0)


# Strings at the input.


def _with_spelling(
    directory: pathlib.Path, manifest: dict[str, Any], name: str, tokenizer: Any, work: pathlib.Path
) -> onnx.ModelProto:
    """The model of a signature behind its tokenizer."""
    if name == TOKENIZE:
        model, inputs = None, signature_specs(manifest, name)[1]
    else:
        model, inputs = _loaded(directory, manifest, name), signature_specs(manifest, name)[0]
    for each in inputs:
        if each.name not in (IDS, MASK, SEGMENTS):
            raise InvalidModelError(f"signature '{name}' takes '{each.name}', which is no part of a text")
    front = _front(tokenizer, manifest["tokenizer"]["options"], inputs, _options(model), work)
    if model is not None:
        names = file_names(manifest, NAME, name).inputs
        pairs = [(f"text/{each.name}", names.get(each.name, each.name)) for each in inputs]
        model.ir_version = front.ir_version = max(model.ir_version, front.ir_version)
        front = compose.merge_models(compose.add_prefix(front, "text/"), model, pairs)
    (codes, mask), graph = [each.name for each in front.graph.input], front.graph
    nodes = [*extensions.spelling(TEXT, codes, mask), *graph.node]
    text = helper.make_tensor_value_info(TEXT, TensorProto.STRING, ["batch"])
    return _completed(front, nodes, [text], list(graph.output), [])


def _options(model: onnx.ModelProto | None) -> OnnxOptions | None:
    """The options under which a graph has the operators of the model's opset."""
    if model is None:
        return None
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    return OnnxOptions(optimize=False) if opset == PLAIN_OPSET else OnnxOptions(opset=opset)


def _front(
    tokenizer: Any,
    options: Mapping[str, Any],
    outputs: Sequence[ArraySpec],
    onnx_options: OnnxOptions | None,
    work: pathlib.Path,
) -> onnx.ModelProto:
    """The verified graph of what `spelling` returns to the inputs of a model."""
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
    for texts in _batches():
        arrays = padded_ids(tokenizer.encode(texts, **options), tokenizer)
        arrays[SEGMENTS] = np.zeros_like(arrays[IDS])
        expected = {each.name: arrays[each.name].astype(each.dtype) for each in outputs}
        probes.append(Probe(_spelled(texts), f"{len(texts)} texts", expected))
    spec = ExportSpec({"spelled": Signature(encode, inputs, probes, is_repeatable=True)}, 1e-6, onnx=onnx_options)
    export_spec(spec, work / "front", [NAME], progress=False)
    return onnx.load(str(work / "front" / "model.onnx"))


def _batches() -> list[list[str]]:
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


def _check_spelling(path: pathlib.Path, directory: pathlib.Path, name: str, tokenizer: Any) -> None:
    """Compares the file with the signature of the bundle.

    Raises:
        ParityError: an output differs.
    """
    session = extensions.session(str(path))
    model = load(directory, NAME, name)
    names = file_names(read_manifest(directory), NAME, name).outputs
    for number, texts in enumerate(_batches()):
        try:
            arrays = encode_texts(texts, tokenizer, model.tokenizer_options, model.inputs)
            expected = model(arrays)
        except InputError:  # A text without tokens, or longer than the model allows.
            continue
        found = session.run(None, {TEXT: np.array(texts, object)})
        for output, array in zip(session.get_outputs(), found, strict=True):
            wanted = expected[next(key for key, value in names.items() if value == output.name)]
            _check_equal(output.name, f"texts {number}", array, wanted)


def _check_equal(output: str, label: str, found: np.ndarray, wanted: np.ndarray) -> None:
    if found.shape != wanted.shape or not np.array_equal(found, wanted):
        detail = "is not what the bundle returns for the same texts"
        raise ParityError(NAME, output, label, np.nan, 1.0, 0.0, detail)


# Strings at the output.


def _with_reading(model: onnx.ModelProto) -> onnx.ModelProto:
    values, lengths = (next(each.name for each in model.graph.output if each.name == name) for name in (BYTES, LENGTHS))
    nodes, constants = extensions.reading(values, lengths, TEXT)
    text = helper.make_tensor_value_info(TEXT, TensorProto.STRING, ["batch"])
    return _completed(model, [*model.graph.node, *nodes], list(model.graph.input), [text], constants)


def _check_reading(path: pathlib.Path, tokenizer: Any) -> None:
    """Compares the texts of the file with those of the tokenizer.

    Raises:
        ParityError: a text differs.
    """
    session = extensions.session(str(path))
    for number, texts in enumerate(_batches()):
        rows = tokenizer.encode(texts)
        arrays = padded_ids(rows, tokenizer)
        (found,) = session.run([TEXT], arrays)
        wanted = [tokenizer.decode(row).partition("\x00")[0] for row in rows]
        _check_equal(TEXT, f"ids {number}", found, np.array(wanted, object))


def _loaded(directory: pathlib.Path, manifest: dict[str, Any], name: str) -> onnx.ModelProto:
    """The graph of a signature with its weights."""
    return onnx.load(str(artifact_path(directory, manifest, NAME, name)))


def _completed(
    model: onnx.ModelProto, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any]
) -> onnx.ModelProto:
    """A copy of a model with other nodes, inputs and outputs, that may use the operators of the library."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for field, values in (("node", nodes), ("input", inputs), ("output", outputs)):
        del getattr(changed.graph, field)[:]
        getattr(changed.graph, field).extend(values)
    changed.graph.initializer.extend(constants)
    changed.opset_import.append(helper.make_opsetid(extensions.DOMAIN, 1))
    return changed
