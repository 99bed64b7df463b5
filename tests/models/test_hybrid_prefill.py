"""Prefill of a hybrid in the traced graph: loops over chunks, none over tokens."""

import keras
import numpy as np
import pytest

from keras_transformer import models
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.recurrence import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Mamba2

SIZE = models.Size(num_layers=5, hidden_dim=16, num_heads=2, intermediate_dim=24)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts the loops of a TensorFlow graph")
def test_loops_of_prefill_are_over_chunks():
    import tensorflow as tf

    mixers = [GatedDeltaNet(2, 8), KimiDeltaAttention(2, 8), Mamba2(2, 8, 4), LightningAttention(2, 8)]
    backbone = models.Decoder(SIZE, 23, position=None, attention=[*mixers, MultiHeadAttention(2, 8)], dropout=0.0)
    steps = models.Stepwise(backbone)

    def prefill(ids):
        return steps(ids, steps.init_cache(1, max_length=256), 0)

    traced = tf.function(prefill, autograph=False).get_concrete_function(tf.TensorSpec((1, 256), "int32"))
    # Chunks of 64 tokens; the chunks of Mamba-2 and of lightning attention are combined by an unrolled scan.
    assert trip_counts(traced.graph) == [4, 4]
    # The whole is what the tokens one by one give.
    ids = np.random.default_rng(0).integers(0, 23, (1, 256)).astype("int32")
    output, cache = traced(tf.constant(ids))
    part, after = steps(ids[:, :255], steps.init_cache(1, max_length=256), 0)
    last, after = steps(ids[:, 255:], after, np.int32(255))
    np.testing.assert_allclose(output[:, 255:], last, atol=1e-5)
    for name, tensor in after.items():
        np.testing.assert_allclose(cache[name], tensor, atol=1e-5 * max(1.0, np.abs(tensor).max()))


def trip_counts(graph):
    """Returns how often each loop of a graph runs."""
    from keras_transformer.planning.graph.trip_counts import LOOPS, StaticValues

    values = StaticValues(graph)
    loops = [node for node in graph.get_operations() if node.type in LOOPS]
    return [sum(1 for _ in values.iterations(loop)) for loop in loops]
