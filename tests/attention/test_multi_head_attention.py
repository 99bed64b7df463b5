import keras
import numpy as np
import pytest

from keras_transformer.attention import MECHANISMS, MultiHeadAttention, SoftmaxAttention, segment_mask


def tokens(batch_size=2, length=6, width=8, seed=0):
    return np.random.default_rng(seed).normal(size=(batch_size, length, width)).astype("float32")


def test_formula_in_float64():
    """Equation by equation, with separate sources, widths of their own, grouped heads and a gate."""
    query, key, value = tokens(length=3, width=8), tokens(length=5, width=7, seed=1), tokens(length=5, width=6, seed=2)
    layer = MultiHeadAttention(4, 3, value_dim=5, num_key_value_heads=2, use_gate=True, output_shape=9)
    layer.build(query.shape, value.shape, key.shape)
    rng = np.random.default_rng(3)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    wq, bq, wk, bk, wg, bg, wv, bv, wo, bo = (np.asarray(weight, "float64") for weight in layer.weights)
    q = np.einsum("btd,dnh->bnth", query, wq) + bq[:, None]
    k = np.repeat(np.einsum("bsd,dnh->bnsh", key, wk) + bk[:, None], 2, axis=1)
    v = np.repeat(np.einsum("bsd,dnh->bnsh", value, wv) + bv[:, None], 2, axis=1)
    gate = 1 / (1 + np.exp(-np.einsum("btd,dnh->bnth", query, wg) - bg[:, None]))
    scores = np.einsum("bnth,bnsh->bnts", q, k) / np.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = np.einsum("bnth,nhe->bte", np.einsum("bnts,bnsh->bnth", weights, v) * gate, wo) + bo
    output, returned = layer(query, value, key, return_attention_scores=True)
    np.testing.assert_allclose(returned, weights, atol=1e-5)
    np.testing.assert_allclose(output, expected, atol=1e-4)


def test_norms_of_queries_and_keys_come_before_they_are_turned():
    query, value = tokens(length=3), tokens(length=5, seed=1)
    layer = MultiHeadAttention(
        4, 6, num_key_value_heads=2, position="rotary", use_bias=False, query_key_norm="rms_norm"
    )
    layer.build(query.shape, value.shape)
    rng = np.random.default_rng(3)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    by_path = {weight.path.split("/", 1)[-1]: np.asarray(weight, "float64") for weight in layer.weights}

    def normed(x, name):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * by_path[f"{name}_norm/scale"]

    q = normed(np.einsum("btd,dnh->btnh", query, by_path["query/kernel"]), "query")
    k = normed(np.einsum("bsd,dnh->bsnh", value, by_path["key/kernel"]), "key")
    q, k = (np.asarray(x, "float64") for x in layer.position.rotate(q, k, np.arange(3), np.arange(5)))
    scores = np.einsum("btnh,bsnh->bnts", q, np.repeat(k, 2, axis=2)) / np.sqrt(6)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    output, weights = layer(query, value, return_attention_scores=True)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    remembered = layer(query, None, cache=layer.memory_cache(value))[0]
    np.testing.assert_allclose(remembered, output, atol=1e-5)


def test_norms_of_queries_and_keys_are_in_the_cache():
    x = tokens()
    layer = MultiHeadAttention(2, 4, query_key_norm=keras.layers.RMSNormalization(epsilon=0.5), position="rotary")
    whole = layer(x, x, use_causal_mask=True)
    cache, outputs = layer.init_cache(2, 6), []
    for index in range(6):
        token = x[:, index : index + 1]
        output, cache = layer(token, token, cache=cache, cache_index=index)
        outputs.append(np.asarray(output))
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5)


@pytest.mark.parametrize("use_bias, use_output_bias", [(True, False), (False, True)])
def test_the_output_projection_has_a_bias_as_asked(use_bias, use_output_bias):
    layer = MultiHeadAttention(2, 4, use_bias=use_bias, use_output_bias=use_output_bias)
    layer.build((1, 2, 8), (1, 2, 8))
    assert (layer.output_dense.bias is not None) is use_output_bias
    assert all(
        (dense.bias is not None) is use_bias for dense in (layer.query_dense, layer.key_dense, layer.value_dense)
    )


@pytest.mark.parametrize("options", [{}, {"use_gate": True, "value_dim": 5}, {"output_shape": (2, 3)}])
def test_equal_to_keras_with_its_weights(options):
    """The order and shapes of weights are Keras's: its checkpoints load."""
    if "value_dim" in options and keras.backend.backend() == "jax":
        pytest.skip("on JAX, Keras's own layer fails where value_dim differs from key_dim")
    x, y = tokens(), tokens(length=4, seed=1)
    theirs, ours = keras.layers.MultiHeadAttention(2, 4, **options), MultiHeadAttention(2, 4, **options)
    expected = theirs(x, y, use_causal_mask=True)
    ours.build(x.shape, y.shape)
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(ours(x, y, use_causal_mask=True), expected, atol=1e-6)


