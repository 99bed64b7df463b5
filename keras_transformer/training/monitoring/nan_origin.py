"""Finding the layer at which a training step becomes NaN or infinite."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.backend.gradients.gradient_hook import gradient_hook
from keras_transformer.backend.gradients.loss_gradients import loss_and_gradients
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.training.checkpointing.snapshot import training_variables
from keras_transformer.training.monitoring.names import named_leaves, path_in
from keras_transformer.training.monitoring.variable_copies import (
    VariableCopies,
    first_not_finite,
    is_finite,
    state_variables,
)
from keras_transformer.utils.types import Tensor, Tensors


@dataclasses.dataclass(frozen=True)
class NaNOrigin:
    """Where a training step first has a value that is NaN or infinite.

    Attributes:
        stage: "data", an input, label or sample weight; "forward", the output of a layer with finite inputs; "loss", where
            all outputs are finite; "backward", a gradient that a layer computes; "update", a weight that the optimizer
            makes of finite gradients; or "compiled", where the step is finite if its operations run one by one.
        layer: str. Path of the layer, or of the weight after an update; the name of the input.
        detail: str. What is not finite, and the magnitudes from which it was computed.

    Example:

    >>> str(NaNOrigin("forward", "decoder_block_3/log", "4 of 64 values are -inf"))
    "the output of layer 'decoder_block_3/log' (4 of 64 values are -inf)"
    """

    stage: str
    layer: str
    detail: str

    def __str__(self) -> str:
        where = {
            "data": f"'{self.layer}' of the batch",
            "forward": f"the output of layer '{self.layer}'",
            "loss": f"'{self.layer}', though every layer's output is finite",
            "backward": f"the gradient at layer '{self.layer}', though the loss is finite",
            "update": f"'{self.layer}' after the update by the optimizer, though the gradients are finite",
            "compiled": f"'{self.layer}', only in the compiled step",
        }[self.stage]
        return f"{where} ({self.detail})"


def find_origin(
    model: keras.Model, x: Tensors, y: Tensors | None = None, sample_weight: Tensors | None = None
) -> NaNOrigin | None:
    """Returns where a training step on a batch becomes NaN or infinite, or None if it does not.

    The step runs with one operation after another, and each layer is looked at. Weights, optimizer state and seeds are then
    what they were before; metrics are reset.

    Args:
        model: a compiled, built `keras.Model`, before the step.
        x, y, sample_weight: a batch, as of `train_on_batch`.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(keras.ops.log, name="log")])
    >>> model.compile("sgd", "mse")
    >>> str(find_origin(model, np.array([[1.0, 0.0]]), np.zeros((1, 2))))
    "the output of layer 'log' (1 of 2 values is not finite: -inf; inputs reach 1)"
    """
    for name, value in named_leaves(x, y, sample_weight):
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            return NaNOrigin("data", name, _describe(value))
    before = VariableCopies(state_variables(model))
    try:
        return _in_step(model, x, y, sample_weight) or _in_update(model, before, x, y, sample_weight)
    finally:
        before.restore()
        model.reset_metrics()


def _in_step(model, x, y, sample_weight):
    watch = _Watch(model)
    with keras_private.wrapped_calls(_operations(model), watch.wrap):
        loss, gradients = loss_and_gradients(model, x, y, sample_weight)
    if watch.forward is not None:
        return watch.forward
    if not is_finite(loss):
        return NaNOrigin("loss", "loss", _describe(loss))
    if watch.backward is not None:
        return watch.backward
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        if gradient is not None and not is_finite(gradient):
            layer, _, name = path_in(variable, model).rpartition("/")
            return NaNOrigin("backward", layer, f"gradient of '{name}': {_describe(gradient)}")
    return None


def _in_update(model, before, x, y, sample_weight):
    """The origin in a step as it is compiled, whose first part is finite if its operations run one by one."""
    before.restore()
    model.reset_metrics()
    logs = model.train_on_batch(x, y, sample_weight, return_dict=True)
    if not np.isfinite(logs.get("loss", 0.0)):
        return NaNOrigin("compiled", "loss", f"{logs['loss']}")
    groups = training_variables(model)
    variable = first_not_finite([*groups["model"], *groups["optimizer"]])
    return None if variable is None else NaNOrigin("update", path_in(variable, model), _describe(variable))


class _Watch:
    """The first output and the first gradient of a layer that are not finite, in the order of computation.

    The calls of inner layers end before those of the layers around them, and so do their gradients.
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self.forward: NaNOrigin | None = None
        self._is_found = False
        self.backward: NaNOrigin | None = None

    def wrap(self, layer: keras.layers.Layer, call: Callable[..., object]) -> Callable[..., object]:
        """Returns a call that looks at its inputs and outputs and at their gradients."""

        def watched(*args, **kwargs):
            args, kwargs = self._hooked((args, kwargs), layer, "its inputs")
            outputs = call(*args, **kwargs)
            if not self._is_found:
                self._look(layer, (args, kwargs), outputs)
            return self._hooked(outputs, layer, "its output")

        return watched

    def _look(self, layer, inputs, outputs):
        wrong = next((x for x in keras.tree.flatten(outputs) if _is_float_tensor(x) and not _is_finite_here(x)), None)
        if wrong is not None:
            detail = _describe(wrong)
            for name, values in (("inputs", keras.tree.flatten(inputs)), ("weights", getattr(layer, "weights", ()))):
                largest = np.max([0.0, *(_largest(x) for x in values if _is_float_tensor(x))])  # NaN if one is.
                detail += f"; {name} reach {largest:.3g}" if largest else ""
            # Where its inputs are not finite either, the layer around it computes them, and is named when its call ends.
            self._is_found = all(_is_finite_here(x) for x in keras.tree.flatten(inputs) if _is_float_tensor(x))
            if self._is_found or self.forward is None:
                self.forward = NaNOrigin("forward", path_in(layer, self.model), detail)

    def _hooked(self, structure, layer, what):
        def record(gradient):
            if self.backward is None and not _is_finite_here(gradient):
                self.backward = NaNOrigin(
                    "backward", path_in(layer, self.model), f"gradient of {what}: {_describe(gradient)}"
                )

        def hook(x):
            if not _is_float_tensor(x) or isinstance(x, keras.Variable):
                return x
            hooked = gradient_hook(x, record)
            keras_private.set_mask(hooked, keras_private.get_mask(x))
            return hooked

        return keras.tree.map_structure(hook, structure)


