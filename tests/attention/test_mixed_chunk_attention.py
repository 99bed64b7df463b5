"""Gated attention, whole and in groups, against the reference's figures and the dense formulas."""

import math
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import GatedAttentionUnit, MixedChunkAttention
from keras_transformer.attention.layers.gated.gated_attention_unit import laplace
from keras_transformer.positions import RelativeBias

DATA = Path(__file__).parents[1] / "data"


def load(golden, layer, rows, output, bias_scale):
    """Puts the reference's weights into a layer that is built."""
    layer._hidden_dense.set_weights([golden["params/to_hidden.0.weight"].T, golden["params/to_hidden.0.bias"]])
    layer._shared_dense.set_weights([golden["params/to_qk.0.weight"].T, golden["params/to_qk.0.bias"]])
    layer._scale.assign(golden[f"params/{rows}.gamma"])
    layer._shift.assign(golden[f"params/{rows}.beta"])
    table = golden["params/rel_pos_bias.relative_attention_bias.weight"]
    layer.position.embeddings.assign(table * bias_scale)
    layer.output_dense.set_weights([golden[f"params/{output}.weight"].T, golden[f"params/{output}.bias"]])


def normalized(golden):
    """The layer norm before the unit, which is the block's here."""
    x = golden["inputs/x"].astype("float64")
    centered = x - x.mean(-1, keepdims=True)
    x = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return (x * golden["params/norm.weight"] + golden["params/norm.bias"]).astype("float32")


def test_reference_of_the_unit():
    golden = np.load(DATA / "gau.npz")
    x = normalized(golden)
    layer = GatedAttentionUnit(key_dim=8, position=RelativeBias())
    layer.build(x.shape)
    load(golden, layer, "offsetscale", "to_out.0", np.sqrt(16))
    assert np.all(golden["inputs/mask"])
    np.testing.assert_allclose(layer(x, x) + golden["inputs/x"], golden["outputs/y"], atol=1e-5)


def reference_form(function, causal, share):
    """The unit of `gau_forms.npz`, with scores times `share`."""
    golden, forms = np.load(DATA / "gau.npz"), np.load(DATA / "gau_forms.npz")
    position = RelativeBias(bidirectional=not causal)
    layer, x = GatedAttentionUnit(key_dim=8, position=position, attention_function=function), normalized(golden)
    layer.build(x.shape)
    load(golden, layer, "offsetscale", "to_out.0", np.sqrt(16) * share)
    scale = forms["gamma"] * np.array([[share], [1.0]])
    layer._scale.assign(scale)
    layer._shift.assign(golden["params/offsetscale.beta"] * np.array([[share], [1.0]]))
    return layer, x, golden["inputs/x"], forms


@pytest.mark.parametrize("function", ["squared_relu", "laplace"])
def test_reference_of_the_unit_with_either_function_and_a_mask(function):
    """The reference divides scores by the padded length, this layer by the number of keys."""
    layer, x, residual, forms = reference_form(function, False, 1.0)
    assert_close(layer(x, x) + residual, forms[f"{function}_bidirectional"])
    mask, expected = forms["mask"], forms[f"{function}_bidirectional_masked"]
    for row, length in ((0, 14), (1, 9)):
        layer, *_ = reference_form(function, False, length / 14)
        found = (np.asarray(layer(x, x, query_mask=mask, value_mask=mask)) + residual)[row, :length]
        assert_close(found, expected[row, :length])


@pytest.mark.parametrize("function", ["squared_relu", "laplace"])
def test_reference_of_the_causal_unit(function):
    for index in (0, 4, 13):
        layer, x, residual, forms = reference_form(function, True, (index + 1) / 14)
        mask = forms["mask"]
        found = (np.asarray(layer(x, x, use_causal_mask=True)) + residual)[:, index]
        assert_close(found, forms[f"{function}_causal"][:, index])
        found = (np.asarray(layer(x, x, query_mask=mask, value_mask=mask, use_causal_mask=True)) + residual)[:, index]
        expected = forms[f"{function}_causal_masked"][:, index]
        assert_close(found[mask[:, index]], expected[mask[:, index]])


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())


def test_reference_of_mixed_chunks():
    golden = np.load(DATA / "flash_layer.npz")
    x = normalized(golden)
    layer = MixedChunkAttention(key_dim=8, group_size=5, position=RelativeBias(bidirectional=False))
    layer.build(x.shape)
    load(golden, layer, "qk_offset_scale", "to_out", np.sqrt(8))
    output = layer(x, x, use_causal_mask=True) + golden["inputs/x"]
    np.testing.assert_allclose(output, golden["outputs/y"], atol=1e-5)


def silu(x):
    return x / (1 + np.exp(-x))


def parts(layer, x):
    """Values, gate, and the scaled vectors, in float64."""
    hidden, shared = (
        silu(x.astype("float64") @ np.asarray(dense.kernel) + np.asarray(dense.bias))
        for dense in (layer._hidden_dense, layer._shared_dense)
    )
    width = hidden.shape[-1] // 2
    vectors = shared[:, :, None] * np.asarray(layer._scale) + np.asarray(layer._shift)
    return hidden[..., :width], hidden[..., width:], np.moveaxis(vectors, 2, 0)


def finish(layer, context, gate):
    return (context * gate) @ np.asarray(layer.output_dense.kernel) + np.asarray(layer.output_dense.bias)


def dense_unit(layer, x, mask, causal):
    value, gate, (query, key) = parts(layer, x)
    seen = np.tril(np.ones((x.shape[1],) * 2))[None] if causal else np.ones((1, x.shape[1], x.shape[1]))
    seen = seen * mask[:, None] * mask[:, :, None]
    scores = query @ key.transpose(0, 2, 1) / np.maximum(seen.sum(-1, keepdims=True), 1)
    return finish(layer, (WEIGHTS[layer.attention_function](scores) * seen) @ value, gate)


