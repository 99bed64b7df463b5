"""What is changed in tf2onnx while it converts: which of its rewriters run, functions of loops and branches, what it logs.

Each rewriter searches and rebuilds the whole graph, for nothing too. Functions that do not call one another come in the
order of a set of their names, so that two processes count the names of operations differently; and those of branches have
the shape of the condition for their first argument, that of the first argument for the second, and so on.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.framework.function_pb2 import FunctionDef

_LOOPS_OF_TF1, _LOOPS_OF_TF2 = {"LoopCond"}, {"While", "StatelessWhile"}
_RANDOM = {"RandomUniform", "RandomUniformInt", "RandomStandardNormal"}
_BRANCHES = {"If", "StatelessIf", "Case", "StatelessCase"}  # Their first input says which.
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
    """Context in which tf2onnx leaves out rewriters that cannot apply, and knows the shapes in functions.

    One thread at a time may be inside.
    """
    from tf2onnx import tfonnx

    original: Callable[..., Any] = tfonnx.run_rewriters
    resolve_functions: Callable[[tf.Graph], list[tf.Graph]] = tfonnx.resolve_functions

    def run_rewriters(graph: Any, rewriters: list[Any], continue_on_error: bool) -> None:
        kinds = _kinds(graph)
        needed = [each for each in rewriters if _NEEDED.get(each.__name__, kinds) & kinds]
        original(graph, needed, continue_on_error)

    tfonnx.run_rewriters = run_rewriters
    tfonnx.resolve_functions = _functions
    try:
        yield
    finally:
        tfonnx.run_rewriters, tfonnx.resolve_functions = original, resolve_functions


@contextlib.contextmanager
def failed_nodes() -> Iterator[dict[str, BaseException]]:
    """Context that yields a dict, which receives by the name of a node why tf2onnx could not convert it.

    It leaves such a node in the graph as it was, and logs the exception.
    """
    logger, found = logging.getLogger("tf2onnx.tfonnx"), dict[str, BaseException]()

    def note(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None and isinstance(record.args, tuple):
            found[str(record.args[0])] = record.exc_info[1]
        return False

    level = logger.level
    logger.setLevel(logging.ERROR)
    logger.addFilter(note)
    try:
        yield found
    finally:
        logger.removeFilter(note)
        logger.setLevel(level)


def _functions(graph: tf.Graph) -> list[tf.Graph]:
    """The functions of a graph as graphs, with the shapes of what they are called with, callees before callers."""
    from tf2onnx import tf_loader

    found: dict[str, tf.Graph] = {}
    _add_functions(found, graph, {name: each.definition for name, each in graph._functions.items()})
    tf_loader._FUNCTIONS.update(found)
    return _ordered(list(found.values()))


def _add_functions(found: dict[str, tf.Graph], graph: tf.Graph, definitions: Mapping[str, FunctionDef]) -> None:
    """Adds the functions that the operations of a graph call, at any depth."""
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

    for node in graph.get_operations():
        for name in sorted(_called_by(node) & definitions.keys()):
            shapes = [each.shape for each in node.inputs[1 if node.type in _BRANCHES else 0 :]]
            if name in found:  # It is called a second time.
                known = [each.shape for each in found[name].inputs]
                shapes = [one.most_specific_compatible_shape(other) for one, other in zip(known, shapes, strict=False)]
                if shapes == known:
                    continue
            count = len(definitions[name].signature.input_arg)
            found[name] = function_def_to_graph(definitions[name], input_shapes=shapes[:count] or None)
            _add_functions(found, found[name], definitions)


def _ordered(functions: list[tf.Graph]) -> list[tf.Graph]:
    """Functions behind those that they call, by name where there is a choice."""
    waiting = {each.name: each for each in functions}
    calls = {name: _called(each) & waiting.keys() for name, each in waiting.items()}
    found = []
    while waiting:
        name = min(name for name in waiting if not calls[name] & waiting.keys())
        found.append(waiting.pop(name))
    return found


def _called(function: tf.Graph) -> set[str]:
    """The names of the functions that a function calls."""
    return set().union(*map(_called_by, function.get_operations()))


def _called_by(node: tf.Operation) -> set[str]:
    """The names of the functions that an operation calls."""
    attributes = node.node_def.attr.values()
    single = {each.func.name for each in attributes if each.HasField("func")}
    return single | {each.name for attribute in attributes for each in attribute.list.func}


def _kinds(graph: Any) -> set[str]:
    """The kinds of operations in a graph and its bodies."""
    kinds = {node.type for node in graph.get_nodes()}
    for bodies in graph.contained_graphs.values():
        for body in bodies.values():
            kinds |= _kinds(body)
    return kinds
