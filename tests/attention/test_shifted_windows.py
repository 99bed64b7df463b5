"""Shifted windows against the golden layer of Swin, and against attention over the whole grid with a mask."""

import pathlib

import numpy as np
import pytest

from keras_transformer.attention import ShiftedWindowAttention, attention_maps
from keras_transformer.blocks import EncoderBlock, PreNormResidual
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.models import Swin, SwinSize
from keras_transformer.positions import RelativeGridBias
from keras_transformer.vision import PatchMerging

GOLDEN = pathlib.Path(__file__).parents[1] / "data" / "swin_layer.npz"


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as arrays:
        return {name: arrays[name] for name in arrays if "/" in name}


def block(golden, shifted):
    """The golden layer, with its weights."""
    import keras

    layer = EncoderBlock(
        ShiftedWindowAttention(2, 8, (8, 8), window_size=4, shifted=shifted),
        DenseFeedForward(32, "gelu"),
        residual=PreNormResidual(keras.layers.LayerNormalization(epsilon=1e-5)),
        name="block",
    )
    layer.build((None, 64, 16))
    values = {name.removeprefix("params/"): array for name, array in golden.items() if name.startswith("params/")}
    attention = layer.mixer.attention
    for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v")):
        dense = getattr(attention, f"{ours}_dense")
        dense.set_weights(
            [
                values[f"attention.{theirs}_proj.weight"].T.reshape(16, 2, 8),
                values[f"attention.{theirs}_proj.bias"].reshape(2, 8),
            ]
        )
    attention.output_dense.set_weights(
        [values["attention.o_proj.weight"].T.reshape(2, 8, 16), values["attention.o_proj.bias"]]
    )
    table = "attention.relative_position_bias.relative_position_bias_table"
    attention.position.set_weights([values[table]])
    for residual, name in ((layer.mixer_residual, "before"), (layer.feedforward_residual, "after")):
        residual.set_weights([values[f"layernorm_{name}.weight"], values[f"layernorm_{name}.bias"]])
    layer.feedforward.set_weights(
        [values["mlp.fc1.weight"].T, values["mlp.fc1.bias"], values["mlp.fc2.weight"].T, values["mlp.fc2.bias"]]
    )
    return layer


@pytest.mark.parametrize("shifted, name", [(False, "y_noshift"), (True, "y_shift")])
def test_golden(golden, shifted, name):
    output = np.asarray(block(golden, shifted)(golden["inputs/x"]))
    np.testing.assert_allclose(output, golden[f"outputs/{name}"], atol=1e-5)


def test_golden_merging(golden):
    layer = PatchMerging((8, 8))
    layer.build((None, 64, 16))
    weights = [golden[f"params/merge.{name}"] for name in ("norm.weight", "norm.bias", "reduction.weight")]
    layer.set_weights([*weights[:2], weights[2].T])
    np.testing.assert_allclose(np.asarray(layer(golden["inputs/x"])), golden["outputs/merged"], atol=1e-5)


def test_merging_puts_the_token_below_before_the_one_beside():
    layer = PatchMerging((1, 3))
    layer.build((None, 3, 1))
    layer._norm.call = lambda x: x  # What it reads is to be seen.
    layer._reduction.kernel.assign(np.arange(8.0).reshape(4, 2) ** 2)
    x = np.array([[[1.0], [10.0], [100.0]]], "float32")
    # One row is padded by one: [1, 0, 10, 0], and a last column by one: [100, 0, 0, 0].
    np.testing.assert_allclose(np.asarray(layer(x)), [[[160.0, 251.0], [0.0, 100.0]]], atol=1e-4)


def test_bias_of_golden_places(golden):
    position = RelativeGridBias(4)
    position.build((None, 16, 2, 8))
    position.embeddings.assign(np.arange(98.0).reshape(49, 2))
    bias = np.asarray(position.bias(None, np.arange(16), np.arange(16)))
    np.testing.assert_array_equal(bias[0, 0], 2 * golden["outputs/relative_index"])
    np.testing.assert_array_equal(bias[0, 1], 2 * golden["outputs/relative_index"] + 1)


