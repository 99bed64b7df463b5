"""Self-tests of the private attributes of layers."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, dense, expect, nested

CHECKS = SelfTests()


@CHECKS.of("Layer._flatten_layers")
def _flatten_layers() -> None:
    parts = [each.name for each in private.flatten_layers(nested(), include_self=False)]
    expect(sorted(name for name in parts if name in "abc"), ["a", "b", "c"])
    expect("outer" in parts, False)
    expect("outer" in [each.name for each in private.flatten_layers(nested())], True)


@CHECKS.of("Layer._layers")
def _layers() -> None:
    names = [each.name for each in private.direct_layers(nested())]
    expect([name for name in names if name in "abc"], ["a", "b"])


@CHECKS.of("Dense._kernel")
def _kernel() -> None:
    expect(tuple(private.kernel(dense()).shape), (3, 2))
    einsum = keras.layers.EinsumDense("ab,bc->ac", 4)
    einsum.build((None, 3))
    expect(tuple(private.kernel(einsum).shape), (3, 4))


@CHECKS.of("BaseConv._kernel")
def _weight() -> None:
    convolutions = (keras.layers.Conv2D(4, 1), keras.layers.DepthwiseConv2D(1), keras.layers.Conv2DTranspose(4, 1))
    for layer in convolutions:
        layer.build((None, 2, 2, 3))
    shapes = [tuple(private.weight(layer, "kernel").shape) for layer in convolutions]
    expect(shapes, [(1, 1, 3, 4), (1, 1, 3, 1), (1, 1, 4, 3)])


@CHECKS.of("MultiHeadAttention._compute_attention, GroupQueryAttention._return_attention_scores")
def _explicit_scores() -> None:
    x = ops.ones((1, 3, 4))
    for plain in (keras.layers.MultiHeadAttention(2, 2), keras.layers.GroupQueryAttention(2, 2, 1)):
        expected, (_, scores) = plain(x, x), plain(x, x, return_attention_scores=True)
        seen: list[np.ndarray] = []
        plain.__class__ = type("Explicit", (private.ExplicitScores, type(plain)), {})

        def wrap(layer, call, seen=seen):
            return lambda *args, **kwargs: seen.append(call(*args, **kwargs)) or seen[-1]

        with private.wrapped_calls([each for each in plain._layers if isinstance(each, keras.layers.Softmax)], wrap):
            expect(np.allclose(plain(x, x), expected, atol=1e-6), True)
        expect(np.allclose(seen, scores), True)


@CHECKS.of("Embedding._embeddings")
def _embeddings() -> None:
    layer = keras.layers.Embedding(5, 2)
    layer.build()
    expect(tuple(private.embeddings(layer).shape), (5, 2))


@CHECKS.of("Layer._trainable_variables")
def _own_weights() -> None:
    layer = dense()
    layer.trainable = False
    expect([each.name for each in private.own_weights(layer)], ["kernel", "bias"])
    expect(private.own_weights(keras.layers.Dropout(0.5, seed=0)), [])
    expect(private.own_weights(nested()), [])


@CHECKS.of("Layer._seed_generators")
def _seed_generators() -> None:
    layer = keras.layers.Dropout(0.5)
    expect([type(each) for each in private.seed_generators(layer)], [keras.random.SeedGenerator])


@CHECKS.of("Layer._tracker, Layer._untrack_variable")
def _remove_variables() -> None:
    layer = dense()
    private.remove_variables(layer, ["bias"])
    expect(len(layer.variables), 1)
    expect(hasattr(layer, "bias"), False)


@CHECKS.of("Layer._tracker")
def _unlocked() -> None:
    layer = dense()
    with private.unlocked(layer):
        layer.more = layer.add_weight(name="more", shape=())
    expect([each.name for each in layer.variables], ["kernel", "bias", "more"])


@CHECKS.of("Layer._convert_input_args")
def _unconverted_inputs() -> None:
    class Layer(private.InputConversion, keras.layers.Identity):
        def __init__(self, **kwargs: object) -> None:
            super().__init__(**kwargs)

    layer = Layer(dtype="float16")
    x = ops.ones((1,), "float32")
    expect(private.converts_inputs(layer), True)
    with private.unconverted_inputs(layer):
        expect(private.converts_inputs(layer), False)
        expect(keras.backend.standardize_dtype(layer(x).dtype), "float32")
    expect(keras.backend.standardize_dtype(layer(x).dtype), "float16")


@CHECKS.of("Layer.call as an attribute of an instance")
def _wrapped_calls() -> None:
    layer, seen = dense(), []

    def wrap(layer, call):
        return lambda inputs: seen.append(layer.name) or call(inputs) + 1.0

    with private.wrapped_calls([layer], wrap):
        expect(np.asarray(ops.convert_to_numpy(layer(np.ones((1, 3))))).tolist(), [[4.0, 4.0]])
    expect(np.asarray(ops.convert_to_numpy(layer(np.ones((1, 3))))).tolist(), [[3.0, 3.0]])
    expect(seen, [layer.name])
