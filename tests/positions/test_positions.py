"""Each position against its formula in float64."""

import numpy as np
import pytest

from keras_transformer.attention import LongformerAttention, MultiHeadAttention
from keras_transformer.positions import Learned, Rotary, Sinusoidal


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_sinusoidal_formula(layout):
    width, length, wavelength = 6, 40, 500.0
    expected = np.zeros((length, width))
    for p in range(length):
        for i in range(width // 2):
            angle = p / wavelength ** (2 * i / width)
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2)
            expected[p, sine], expected[p, cosine] = np.sin(angle), np.cos(angle)
    x = np.random.default_rng(0).normal(size=(2, length, width))
    output = Sinusoidal(wavelength, layout)(x)
    np.testing.assert_allclose(output, x + expected, atol=1e-5)


def test_sinusoidal_takes_positions_for_each_row():
    x = np.zeros((2, 2, 4))
    table = np.asarray(Sinusoidal()(np.zeros((1, 8, 4))))[0]
    output = Sinusoidal()(x, positions=np.array([[5, 0], [2, 7]]))
    np.testing.assert_allclose(output, table[[[5, 0], [2, 7]]], atol=1e-6)


def test_sinusoidal_refuses_odd_widths_and_unknown_layouts():
    with pytest.raises(ValueError, match="even"):
        Sinusoidal()(np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="halves"):
        Sinusoidal(layout="no_such")


def test_learned_adds_the_row_of_each_position():
    layer = Learned(5)
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    layer.build(x.shape)
    table = np.random.default_rng(1).normal(size=(5, 4)).astype("float32")
    layer.embeddings.assign(table)
    np.testing.assert_allclose(layer(x), x + table[:3], atol=1e-6)
    np.testing.assert_allclose(layer(x, positions=[4, 0, 1]), x + table[[4, 0, 1]], atol=1e-6)
    rows = np.array([[0, 1, 2], [2, 3, 4]])
    np.testing.assert_allclose(layer(x, positions=rows), x + table[rows], atol=1e-6)


def test_learned_begins_behind_its_offset():
    layer = Learned(3, offset=2)
    x = np.zeros((1, 2, 4))
    layer.build(x.shape)
    layer.embeddings.assign(np.arange(20.0).reshape(5, 4))
    np.testing.assert_array_equal(layer(x)[0, :, 0], [8, 12])
    np.testing.assert_array_equal(layer(x, positions=[2, 0])[0, :, 0], [16, 8])
    with pytest.raises(ValueError, match="offset"):
        Learned(3, offset=-1)


def test_learned_refuses_longer_sequences():
    with pytest.raises(ValueError, match="has 3 tokens; the position table has 2 rows"):
        Learned(2)(np.zeros((1, 3, 4)))
    with pytest.raises(ValueError, match="positive"):
        Learned(0)


@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_rotary_is_a_rotation_of_each_pair(layout, rotary_dim):
    width, wavelength = 6, 300.0
    turned = rotary_dim or width
    x = np.random.default_rng(0).normal(size=(2, 9, 3, width))
    positions = np.array([np.arange(9), np.arange(100, 109)])
    expected = x.copy()
    for i in range(turned // 2):
        a, b = (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + turned // 2)
        angle = (positions * wavelength ** (-2 * i / turned))[:, :, None]
        as_complex = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angle)
        expected[..., a], expected[..., b] = as_complex.real, as_complex.imag
    output = Rotary(wavelength, layout, rotary_dim)(x, positions=positions)
    np.testing.assert_allclose(output, expected, atol=2e-5)


def test_rotary_products_depend_on_distance_alone():
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(1, 1, 1, 8)), rng.normal(size=(1, 1, 1, 8))
    rotary = Rotary()

    def product(m, n):
        return np.sum(np.asarray(rotary(query, positions=[m])) * np.asarray(rotary(key, positions=[n])))

    np.testing.assert_allclose(product(3, 7), product(103, 107), atol=1e-4)
    assert abs(product(3, 7) - product(3, 8)) > 1e-2


def test_rotary_angles_stay_exact_in_bfloat16():
    """At position 4,001, bfloat16 angles would be off by many radians; float32 ones leave only the final rounding."""
    x = np.ones((1, 1, 1, 2), "float32")
    output = Rotary(dtype="mixed_bfloat16")(x, positions=[4001])
    expected = [np.cos(4001) - np.sin(4001), np.cos(4001) + np.sin(4001)]
    np.testing.assert_allclose(np.asarray(output).astype("float64").ravel(), expected, atol=2**-6)


@pytest.mark.parametrize("options", [{"layout": "no_such"}, {"rotary_dim": 3}, {"rotary_dim": 0}])
def test_rotary_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Rotary(**options)


def test_rotary_refuses_heads_too_narrow():
    with pytest.raises(ValueError, match="8 features of heads of width 4"):
        Rotary(rotary_dim=8)(np.zeros((1, 1, 1, 4)))


def test_sinusoidal_reaches_its_longest_wavelength_and_begins_behind_its_offset():
    # fairseq: exponents i / (D/2 - 1), all sines first, and 2 for the first token.
    angles = (np.arange(12)[:, None] + 2) / 10000.0 ** (np.arange(4) / 3)
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    layer = Sinusoidal(layout="halves", endpoint=True, offset=2)
    np.testing.assert_allclose(layer(np.zeros((1, 12, 8)))[0], expected, atol=1e-5)
    with pytest.raises(ValueError, match="at least 4"):
        Sinusoidal(endpoint=True)(np.zeros((1, 12, 2)))


def test_rotary_rotates_values_in_attention_its_cache_and_its_memory():
    layer = MultiHeadAttention(1, 4, position=Rotary(rotate_values=True))
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    positions = np.array([[3, 4, 5, 6, 7], [0, 1, 2, 9, 11]])
    found = layer(x, x, use_causal_mask=True, positions=positions)
    rotary = Rotary()
    query, key, value = (
        np.asarray(rotary(dense(x), positions), "float64")[:, :, 0]
        for dense in (layer.query_dense, layer.key_dense, layer.value_dense)
    )
    scores = np.where(np.tri(5, dtype=bool), query @ key.swapaxes(1, 2) / 2, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    context = (weights / weights.sum(-1, keepdims=True)) @ value
    expected = context @ np.asarray(layer.output_dense.kernel, "float64")[0] + np.asarray(layer.output_dense.bias)
    np.testing.assert_allclose(found, expected, atol=1e-5)

    whole, cache = layer(x, x, use_causal_mask=True), layer.init_cache(2, 5)
    for start, end in ((0, 2), (2, 3), (3, 5)):
        part, cache = layer(x[:, start:end], x[:, start:end], cache=cache, cache_index=start)
        np.testing.assert_allclose(part, whole[:, start:end], atol=1e-5)
    memory = layer.memory_cache(x, positions=positions)
    found, _ = layer(x[:, :2], None, cache=memory, positions=(np.array([1, 2]), positions))
    np.testing.assert_allclose(found, layer(x[:, :2], x, positions=(np.array([1, 2]), positions)), atol=1e-5)


def test_layers_that_do_not_rotate_values_refuse():
    x = np.zeros((1, 4, 8), "float32")
    for layer in (
        LongformerAttention(2, 4, attention_window=2, position=Rotary(rotate_values=True)),
        MultiHeadAttention(2, 4, mechanism="infini", position=Rotary(rotate_values=True)),
    ):
        with pytest.raises(ValueError, match="rotate_values"):
            layer(x, x, use_causal_mask=isinstance(layer, MultiHeadAttention))
