"""Whole = chunked = stepwise, for every decoder, whatever graph it stands in."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import models
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import DecoderBlock, EncoderBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.models import Stepwise

SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=4, intermediate_dim=32)
VOCABULARY = 30
LENGTH = 9


def shared_block():
    """One block in two places, as ALBERT has it: one layer, two pasts."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    block = DecoderBlock(MultiHeadAttention(2, 8, position="rotary"), DenseFeedForward(32), name="shared")
    x = keras.layers.Embedding(VOCABULARY, 16, name="token_embedding")(token_ids)
    for _ in range(2):
        x = block(x, padding_mask=padding_mask)
    # Operations of keras.ops between layers are steps of the graph like any other.
    return keras.Model({"token_ids": token_ids, "padding_mask": padding_mask}, keras.ops.tanh(x) * 2.0)


DECODERS = {
    "learned": lambda: models.Decoder(SIZE, VOCABULARY, max_sequence_length=12),
    "sinusoidal": lambda: models.Decoder(SIZE, VOCABULARY, position="sinusoidal", residual="post"),
    "rotary": lambda: models.Decoder(SIZE, VOCABULARY, position="rotary", norm="rms_norm", feedforward="gated"),
    "grouped": lambda: models.Decoder(
        SIZE, VOCABULARY, attention=MultiHeadAttention(4, 4, num_key_value_heads=2, use_gate=True, position="rotary")
    ),
    "window": lambda: models.Decoder(SIZE, VOCABULARY, attention=MultiHeadAttention(4, 4, sliding_window=3)),
    "shared": shared_block,
}


def randomized(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.4, weight.shape))
    return model


def token_ids(batch_size=3):
    return np.random.default_rng(1).integers(0, VOCABULARY, (batch_size, LENGTH)).astype("int32")


def read(steps, ids, cache, chunks):
    outputs, start = [], 0
    for size in chunks:
        index = np.full(len(ids), start, "int32")
        output, cache = steps(ids[:, start : start + size], cache, index)
        outputs.append(np.asarray(output))
        start += size
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("name", DECODERS)
def test_whole_is_chunked_is_stepwise(name):
    model = randomized(DECODERS[name]())
    ids = token_ids()
    whole = np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))
    steps = Stepwise(model)
    for chunks in ([LENGTH], [4, 1, 4], [1] * LENGTH):
        result = read(steps, ids, steps.init_cache(3, max_length=12), chunks)
        np.testing.assert_allclose(result, whole, atol=2e-5 * np.abs(whole).max(), err_msg=f"{name} {chunks}")


@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_packed_documents_are_read_as_each_alone(position):
    model = randomized(models.Decoder(SIZE, VOCABULARY, max_sequence_length=12, position=position, packed=True))
    ids = token_ids(1)
    rows = {"segment_ids": [1, 1, 1, 1, 2, 2, 3, 3, 3], "positions": [0, 1, 2, 3, 0, 1, 0, 1, 2]}
    rows = {name: np.array([row], "int32") for name, row in rows.items()}
    packed = np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool), **rows}))
    steps = Stepwise(model)
    for start, end in ((0, 4), (4, 6), (6, 9)):
        alone = read(steps, ids[:, start:end], steps.init_cache(1, max_length=12), [1] * (end - start))
        np.testing.assert_allclose(alone, packed[:, start:end], atol=2e-5 * np.abs(packed).max())


def test_encoder_decoder_reads_its_source_once():
    model = randomized(models.Transformer(SIZE, VOCABULARY))
    ids, source = token_ids(), token_ids()[:, :5]
    mask = np.arange(5) < np.array([[5], [2], [4]])
    inputs = {"source_token_ids": source, "source_padding_mask": mask, "target_token_ids": ids}
    whole = np.asarray(model({**inputs, "target_padding_mask": np.ones(ids.shape, bool)}))
    steps = Stepwise(model)
    memory = steps.encode(source, mask)
    assert {name.split("_", 3)[-1] for name in memory if "block" in name} == {"cross_key", "cross_value"}
    for chunks in ([LENGTH], [3, 1, 5], [1] * LENGTH):
        result = read(steps, ids, {**steps.init_cache(3, max_length=10), **memory}, chunks)
        np.testing.assert_allclose(result, whole, atol=2e-5 * np.abs(whole).max())


