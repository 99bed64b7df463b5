"""Reformer: rows of several chunks with transformers' rotations, published sizes, and generation with a cache."""

import math
import pathlib

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks
from keras_transformer.attention import ChunkedAttention, LSHAttention
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.checkpoints import from_huggingface
from keras_transformer.checkpoints.transfers import weights_of
from keras_transformer.positions import Axial

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "reformer-ModelWithLMHead"
SMALL = models.Size(2, 16, 2, 24)


def lsh_layers(model):
    return [layer for layer in model._flatten_layers() if isinstance(layer, LSHAttention)]


@pytest.mark.parametrize(
    "folder, output",
    # The second one reads two chunks before and one after, in both directions.
    [(FOLDER, "logits"), (FOLDER.parent / "reformer-Model", "last_hidden_state")],
    ids=["causal", "bidirectional"],
)
def test_several_chunks_with_the_rotations_of_transformers(folder, output):
    model = from_huggingface(folder, verbose=0)
    with np.load(folder / "hashed.npz") as arrays:
        ids, rotations, expected = (arrays[name] for name in ("token_ids", "rotations", output))
    assert len(lsh_layers(model)) == 2
    for layer in lsh_layers(model):
        layer.rotations.assign(rotations)
    found = model.predict({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}, verbose=0)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_rotations_are_drawn_for_each_layer():
    first, second = (np.asarray(layer.rotations) for layer in lsh_layers(from_huggingface(FOLDER, verbose=0)))
    assert first.std() > 0.5
    assert second.std() > 0.5


# As transformers counts its bare models.
PARAMETERS = {
    "novel": (320, ((512, 1024), (64, 192)), {}, 2_584_064),
    "enwik8": (
        258,
        ((128, 512), (256, 768)),
        {"layers": ("local", "local", "lsh", "local"), "key_dim": 128},
        148_654_080,
    ),
}


@pytest.mark.parametrize("size", PARAMETERS)
def test_published_parameters(size):
    vocabulary_size, grid, options, expected = PARAMETERS[size]
    with unallocated():
        model = models.Reformer(size, vocabulary_size, position=Axial(*grid), **options)
        trained = [weight for weight in weights_of(model) if not weight.path.endswith("rotations")]
        assert sum(math.prod(weight.shape) for weight in trained) == expected


@pytest.mark.exhaustive
def test_it_trains_is_saved_and_generates_from_a_cache(tmp_path):
    keras.utils.set_random_seed(0)
    mechanisms = {"local": ChunkedAttention(4), "lsh": LSHAttention(num_buckets=4, chunk_length=4, num_rounds=2)}
    backbone = models.Reformer(SMALL, 20, key_dim=6, dropout=0.0, max_sequence_length=32, **mechanisms)
    model = tasks.LanguageModel(backbone, tie_embeddings=False)
    ids = 5 + (np.arange(24)[None] + np.arange(32)[:, None]) % 6
    inputs = {"token_ids": ids[:, :-1].astype("int32"), "padding_mask": np.ones((32, 23), bool)}
    model.compile(
        keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False
    )
    losses = model.fit(inputs, ids[:, 1:], epochs=10, batch_size=8, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    prompts = [[5, 6, 7, 8, 9], [9, 10, 5]]
    assert model.generate(prompts, max_new_tokens=6) == [[10, 5, 6, 7, 8, 9], [6, 7, 8, 9, 10, 5]]
    model.save(tmp_path / "model.keras")
    again = load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.predict(inputs, verbose=0), model.predict(inputs, verbose=0), atol=1e-6)


def test_a_padded_row_is_the_row_alone():
    backbone = models.Reformer(
        SMALL,
        20,
        key_dim=6,
        local=ChunkedAttention(4),
        lsh=LSHAttention(num_buckets=4, chunk_length=4, attend_across_buckets=True),
    )
    ids = np.random.default_rng(0).integers(0, 20, (1, 14)).astype("int32")
    alone = backbone({"token_ids": ids[:, :9], "padding_mask": np.ones((1, 9), bool)})
    padded = backbone({"token_ids": ids, "padding_mask": np.arange(14)[None] < 9})
    np.testing.assert_allclose(padded[:, :9], alone, atol=1e-5)


def test_an_unknown_part():
    with pytest.raises(ValueError, match="'local', 'lsh'|local, lsh"):
        models.Reformer(SMALL, 20, layers=("global",))
