import keras
import numpy as np
import pytest

from keras_transformer.tasks.pooling import POOLINGS, AttentionPooling

TOKENS = np.array([[[1.0, -4.0], [3.0, -2.0], [np.inf, 7.0]], [[2.0, 5.0], [9.0, 9.0], [9.0, 9.0]]])
MASK = np.array([[True, True, False], [True, False, False]])


@pytest.mark.parametrize(
    "name, expected",
    [
        ("first", [[1, -4], [2, 5]]),
        ("last", [[3, -2], [2, 5]]),
        ("mean", [[2, -3], [2, 5]]),
        ("max", [[3, -2], [2, 5]]),
    ],
)
def test_values(name, expected):
    np.testing.assert_allclose(POOLINGS[name]()(TOKENS, padding_mask=MASK), expected)


def test_attention_weighs_tokens_by_the_paper_s_formula():
    layer = AttentionPooling(hidden_dim=3)
    layer.build((None, None, 2))
    random = np.random.default_rng(0)
    kernel, bias, query = random.normal(size=(2, 3)), random.normal(size=3), random.normal(size=3)
    layer.set_weights([kernel, bias, query])
    tokens = TOKENS[0, :2]
    scores = np.tanh(tokens @ kernel + bias) @ query
    weights = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(layer(TOKENS[:1], padding_mask=MASK[:1])[0], weights @ tokens, rtol=1e-5)


@pytest.mark.parametrize("name", POOLINGS)
def test_a_row_of_padding_gives_zeros_and_no_nan_gradient(name):
    layer = POOLINGS[name](dtype="float32")
    tokens = keras.Variable(np.ones((1, 3, 2), "float32"))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            pooled = layer(tokens.value, padding_mask=np.zeros((1, 3), bool))
            total = tf.reduce_sum(pooled)
        gradient = tape.gradient(total, tokens.value)
        np.testing.assert_array_equal(gradient, np.zeros((1, 3, 2)))
    np.testing.assert_array_equal(layer(tokens, padding_mask=np.zeros((1, 3), bool)), np.zeros((1, 2)))


@pytest.mark.parametrize("name", POOLINGS)
def test_no_mask_means_all_tokens(name):
    layer = POOLINGS[name]()
    tokens = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    np.testing.assert_allclose(layer(tokens), layer(tokens, padding_mask=np.ones((2, 3), bool)), atol=1e-6)


def test_max_and_attention_in_half_precision():
    tokens = np.array([[[-300.0], [-200.0], [5.0]]])
    mask = np.array([[True, True, False]])
    for name, expected in (("max", -200.0), ("attention", -250.0)):
        layer = POOLINGS[name](dtype="float16")
        layer.build((None, None, 1))
        layer.set_weights([np.zeros_like(weight) for weight in layer.get_weights()])
        np.testing.assert_array_equal(layer(tokens, padding_mask=mask), [[expected]])


def test_configuration_of_attention():
    assert AttentionPooling.from_config(AttentionPooling(hidden_dim=5).get_config()).hidden_dim == 5
    with pytest.raises(ValueError, match="hidden_dim"):
        AttentionPooling(hidden_dim=0)
