"""Weights that are split over the devices of a batch, gathered for the layer that computes with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import keras

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor


@contextlib.contextmanager
def gathered_weights(layer: keras.layers.Layer) -> Iterator[None]:
    """Context in which the weights of a layer are whole that the distribution splits along the axis of the batch.

    Without it XLA may exchange activations rather than weights, as both are split over the same devices. Each weight is cast
    to the dtype that its layer computes in and gathered; its gradient is summed over the devices and split again. A weight
    that is also split along another axis of the mesh stays split along that one. For a layer without such weights, and on
    other backends than JAX, the context has no effect.

    Args:
        layer: `keras.layers.Layer`, whose call in a step of `fit` is inside the context.

    Reference: Rajbhandari et al., ZeRO, arXiv 1910.02054, section 5.3 (parameter partitioning).
    """
    scope, layouts = keras_private.stateless_scope(), _split_layouts(layer)
    if scope is None or not layouts:
        yield
        return
    before = []
    for part in keras_private.flatten_layers(layer):
        for variable in keras_private.own_weights(part):
            value = scope.get_current_value(variable)
            if variable.path not in layouts or value is None:
                continue
            with keras_private.autocast_scope(part.compute_dtype if part.autocast else None):
                cast = variable.value
            scope.add_update((variable, _gathered(cast, *layouts[variable.path])))
            before.append((variable, value))
    try:
        yield
    finally:
        for pair in before:
            scope.add_update(pair)


def _split_layouts(
    layer: keras.layers.Layer,
) -> dict[str, tuple[keras.distribution.TensorLayout, keras.distribution.TensorLayout]]:
    """Returns the layouts of the weights that the axis of the batch splits: path to the layout of the whole, and that."""
    distribution = keras.distribution.distribution()
    if keras.backend.backend() != "jax" or not isinstance(distribution, keras.distribution.ModelParallel):
        return {}
    found = {}
    for variable in layer.weights:
        split = distribution.get_variable_layout(variable)
        if distribution.batch_dim_name in split.axes:
            axes = [None if axis == distribution.batch_dim_name else axis for axis in split.axes]
            found[variable.path] = keras.distribution.TensorLayout(axes, distribution.device_mesh), split
    return found


def _gathered(value: Tensor, whole: keras.distribution.TensorLayout, split: object) -> Tensor:
    import jax

    def constrained(layout: keras.distribution.TensorLayout) -> Callable[[Tensor], Tensor]:
        return lambda x: keras.distribution.distribute_tensor(x, layout)

    gather = jax.custom_vjp(constrained(whole))
    gather.defvjp(lambda x: (constrained(whole)(x), None), lambda _, gradient: (constrained(split)(gradient),))
    return gather(value)
