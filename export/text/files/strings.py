"""ONNX files that take strings, or return them, by onnxruntime-extensions."""

from __future__ import annotations

import pathlib
import tempfile
import time
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, compose, helper

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.bundle.tokenizers import BYTES, LENGTHS, read_tokenizer
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.data.report import Artifact, Report
from keras_transformer.export.engines.files import check_file_target
from keras_transformer.export.errors import InvalidBundleError, InvalidModelError
from keras_transformer.export.loading.load import SERVE, load
from keras_transformer.export.onnx.options import PLAIN_OPSET, OnnxOptions
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.export.text.files import extensions
from keras_transformer.export.text.files.joined_files import check_equal, check_inputs, outputs_for
from keras_transformer.export.text.files.spec import DETOKENIZE, TOKENIZE, padded_ids
from keras_transformer.export.text.files.spelled_graph import probe_batches, spelled_graph
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

TEXT = "text"


def write_text_onnx(bundle: Path, path: Path, signature: str | None = None) -> Report:
    """Writes an ONNX file that takes strings, or returns them, from a bundle with a tokenizer.

    The file runs where the library of onnxruntime-extensions is registered (`register_custom_ops_library`). Of that library
    only the step between strings and bytes is used. Ids come from the same graph as in `export_tokenizer`, so that they are
    those of Keras.

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
        raise InvalidBundleError(f"'{bundle}' has no tokenizer", Remedy.TOKENIZER)
    known = manifest.signatures
    name = signature or next(each for each in (SERVE, TOKENIZE, next(iter(known))) if each in known)
    manifest.path(directory, ONNX, name)  # Raises where there is none.
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
    artifact = Artifact(
        ONNX, str(target), target.stat().st_size, time.perf_counter() - start, parity, sum(map(len, probe_batches()))
    )
    return Report(str(target), {ONNX: artifact}, 0.0)


# Strings at the input.


def _with_spelling(
    directory: pathlib.Path, manifest: Manifest, name: str, tokenizer: Tokenizer, work: pathlib.Path
) -> onnx.ModelProto:
    """The model of a signature behind its tokenizer."""
    if name == TOKENIZE:
        model, inputs = None, manifest.signature(name).outputs
    else:
        model, inputs = _loaded(directory, manifest, name), manifest.signature(name).inputs
    check_inputs(name, inputs)
    options = {} if manifest.tokenizer is None else manifest.tokenizer.options
    front = spelled_graph(tokenizer, options, inputs, _options(model), work)
    if model is not None:
        names = file_names(manifest, ONNX, name).inputs
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


def _check_spelling(path: pathlib.Path, directory: pathlib.Path, name: str, tokenizer: Tokenizer) -> None:
    """Compares the file with the signature of the bundle.

    Raises:
        ParityError: an output differs.
    """
    session = extensions.session(str(path))
    model = load(directory, ONNX, name)
    names = {label: key for key, label in file_names(read_manifest(directory), ONNX, name).outputs.items()}
    compared = 0
    for number, texts in enumerate(probe_batches()):
        # Some texts have no tokens, or are longer than the model allows.
        given = [text for text in texts if outputs_for(model, [text], tokenizer) is not None]
        if not given:
            continue
        expected = outputs_for(model, given, tokenizer)
        found = session.run(None, {TEXT: np.array(given, object)})
        for output, array in zip(session.get_outputs(), found, strict=True):
            check_equal(ONNX, output.name, f"texts {number}", array, expected[names[output.name]])
        compared += len(given)
    if not compared:
        raise InvalidModelError(f"signature '{name}' takes none of the texts that it would be compared on")


# Strings at the output.


def _with_reading(model: onnx.ModelProto) -> onnx.ModelProto:
    values, lengths = (next(each.name for each in model.graph.output if each.name == name) for name in (BYTES, LENGTHS))
    nodes, constants = extensions.reading(values, lengths, TEXT)
    text = helper.make_tensor_value_info(TEXT, TensorProto.STRING, ["batch"])
    return _completed(model, [*model.graph.node, *nodes], list(model.graph.input), [text], constants)


def _check_reading(path: pathlib.Path, tokenizer: Tokenizer) -> None:
    """Compares the texts of the file with those of the tokenizer.

    Raises:
        ParityError: a text differs.
    """
    session = extensions.session(str(path))
    for number, texts in enumerate(probe_batches()):
        rows = tokenizer.encode(texts)
        arrays = padded_ids(rows, tokenizer)
        (found,) = session.run([TEXT], arrays)
        wanted = [tokenizer.decode(row).partition("\x00")[0] for row in rows]
        check_equal(ONNX, TEXT, f"ids {number}", found, np.array(wanted, object))


def _loaded(directory: pathlib.Path, manifest: Manifest, name: str) -> onnx.ModelProto:
    """The graph of a signature with its weights."""
    return onnx.load(str(manifest.path(directory, ONNX, name)))


def _completed(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: list[onnx.TensorProto],
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