def test_the_memory_of_an_encoder_output_is_that_of_its_source():
    model = randomized(models.Transformer(SIZE, VOCABULARY))
    source, mask = token_ids(), np.arange(LENGTH) < np.array([[9], [5], [7]])
    steps = Stepwise(model)
    expected = steps.encode(source, mask)
    states = steps.encoder_output(source, mask)
    assert steps.encoder_shape == (None, None, SIZE.hidden_dim)
    assert tuple(states.shape) == (3, LENGTH, SIZE.hidden_dim)
    found = steps.memory(states)
    assert found.keys() == expected.keys() - {"source_padding_mask"}
    assert len(found) == 2 * SIZE.num_layers
    for name, tensor in found.items():
        np.testing.assert_array_equal(tensor, expected[name])
    with pytest.raises(ValueError, match="reads 0 outputs of an encoder"):
        Stepwise(DECODERS["learned"]()).memory(states)


def test_a_layer_in_two_places_has_two_pasts():
    cache = Stepwise(shared_block()).init_cache(1, max_length=4)
    assert sorted(cache) == ["shared_again_2_key", "shared_again_2_value", "shared_key", "shared_value"]


def test_rows_may_stand_at_different_places():
    """Row by row with prompts of 1, 4 and 7 tokens, then three more tokens at once: each as if alone."""
    model = randomized(DECODERS["learned"]())
    steps, ids, lengths = Stepwise(model), token_ids(), np.array([1, 4, 7], "int32")
    padded = np.where(np.arange(LENGTH) < lengths[:, None], ids, 0)
    _, cache = steps(padded, steps.init_cache(3, max_length=12), 0)
    new = np.random.default_rng(2).integers(0, VOCABULARY, (3, 3)).astype("int32")
    together, _ = steps(new, cache, lengths)
    for row, length in enumerate(lengths):
        alone = np.concatenate([ids[row : row + 1, :length], new[row : row + 1]], axis=1)
        whole = np.asarray(model({"token_ids": alone, "padding_mask": np.ones(alone.shape, bool)}))
        np.testing.assert_allclose(np.asarray(together)[row], whole[0, -3:], atol=2e-5 * np.abs(whole).max())


def test_what_cannot_go_step_by_step_is_refused():
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    x = keras.layers.Embedding(5, 8)(ids)
    two_sided = EncoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(8), name="two_sided")
    with pytest.raises(ValueError, match="'two_sided'.*mixes tokens"):
        Stepwise(keras.Model(ids, two_sided(x)))
    with pytest.raises(ValueError, match="no layer with a cache"):
        Stepwise(keras.Model(ids, keras.layers.Dense(3)(x)))
    with pytest.raises(ValueError, match="takes no 'token_ids'"):
        Stepwise(models.ViT(SIZE, patch_size=4, image_size=8))


@keras.saving.register_keras_serializable("tests")
class TokenShift(keras.layers.Layer):
    """Adds the token before, times a gate that is initialized with zero."""

    def build(self, input_shape):
        self.gate = self.add_weight(shape=(), initializer="zeros", name="gate")

    def call(self, inputs):
        return inputs + self.gate * ops.pad(inputs, [[0, 0], [1, 0], [0, 0]])[:, :-1]


def add_positions(x):
    return x + ops.cast(ops.cumsum(ops.ones_like(x), axis=1), x.dtype)


def attend(x):
    return ops.softmax(ops.einsum("btd,bsd->bts", x, x)) @ x


