"""Vectors of sentences, from the tokens of the backbone."""

import numpy as np
import pytest

from keras_transformer import models, tasks

SIZE = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]], "int32")
INPUTS = {"token_ids": IDS, "padding_mask": IDS > 0}


@pytest.fixture
def backbone():
    return models.Encoder(SIZE, 11, max_sequence_length=16)


def test_a_mean_of_length_one(backbone):
    tokens = np.asarray(backbone(INPUTS), "float64")
    means = np.stack([tokens[0].mean(0), tokens[1, :3].mean(0)])
    expected = means / np.linalg.norm(means, axis=-1, keepdims=True)
    np.testing.assert_allclose(tasks.SentenceEmbedder(backbone)(INPUTS), expected, atol=1e-6)


def test_several_poolings_stand_behind_one_another(backbone):
    tokens = np.asarray(backbone(INPUTS))
    model = tasks.SentenceEmbedder(backbone, pooling=["max", "first"], normalize=False)
    expected = np.concatenate([np.stack([tokens[0].max(0), tokens[1, :3].max(0)]), tokens[:, 0]], axis=-1)
    np.testing.assert_allclose(model(INPUTS), expected, atol=1e-6)


def test_no_pooling_is_refused(backbone):
    with pytest.raises(ValueError, match="at least one pooling"):
        tasks.SentenceEmbedder(backbone, pooling=[])
