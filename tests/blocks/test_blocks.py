"""The residual schemes by their formulas, and the wiring of the blocks."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import LightweightConvolution, MultiHeadAttention
from keras_transformer.blocks import BranchedDecoderBlock, DecoderBlock, EncoderBlock
from keras_transformer.feedforward import DenseFeedForward

WIDTH = 8


def tokens(length=5, seed=0):
    return np.random.default_rng(seed).normal(size=(2, length, WIDTH)).astype("float32")


def attend(**options):
    return MultiHeadAttention(2, 4, **options)


def norm_of(layer, name):
    def norm(x):
        gamma, beta = (np.asarray(weight, "float64") for weight in layer.norms[name].weights)
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + layer.norms[name].epsilon) * gamma + beta

    return norm


def randomized(layer, *inputs):
    layer(*inputs)
    rng = np.random.default_rng(4)
    for weight in layer.weights:
        weight.assign(rng.normal(0.2, 0.4, size=weight.shape))
    return layer


FORMULAS = {
    "post": lambda x, f, norm: norm("norm")(x + f(x)),
    "pre": lambda x, f, norm: x + f(norm("norm")(x)),
    "normalized_skip": lambda x, f, norm: norm("norm")(x) + f(norm("norm")(x)),
    "sandwich": lambda x, f, norm: x + norm("output_norm")(f(norm("input_norm")(x))),
    "sublayer": lambda x, f, norm: x + norm("norm")(f(x)),
}


@pytest.mark.parametrize("residual", FORMULAS)
def test_encoder_block_is_its_formula(residual):
    block = randomized(EncoderBlock(attend(), DenseFeedForward(16), residual=residual), tokens())

    def around(scheme, function, x):
        return FORMULAS[residual](x, lambda y: np.asarray(function(y), "float64"), lambda name: norm_of(scheme, name))

    x = around(block.mixer_residual, lambda y: block.mixer(y, y), tokens().astype("float64"))
    expected = around(block.feedforward_residual, block.feedforward, x)
    np.testing.assert_allclose(block(tokens()), expected, rtol=1e-4, atol=1e-4)


def test_decoder_block_attends_itself_then_the_encoder():
    block = DecoderBlock(attend(), DenseFeedForward(16), cross_attention=attend(), residual="post")
    x, encoded = tokens(), tokens(3, seed=1)
    randomized(block, x, encoded)
    mask = np.array([[True, True, False], [True, False, False]])
    y = block.mixer_residual.post(x, block.mixer(x, x, use_causal_mask=True))
    y = block.cross_attention_residual.post(y, block.cross_attention(y, encoded, value_mask=mask))
    y = block.feedforward_residual.post(y, block.feedforward(y))
    np.testing.assert_allclose(block(x, encoded, encoder_padding_mask=mask), y, atol=1e-5)


def test_decoder_block_is_causal_and_reads_the_encoder():
    block = randomized(
        DecoderBlock(attend(), DenseFeedForward(16), cross_attention=attend()), tokens(), tokens(3, seed=1)
    )
    x, later, encoded = tokens(), tokens(), tokens(3, seed=1)
    later[:, 3:] += 1
    before, after = np.asarray(block(x, encoded)), np.asarray(block(later, encoded))
    np.testing.assert_allclose(before[:, :3], after[:, :3], atol=1e-5)
    assert np.abs(before - np.asarray(block(x, encoded + 1))).max() > 1e-2


def test_decoder_block_whole_is_stepwise():
    block = randomized(
        DecoderBlock(attend(), DenseFeedForward(16), cross_attention=attend()), tokens(), tokens(3, seed=1)
    )
    x, encoded = tokens(), tokens(3, seed=1)
    cache, outputs = block.init_cache(2, 6), []
    for index in range(5):
        output, cache = block(x[:, index : index + 1], encoded, cache=cache, cache_index=np.int32(index))
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, 1), block(x, encoded), atol=1e-5)


def test_padding_of_an_encoder_block_has_no_influence():
    block = randomized(EncoderBlock(attend(), DenseFeedForward(16)), tokens())
    x, changed = tokens(), tokens()
    changed[:, 3:] += 5
    mask = np.array([[True] * 3 + [False] * 2] * 2)
    before, after = block(x, padding_mask=mask), block(changed, padding_mask=mask)
    np.testing.assert_array_equal(before[:, :3], after[:, :3])


def test_implicit_mask_of_an_embedding_is_applied():
    embedding = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    block = EncoderBlock(attend(), DenseFeedForward(16))
    padded, short = embedding(np.array([[3, 4, 0, 0]])), embedding(np.array([[3, 4]]))
    np.testing.assert_allclose(block(padded)[:, :2], block(short), atol=1e-5)


def test_batch_norm_leaves_padding_out_of_its_statistics():
    block = EncoderBlock(attend(), DenseFeedForward(16), norm="batch_norm")
    x, changed = tokens(), tokens()
    changed[:, 3:] = 1000
    mask = np.array([[True] * 3 + [False] * 2] * 2)
    block(x)
    first = np.asarray(block(x, padding_mask=mask, training=True))
    second = np.asarray(block(changed, padding_mask=mask, training=True))
    np.testing.assert_allclose(first[:, :3], second[:, :3], atol=1e-4)
    assert np.abs(np.asarray(block.mixer_residual.norms["norm"].moving_mean)).max() < 1


def test_norm_layer_is_a_template():
    norm = keras.layers.LayerNormalization(epsilon=0.5)
    block = EncoderBlock(attend(), DenseFeedForward(16), residual="sandwich", norm=norm)
    norms = [*block.mixer_residual.norms.values(), *block.feedforward_residual.norms.values()]
    assert [part.epsilon for part in norms] == [0.5] * 4
    assert len({id(part) for part in norms}) == 4


def test_missing_and_unwanted_encoder_output():
    with pytest.raises(ValueError, match="encoder_output"):
        DecoderBlock(attend(), DenseFeedForward(16), cross_attention=attend())(tokens())
    with pytest.raises(ValueError, match="takes no encoder_output"):
        DecoderBlock(attend(), DenseFeedForward(16))(tokens(), tokens())
    with pytest.raises(ValueError, match="call it with encoder_output"):
        BranchedDecoderBlock(attend(), attend(), LightweightConvolution(2, kernel_size=3))(tokens())


def test_padding_mask_with_a_cache_is_over_the_new_tokens():
    """A cache that keeps the last tokens must not keep padding: two tokens and padding are two tokens."""
    block = DecoderBlock(attend(mechanism="local"), DenseFeedForward(16))
    x, mask = tokens(), np.arange(5)[None] < np.array([[2], [2]])
    empty = block.init_cache(2, 9)
    padded = block(x, padding_mask=mask, cache=empty, cache_index=0)[1]
    alone = block(x[:, :2], cache=empty, cache_index=0)[1]
    unmarked = block(x, cache=empty, cache_index=0)[1]
    for name in alone:
        np.testing.assert_allclose(padded[name], alone[name], atol=1e-6)
        assert np.abs(np.asarray(unmarked[name] - alone[name])).max() > 1e-3


def test_cross_attention_must_serve_other_tokens():
    with pytest.raises(ValueError, match="supports self-attention only"):
        DecoderBlock(attend(), DenseFeedForward(16), cross_attention=attend(mechanism="local"))


@pytest.mark.parametrize("option", [{"residual": "no_such"}, {"norm": "no_such"}])
def test_unknown_names_list_the_valid_ones(option):
    with pytest.raises(ValueError, match="sandwich|batch_norm"):
        EncoderBlock(attend(), DenseFeedForward(16), **option)
