"""A cache goes through a call in the dtypes that it has, whatever the dtype policy of the layer is."""

import threading

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.attention import LocalAttention, MultiHeadAttention, SharedKeyValue
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.blocks import DecoderBlock, MemoryStack
from keras_transformer.feedforward import DenseFeedForward

MIXED = "mixed_bfloat16"
X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")


def dtypes(cache):
    return {name: keras.backend.standardize_dtype(tensor.dtype) for name, tensor in cache.items()}


def block(mechanism, policy=MIXED):
    mixer = MultiHeadAttention(2, 4, mechanism=mechanism, dtype=policy)
    return DecoderBlock(mixer, DenseFeedForward(16, dtype=policy), dtype=policy)


def counting(state, layer):
    """The state of linear attention after one token that counts as one, where 300 came before."""
    state = {"state": ops.full(state.shape, 300.0)}
    _, following = layer(X[:, :1], X[:, :1], cache=state, cache_index=300)
    return ops.convert_to_numpy(following["state"])


def test_a_sum_goes_on_where_the_narrow_type_has_no_next_number():
    """bfloat16 knows 300 and 302."""
    layer = MultiHeadAttention(1, 4, mechanism="linear", dtype=MIXED)
    layer.build(X.shape, X.shape)
    layer.key_dense.set_weights([np.zeros((8, 1, 4)), np.zeros((1, 4))])  # Features of 1.
    following = counting(layer.init_cache(2, 9)["state"], layer)
    np.testing.assert_array_equal(following[..., -1], 301.0)


def test_through_a_block():
    layer = block("linear")
    layer(X)
    cache = layer.init_cache(2, 9)
    _, cache = layer(X, cache=cache, cache_index=0)
    state = np.asarray(cache["state"])
    assert np.any(state != np.asarray(ops.cast(ops.cast(state, "bfloat16"), "float32")))
    mask = np.zeros((2, 1), bool)
    _, following = layer(X[:, :1], padding_mask=mask, cache=cache, cache_index=4)
    np.testing.assert_array_equal(following["state"], state)


@pytest.mark.parametrize("mechanism", ["softmax", "blockwise", "local"])
def test_a_dense_cache_may_be_wider_or_narrower_than_the_layer(mechanism):
    made = {"local": lambda: LocalAttention(3, dtype=MIXED)}
    for policy, dtype in ((MIXED, "float32"), ("float32", "bfloat16"), ("float32", "float16")):
        name = LocalAttention(3, dtype=policy) if mechanism in made else mechanism
        layer = block(name, policy)
        whole = ops.convert_to_numpy(ops.cast(layer(X), "float32"))
        cache = layer.init_cache(2, 9, dtype)
        outputs = []
        for index in range(4):
            output, cache = layer(X[:, index : index + 1], cache=cache, cache_index=index)
            assert set(dtypes(cache).values()) == {dtype}
            assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
            outputs.append(ops.convert_to_numpy(ops.cast(output, "float32")))
        np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=0.06)


def test_shared_keys_and_values_are_read_in_the_dtype_of_the_layer():
    layer = SharedKeyValue(2, 4, dtype=MIXED)
    (key, value), cache = layer(X, cache=layer.init_cache(2, 9, "float32"), cache_index=0)
    assert {key.dtype, value.dtype} == {ops.zeros((), "bfloat16").dtype}
    assert dtypes(cache) == {"key": "float32", "value": "float32"}


def test_memory_around_segments():
    layer = MemoryStack([block("softmax")], num_memory_tokens=2, segment_length=3, dtype=MIXED)
    whole = ops.convert_to_numpy(ops.cast(layer(X), "float32"))
    cache, outputs = layer.init_cache(2, 9, "float32"), []
    for index in range(4):
        output, cache = layer(X[:, index : index + 1], cache=cache, cache_index=index)
        assert set(dtypes(cache).values()) == {"float32"}
        outputs.append(ops.convert_to_numpy(ops.cast(output, "float32")))
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=0.06)


def test_in_a_functional_model():
    """Symbolic inputs of the cache's dtypes; the model computes what the layer does."""
    layer = block("linear")
    layer(X)
    empty = layer.init_cache(2, 9)
    x = keras.Input((4, 8), name="x")
    state = keras.Input(empty["state"].shape[1:], dtype="float32", name="state")
    index = keras.Input((), dtype="int32", name="index")
    output, following = layer(x, cache={"state": state}, cache_index=index)
    assert following["state"].dtype == "float32"
    model = keras.Model([x, state, index], [output, following["state"]])
    start = np.random.default_rng(1).uniform(1, 2, size=empty["state"].shape).astype("float32")
    expected, wanted = layer(X, cache={"state": start}, cache_index=np.zeros(2, "int32"))
    result, found = model([X, start, np.zeros(2, "int32")])
    np.testing.assert_array_equal(found, wanted["state"])
    np.testing.assert_array_equal(*(ops.convert_to_numpy(ops.cast(each, "float32")) for each in (result, expected)))


def test_other_arguments_are_cast_as_keras_does():
    """Queries of float32 beside a state of float32: the layer computes in its own dtype."""
    layer = MultiHeadAttention(2, 4, mechanism="linear", dtype=MIXED)
    layer.build(X.shape, X.shape)
    narrow = ops.cast(X, "bfloat16")
    (output, cache), (expected, wanted) = (
        layer(x, x, cache=layer.init_cache(2, 9), cache_index=0) for x in (X, narrow)
    )
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    np.testing.assert_array_equal(cache["state"], wanted["state"])
    np.testing.assert_array_equal(*(ops.convert_to_numpy(ops.cast(x, "float32")) for x in (output, expected)))


def test_a_call_with_a_cache_does_not_change_what_other_threads_compute():
    entered, leave = threading.Event(), threading.Event()

    class Waiting(CachedLayer):
        def call(self, x, cache=None):
            if cache is not None:
                entered.set()
                leave.wait(30)
            return ops.cast(ops.convert_to_tensor(x), "float32")

    layer = Waiting(dtype="mixed_bfloat16")
    x = np.array([1 + 2**-12], "float32")  # Rounded to 1 in bfloat16.
    thread = threading.Thread(target=lambda: layer(x, cache={"state": ops.zeros((1,), "float32")}))
    thread.start()
    try:
        assert entered.wait(30)
        assert float(layer(x)[0]) == 1.0
    finally:
        leave.set()
        thread.join()