ACROSS_TOKENS = {
    "cumsum": lambda x: ops.cumsum(x, axis=1),
    "sort": lambda x: ops.sort(x, axis=1),
    "flip": lambda x: ops.flip(x, axis=1),
    "roll": lambda x: ops.roll(x, 1, axis=1),
    "mean": lambda x: x - ops.mean(x, axis=1, keepdims=True),
    "softmax": lambda x: ops.softmax(x, axis=1),
    "counted_positions": add_positions,
    "take": lambda x: ops.take(x, [0], axis=1) + x,
    "concatenate": lambda x: ops.concatenate([x[:, -1:], x], axis=1)[:, 1:] + x[:, :1],
    "einsum": attend,
    "transposed": lambda x: ops.transpose(ops.cumsum(ops.transpose(x, (0, 2, 1)), axis=-1), (0, 2, 1)),
    "token_shift": lambda x: TokenShift(name="token_shift")(x),
    "convolution": lambda x: keras.layers.Conv1D(16, 3, padding="causal", name="convolution")(x),
    "lstm": lambda x: keras.layers.LSTM(16, return_sequences=True, name="lstm")(x),
    "pooling": lambda x: x + keras.layers.GlobalAveragePooling1D(keepdims=True, name="pooling")(x),
    "keras_attention": lambda x: keras.layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True),
}
PER_TOKEN = {
    "ops": lambda x: ops.softmax(ops.tanh(x) * 2.0 - ops.mean(x, axis=-1, keepdims=True)),
    "transposed_twice": lambda x: ops.transpose(ops.exp(ops.transpose(x, (0, 2, 1))), (0, 2, 1)),
    "flipped_twice": lambda x: ops.flip(ops.flip(x, axis=1), axis=1),
    "batch_norm": lambda x: keras.layers.BatchNormalization()(x),
    "convolution": lambda x: keras.layers.Conv1D(16, 1)(x),
    "heads": lambda x: keras.layers.Reshape((-1, 16))(keras.layers.Reshape((-1, 4, 4))(x) ** 2),
    "channel_sort": lambda x: ops.sort(x, axis=-1),
}


def with_operation(operation, length=None):
    inputs = {
        "token_ids": keras.Input((length,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((length,), dtype="bool", name="padding_mask"),
    }
    x = keras.layers.Embedding(VOCABULARY, 16, name="token_embedding")(inputs["token_ids"])
    block = DecoderBlock(MultiHeadAttention(2, 8), DenseFeedForward(32), name="block")
    x = block(operation(x), padding_mask=inputs["padding_mask"])
    return keras.Model(inputs, x)


@pytest.mark.parametrize("name", ACROSS_TOKENS)
def test_operations_across_tokens_are_refused_by_name(name):
    with pytest.raises(ValueError, match="mixes tokens and has no cache") as error:
        Stepwise(with_operation(ACROSS_TOKENS[name]))
    if name in ("cumsum", "sort", "flip", "roll", "token_shift", "convolution", "lstm", "mean", "softmax"):
        assert str(error.value).startswith(f"'{name}")


def test_operations_across_tokens_after_the_blocks_are_refused():
    model = with_operation(lambda x: x)
    with pytest.raises(ValueError, match="'cumsum.*mixes tokens"):
        Stepwise(keras.Model(model.input, ops.cumsum(model.output, axis=1)))


def test_norms_over_tokens_are_refused():
    with pytest.raises(ValueError, match=r"'norm' \(LayerNormalization\) mixes tokens"):
        Stepwise(with_operation(lambda x: keras.layers.LayerNormalization(axis=(1, 2), name="norm")(x), length=6))


@pytest.mark.parametrize("name", PER_TOKEN)
def test_operations_on_each_token_are_accepted(name):
    model = randomized(with_operation(PER_TOKEN[name]))
    for weight in model.non_trainable_weights:
        weight.assign(np.abs(weight))
    ids = token_ids()
    whole = np.asarray(model({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}))
    steps = Stepwise(model)
    result = read(steps, ids, steps.init_cache(3, max_length=12), [4, 1, 4])
    np.testing.assert_allclose(result, whole, atol=2e-5 * np.abs(whole).max())


def test_the_check_changes_no_state_and_runs_while_tracing():
    model = with_operation(lambda x: keras.layers.BatchNormalization(name="norm")(x))
    before = [np.array(weight) for weight in model.weights]
    with keras.StatelessScope():
        Stepwise(model)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)
