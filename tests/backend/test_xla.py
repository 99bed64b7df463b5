"""The forms of products and updates that XLA computes soonest: what they compute, and what is compiled."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.attention.cache.dense import write_rows
from keras_transformer.attention.scoring.base import grouped_scores
from keras_transformer.backend.compilation.xla import compiled_by_xla, kernel_product

ON_TENSORFLOW = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads the program of TensorFlow")


def random(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def compiled_program(function, *arguments):
    """The lines of the entry computation of what XLA compiles."""
    import tensorflow as tf

    traced = tf.function(function, jit_compile=True, autograph=False)
    text = traced.experimental_get_compiler_ir(*map(tf.constant, arguments))(stage="optimized_hlo")
    return text[text.index("ENTRY") :].splitlines()


@pytest.mark.parametrize(
    ("rows", "kernel"), [(1, (24, 5)), (1, (24, 2, 5)), (1, (6, 4, 7)), (1, (9, 3)), (3, (24, 2, 5))]
)
def test_products_with_kernels_are_those_of_matrices(rows, kernel):
    inputs = 24 if kernel[0] in (24, 6) else 9
    x, weights = random(rows, inputs), random(*kernel)
    expected = x.astype("float64") @ weights.astype("float64").reshape(inputs, -1)
    with compiled_by_xla():
        np.testing.assert_allclose(kernel_product(x, weights), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernel_product(x, weights), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("length", "heads"), [(1, 6), (5, 6), (40, 6), (2, 3)])
def test_scores_are_those_of_each_head(length, heads):
    query, key = random(2, length, heads, 4), random(2, 7, 3, 4)
    expected = np.einsum("btnh,bsnh->bnts", query, np.repeat(key, heads // 3, axis=2))
    with compiled_by_xla():
        np.testing.assert_allclose(grouped_scores(query, key), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cache_index", [4, np.int32(4), np.array([4, 2], "int32")], ids=["int", "scalar", "by row"])
def test_rows_of_a_cache_are_those_of_the_plain_form(cache_index):
    cache, new = {"latent": random(2, 1, 9, 4)}, {"latent": random(2, 3, 1, 4)}
    plain = write_rows(cache, new, cache_index)["latent"]
    with compiled_by_xla():
        np.testing.assert_array_equal(write_rows(cache, new, cache_index)["latent"], plain)
    np.testing.assert_array_equal(plain[0, 0, 4:7], new["latent"][0, :, 0])


@ON_TENSORFLOW
def test_a_decoding_step_copies_no_cache():
    import tensorflow as tf

    cache = tf.Variable(random(1, 1, 96, 16))

    def step(row, index):
        state = write_rows({"latent": cache.read_value()}, {"latent": row}, index)["latent"]
        keys = ops.transpose(state, (0, 2, 1, 3))
        weights = ops.softmax(grouped_scores(ops.concatenate([row, row + 1.0], axis=2), keys))
        cache.assign(state)
        return ops.matmul(weights, state)

    arguments = random(1, 1, 1, 16), np.array([7], "int32")
    program = compiled_program(compiled_by_xla()(step), *arguments)
    whole = "f32[1,1,96,16]"
    assert [line for line in program if f"= {whole}" in line and "copy" in line] == []
    assert any("conditional" in line and whole in line for line in program)


@ON_TENSORFLOW
def test_the_product_of_one_row_is_left_to_the_library_of_matrix_products():
    import tensorflow as tf

    kernel = tf.Variable(random(64, 4, 8))
    program = compiled_program(compiled_by_xla()(lambda x: kernel_product(x, kernel)), random(1, 64))
    (product,) = [line for line in program if " dot(" in line]
    assert "lhs_batch_dims={0}" in product
