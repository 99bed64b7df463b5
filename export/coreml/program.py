"""Core ML programs (`.mlpackage`) of ONNX files of fixed shapes."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformer.export.coreml.builder import Builder, kind_of
from keras_transformer.export.coreml.library import coremltools
from keras_transformer.export.coreml.operators import OPERATORS

if TYPE_CHECKING:
    import onnx

    from keras_transformer.export.coreml.builder import Operation, Var

# A pass of coremltools turns indices into 16 bits without a sign, and negative ones into other indices.
_SHORT_INDICES = "common::add_int16_cast"
# Core ML takes numbers only: booleans are integers at the ends of a program.
_TYPES = {1: "fp32", 10: "fp32", 11: "fp32", 6: "int32", 7: "int32", 9: "bool"}


def write_program(path: pathlib.Path, package: pathlib.Path, half: bool) -> None:
    """Writes an ONNX file as a Core ML program, for iOS 17 and macOS 14 and later.

    Inputs and outputs have the names of the file's, and float32 or int32 values.

    Args:
        path: path of the ONNX file.
        package: path of the package to write, a folder that ends in `.mlpackage`.
        half: bool. Whether it computes in 16 bits, as the Neural Engine does.

    Raises:
        NotImplementedError: Core ML has no counterpart of an operator; names it.
    """
    import onnx

    tools = coremltools()
    graph = onnx.load(str(path)).graph
    opset = tools.target.iOS17
    program = _program(graph, opset, half)
    precision = tools.transform.FP16ComputePrecision(_ComputesInHalf()) if half else tools.precision.FLOAT32
    passes = tools.PassPipeline.DEFAULT
    passes.remove_passes({_SHORT_INDICES})
    model = tools.convert(
        program,
        pass_pipeline=passes,
        convert_to="mlprogram",
        minimum_deployment_target=opset,
        compute_precision=precision,
        skip_model_load=True,
    )
    model.save(str(package))


def _program(graph: onnx.GraphProto, opset: object, half: bool) -> Any:
    mil = coremltools("converters.mil")
    core = coremltools("converters.mil.mil")
    kinds = {"fp32": core.types.fp32, "int32": core.types.int32, "bool": core.types.int32}
    given = {
        each.name: mil.Builder.placeholder(shape=_shape(each), dtype=kinds[_kind(each)], name=each.name)
        for each in _inputs(graph)
    }
    with core.Function(given, opset_version=opset) as function:
        build = Builder(mil.Builder, half)
        known = _known(build, graph)
        for each in _inputs(graph):
            known[each.name] = build.cast(function.inputs[each.name], _kind(each))
        for node in graph.node:
            _emit(build, node, known)
        function.set_outputs([_output(build, known[each.name], each) for each in graph.output])
    program = core.Program()
    program.add_function("main", function)
    return program


def _inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    constants = {each.name for each in graph.initializer}
    return [each for each in graph.input if each.name not in constants]


def _kind(value: onnx.ValueInfoProto) -> str:
    return _TYPES[value.type.tensor_type.elem_type]


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(each.dim_value for each in value.type.tensor_type.shape.dim)


def _known(build: Builder, graph: onnx.GraphProto) -> dict[str, object]:
    """The constants of a graph, which become those of the program where they are read."""
    from onnx import numpy_helper

    return {each.name: build.constant(numpy_helper.to_array(each)) for each in graph.initializer}


def _emit(build: Builder, node: onnx.NodeProto, known: dict[str, object]) -> None:
    import onnx

    options = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.op_type == "Constant":
        known[node.output[0]] = build.constant(onnx.numpy_helper.to_array(options["value"]))
        return
    if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx"):
        raise NotImplementedError(f"{node.op_type}: Core ML has no such operator")
    inputs = [known[name] if name else None for name in node.input]
    try:
        found = OPERATORS[node.op_type](build, inputs, options)
    except NotImplementedError as error:
        raise NotImplementedError(f"{node.op_type} '{node.name}': {error}") from error
    for name, each in zip(node.output, found if isinstance(found, list) else [found], strict=False):
        known[name] = each


def _output(build: Builder, result: Any, value: onnx.ValueInfoProto) -> Any:
    number = build.cast(result, "int32") if _kind(value) == "bool" else result
    return build.identity(x=build.reshape(number, _shape(value)), name=value.name)


class _ComputesInHalf:
    """Called with an operator of coremltools before it is changed to 16 bits; returns whether it may be.

    All may but those that compute with integers as numbers, which 16 bits hold up to 2048: positions, counts and what is
    computed of them alone, such as angles, stay in 32. Operators are given in the order of the program.
    """

    def __init__(self) -> None:
        # With the variable, since an `id` may be given again.
        self._known: dict[int, tuple[Var, bool]] = {}

    def __call__(self, operator: Operation) -> bool:
        return not self._is_of_integers(operator)

    def _is_of_integers(self, operator: Operation) -> bool:
        """Whether all float inputs that are no constants were integers."""
        if operator.op_type == "cast" and kind_of(operator.x) == "int32":
            return True
        # `kind_of` says "fp32" of numbers of 16 bits too.
        given = [each for each in _variables(operator) if each.val is None and kind_of(each) == "fp32"]
        return bool(given) and all(map(self._was_integer, given))

    def _was_integer(self, variable: Var) -> bool:
        if id(variable) not in self._known:
            found = variable.op is not None and self._is_of_integers(variable.op)
            self._known[id(variable)] = variable, found
        return self._known[id(variable)][1]


def _variables(operator: Operation) -> list[Var]:
    given = [each if isinstance(each, (list, tuple)) else [each] for each in operator.inputs.values()]
    return [each for several in given for each in several]
