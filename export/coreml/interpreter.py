"""Computes a written Core ML program without Core ML, by the values that coremltools infers for its operators.

coremltools folds constants: most of its operators have a function that computes them with numpy. Given the inputs of a
program as constants, these functions compute the program, in the types that its file states. What Core ML's kernels round
is not seen.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.coreml.library import coremltools

if TYPE_CHECKING:
    from keras_transformer.export.coreml.builder import Operation, Var


class Program:
    """A program that was read from its file, whose operators were checked by coremltools's own rules of types and shapes.

    Args:
        package: path of the `.mlpackage`.

    Raises:
        ValueError: the file is not valid.
    """

    def __init__(self, package: pathlib.Path) -> None:
        tools = coremltools()
        load = coremltools("converters.mil.frontend.milproto.load").load
        self._types = coremltools("converters.mil.mil").types
        model = tools.models.MLModel(str(package), skip_model_load=True)
        spec = model.get_spec()
        program = load(spec, specification_version=spec.specificationVersion, file_weights_dir=model.weights_dir)
        self._main = program.functions["main"]

    @property
    def count(self) -> int:
        """Number of operators, without constants."""
        return sum(each.op_type != "const" for each in self._main.operations)

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs for a dict of inputs.

        Raises:
            NotImplementedError: coremltools does not compute an operator.
        """
        for name, variable in self._main.inputs.items():
            variable._sym_val = self._value(np.asarray(arrays[name]), variable)
        for operator in self._main.operations:
            if operator.op_type == "const":
                continue
            found = _computed(operator)
            results = found if isinstance(found, (tuple, list)) else (found,)
            for variable, value in zip(operator.outputs, results, strict=True):
                variable._sym_val = self._value(np.asarray(value), variable)
        return {each.name: np.asarray(each.val) for each in self._main.outputs}

    def _value(self, array: np.ndarray, variable: Var) -> _Known:
        """An array in the type of a variable, as coremltools keeps values."""
        return _Known(array.astype(self._types.nptype_from_builtin(variable.dtype)).reshape(variable.shape))


class _Known:
    """The value of a variable: coremltools reads its `val`."""

    def __init__(self, array: np.ndarray) -> None:
        self.val = array


def _computed(operator: Operation) -> np.ndarray:
    own = _OWN.get(operator.op_type)
    if own is not None:
        return own(operator)
    found = operator.value_inference()
    if found is None:
        raise NotImplementedError(f"coremltools does not compute {operator.op_type}")
    return found


def _conv(operator: Operation) -> np.ndarray:
    """A convolution of any number of axes, as sums over the elements of the kernel."""
    weight = operator.weight.val.astype("float32")
    rank, groups = weight.ndim - 2, int(operator.groups.val)
    padding = [(int(before), int(after)) for before, after in np.reshape(operator.pad.val, (rank, 2))]
    x = np.pad(operator.x.val.astype("float32"), [(0, 0), (0, 0), *padding])
    sizes, steps = operator.outputs[0].shape[2:], [int(each) for each in operator.strides.val]
    spread = [int(each) for each in operator.dilations.val]
    x = x.reshape(len(x), groups, -1, *x.shape[2:])
    kernel = weight.reshape(groups, -1, *weight.shape[1:])
    total = np.zeros((len(x), groups, kernel.shape[1], *sizes), "float32")
    for place in np.ndindex(*weight.shape[2:]):
        bounds = [
            slice(at * apart, at * apart + (size - 1) * step + 1, step)
            for at, apart, size, step in zip(place, spread, sizes, steps, strict=True)
        ]
        total += np.einsum("bgi...,goi->bgo...", x[(slice(None),) * 3 + tuple(bounds)], kernel[(..., *place)])
    found = total.reshape(len(x), -1, *sizes)
    bias = getattr(operator, "bias", None)
    return found if bias is None else found + bias.val.astype("float32").reshape(-1, *(1,) * rank)


def _log_sum_exp(x: np.ndarray, **options: Any) -> np.ndarray:
    return np.log(np.sum(np.exp(x), **options))


_REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_max": np.max,
    "reduce_mean": np.mean,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_sum": np.sum,
}


def _reduced(operator: Operation) -> np.ndarray:
    x, axes = operator.x.val, tuple(int(each) for each in operator.axes.val)
    wide = x.astype("float32") if x.dtype.kind == "f" else x
    return _REDUCTIONS[operator.op_type](wide, axis=axes, keepdims=bool(operator.keep_dims.val))


def _cumsum(operator: Operation) -> np.ndarray:
    x, axis = operator.x.val.astype("float32"), int(operator.axis.val)
    x = np.flip(x, axis) if operator.reverse.val else x
    total = np.cumsum(x, axis, dtype="float32") - (x if operator.exclusive.val else 0)
    return np.flip(total, axis) if operator.reverse.val else total


def _silu(operator: Operation) -> np.ndarray:
    x = operator.x.val.astype("float32")
    return x / (1 + np.exp(-x))


def _matmul(operator: Operation) -> np.ndarray:
    """Products of 16 bits are added in 32, as hardware does."""
    first, second = (each.val.astype("float32") for each in (operator.x, operator.y))
    first = first.swapaxes(-1, -2) if operator.transpose_x.val else first
    return first @ (second.swapaxes(-1, -2) if operator.transpose_y.val else second)


def _linear(operator: Operation) -> np.ndarray:
    x, weight = (each.val.astype("float32") for each in (operator.x, operator.weight))
    return x @ weight.T + operator.bias.val.astype("float32")


def _layer_norm(operator: Operation) -> np.ndarray:
    x, axes = operator.x.val.astype("float32"), tuple(int(each) for each in operator.axes.val)
    centered = x - x.mean(axes, keepdims=True)
    normal = centered / np.sqrt((centered**2).mean(axes, keepdims=True) + np.float32(operator.epsilon.val))
    gamma, beta = getattr(operator, "gamma", None), getattr(operator, "beta", None)
    scaled = normal if gamma is None else normal * gamma.val.astype("float32")
    return scaled if beta is None else scaled + beta.val.astype("float32")


def _scatter_nd(operator: Operation) -> np.ndarray:
    found = np.array(operator.data.val)
    places = tuple(np.moveaxis(operator.indices.val, -1, 0))
    if operator.mode.val == "add":
        np.add.at(found, places, operator.updates.val)
    elif operator.mode.val == "update":
        found[places] = operator.updates.val
    else:
        raise NotImplementedError(f"scatter_nd of mode {operator.mode.val}")
    return found


def _gather_nd(operator: Operation) -> np.ndarray:
    x, places, batch = operator.x.val, operator.indices.val, int(operator.batch_dims.val)
    flat, rows = (each.reshape(-1, *each.shape[batch:]) for each in (x, places))
    found = [each[tuple(np.moveaxis(row, -1, 0))] for each, row in zip(flat, rows, strict=True)]
    return np.reshape(found, operator.outputs[0].shape)


# Those that coremltools does not compute, computes wrong, or computes in 16 bits where hardware adds in 32.
_OWN = {
    "conv": _conv,
    "cumsum": _cumsum,
    "gather_nd": _gather_nd,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "matmul": _matmul,
    "scatter_nd": _scatter_nd,
    "silu": _silu,
    **dict.fromkeys(_REDUCTIONS, _reduced),
}
