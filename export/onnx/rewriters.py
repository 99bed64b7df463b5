"""The rewriters of tf2onnx that a graph needs: each one searches and rebuilds the whole graph, for nothing too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

_LOOPS_OF_TF1, _LOOPS_OF_TF2 = {"LoopCond"}, {"While", "StatelessWhile"}
_RANDOM = {"RandomUniform", "RandomUniformInt", "RandomStandardNormal"}
_CONVOLUTIONS = {"Conv2D", "DepthwiseConv2dNative", "Conv3D", "Conv2DBackpropInput"}
# The operations without which a rewriter finds nothing. Those that are not listed always run.
_NEEDED = {
    "rewrite_quantize_and_dequantize": {
        "QuantizeAndDequantizeV2",
        "QuantizeAndDequantizeV3",
        "QuantizeAndDequantizeV4",
    },
    "rewrite_random_uniform": _RANDOM,
    "rewrite_random_uniform_fold_const": _RANDOM,
    "rewrite_random_normal": _RANDOM,
    "rewrite_dropout": _RANDOM,
    "rewrite_conv_dilations": {"SpaceToBatchND"},
    "rewrite_conv2d_with_pad": _CONVOLUTIONS,
    "rewrite_biasadd_with_conv2d": _CONVOLUTIONS,
    "rewriter_lstm_tf2": _LOOPS_OF_TF2,
    "rewrite_gru_tf2": _LOOPS_OF_TF2,
    "rewrite_single_direction_lstm": _LOOPS_OF_TF1,
    "rewrite_bi_direction_lstm": _LOOPS_OF_TF1 | _LOOPS_OF_TF2,
    "rewrite_single_direction_gru": _LOOPS_OF_TF1,
    "rewrite_bi_direction_gru": _LOOPS_OF_TF1 | _LOOPS_OF_TF2,
    "rewrite_custom_rnn_cell": _LOOPS_OF_TF1,
    "rewrite_generic_loop": _LOOPS_OF_TF1,
    "rewrite_cond": {"Switch", "Merge", "RefSwitch", "RefMerge"},
    "rewrite_ragged_variant_shape": {"RaggedTensorToVariant"},
}


@contextlib.contextmanager
def only_needed() -> Iterator[None]:
    """Context in which tf2onnx leaves out rewriters that cannot apply. One thread at a time may be inside."""
    from tf2onnx import tfonnx

    original: Callable[..., Any] = tfonnx.run_rewriters

    def run_rewriters(graph: Any, rewriters: list[Any], continue_on_error: bool) -> None:
        kinds = _kinds(graph)
        needed = [each for each in rewriters if _NEEDED.get(each.__name__, kinds) & kinds]
        original(graph, needed, continue_on_error)

    tfonnx.run_rewriters = run_rewriters
    try:
        yield
    finally:
        tfonnx.run_rewriters = original


def _kinds(graph: Any) -> set[str]:
    """The kinds of operations in a graph and its bodies."""
    kinds = {node.type for node in graph.get_nodes()}
    for bodies in graph.contained_graphs.values():
        for body in bodies.values():
            kinds |= _kinds(body)
    return kinds