def _operations(model):
    """All layers of a model, at any depth, the operations of functional graphs, and the model itself."""
    layers = [model, *layers_in_order(model)]
    operations = [each for layer in layers for each in getattr(layer, "operations", ())]
    return list({id(each): each for each in [*layers, *operations] if hasattr(each, "call")}.values())


def _is_float_tensor(x):
    return (keras.ops.is_tensor(x) or isinstance(x, keras.Variable)) and keras.backend.is_float_dtype(
        keras.backend.standardize_dtype(x.dtype)
    )


def _is_finite_here(x):
    """Whether a tensor is finite; True where a layer compiles a part of its own, whose tensors have no values yet."""
    try:
        return is_finite(x)
    except TypeError:
        return True


def _largest(x: Tensor) -> float:
    try:
        x = keras.ops.stop_gradient(keras.ops.cast(x, "float32"))
        return float(keras.ops.max(keras.ops.abs(x))) if 0 not in x.shape else 0.0
    except TypeError:
        return 0.0


def _describe(x):
    """The count of values that are not finite, and their kinds."""
    ops = keras.ops
    x = ops.cast(ops.convert_to_tensor(x), "float32")
    infinite = ops.logical_and(ops.logical_not(ops.isnan(x)), ops.logical_not(ops.isfinite(x)))
    kinds = {
        "NaN": ops.isnan(x),
        "inf": ops.logical_and(infinite, x > 0),
        "-inf": ops.logical_and(infinite, x < 0),
    }
    counts = {name: int(ops.sum(ops.cast(found, "int32"))) for name, found in kinds.items()}
    count = sum(counts.values())
    names = ", ".join(name for name, number in counts.items() if number)
    return f"{count} of {math.prod(x.shape)} values {'is' if count == 1 else 'are'} not finite: {names}"
