"""How much the loss depends on heads, feed-forward units and blocks: first-order estimates on data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import keras
import numpy as np
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.backend import keras_private
from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.blocks.block import Block
from keras_transformer.feedforward.dense import DenseFeedForward
from keras_transformer.training.errors import PruningError
from keras_transformer.utils.types import Tensor


@dataclasses.dataclass(frozen=True)
class Importance:
    """The importance of the parts of a model: by how much the loss changes, to first order, without them.

    Attributes:
        heads: dict of the path of each attention layer to float64 `(K,)`: of each key/value head with its query heads.
        feedforward_units: dict of the path of each feed-forward layer to float64 `(F,)`.
        blocks: dict of the name of each block to a float.

    Example:

    >>> Importance({}, {}, {"encoder_block_0": 0.5}).blocks["encoder_block_0"]
    0.5
    """

    heads: dict[str, np.ndarray]
    feedforward_units: dict[str, np.ndarray]
    blocks: dict[str, float]


def measure_importance(
    model: keras.Model, data: Iterable[object], loss: str | Callable[..., Tensor] | None = None
) -> Importance:
    """Measures the importance of heads, feed-forward units and blocks.

    With a gate ξ = 1 that multiplies what a part adds, it is `|∂L/∂ξ|`, averaged over the batches: small batches are closer
    to the average over examples of the paper. The gate of a head scales its rows of the output kernel W, so that the
    derivative is the sum of `W ∂L/∂W` over these.

    Args:
        model: `keras.Model`, Functional, with `MultiHeadAttention`, `DenseFeedForward` or `GatedFeedForward`. It is not
            changed.
        data: iterable of batches `(x, y)`, such as a `tf.data.Dataset`: a sample of the training data.
        loss: a loss of Keras, its name, or a function of `(y_true, y_pred)`. None: the one given to `compile`.

    Returns:
        `Importance`.

    Raises:
        PruningError: no loss, no data, or no such layers.

    Example:

    >>> from keras_transformer import models
    >>> model = models.ViT(models.Size(2, 8, 2, 16), patch_size=4, image_size=8)
    >>> x = np.random.default_rng(0).normal(size=(4, 8, 8, 3))
    >>> found = measure_importance(model, [(x, np.zeros((4, 5, 8)))], "mean_squared_error")
    >>> {path: each.shape for path, each in found.heads.items()}
    {'encoder_block_0/self_attention': (2,), 'encoder_block_1/self_attention': (2,)}

    Reference: Michel et al., Are Sixteen Heads Really Better than One?, arXiv 1905.10650, equation 2; Molchanov et al.,
    Importance Estimation for Neural Network Pruning, arXiv 1906.10771, section 3.1 (gates).
    """
    function = _loss_function(model, loss)
    attentions, feedforwards = attention_layers(model), feedforward_layers(model)
    outputs = [layer.output_dense for layer in attentions] + [layer._output_dense for layer in feedforwards]
    if not outputs:
        raise PruningError(f"{model.name!r} has no MultiHeadAttention, DenseFeedForward or GatedFeedForward")
    totals: dict[int, np.ndarray] = {}
    within = {block.name: set(map(id, keras_private.flatten_layers(block))) for block in block_layers(model)}
    blocks, count = dict.fromkeys(within, 0.0), 0
    for batch in data:
        effects = _effects(model, function, outputs, batch)
        for index, (rows, _) in enumerate(effects):
            totals[index] = totals.get(index, 0.0) + np.abs(_per_part(attentions, index, rows))
        for name, ids in within.items():
            own = [sum(map(np.sum, each)) for layer, each in zip(outputs, effects, strict=True) if id(layer) in ids]
            blocks[name] += abs(float(sum(own)))
        count += 1
    if not count:
        raise PruningError("data has no batches to measure importance on")
    means = [totals[index] / count for index in range(len(outputs))]
    return Importance(
        {layer.path: each for layer, each in zip(attentions, means, strict=False)},
        {layer.path: each for layer, each in zip(feedforwards, means[len(attentions) :], strict=True)},
        {name: total / count for name, total in blocks.items()},
    )


def attention_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The `MultiHeadAttention` layers of a model, in call order."""
    return [layer for layer in layers_in_order(model) if isinstance(layer, MultiHeadAttention)]


def feedforward_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The `DenseFeedForward` and `GatedFeedForward` layers of a model, in call order."""
    return [layer for layer in layers_in_order(model) if isinstance(layer, DenseFeedForward)]


def block_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """The blocks of a model, in call order."""
    return [layer for layer in layers_in_order(model) if isinstance(layer, Block)]


def _per_part(attentions, index, rows):
    """The derivative of each key/value head, of those of query heads; that of a unit is that of its row."""
    if index >= len(attentions):
        return rows
    return rows.reshape(attentions[index].num_key_value_heads, -1).sum(axis=1)


def _effects(model, function, layers, batch):
    """For each output projection the sums of `W ∂L/∂W` by the first axis of the kernel, and that of its bias."""
    x, y = batch[0], batch[1]
    variables = [keras_private.kernel(layer) for layer in layers]
    variables += [layer.bias for layer in layers if layer.bias is not None]
    variables = list({id(variable): variable for variable in variables}.values())

    def loss_of(*values):
        mapping = list(zip(variables, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return ops.mean(ops.cast(function(y, model(x, training=False)), "float32"))

    values = [ops.convert_to_tensor(ops.convert_to_numpy(variable)) for variable in variables]
    _, pullback = vjp(loss_of, *values)
    gradients = dict(zip(map(id, variables), pullback(ops.ones(())), strict=True))

    def effect(variable):
        value, gradient = (ops.convert_to_numpy(each).astype("float64") for each in (variable, gradients[id(variable)]))
        return value * gradient

    found = []
    for layer in layers:
        kernel = effect(keras_private.kernel(layer))
        rows = kernel.reshape(kernel.shape[0], -1).sum(axis=1)
        found.append((rows, np.zeros(()) if layer.bias is None else effect(layer.bias)))
    return found


def _loss_function(model, loss):
    loss = getattr(model, "loss", None) if loss is None else loss
    if loss is None:
        raise PruningError(f"{model.name!r} has no loss: give one, or compile the model with one")
    return keras.losses.get(loss)
