"""An encoder-decoder whose answer begins with more than its start: what Whisper is told of language and task."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.generation import GenerationError

START = 1


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    backbone = models.Whisper(models.Size(1, 16, 2, 32), vocabulary_size=40, num_mel_bins=5, num_frames=12)
    model = tasks.LanguageModel(backbone, tie_embeddings=False, start_id=START)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.5, weight.shape))
    return model


@pytest.fixture(scope="module")
def features():
    return np.random.default_rng(1).normal(size=(2, 12, 5)).astype("float32")


def greedy(model, features, prompt, new):
    tokens = list(prompt)
    for _ in range(new):
        ids = np.array([tokens], "int32")
        inputs = {"features": features[None], "target_token_ids": ids, "target_padding_mask": np.ones_like(ids, bool)}
        # Not `predict`, which is compiled for every length.
        tokens.append(int(np.asarray(model(inputs))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, {"stop": [[39, 39, 39]]}])
def test_an_answer_continues_what_it_begins_with(model, features, options):
    prompts = [[START, 7, 9], [START]]
    expected = [greedy(model, *each, 4) for each in zip(features, prompts, strict=True)]
    found = model.generate({"features": features, "target_token_ids": prompts}, max_new_tokens=4, **options)
    assert found == expected
    assert model.generate(features[1], max_new_tokens=4, **options) == expected[1]
    assert model.generate(features[0], max_new_tokens=4, **options) != expected[0]


def test_text_alone_takes_no_dict():
    model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=30))
    with pytest.raises(GenerationError, match="Received a dict of 'images', 'token_ids'"):
        model.generate({"images": np.zeros((1, 1, 8, 8, 3), "float32"), "token_ids": [[1]]})
