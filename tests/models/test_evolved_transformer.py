"""The Lite and the Evolved Transformer: published sizes, the cells of the figure, and reading step by step."""

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import load_model, models, tasks
from keras_transformer.attention import DynamicConvolution, LongShortRangeAttention
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.models.text.encoder_decoders import evolved_transformer, lite_transformer

# As the paper counts them, in millions, with a vocabulary of 33,288.
EVOLVED = {"tiny": 7.2, "base": 64.1, "big": 221.7, "deep": 218.1}
# As the paper counts them, in millions, without the embeddings.
LITE = {"100M": 2.9, "300M": 11.7, "500M": 17.3}
SMALL = models.EvolvedSize(num_encoder_layers=2, num_decoder_layers=2, hidden_dim=8, num_heads=2)


@pytest.mark.parametrize("size", EVOLVED)
def test_parameters_of_the_evolved_transformer(size):
    assert set(EVOLVED) == set(evolved_transformer.SIZES)
    with unallocated():
        model = models.EvolvedTransformer(size)
    assert round(model.count_params() / 1e6, 1) == EVOLVED[size]


@pytest.mark.parametrize("size", LITE)
def test_parameters_of_the_lite_transformer(size):
    assert set(LITE) == set(lite_transformer.SIZES)
    with unallocated():
        model = models.LiteTransformer(size, 10)
    embedding = model.get_layer("token_embedding").count_params()
    assert round((model.count_params() - embedding) / 1e6, 1) == LITE[size]


def test_blocks_of_the_lite_transformer_reach_further_and_further():
    model = models.LiteTransformer(models.Size(3, 16, 4, 16), 10, kernel_sizes=(3, 5))
    for side in ("encoder", "decoder"):
        mixers = [model.get_layer(f"{side}_block_{index}").mixer for index in range(3)]
        assert all(isinstance(mixer, LongShortRangeAttention) for mixer in mixers)
        assert [mixer.convolution.kernel_size for mixer in mixers] == [3, 5, 3]
        assert all(isinstance(mixer.convolution, DynamicConvolution) for mixer in mixers)
    assert model.get_layer("decoder_block_0").cross_attention.num_heads == 4


def randomized(model):
    """Weights that are all different and none zero; outputs in which what varies outweighs what does not."""
    for index, weight in enumerate(model.trainable_weights):
        scale = 0.1 if weight.name in ("gamma", "beta", "bias") else 0.4
        weight.assign(np.random.default_rng(index).normal(float(weight.name == "gamma"), scale, weight.shape))
    return model


def norm(x, layer):
    gamma, beta = (np.asarray(weight, "float64") for weight in layer.weights)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * gamma + beta


def scheme(layer, x):
    return norm(x, layer.norms["norm"])


def dense(x, layer):
    kernel, bias = (np.asarray(weight, "float64") for weight in layer.weights)
    return x @ kernel + bias


def attend(layer, x, memory, causal):
    """Scaled dot-product attention of one row."""
    q, k, v, o = (np.asarray(weight, "float64") for weight in layer.weights)
    query, key, value = (np.einsum("td,dnh->nth", each, kernel) for each, kernel in ((x, q), (memory, k), (memory, v)))
    scores = query @ key.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    weights = np.exp(np.where(np.tri(*scores.shape[1:], dtype=bool) | (not causal), scores, -np.inf))
    return np.einsum("nth,nhd->td", weights / weights.sum(-1, keepdims=True) @ value, o)


def separable(x, layer, causal, relu=False):
    depthwise, pointwise, bias = (np.asarray(weight, "float64") for weight in layer.weights)
    taps = len(depthwise)
    left = taps - 1 if causal else (taps - 1) // 2
    padded = np.pad(x, ((left, taps - 1 - left), (0, 0)))
    y = sum(padded[k : k + len(x)] * depthwise[k, :, 0] for k in range(taps)) @ pointwise[0] + bias
    return np.maximum(y, 0) if relu else y


def wider(x, width):
    return np.pad(x, ((0, 0), (0, width - x.shape[1])))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def encoder_cell(x, branches, block):
    """The left half of figure 3, from the top to the bottom."""
    h = scheme(branches.gate_residual, x)
    x = x + dense(h, branches.gate._value_dense) * sigmoid(dense(h, branches.gate._gate_dense))
    layer, h = branches.convolution, scheme(branches.convolution_residual, x)
    kernel, bias = (np.asarray(weight, "float64") for weight in layer.narrow.weights)
    padded = np.pad(h, ((1, 1), (0, 0)))
    narrow = np.maximum(sum(padded[k : k + len(h)] @ kernel[k] for k in range(3)) + bias, 0)
    wide = np.maximum(dense(h, layer.wide), 0)
    sums = norm(wide + wider(narrow, wide.shape[1]), layer._norm)
    x = x + wider(separable(sums, layer.output_convolution, causal=False), x.shape[1])
    h = scheme(block.mixer_residual, x)
    x = x + attend(block.mixer, h, h, causal=False)
    h = scheme(block.feedforward_residual, x)
    return x + dense(np.maximum(dense(h, block.feedforward._hidden_dense), 0), block.feedforward._output_dense)


