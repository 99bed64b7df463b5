"""Quantization of ONNX files: integer products and tables, in loop bodies too.

The graphs of a bundle share their weights, so a weight is quantized in the same way for all consumers and stored once.
`MatMul`, `Gemm` and `Gather` get integer kernels. Other large weights (of convolutions, tables of positions) are stored in
8 bits and dequantized when the graph runs.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.onnx.graph import all_nodes, name_of
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import matrices
from keras_transformer.export.onnx.quantization.calibrate import ranges_of
from keras_transformer.export.onnx.quantization.graph_quantizer import GraphQuantizer, Role
from keras_transformer.export.onnx.quantization.integer_products import Layout
from keras_transformer.export.onnx.quantization.quantized_weights import QuantizedWeights
from keras_transformer.export.onnx.weights.files import GraphFiles, read
from keras_transformer.export.quantization.calibrated import batches_of
from keras_transformer.export.quantization.options import KEPT, Int8Static, matches
from keras_transformer.export.remedies import Remedy

if TYPE_CHECKING:
    import onnx_ir as ir

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.quantization.options import Quantization


def quantize(spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
    """Quantizes the ONNX files of a bundle that is being written.

    Args:
        spec: the `ExportSpec`, with its `quantization`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, or the calibration does not fit.
    """
    ranges = None
    if isinstance(spec.quantization, Int8Static):
        of_results = spec.target is not None and spec.target.quantizes_results
        ranges = ranges_of(directory, files, batches_of(spec.quantization), spec.quantization.ranges, of_results)
    contrib_ops = (spec.onnx or OnnxOptions()).contrib_ops
    if spec.quantization.activation_bits == 16 and not contrib_ops:
        raise QuantizationError("onnx: activations of 16 bits need contrib_ops", Remedy.CONTRIB)
    quantize_files(directory, files, spec.quantization, contrib_ops=contrib_ops, ranges=ranges)


def quantize_files(
    directory: pathlib.Path,
    files: dict[str, str],
    quantization: Quantization,
    *,
    contrib_ops: bool = True,
    ranges: dict[str, tuple[float, float]] | None = None,
) -> None:
    """Quantizes ONNX files.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
        quantization: `Quantization`.
        contrib_ops: bool. Whether contrib ops of ONNX Runtime may be used; without them, "weight_int8" and "weight_int4"
            dequantize weights before each product.
        ranges: for "int8_static": dict of tensor name to its least and largest value; see `calibrate.ranges_of`.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight.
    """
    models = {path: read(directory / path) for path in dict.fromkeys(files.values())}
    names = {name for model in models.values() for name in model.graph.initializers}
    kept = matches(names, quantization.keep_float)
    tables = {name for model in models.values() for name in _tables(model.graph)}
    tied = {name for model in models.values() for name in _tied(model.graph)}
    steps = _steps(files)
    # A decoder alone is read by one kind of kernel; beside it, encoders and loops need weights that serve two.
    is_decoder = steps == models.keys()
    has_steps = bool(steps) or any(_has_loops(model.graph) for model in models.values())
    layout = Layout.BLOCKS if is_decoder else Layout.BOTH if has_steps else Layout.CHANNELS
    make_weights = _weights_of(quantization)
    results = GraphFiles(directory, len(models))
    done: dict[Any, Any] = {}
    for path, model in models.items():
        # Sums of products of matrices have a kernel that those of higher rank have not.
        flat = matrices(model) if path in steps else frozenset()
        role = Role(path in steps, path == files.get("decode_token"), layout, flat)
        weights = make_weights(model.graph, quantization, tables, done, results.stored)
        GraphQuantizer(model, weights, quantization, (kept, tied), role, contrib_ops, ranges).run()
    results.save(models)


def _weights_of(quantization: Quantization) -> Callable[..., QuantizedWeights]:
    """What makes the `QuantizedWeights` of a graph."""
    if quantization.mode not in KEPT:
        return QuantizedWeights
    from keras_transformer.export.onnx.quantization.kept_weights import KeptWeights
    from keras_transformer.export.quantization.kept import blocks_of

    return functools.partial(KeptWeights, blocks_of(quantization))


def _steps(files: dict[str, str]) -> set[str]:
    """The files of a decoder. Its prompts are read as its single tokens are: what they add to the cache must be as exact.

    Of an encoder-decoder, the encoder reads whole rows, and so does the graph around the loop of a decoder.
    """
    if not {"decode", "decode_token"} & files.keys():
        return set()
    others = {"encode", "generate"} if "encode" in files else set()
    return {path for name, path in files.items() if name not in others}


def _has_loops(graph: ir.Graph) -> bool:
    return any(node.op_type == "Loop" for node in all_nodes(graph))


def _tables(graph: ir.Graph) -> set[str]:
    """Tables of which rows are looked up: they are read exactly, so that 8 bits cost no time.

    Matrices that are looked up, such as the kernels of experts, are not among them: they are most of a model's weights.
    """
    looked_up = [node.inputs[0] for node in all_nodes(graph) if node.op_type == "Gather"]
    return {name_of(each) for each in looked_up if each is not None and each.is_initializer() and _rank(each) == 2}


def _rank(value: ir.Value) -> int:
    return 0 if value.shape is None else len(value.shape)


def _tied(graph: ir.Graph) -> set[str]:
    """Weights that are both an embedding table and a projection matrix."""
    roles = {
        name: {(node.op_type, position) for node, position in value.uses()}
        for name, value in graph.initializers.items()
    }
    return {name for name, role in roles.items() if ("Gather", 0) in role and len(role) > 1}
