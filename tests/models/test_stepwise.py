"""Whole = chunked = stepwise, for every decoder, whatever graph it stands in."""

import keras
import numpy as np
import pytest

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