def test_grouped_heads_hold_fewer_weights():
    layer = MultiHeadAttention(8, 4, num_key_value_heads=1)
    layer.build((1, 2, 32), (1, 2, 32))
    assert layer.key_dense.kernel.shape == (32, 1, 4)
    assert layer.init_cache(3, 10)["key"].shape == (3, 1, 10, 4)


def test_cache_takes_the_compute_dtype():
    layer = MultiHeadAttention(2, 4, dtype="mixed_bfloat16")
    assert keras.backend.standardize_dtype(layer.init_cache(1, 3)["value"].dtype) == "bfloat16"
    assert keras.backend.standardize_dtype(layer.init_cache(1, 3, dtype="float32")["key"].dtype) == "float32"


def test_returns_output_scores_and_cache_as_asked():
    layer, x = MultiHeadAttention(2, 4), tokens(length=3)
    output, scores, cache = layer(
        x, x, cache=layer.init_cache(2, 5), cache_index=np.int32(0), return_attention_scores=True
    )
    assert (output.shape, scores.shape, cache["key"].shape) == ((2, 3, 8), (2, 2, 3, 5), (2, 2, 5, 4))
    np.testing.assert_array_equal(np.asarray(scores)[..., 3:], 0)


def test_positions_shift_nothing_for_rotary():
    """Rotary depends on distances alone: all positions moved by 50 give the same output."""
    layer, x = MultiHeadAttention(2, 4, position="rotary"), tokens()
    moved = layer(x, x, positions=np.arange(50, 56))
    np.testing.assert_allclose(moved, layer(x, x), atol=1e-5)
    assert np.abs(np.asarray(layer(x, x, positions=np.arange(6) * 2)) - np.asarray(layer(x, x))).max() > 1e-4


def test_positions_of_other_keys_come_as_a_pair():
    layer, x, y = MultiHeadAttention(2, 4, position="rotary"), tokens(length=2), tokens(length=6, seed=1)
    whole = layer(y, y)
    np.testing.assert_allclose(layer(y[:, 4:], y, positions=(np.array([4, 5]), np.arange(6))), whole[:, 4:], atol=1e-6)
    assert np.abs(np.asarray(layer(y[:, 4:], y)) - np.asarray(whole)[:, 4:]).max() > 1e-4
    assert layer(x, y).shape == (2, 2, 8)


def test_keras_mask_of_an_embedding_is_applied():
    ids = np.array([[1, 2, 0, 0]])
    embedding, layer = keras.layers.Embedding(5, 8, mask_zero=True), MultiHeadAttention(2, 4)
    x = embedding(ids)
    output = layer(x, x)
    short = embedding(ids[:, :2])
    np.testing.assert_allclose(output[:, :2], layer(short, short), atol=1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_key_value_heads": 3}, "must divide num_heads=4"),
        ({"mechanism": "no_such"}, "softmax"),
        ({"position": "no_such"}, "rotary"),
        ({"attention_axes": 1.5}, "attention_axes"),
        ({"mechanism": SoftmaxAttention(), "dropout": 0.1}, "on the mechanism"),
    ],
)
def test_invalid_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(4, 8, **options)


def test_unknown_scoring_lists_the_valid_ones():
    with pytest.raises(ValueError, match="additive, bilinear, cosine, dot, gaussian, location, scaled_dot"):
        SoftmaxAttention(scoring="no_such")


def test_mechanisms_are_in_the_dict():
    assert MECHANISMS["softmax"] is SoftmaxAttention


def test_dropout_acts_on_weights_in_training_only():
    x = tokens()
    layer = MultiHeadAttention(2, 4, dropout=0.9, seed=1)
    quiet = layer(x, x, training=False)
    np.testing.assert_array_equal(layer(x, x), quiet)
    assert np.abs(np.asarray(layer(x, x, training=True)) - np.asarray(quiet)).max() > 1e-3


@pytest.mark.parametrize("mechanism", ["softmax", "blockwise"])
@pytest.mark.parametrize("causal", [False, True])
def test_segments_are_their_mask(mechanism, causal):
    layer = MultiHeadAttention(4, 8, num_key_value_heads=2, mechanism=mechanism)
    x = np.random.default_rng(0).normal(size=(2, 7, 16)).astype("float32")
    segment_ids = np.array([[1, 1, 1, 2, 2, 3, 0], [1, 1, 1, 1, 1, 0, 0]])
    found = layer(x, x, segment_ids=segment_ids, use_causal_mask=causal)
    np.testing.assert_array_equal(found, layer(x, x, attention_mask=segment_mask(segment_ids), use_causal_mask=causal))
    # Padding is segment 0, also where a mask says so.
    longer = np.where(segment_ids == 0, 3, segment_ids)
    masked = layer(x, x, segment_ids=longer, value_mask=segment_ids > 0, use_causal_mask=causal)
    np.testing.assert_array_equal(masked, found)
    without = layer(x, x, use_causal_mask=causal)
    assert np.abs(np.asarray(found) - np.asarray(without)).max() > 0.01


def test_segments_are_refused_by_mechanisms_without_masks():
    x = np.ones((1, 3, 16), "float32")
    with pytest.raises(ValueError, match="attention_mask"):
        MultiHeadAttention(4, 8, mechanism="linear")(x, x, segment_ids=np.ones((1, 3), "int32"))