# The Laplace function of Mega with the error function of Python.
_ERF = np.vectorize(math.erf)
WEIGHTS = {
    "squared_relu": lambda scores: np.maximum(scores, 0) ** 2,
    "laplace": lambda scores: (1 + _ERF((scores - np.sqrt(0.5)) / np.sqrt(2 / (4 * np.pi)))) / 2,
}


def dense_chunks(layer, x, mask, causal):
    size = layer.group_size
    value, gate, (query, global_query, key, global_key) = parts(layer, x)
    value = value * mask[:, :, None]
    groups = np.arange(x.shape[1]) // size
    local = (groups[:, None] == groups).astype(float)
    if causal:
        local, far = np.tril(local), (groups[:, None] > groups) / size
    else:
        far = 1 / np.maximum(mask.sum(1), 1)[:, None, None]
    weights = np.maximum(query @ key.transpose(0, 2, 1) / size, 0) ** 2 * local
    weights = weights + global_query @ global_key.transpose(0, 2, 1) * far
    return finish(layer, weights @ value * mask[:, :, None], gate)


def varied(layer, x):
    """A layer whose weights, of both signs, tell its uses apart."""
    layer.build(x.shape)
    rng = np.random.default_rng(5)
    layer.set_weights([rng.normal(size=weight.shape) * 0.7 for weight in layer.weights])
    return layer


def test_the_laplace_function_is_near_the_error_function_everywhere():
    scores = np.concatenate(
        [np.linspace(-4, 4, 4001), [np.sqrt(0.5)], np.sqrt(0.5) + np.array([-0.5, 0.5]) * 0.2820948]
    )
    np.testing.assert_allclose(laplace(scores.astype("float32")), WEIGHTS["laplace"](scores), atol=3e-7)


@pytest.mark.parametrize("causal", [False, True])
def test_the_unit_with_the_laplace_function_is_its_formula(causal):
    """Weights of a score of zero are no zeros: masked keys have none, and a query without keys has no context."""
    x = np.random.default_rng(0).normal(size=(2, 13, 6)).astype("float32")
    layer = varied(GatedAttentionUnit(key_dim=4, attention_function="laplace"), x)
    mask = np.random.default_rng(1).uniform(size=(2, 13)) > 0.3
    output = layer(x, x, query_mask=mask, value_mask=mask, use_causal_mask=causal)
    np.testing.assert_allclose(output, dense_unit(layer, x, mask, causal), atol=1e-4, rtol=1e-5)
    expected = dense_unit(layer, x, mask | True, causal)
    np.testing.assert_allclose(layer(x, x, use_causal_mask=causal), expected, atol=1e-4, rtol=1e-5)
    if causal:
        first, cache = layer(x[:, :5], x[:, :5], cache=layer.init_cache(2, 13), cache_index=0)
        second, _ = layer(x[:, 5:], x[:, 5:], cache=cache, cache_index=5)
        np.testing.assert_allclose(np.concatenate([first, second], axis=1), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("formula", [dense_unit, dense_chunks])
def test_any_length_and_padding_is_the_dense_formula(formula, causal):
    x = np.random.default_rng(0).normal(size=(2, 19, 6)).astype("float32")
    mask = np.random.default_rng(1).uniform(size=(2, 19)) > 0.3
    unit = GatedAttentionUnit(key_dim=4) if formula is dense_unit else MixedChunkAttention(key_dim=4, group_size=5)
    layer = varied(unit, x)
    for length in (1, 4, 5, 19):
        part, everything = x[:, :length], np.ones((2, length), bool)
        output = layer(part, part, use_causal_mask=causal)
        np.testing.assert_allclose(output, formula(layer, part, everything, causal), atol=1e-4, rtol=1e-5)
        seen = mask[:, :length]
        output = layer(part, part, query_mask=seen, value_mask=seen, use_causal_mask=causal)
        np.testing.assert_allclose(output, formula(layer, part, seen, causal), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("sizes", [[1] * 12, [5, 1, 4, 2], [11, 1], [2, 10]])
def test_rows_cross_groups_at_places_of_their_own(sizes):
    """Rows of 3, 4 and 7 tokens, padded with large numbers, then more tokens of each, over several groups of 4."""
    lengths, new = np.array([3, 4, 7], "int32"), sum(sizes)
    x = np.random.default_rng(0).normal(size=(3, 7 + new, 6)).astype("float32")
    position = RelativeBias(num_buckets=4, max_distance=3, bidirectional=False, initializer="ones")
    layer = varied(MixedChunkAttention(key_dim=4, group_size=4, position=position), x)
    whole = np.asarray(layer(x, x, use_causal_mask=True))
    mask = np.arange(7) < lengths[:, None]
    padded = np.where(mask[:, :, None], x[:, :7], np.float32(50.0))
    cache = layer.init_cache(3, max_length=1000)
    _, cache = layer(padded, padded, query_mask=mask, cache=cache, cache_index=0)
    assert tuple(cache["state"].shape) == (3, 1, 4, 12)
    index = lengths
    for size in sizes:
        tokens = np.stack([x[row, i : i + size] for row, i in enumerate(index)])
        output, cache = layer(tokens, tokens, cache=cache, cache_index=index)
        expected = np.stack([whole[row, i : i + size] for row, i in enumerate(index)])
        np.testing.assert_allclose(output, expected, atol=1e-4, rtol=1e-5)
        index = index + size
