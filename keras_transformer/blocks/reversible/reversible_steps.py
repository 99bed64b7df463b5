"""Forward and backward pass of a stack of reversible blocks.

With s_0 = s_1 = x, and f_k the mixer or the feed-forward of a block in turn,

    s_{k+1} = s_{k-1} + f_k(s_k),   backward   s_{k-1} = s_{k+1} - f_k(s_k).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.backend.gradients.vjp import after, vjp
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.blocks.reversible.reversible_stack import ReversibleStack


def run_reversibly(stack: ReversibleStack, x: Tensor, **options: object) -> Tensor:
    """Returns both streams `(B, T, 2 D)` of a `ReversibleStack` in training, with a gradient that recomputes activations.

    Args:
        stack: `ReversibleStack`.
        x: float `(B, T, D)`.
        **options: call arguments of the blocks: `padding_mask`, `positions`.
    """
    steps = [_Step(stack, layers, run, options) for block in stack.blocks for layers, run in _sublayers(block)]
    counts = [len(step.weights) for step in steps]

    @ops.custom_gradient
    def run(x, *weights):
        weights = _grouped(weights, counts)
        before, current = x, x
        for step, own in zip(steps, weights, strict=True):
            before, current = current, before + step(current, *own)
        streams = (before, current)

        def gradient(*arguments, upstream=None):
            upstream = arguments[0] if upstream is None else upstream
            return _backward(steps, streams, ops.split(upstream, 2, axis=-1), weights)

        return ops.concatenate(streams, axis=-1), gradient

    streams = run(x, *(weight for step in steps for weight in step.weights))
    _advance(stack)
    return streams


def _backward(steps, streams, gradients, weights):
    """Returns the gradients of the tokens and of all weights, computed from the last step to the first."""
    (earlier, later), (earlier_gradient, later_gradient) = streams, gradients
    found = []
    for step, own in zip(reversed(steps), reversed(weights), strict=True):
        # Wait for the gradient: what is recomputed earlier would occupy memory until then.
        current = after(later_gradient, earlier)
        change, pullback = vjp(step, current, *own)
        gradient, *of_weights = pullback(later_gradient)
        found = [*of_weights, *found]
        earlier, later = later - change, earlier
        earlier_gradient, later_gradient = later_gradient, earlier_gradient + gradient
    return earlier_gradient + later_gradient, *found


class _Step:
    """A sublayer as a function of its stream and its weights that draws the same random numbers at every call."""

    def __init__(
        self,
        stack: ReversibleStack,
        layers: Iterable[keras.layers.Layer],
        function: Callable[..., Tensor],
        options: dict[str, object],
    ) -> None:
        self._function, self._dtype, self._options = function, stack.compute_dtype, options
        self._values = VariableValues(layers)
        self.weights = self._values.weights

    def __call__(self, x: Tensor, *weights: Tensor) -> Tensor:
        with self._values.scope(weights), keras_private.autocast_scope(self._dtype):
            return self._function(x, self._options)


def _sublayers(block):
    """The two sublayers of a block: the layers with their weights, and their functions."""
    mixing = (block.mixer_norm, block.mixer, block._mixer_dropout)
    feeding = (block.feedforward_norm, block.feedforward, block._feedforward_dropout)
    return [
        (mixing, lambda x, options: block.mix(x, **options, training=True)),
        (feeding, lambda x, options: block.feed(x, training=True)),
    ]


def _grouped(values, counts):
    """Splits values into tuples of the given lengths."""
    values = iter(values)
    return [tuple(next(values) for _ in range(count)) for count in counts]


def _advance(stack):
    """Advances every seed generator by one draw, since the steps do not update them."""
    for layer in keras_private.flatten_layers(stack):
        for generator in keras_private.seed_generators(layer):
            generator.next()
