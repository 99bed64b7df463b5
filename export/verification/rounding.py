"""The rounding of a model: how far its outputs move when every operation rounds its result differently.

Each result of a float32 operation that rounds is multiplied by `1 + d`, with `d` drawn uniformly from one unit in the last
place, and the outputs are compared with those of the reference. This is Monte Carlo arithmetic. No file can be expected to
be closer to the model than another order of its own sums, so the tolerance of a comparison follows from it. Results that
are whole numbers stay as they are: masks, counts and one-hot rows are exact in every runtime.

Reference: Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD-970002, 1997.
Deviation: noise of one unit instead of a half on each side, and none on exact results that are whole numbers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from keras_transformer.export.runtime.precision import full_precision
from keras_transformer.export.verification.blocks import block_maximum

if TYPE_CHECKING:
    from keras_transformer.export.spec.export_spec import ExportSpec, Probe
    from keras_transformer.export.spec.traced import TracedModule

# Draws of the noise; the largest movement counts.
DRAWS = 4
_ULP = 2.0**-23
_FLOAT, _INT32 = (tf.as_dtype(name).as_datatype_enum for name in ("float32", "int32"))
_SUFFIX = "_perturbed"
# Operations whose results are rounded. All others move, compare or select values.
_PRODUCTS = (
    "BatchMatMul|BatchMatMulV2|BatchMatMulV3|Conv2D|Conv2DBackpropInput|Conv3D|DepthwiseConv2dNative|Einsum|MatMul"
)
_SUMS = "AddN|AvgPool|BiasAdd|Cumprod|Cumsum|FusedBatchNormV3|Mean|Prod|Sum|TensorScatterAdd|UnsortedSegmentSum"
_BINARY = "Add|AddV2|Atan2|Div|DivNoNan|Mul|MulNoNan|Pow|RealDiv|SquaredDifference|Sub"
_UNARY = (
    "Acos|Acosh|Asin|Asinh|Atan|Atanh|Cos|Cosh|Erf|Erfc|Erfinv|Exp|Expm1|Inv|Log|Log1p|Reciprocal|Rsqrt|Sin|Sinh|Sqrt"
)
_ACTIVATIONS = "Elu|LeakyRelu|LogSoftmax|Selu|Sigmoid|Softmax|Softplus|Softsign|Square|Tan|Tanh"
_RESIZES = "ResizeBicubic|ResizeBilinear"
_ROUNDING = frozenset("|".join((_PRODUCTS, _SUMS, _BINARY, _UNARY, _ACTIVATIONS, _RESIZES)).split("|"))


def measure_rounding(traced: TracedModule, spec: ExportSpec) -> None:
    """Fills in the `rounding` of every probe: the largest movement of each block of each output.

    An integer that another rounding changes, such as a token chosen between two equal logits, has the movement 1.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec` it was traced from; its probes have their outputs.
    """
    probes: dict[str, dict[int, Probe]] = {}
    for name, signature in spec.signatures.items():
        if any(each.dtype == "string" for each in (*signature.inputs, *signature.outputs)):
            continue  # A copy of a signature of tokens, behind a tokenizer.
        general = signature.general if signature.general in spec.signatures else name
        probes.setdefault(general or name, {}).update({id(probe): probe for probe in signature.probes})
    for name, found in probes.items():
        exact, weights = traced.weightless(name), traced.weights(name)
        with perturbed(exact) as function:
            for probe in found.values():
                tensors = {key: tf.convert_to_tensor(array) for key, array in probe.inputs.items()}
                probe.rounding = _movement(exact, function, tensors | weights)


def _movement(exact: Any, function: Any, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The movement of each output, from what the same graph computes: a graph that is not the model is no rounding."""
    found: dict[str, np.ndarray] = {}
    with full_precision():
        outputs = {name: result.numpy() for name, result in exact(**tensors).items()}
        for _ in range(DRAWS):
            for name, result in function(**tensors).items():
                moved = _difference(result.numpy(), outputs[name])
                moved = block_maximum(moved) if outputs[name].dtype.kind == "f" else moved
                found[name] = np.maximum(found[name], moved) if name in found else moved
    return found


def _difference(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Differences of finite floats; 1 where an integer or the finiteness of a float differs."""
    if result.shape != expected.shape:  # The number of generated tokens, say.
        return np.full(expected.shape, np.inf, "float32")
    if expected.dtype.kind != "f":
        return (result != expected).astype("float32")
    with np.errstate(invalid="ignore"):
        difference = np.abs(result.astype("float64") - expected)
    difference[result == expected] = 0.0
    return np.nan_to_num(difference, nan=np.inf).astype("float32")


@contextlib.contextmanager
def perturbed(function: Any) -> Iterator[Any]:
    """Context manager with a function whose operations round differently in every call.

    Args:
        function: a concrete function of named tensors. Its variables are shared.

    Yields:
        A concrete function with the same signature.
    """
    graph_def = function.graph.as_graph_def()
    _perturb(graph_def)
    arguments = function.structured_input_signature[1]
    names, results = list(function.structured_outputs), list(function.structured_outputs.values())
    labels = [f"{tensor.op.name}:{tensor.value_index}" for tensor in results]

    def run(**tensors: Any) -> dict[str, Any]:
        graph: Any = tf.compat.v1.get_default_graph()
        mapping = {tensor.name: tensor for tensor in tensors.values()}  # Named as in the other graph.
        inner = function.inputs[len(mapping) :]
        mapping |= {
            each.name: graph.capture(outer) for each, outer in zip(inner, function.captured_inputs, strict=True)
        }
        found = tf.graph_util.import_graph_def(graph_def, input_map=mapping, return_elements=labels, name="perturbed")
        return dict(zip(names, found, strict=True))

    runtime, bodies = context.context(), graph_def.library.function
    for each in bodies:  # An imported graph does not bring its functions to the eager runtime.
        runtime.add_function_def(each)
    try:
        yield tf.function(run, autograph=False).get_concrete_function(**arguments)
    finally:
        for each in bodies:
            runtime.remove_function(each.signature.name)


def _perturb(graph_def: Any) -> None:
    """Adds the noise to a graph and to the bodies of its loops and branches."""
    seeds = iter(range(1, 2**31))
    functions = {each.signature.name for each in graph_def.library.function}
    _perturb_nodes(graph_def.node, seeds, lambda node: "")
    for each in graph_def.library.function:
        each.signature.name += _SUFFIX
        renamed = _perturb_nodes(each.node_def, seeds, _output_suffix)
        for key, value in each.ret.items():
            each.ret[key] = renamed.get(value, value)
    for nodes in (graph_def.node, *(each.node_def for each in graph_def.library.function)):
        for node in nodes:
            if node.op in functions:
                node.op += _SUFFIX
            for attribute in node.attr.values():
                for called in (attribute.func, *attribute.list.func) if _calls(attribute) else ():
                    called.name += _SUFFIX
    del graph_def.library.gradient[:]


def _calls(attribute: Any) -> bool:
    return attribute.WhichOneof("value") == "func" or bool(attribute.list.func)


def _output_suffix(node: Any) -> str:
    """How the first output of a node is named in the body of a function."""
    from tensorflow.python.framework import op_def_registry

    definition: Any = op_def_registry.get(node.op)
    return f":{definition.output_arg[0].name}:0"


def _perturb_nodes(nodes: Any, seeds: Iterator[int], suffix: Any) -> dict[str, str]:
    """Adds the noise to the nodes of one graph; returns the new name of each perturbed output."""
    renamed: dict[str, str] = {}
    is_body = False
    found = [node for node in nodes if node.op in _ROUNDING and _result_type(node) == _FLOAT]
    made = []
    for node in found:
        part = suffix(node)
        is_body = is_body or bool(part)
        make = _Noise(f"{node.name}/noise", is_body)
        renamed[f"{node.name}{part}"] = make(f"{node.name}{part}", next(seeds))
        made += make.nodes
    for node in nodes:
        for position, name in enumerate(node.input):
            node.input[position] = renamed.get(re.sub(":0$", "", name) if not is_body else name, name)
    nodes.extend(made)
    return renamed


def _result_type(node: Any) -> int:
    for key in ("Tout", "T", "dtype"):
        if key in node.attr:
            return node.attr[key].type
    return 0


class _Noise:
    """Makes the nodes that multiply one output by `1 + d`, unless it is a whole number.

    Args:
        name: prefix of the names of the nodes.
        is_body: bool. Whether they are for the body of a function, where outputs have names.
    """

    def __init__(self, name: str, is_body: bool) -> None:
        self._name = name
        self._is_body = is_body
        self.nodes: list[Any] = []

    def __call__(self, source: str, seed: int) -> str:
        shape = self._make("Shape", "output", [source], T=_FLOAT, out_type=_INT32)
        draw = self._make("RandomUniform", "output", [shape], T=_INT32, dtype=_FLOAT, seed=seed, seed2=seed)
        span, least = self._constant("span", 2 * _ULP), self._constant("least", 1 - _ULP)
        factor = self._make(
            "AddV2", "z", [self._make("Mul", "z", [draw, span], T=_FLOAT), least], T=_FLOAT, key="Factor"
        )
        moved = self._make("Mul", "z", [source, factor], T=_FLOAT, key="Moved")
        whole = self._make("Rint", "y", [source], T=_FLOAT)
        is_whole = self._make("Equal", "z", [source, whole], T=_FLOAT)
        return self._make("SelectV2", "output", [is_whole, source, moved], T=_FLOAT)

    def _make(self, op: str, output: str, inputs: list[str], key: str | None = None, **attributes: int) -> str:
        node = tf.compat.v1.NodeDef(name=f"{self._name}/{key or op}", op=op, input=inputs)
        for name, value in attributes.items():
            if name.startswith("seed"):
                node.attr[name].i = value
            else:
                node.attr[name].type = value
        self.nodes.append(node)
        return f"{node.name}:{output}:0" if self._is_body else node.name

    def _constant(self, key: str, value: float) -> str:
        name = self._make("Const", "output", [], key=key, dtype=_FLOAT)
        self.nodes[-1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.float32(value)))
        return name
