"""Latent attention against the equations of its paper in float64, its two forms, and what its cache and its steps hold."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import (
    BlockwiseAttention,
    MultiHeadLatentAttention,
    ScaledDot,
    SoftmaxAttention,
    segment_mask,
)
from keras_transformer.layers.ternary import TernaryPolicy
from keras_transformer.positions import Rotary

HEADS, LATENT, KEY, ROTARY, VALUE, WIDTH = 3, 7, 5, 4, 6, 10


def made(seed=0, **options):
    layer = MultiHeadLatentAttention(HEADS, LATENT, KEY, ROTARY, VALUE, **options)
    layer.build((None, None, WIDTH))
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(rng.normal(0.1, 0.4, weight.shape))
    return layer


def tokens(length=9, batch_size=2, seed=1):
    return np.random.default_rng(seed).normal(size=(batch_size, length, WIDTH)).astype("float32")


def normalized(x, scale):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * scale


def turned(x, wavelength):
    """Rotates adjacent pairs of `(B, T, N, H)` by their positions."""
    angles = np.arange(x.shape[1])[:, None] * wavelength ** -(np.arange(0, ROTARY, 2) / ROTARY)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


def formula(layer, x, scale, wavelength=10000.0):
    """Equations 9 to 19 of arXiv 2405.04434 and those of appendix C, causal, in float64."""
    of = {weight.path.partition("/")[2]: np.asarray(weight, "float64") for weight in layer.weights}
    x = x.astype("float64")
    if layer.query_latent_dim is None:
        query = np.einsum("btd,dnh->btnh", x, of["query/kernel"])
    else:
        latent = normalized(x @ of["query_down/kernel"] + of["query_down/bias"], of["query_norm/scale"])
        query = np.einsum("btr,rnh->btnh", latent, of["query_up/kernel"])
    rows = x @ of["latent/kernel"] + of.get("latent/bias", 0)
    latent = normalized(rows[..., :LATENT], of["latent_norm/scale"])
    key = np.einsum("btr,rnh->btnh", latent, of["key_up/kernel"])
    value = np.einsum("btr,rnh->btnh", latent, of["value_up/kernel"])
    shared = turned(rows[:, :, None, LATENT:], wavelength)
    rotary = np.einsum("btnh,bsh->bnts", turned(query[..., KEY:], wavelength), shared[:, :, 0])
    scores = (np.einsum("btnh,bsnh->bnts", query[..., :KEY], key) + rotary) * scale
    scores = np.where(np.tri(x.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    context = np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), value)
    return np.einsum("btnh,nhd->btd", context, of["attention_output/kernel"]) + of.get("attention_output/bias", 0)


def in_steps(layer, x, sizes, max_length=12):
    cache, outputs, start = layer.init_cache(len(x), max_length), [], 0
    for size in sizes:
        part = x[:, start : start + size]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(start))
        outputs.append(np.asarray(output))
        start += size
    return np.concatenate(outputs, axis=1)


CASES = {
    "plain": ({}, 1 / 3, 10000.0),
    "latent queries": ({"query_latent_dim": 8, "use_bias": True}, 1 / 3, 10000.0),
    "scale and wavelength": ({"scale": 0.7, "position": Rotary(20.0)}, 0.7, 20.0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [None, [1] * 9, [4, 1, 4]])
def test_equations_of_the_paper(name, sizes):
    options, scale, wavelength = CASES[name]
    layer, x = made(**options), tokens()
    found = layer(x, x, use_causal_mask=True) if sizes is None else in_steps(layer, x, sizes)
    np.testing.assert_allclose(found, formula(layer, x, scale, wavelength), atol=3e-6)


def test_the_cache_holds_a_latent_and_a_rotary_key_of_each_token():
    layer, x = made(), tokens(length=2)
    empty = layer.init_cache(2, 20)
    assert {name: tuple(tensor.shape) for name, tensor in empty.items()} == {"latent": (2, 1, 20, LATENT + ROTARY)}
    _, cache = layer(x, x, cache=empty, cache_index=np.array([0, 3], "int32"))
    found = np.asarray(cache["latent"])[:, 0]
    rows = x.astype("float64") @ np.asarray(layer.latent_dense.kernel, "float64")
    latent = normalized(rows[..., :LATENT], np.asarray(layer.latent_norm.scale, "float64"))
    np.testing.assert_allclose(found[0, :2, :LATENT], latent[0], atol=1e-5)
    np.testing.assert_allclose(found[1, 3:5, :LATENT], latent[1], atol=1e-5)
    np.testing.assert_allclose(found[0, 1, LATENT:], turned(rows[:1, :, None, LATENT:], 1e4)[0, 1, 0], atol=1e-5)
    assert np.all(found[1, :3] == 0)
    assert np.all(found[:, 5:] == 0)


def shapes_of_step(layer, count, max_length):
    """The static shapes of all tensors of the graph of a step with `count` new tokens."""
    import tensorflow as tf

    cache = {name: tf.TensorSpec(tensor.shape, "float32") for name, tensor in layer.init_cache(1, max_length).items()}

    def step(x, cache):
        return layer(x, x, cache=cache, cache_index=tf.constant([3]))

    function = tf.function(step, autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec((1, count, WIDTH)), cache).graph
    return [tuple(tensor.shape) for operation in graph.get_operations() for tensor in operation.outputs]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads TensorFlow's graph")
def test_a_step_makes_no_keys_of_past_tokens():
    """Of each slot, a step holds the row of the cache, masks and scores: no keys and no values of the heads."""
    layer, slots = made(), 41
    few = layer.max_absorbed_queries
    assert few < 20
    for count, expands in ((1, False), (few, False), (few + 1, True)):
        per_slot = {shape[1:] for shape in shapes_of_step(layer, count, slots) if slots in shape[:2]}
        assert ((slots, HEADS, VALUE) in per_slot) == expands
        assert any(shape[-2:] == (HEADS, KEY) or shape[-1:] == (HEADS * KEY,) for shape in per_slot) == expands
    widths = {np.prod(shape) // slots for shape in shapes_of_step(layer, 1, slots) if slots in shape}
    assert max(widths) == LATENT + ROTARY


@pytest.mark.parametrize(
    "sizes, expected", [((512, 128, 128), 169), ((64, 32, 16), 36), ((8, 8, 8), 32), ((4, 8, 8), 2**31 - 1)]
)
def test_the_cheaper_form(sizes, expected):
    """R (H + V) products expand a cached token; each new token needs 2 R + 4 - H - V more with it in the absorbed form."""
    latent, key, value = sizes
    assert MultiHeadLatentAttention(2, latent, key, 4, value).max_absorbed_queries == expected


def test_blockwise_is_softmax():
    layer = made()
    tiled = made(mechanism=BlockwiseAttention(query_block_size=4, block_size=2))
    x = tokens()
    expected = np.asarray(layer(x, x, use_causal_mask=True))
    np.testing.assert_allclose(tiled(x, x, use_causal_mask=True), expected, atol=2e-6)
    np.testing.assert_allclose(in_steps(tiled, x, [5, 1, 3]), expected, atol=2e-6)


def test_packed_documents_do_not_see_each_other():
    layer, x = made(), tokens(length=5)
    segments = np.array([[1, 1, 2, 2, 2]] * 2)
    positions = np.array([[0, 1, 0, 1, 2]] * 2)
    packed = layer(x, x, attention_mask=segment_mask(segments), positions=positions, use_causal_mask=True)
    alone = [layer(part, part, use_causal_mask=True) for part in (x[:, :2], x[:, 2:])]
    np.testing.assert_allclose(packed, np.concatenate(alone, axis=1), atol=2e-6)


@pytest.mark.parametrize("rounding", ["ternary", "int8"])
def test_rounded_projections_take_the_expanded_form(rounding):
    layer = made(**({"dtype": TernaryPolicy("float32")} if rounding == "ternary" else {}))
    if rounding == "int8":
        for dense in (layer.key_dense, layer.value_dense):
            dense.quantize("int8")
    x = tokens()
    expected = np.asarray(layer(x, x, use_causal_mask=True))
    np.testing.assert_allclose(in_steps(layer, x, [1] * 9), expected, atol=1e-5)


def test_sinks_and_dropout_of_the_mechanism():
    layer, x = made(mechanism=SoftmaxAttention(use_sinks=True, dropout=0.5, seed=3)), tokens()
    whole = np.asarray(layer(x, x, use_causal_mask=True))
    np.testing.assert_allclose(in_steps(layer, x, [1] * 9), whole, atol=2e-6)
    assert np.abs(np.asarray(layer(x, x, use_causal_mask=True, training=True)) - whole).max() > 1e-2


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mechanism": "local"}, "blockwise"),
        ({"mechanism": SoftmaxAttention("cosine")}, "scaled_dot"),
        ({"mechanism": SoftmaxAttention(ScaledDot(0.5))}, "Set scale on MultiHeadLatentAttention"),
        ({"position": "alibi"}, "ALiBi"),
        ({"latent_dim": 0}, "latent_dim"),
    ],
)
def test_refuses(options, message):
    sizes = {"num_heads": 2, "latent_dim": 4, "key_dim": 4, "rotary_dim": 2}
    with pytest.raises(ValueError, match=message):
        MultiHeadLatentAttention(**sizes | options)


def test_refuses_an_int8_cache():
    with pytest.raises(ValueError, match="latents"):
        made().init_cache(1, 4, "int8")
