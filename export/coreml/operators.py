"""The operators of ONNX in Core ML's: one function each, `(build, inputs, options) -> result or list of results`.

`inputs` are variables, None where an optional one is absent; `options` is a dict of the node's attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.coreml import composites
from keras_transformer.export.coreml.builder import Builder, Var, kind_of, value_of
from keras_transformer.export.coreml.rearranging import REARRANGING

Operator = Callable[[Builder, Sequence[Any], Mapping[str, Any]], Var | list[Var]]
_FLOAT_CODES = (1, 10, 11)  # TensorProto.FLOAT, FLOAT16, DOUBLE.
_BOOL_CODE = 9


def _unary(name: str, **fixed: object) -> Operator:
    def emit(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
        return getattr(build, name)(x=inputs[0], **fixed)

    return emit


def _binary(name: str, of_integers: str = "") -> Operator:
    def emit(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
        first, second = (_number(build, each) for each in inputs)
        chosen = of_integers if of_integers and kind_of(first) == "int32" else name
        return getattr(build, chosen)(x=first, y=second)

    return emit


def _number(build: Builder, x: Var) -> Var:
    """Arithmetic and comparisons are of numbers."""
    return build.cast(x, "int32") if kind_of(x) == "bool" else x


def _logical(name: str) -> Operator:
    def emit(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
        return getattr(build, name)(**dict(zip("xy", inputs, strict=False)))

    return emit


def _variadic(name: str) -> Operator:
    def emit(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
        found = inputs[0]
        for each in inputs[1:]:
            found = getattr(build, name)(x=found, y=each)
        return found

    return emit


def _reduction(name: str) -> Operator:
    def emit(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> Var:
        x, *rest = inputs
        given = options.get("axes") if not rest or rest[0] is None else value_of(rest[0]).ravel()
        if given is None and options.get("noop_with_empty_axes"):
            return x
        axes = list(range(len(x.shape))) if given is None else [int(each) for each in given]
        return getattr(build, name)(x=x, axes=axes, keep_dims=bool(options.get("keepdims", 1)))

    return emit


def _global_average(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    return build.reduce_mean(x=inputs[0], axes=list(range(2, len(inputs[0].shape))), keep_dims=True)


def _cast(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    code = options["to"]
    return build.cast(inputs[0], "fp32" if code in _FLOAT_CODES else "bool" if code == _BOOL_CODE else "int32")


def _gelu(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    is_exact = options.get("approximate", b"none") in (b"none", "none")
    return build.gelu(x=inputs[0], mode="EXACT" if is_exact else "TANH_APPROXIMATION")


def _clip(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    found, *bounds = inputs
    for name, bound in zip(("maximum", "minimum"), bounds, strict=False):
        found = found if bound is None else getattr(build, name)(x=found, y=bound)
    return found


def _softmax(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    return build.softmax(x=inputs[0], axis=options.get("axis", -1))


def _log_softmax(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    x, axis = inputs[0], options.get("axis", -1)
    shifted = build.sub(x=x, y=build.reduce_max(x=x, axes=[axis], keep_dims=True))
    return build.sub(x=shifted, y=build.reduce_log_sum_exp(x=shifted, axes=[axis], keep_dims=True))


def _matmul(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    return build.matmul(x=inputs[0], y=inputs[1])


def _reciprocal(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    return build.real_div(x=np.float32(1), y=inputs[0])


def _neg(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    minus = np.int32(-1) if kind_of(inputs[0]) == "int32" else np.float32(-1)
    return build.mul(x=inputs[0], y=minus)


def _where(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    condition, first, second = inputs
    shape = np.broadcast_shapes(condition.shape, first.shape, second.shape)
    if kind_of(first) == "bool":
        first, second = build.cast(first, "int32"), build.cast(second, "int32")
        wide = [build.broadcast(each, shape) for each in (condition, first, second)]
        return build.cast(build.select(cond=wide[0], a=wide[1], b=wide[2]), "bool")
    wide = [build.broadcast(each, shape) for each in (condition, first, second)]
    return build.select(cond=wide[0], a=wide[1], b=wide[2])


def _conv(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> Var:
    x, weight, *bias = inputs
    rank = len(x.shape) - 2
    if options.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID", "NOTSET", "VALID"):
        raise NotImplementedError("Conv with auto_pad")
    pads = options.get("pads") or [0] * (2 * rank)
    sides = [int(each) for axis in range(rank) for each in (pads[axis], pads[axis + rank])]
    ones = [1] * rank
    sizes = {name: [int(each) for each in options.get(name) or ones] for name in ("strides", "dilations")}
    more = {"bias": bias[0]} if bias and bias[0] is not None else {}
    groups = int(options.get("group", 1))
    return build.conv(x=x, weight=weight, pad_type="custom", pad=sides, groups=groups, **sizes, **more)


def _cumsum(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    x, axis = inputs
    is_integer = kind_of(x) == "int32"
    flags = {name: bool(options.get(name, 0)) for name in ("exclusive", "reverse")}
    total = build.cumsum(x=build.cast(x, "fp32"), axis=int(value_of(axis).reshape(())), **flags)
    return build.cast(total, "int32") if is_integer else total


def _topk(build: Builder, inputs: Sequence[Var], options: Mapping[str, Any]) -> list[Var]:
    x, count = inputs
    is_integer = kind_of(x) == "int32"
    chosen = {"k": int(value_of(count).reshape(())), "axis": options.get("axis", -1)}
    values, places = build.topk(x=build.cast(x, "fp32"), ascending=not options.get("largest", 1), **chosen)
    return [build.cast(values, "int32") if is_integer else values, build.cast(places, "int32")]


def _identity(build: Builder, inputs: Sequence[Var], options: Mapping[str, object]) -> Var:
    return inputs[0]


_TINY = np.float32(1e-45)
OPERATORS: dict[str, Operator] = {
    "Abs": _unary("abs"),
    "Add": _binary("add"),
    "And": _logical("logical_and"),
    "Attention": composites.attention,
    "Cast": _cast,
    "Ceil": _unary("ceil"),
    "Clip": _clip,
    "Conv": _conv,
    "Cos": _unary("cos"),
    "CumSum": _cumsum,
    "Div": _binary("real_div", "floor_div"),
    "Equal": _binary("equal"),
    "Erf": _unary("erf"),
    "Exp": _unary("exp"),
    "Floor": _unary("floor"),
    "Gelu": _gelu,
    "Gemm": composites.gemm,
    "GlobalAveragePool": _global_average,
    "Greater": _binary("greater"),
    "GreaterOrEqual": _binary("greater_equal"),
    "Identity": _identity,
    "LayerNormalization": composites.layer_norm,
    "Less": _binary("less"),
    "LessOrEqual": _binary("less_equal"),
    "Log": _unary("log", epsilon=_TINY),
    "LogSoftmax": _log_softmax,
    "MatMul": _matmul,
    "Max": _variadic("maximum"),
    "Min": _variadic("minimum"),
    "Mod": _binary("mod"),
    "Mul": _binary("mul"),
    "Neg": _neg,
    "Not": _logical("logical_not"),
    "Or": _logical("logical_or"),
    "Pow": _binary("pow"),
    "RMSNormalization": composites.rms_norm,
    "Reciprocal": _reciprocal,
    "ReduceMax": _reduction("reduce_max"),
    "ReduceMean": _reduction("reduce_mean"),
    "ReduceMin": _reduction("reduce_min"),
    "ReduceProd": _reduction("reduce_prod"),
    "ReduceSum": _reduction("reduce_sum"),
    "Relu": _unary("relu"),
    "RotaryEmbedding": composites.rotary,
    "Round": _unary("round"),
    "Sigmoid": _unary("sigmoid"),
    "Sign": _unary("sign"),
    "Sin": _unary("sin"),
    "Softmax": _softmax,
    "Softplus": _unary("softplus"),
    "Sqrt": _unary("sqrt"),
    "Sub": _binary("sub"),
    "Sum": _variadic("add"),
    "Tanh": _unary("tanh"),
    "TopK": _topk,
    "Where": _where,
    "Xor": _logical("logical_xor"),
    **REARRANGING,
}
