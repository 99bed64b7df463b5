"""XLNet in segments with a memory, against transformers."""

import pathlib

import numpy as np
import pytest

from keras_transformer import models
from keras_transformer.checkpoints import from_huggingface

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "xlnet-Model"
INPUTS = ("token_ids", "padding_mask", "segment_ids")


def test_three_segments_are_those_of_transformers():
    """Memories of up to 7 tokens, of which each segment adds its first 3."""
    model = models.with_memory(from_huggingface(FOLDER, verbose=0), memory_length=7, reuse_length=3)
    with np.load(FOLDER / "memory.npz") as arrays:
        memory = np.zeros((2, 2, 0, 16), "float32")
        for index, length in enumerate((3, 6, 7)):
            found = model({**{name: arrays[f"{name}_{index}"] for name in INPUTS}, "memory": memory})
            memory = np.asarray(found["memory"])
            assert memory.shape == (2, 2, length, 16)
            mask, expected = arrays[f"padding_mask_{index}"], arrays[f"tokens_{index}"]
            if mask.all():
                np.testing.assert_allclose(memory, arrays[f"memory_{index}"], atol=5e-6)
            np.testing.assert_allclose(np.asarray(found["tokens"])[mask], expected[mask], atol=5e-6)


def test_a_causal_model_reads_segments_as_a_whole():
    backbone = models.XLNet(models.Size(2, 16, 2, 24), 30, causal=True, use_segments=False, dropout=0.0)
    for index, weight in enumerate(backbone.weights):
        weight.assign(np.random.default_rng(index).normal(0.1, 0.4, weight.shape))
    ids = np.random.default_rng(0).integers(0, 30, (2, 11)).astype("int32")
    whole = backbone({"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)})
    model, memory, parts = models.with_memory(backbone), np.zeros((2, 2, 0, 16), "float32"), []
    for start, end in ((0, 4), (4, 5), (5, 11)):
        part = ids[:, start:end]
        found = model({"token_ids": part, "padding_mask": np.ones(part.shape, bool), "memory": memory})
        memory = np.asarray(found["memory"])
        parts.append(found["tokens"])
    assert memory.shape == (2, 2, 11, 16)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=2e-5)


def test_another_model_and_lengths_below_one_are_refused():
    with pytest.raises(ValueError, match="is no XLNet"):
        models.with_memory(models.Encoder(models.Size(1, 8, 2, 8), 10))
    with pytest.raises(ValueError, match="memory_length"):
        models.with_memory(models.XLNet(models.Size(1, 8, 2, 8), 10), memory_length=0)