def test_bias_beyond_the_grid_is_that_of_its_edge():
    position = RelativeGridBias((2, 3))
    position.build((None, 6, 1, 4))
    position.embeddings.assign(np.arange(15.0)[:, None])
    # Five rows up, and one to the right: as one row up.
    assert np.asarray(position.bias(None, np.array([1]), np.array([15]))).ravel().tolist() == [0 * 5 + 3]


def visible(grid, window, shift):
    """Who sees whom, by the definition: pairs of one shifted window that lie beside each other in the picture."""
    rows, columns = grid
    places = np.array([(row, column) for row in range(rows) for column in range(columns)])
    # Windows begin at `shift`; what lies before it is in windows of its own.
    windows = (places + window - shift) // window
    return np.all(windows[:, None] == windows[None], axis=-1)


@pytest.mark.parametrize("grid, window", [((6, 9), 3), ((4, 4), 2), ((8, 12), 4)])
@pytest.mark.parametrize("shifted", [False, True])
def test_windows_are_attention_over_the_grid_with_a_mask(grid, window, shifted):
    layer = ShiftedWindowAttention(2, 4, grid, window, shifted=shifted)
    x = np.random.default_rng(0).normal(size=(2, grid[0] * grid[1], 8)).astype("float32")
    output = np.asarray(layer(x, x))
    layer.attention.position.embeddings.assign(np.zeros(((2 * window - 1) ** 2, 2)))
    output = np.asarray(layer(x, x))
    mask = visible(grid, window, window // 2 if shifted else 0)
    layer.attention.position = None
    expected = np.asarray(layer.attention(x, x, attention_mask=mask))
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_a_window_as_large_as_the_grid_is_not_shifted():
    x = np.random.default_rng(0).normal(size=(2, 15, 8)).astype("float32")
    plain, shifted = (ShiftedWindowAttention(2, 4, (3, 5), 7, shifted=shifted) for shifted in (False, True))
    plain.build(x.shape)
    shifted.build(x.shape)
    shifted.set_weights(plain.get_weights())
    assert plain.attention.position.embeddings.shape == (25, 2)
    np.testing.assert_array_equal(np.asarray(shifted(x, x)), np.asarray(plain(x, x)))


@pytest.mark.parametrize("shifted", [False, True])
def test_padding_has_no_influence(shifted):
    """A grid that windows do not divide, and tokens that are masked anywhere."""
    layer = ShiftedWindowAttention(2, 4, (5, 7), 3, shifted=shifted)
    random = np.random.default_rng(0)
    x, mask = random.normal(size=(2, 35, 8)).astype("float32"), random.random((2, 35)) < 0.7
    changed = np.where(mask[:, :, None], x, 9.0).astype("float32")
    before, after = (np.asarray(layer(each, each, value_mask=mask)) for each in (x, changed))
    np.testing.assert_allclose(before[mask], after[mask], atol=1e-6)
    unmasked = np.asarray(layer(x, x))
    assert np.abs(before - unmasked)[mask].max() > 1e-3


def test_tokens_that_do_not_fill_the_grid_are_refused():
    with pytest.raises(ValueError, match="4 x 6 has 24"):
        ShiftedWindowAttention(2, 4, (4, 6))(np.ones((1, 23, 8)), np.ones((1, 23, 8)))


def test_causality_and_masks_are_refused():
    layer, x = ShiftedWindowAttention(2, 4, (2, 3), 2), np.ones((1, 6, 8), "float32")
    with pytest.raises(ValueError, match="'causal'"):
        layer(x, x, use_causal_mask=True)
    with pytest.raises(ValueError, match="'attention_mask'"):
        layer(x, x, attention_mask=np.ones((6, 6), bool))


def test_maps_are_those_of_the_windows():
    model = Swin(SwinSize(8, (2,), (2,)), patch_size=2, image_size=8, window_size=2)
    maps = attention_maps(model)(np.ones((3, 8, 8, 3), "float32"))
    assert {tuple(scores.shape) for scores in maps.values()} == {(12, 2, 4, 4)}
    for scores in maps.values():
        np.testing.assert_allclose(np.sum(scores, axis=-1), 1, atol=1e-5)
