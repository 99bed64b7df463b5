"""The way forward and back through a stack of reversible blocks.

The streams take turns: with s_0 = s_1 the tokens, and f_k the mixer or the feed-forward of a block,

    s_{k+1} = s_{k-1} + f_k(s_k),   backward   s_{k-1} = s_{k+1} - f_k(s_k).
"""

from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.backend.vjp import after, vjp


def run_reversibly(stack, x, **known):
    """Both streams `(B, T, 2 D)` of a `ReversibleStack` in training, of which alone the gradient is computed.

    Args:
        stack: `ReversibleStack`.
        x: float `(B, T, D)`.
        **known: what its blocks are told of the tokens: `padding_mask`, `positions`.
    """
    steps = [_Step(stack, *pair, known) for block in stack.blocks for pair in _sublayers(block)]
    counts = [len(step.weights) for step in steps]

    @ops.custom_gradient
    def run(x, *weights):
        weights = _parts(weights, counts)
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


def _backward(steps, streams, slopes, weights):
    """The gradients of the tokens and of all weights, from the last step to the first."""
    (earlier, later), (earlier_slope, later_slope) = streams, slopes
    found = []
    for step, own in zip(reversed(steps), reversed(weights), strict=True):
        # Not before the gradient is there: what is computed again would lie in memory until then.
        current = after(later_slope, earlier)
        change, pullback = vjp(step, current, *own)
        slope, *of_weights = pullback(later_slope)
        found = [*of_weights, *found]
        earlier, later = later - change, earlier
        earlier_slope, later_slope = later_slope, earlier_slope + slope
    return earlier_slope + later_slope, *found


class _Step:
    """A sublayer as a function of its stream and its weights; at every call it draws the same random numbers."""

    def __init__(self, stack, layers, function, known):
        self._function, self._dtype, self._known = function, stack.compute_dtype, known
        self._values = VariableValues(layers)
        self.weights = self._values.weights

    def __call__(self, x, *weights):
        with self._values.scope(weights), keras_private.autocast_scope(self._dtype):
            return self._function(x, self._known)


def _sublayers(block):
    """The two sublayers of a block: the layers that each has weights in, and its function."""
    mixing = (block.mixer_norm, block.mixer, block._mixer_dropout)
    feeding = (block.feedforward_norm, block.feedforward, block._feedforward_dropout)
    return [
        (mixing, lambda x, known: block.mix(x, **known, training=True)),
        (feeding, lambda x, known: block.feed(x, training=True)),
    ]


def _parts(values, counts):
    """Values in tuples of so many."""
    values = iter(values)
    return [tuple(next(values) for _ in range(count)) for count in counts]


def _advance(stack):
    """Lets every generator of random numbers go on by one draw: what the steps have drawn stays within them."""
    for layer in keras_private.flatten_layers(stack):
        for generator in keras_private.seed_generators(layer):
            generator.next()
