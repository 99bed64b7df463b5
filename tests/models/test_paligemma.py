"""PaliGemma: a prefix language model with images before its text; parity is in tests/checkpoints."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.backend.devices.unallocated import unallocated

IMAGE, NUM_IMAGE_TOKENS = 9, 4


@pytest.fixture(scope="module")
def backbone():
    keras.utils.set_random_seed(0)
    vision = models.SigLIPVision(models.Size(1, 8, 2, 16), patch_size=4, image_size=8, use_head=False)
    return models.PaliGemma(models.Size(1, 16, 2, 24), 20, vision, image_id=IMAGE, num_key_value_heads=1)


def rows(answers):
    """A prompt of one image and one word, and an answer of two words, for each row."""
    count = len(answers)
    prompt = [IMAGE] * NUM_IMAGE_TOKENS + [4]
    return {
        "images": np.random.default_rng(0).normal(size=(count, 1, 8, 8, 3)).astype("float32"),
        "token_ids": np.array([prompt + answer for answer in answers], "int32"),
        "padding_mask": np.ones((count, 7), bool),
        "prefix_mask": np.broadcast_to(np.arange(7) < 5, (count, 7)),
    }


@pytest.mark.exhaustive
def test_it_learns_to_answer_and_generates_what_it_has_learnt(backbone):
    model = tasks.LanguageModel(backbone)
    answers = [[5, 6], [7, 8], [6, 5], [8, 7]]
    x = rows(answers)
    targets = np.concatenate([x["token_ids"][:, 1:], np.zeros((4, 1), "int32")], axis=1)
    weights = np.zeros((4, 7), "float32")
    weights[:, 4:6] = 1  # The last token of the prompt, and the first of the answer.
    model.compile(keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, targets, sample_weight=weights, batch_size=4, epochs=60, verbose=0)
    prompts = {"images": x["images"], "token_ids": x["token_ids"][:, :5].tolist()}
    assert model.generate(prompts, max_new_tokens=2) == answers


def test_a_prompt_is_read_both_ways_and_an_answer_is_not(backbone):
    x = rows([[5, 6]])
    before = np.asarray(backbone(x))[0]

    def moved(place):
        token_ids = x["token_ids"].copy()
        token_ids[0, place] = 3
        return np.abs(np.asarray(backbone({**x, "token_ids": token_ids}))[0] - before).max(axis=-1) > 1e-6

    assert moved(4).all()
    assert moved(6).tolist() == [False] * 6 + [True]
    images = np.abs(np.asarray(backbone({**x, "images": -x["images"]}))[0] - before).max(axis=-1)
    assert (images > 1e-6).all()


def test_a_vision_model_that_gives_no_tokens_is_refused():
    vision = models.SigLIPVision(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    with pytest.raises(ValueError, match="must return tokens"):
        models.PaliGemma(models.Size(1, 16, 2, 24), 20, vision, image_id=IMAGE)


def test_the_published_size():
    with unallocated():
        model = models.PaliGemma(vocabulary_size=257216)
    # google/paligemma-3b-pt-224, whose table has 64 rows that no token uses, with a tied head.
    assert model.count_params() == 2_923_466_480