def decoder_cell(x, memory, branches, block):
    """The right half of figure 3."""
    h = scheme(branches.attention_residual, x)
    x = x + attend(branches.mixer, h, h, causal=True) + attend(branches.cross_attention, h, memory, causal=False)
    layer, h = branches.convolution, scheme(branches.convolution_residual, x)
    wide = separable(h, layer.wide, causal=True, relu=True)
    sums = norm(wide + wider(separable(h, layer.narrow, causal=True), wide.shape[1]), layer._norm)
    x = x + separable(sums, layer.output_convolution, causal=True)
    h = scheme(block.mixer_residual, x)
    x = x + attend(block.mixer, h, h, causal=True)
    x = x + attend(block.cross_attention, scheme(block.cross_attention_residual, x), memory, causal=False)
    hidden = dense(scheme(block.feedforward_residual, x), block.feedforward._hidden_dense)
    hidden = norm(hidden * sigmoid(hidden), block.feedforward._hidden_norm)
    return x + dense(hidden, block.feedforward._output_dense)


def positions(length, width):
    """Sines before cosines, the longest wavelength among them."""
    rates = 10000.0 ** -(np.arange(width // 2) / (width // 2 - 1))
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def test_the_cells_are_those_of_the_figure():
    model = randomized(models.EvolvedTransformer(SMALL, 20))
    table = np.asarray(model.get_layer("token_embedding").weights[0], "float64")
    source, target = np.array([3, 9, 1, 17, 4, 4, 12]), np.array([1, 5, 2, 19, 7])
    x, y = (np.sqrt(8) * table[ids] + positions(len(ids), 8) for ids in (source, target))
    for index in range(2):
        x = encoder_cell(x, model.get_layer(f"encoder_branches_{index}"), model.get_layer(f"encoder_block_{index}"))
    x = norm(x, model.get_layer("encoder_final_norm"))
    for index in range(2):
        y = decoder_cell(y, x, model.get_layer(f"decoder_branches_{index}"), model.get_layer(f"decoder_block_{index}"))
    y = norm(y, model.get_layer("decoder_final_norm"))
    # With padding on the right, of which nothing may be seen.
    padded = {
        "source_token_ids": np.pad(source, (0, 2), constant_values=6)[None].astype("int32"),
        "source_padding_mask": np.arange(9)[None] < 7,
        "target_token_ids": np.pad(target, (0, 3), constant_values=6)[None].astype("int32"),
        "target_padding_mask": np.arange(8)[None] < 5,
    }
    np.testing.assert_allclose(model(padded)[0, :5], y, atol=5e-5)


def test_the_first_attention_of_the_decoder_has_twice_the_heads_but_not_above_16():
    for heads, expected in ((2, 4), (8, 16), (12, 16), (16, 16), (24, 24)):
        size = models.EvolvedSize(1, 1, 48, heads)
        cell = models.EvolvedTransformer(size, 10).get_layer("decoder_branches_0")
        assert (cell.mixer.num_heads, cell.cross_attention.num_heads) == (expected, heads)
    with pytest.raises(ValueError, match="of the 16 heads"):
        models.EvolvedTransformer(models.EvolvedSize(1, 1, 24, 12), 10)


def translators():
    return {
        "lite": lambda: models.LiteTransformer(models.Size(2, 16, 4, 16), 20, kernel_sizes=(3, 5)),
        "evolved": lambda: models.EvolvedTransformer(models.EvolvedSize(1, 1, 8, 2), 20),
    }


@pytest.mark.parametrize("name", exhaustive_but(translators(), "evolved"))
def test_reading_in_pieces_is_reading_at_once(name, tmp_path):
    """The cache against no cache: prompts of 3 and 5 tokens, then pieces, each row at a place of its own."""
    model = tasks.LanguageModel(randomized(translators()[name]()), start_id=1)
    rng = np.random.default_rng(0)
    source, target = rng.integers(2, 20, (2, 7)).astype("int32"), rng.integers(2, 20, (2, 9)).astype("int32")
    inputs = {"source_token_ids": source, "source_padding_mask": np.arange(7) < np.array([[4], [7]])}
    inputs |= {"target_token_ids": target, "target_padding_mask": np.ones((2, 9), bool)}
    whole = np.asarray(model.backbone(inputs))
    steps, places = model.stepwise, np.array([3, 5], "int32")
    cache = steps.init_cache(2, 9) | steps.encode(*(inputs[name] for name in steps.source_names))
    output, cache = steps(target[:, :5], cache, 0, lengths=places)
    for row, length in enumerate(places):
        np.testing.assert_allclose(output[row, :length], whole[row, :length], atol=2e-5)
    for size in (1, 2, 1):
        piece = np.stack([target[row, place : place + size] for row, place in enumerate(places)])
        output, cache = steps(piece, cache, places)
        for row, place in enumerate(places):
            np.testing.assert_allclose(output[row], whole[row, place : place + size], atol=2e-5)
        places = places + np.int32(size)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras").backbone(inputs), whole)


@pytest.mark.parametrize("name", exhaustive_but(translators(), "lite"))
def test_every_weight_learns(name):
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(translators()[name](), start_id=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    ids = np.random.default_rng(0).integers(2, 20, (8, 6)).astype("int32")
    shifted = np.concatenate([np.ones((8, 1), "int32"), ids[:, :-1]], axis=1)
    mask = np.ones((8, 6), bool)
    inputs = {"source_token_ids": ids, "source_padding_mask": mask}
    inputs |= {"target_token_ids": shifted, "target_padding_mask": mask}
    before = [np.array(weight) for weight in model.trainable_weights]
    losses = [float(model.train_on_batch(inputs, ids)) for _ in range(2)]
    assert losses[-1] < losses[0]
    for weight, old in zip(model.trainable_weights, before, strict=True):
        # A bias of keys adds the same to every score of a query.
        assert np.any(np.array(weight) != old) or ("key" in weight.path and weight.name == "bias"), weight.path
