"""Kosmos: images in the midst of text, read whole, in steps, and in prompts."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.generation import GenerationError
from keras_transformer.models import Kosmos, Size, Stepwise, ViT

BEGIN, LENGTH, VOCABULARY = 9, 3, 40
TOKEN_IDS = np.array([[1, BEGIN, 0, 0, 0, 5, BEGIN, 0, 0, 0, 6, 7], [2, 3, 4, BEGIN, 0, 0, 0, 8, 5, 5, 0, 0]], "int32")
LENGTHS = np.array([12, 10], "int32")
MASK = np.arange(12) < LENGTHS[:, None]


def make_model():
    vision = ViT(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    model = Kosmos(Size(2, 16, 2, 24), VOCABULARY, vision, begin_image_id=BEGIN, num_image_tokens=LENGTH)
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, 0.3, weight.shape))
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).normal(size=(2, 2, 8, 8, 3)).astype("float32")


def read(model, images, token_ids=TOKEN_IDS, mask=MASK):
    return model.predict({"images": images, "token_ids": token_ids, "padding_mask": mask}, verbose=0)


def test_an_image_is_seen_from_its_place_on(model, images):
    before = read(model, images)
    changed = images.copy()
    changed[0, 1] += 1.0
    differs = np.abs(read(model, changed) - before).max(axis=-1) > 1e-4
    np.testing.assert_array_equal(differs[0], np.arange(12) >= 7)
    # The second row has but one image.
    assert not differs[1].any()
    changed = images.copy()
    changed[1, 1] += 1.0
    np.testing.assert_array_equal(read(model, changed), before)


def test_what_stands_in_the_place_of_an_image_says_nothing(model, images):
    others = np.where(TOKEN_IDS == 0, 17, TOKEN_IDS)
    np.testing.assert_allclose(read(model, images, others)[MASK], read(model, images)[MASK], atol=1e-5)


def test_images_and_tokens_are_scaled_alike(images):
    vision = ViT(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    options = {"begin_image_id": BEGIN, "num_image_tokens": LENGTH, "position": None}
    model = Kosmos(Size(1, 16, 2, 24), VOCABULARY, vision, **options)
    part = keras.Model(model.input, [model.get_layer(name).output for name in ("image_tokens", "embedding_scale")])
    tokens, x = part.predict({"images": images, "token_ids": TOKEN_IDS, "padding_mask": MASK}, verbose=0)
    np.testing.assert_allclose(x[0, 2:5], 4.0 * tokens[0, 0], rtol=1e-6)
    np.testing.assert_allclose(x[0, 7:10], 4.0 * tokens[0, 1], rtol=1e-6)
    table = np.asarray(model.get_layer("token_embedding").embeddings)
    np.testing.assert_allclose(x[0, 5], 4.0 * table[5], rtol=1e-6)


@pytest.mark.parametrize("chunks", [(12,), (1,) * 12, (3, 5, 4)])
def test_read_in_steps(model, images, chunks):
    steps = Stepwise(model)
    assert steps.source_names == ("images",)
    assert steps.cache_is_rewindable
    cache = {**steps.init_cache(2, 15), **steps.encode(images)}
    parts, start = [], 0
    for size in chunks:
        part, cache = steps(TOKEN_IDS[:, start : start + size], cache, np.full(2, start, "int32"))
        parts.append(np.asarray(part))
        start += size
    found = np.concatenate(parts, axis=1)
    np.testing.assert_allclose(found[MASK], read(model, images)[MASK], atol=2e-5)


def greedy(model, images, prompt, new):
    """The plain loop: all is read again for each token."""
    tokens = list(prompt)
    for _ in range(new):
        ids = np.array([tokens], "int32")
        # Not `predict`, which is compiled for every length.
        logits = model({"images": images[None], "token_ids": ids, "padding_mask": np.ones_like(ids, bool)})
        tokens.append(int(np.asarray(logits)[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.exhaustive
def test_prompts_with_images_are_continued(model, images):
    language_model = tasks.LanguageModel(model)
    prompts = [TOKEN_IDS[0, :12].tolist(), TOKEN_IDS[1, :10].tolist()]
    expected = [greedy(language_model, *each, 5) for each in zip(images, prompts, strict=True)]
    found = language_model.generate({"images": images, "token_ids": prompts}, max_new_tokens=5)
    assert found == expected
    # A new token that begins an image would read one more of them.
    assert BEGIN not in sum(found, [])
    # Rows with fewer images than others; a single prompt; the loop that is no graph.
    single = language_model.generate({"images": images[1, :1], "token_ids": prompts[1]}, max_new_tokens=5)
    assert single == expected[1]
    ragged = {"images": [images[0], images[1, :1]], "token_ids": prompts}
    assert language_model.generate(ragged, max_new_tokens=5, stop=[[VOCABULARY - 1] * 5]) == expected
    beams = language_model.generate(ragged, max_new_tokens=3, sampler="beam")
    assert [len(beam) for beam in beams] == [3, 3]


@pytest.mark.parametrize(
    "prompts, message",
    [
        ([[1, 2]], "Pass {'images': ..., 'token_ids': ...}"),
        ({"images": np.zeros((2, 8, 8, 3), "float32")}, "a dict of 'images' and 'token_ids'"),
        ({"images": np.zeros((1, 2, 8, 8, 3), "float32"), "token_ids": [[1], [2]]}, "2 prompts for 1 images"),
        ({"images": np.zeros((2, 9, 8, 3), "float32"), "token_ids": [1]}, "must be floats of shape"),
    ],
)
def test_prompts_that_cannot_be_read(model, prompts, message):
    with pytest.raises(GenerationError, match=message):
        tasks.LanguageModel(model).generate(prompts, max_new_tokens=2)


@pytest.mark.exhaustive
def test_trains_image_encoder_and_text_alike_and_is_saved(images, tmp_path):
    model = tasks.LanguageModel(make_model())
    before = {weight.path: np.asarray(weight) for weight in model.trainable_weights}
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = {"images": images, "token_ids": TOKEN_IDS, "padding_mask": MASK}
    model.fit(inputs, np.roll(TOKEN_IDS, -1, axis=1), verbose=0)
    # Softmax does not see the biases of keys.
    same = [p for p, old in before.items() if np.array_equal(old, _by_path(model)[p]) and "key/bias" not in p]
    assert same == []
    model.save(tmp_path / "model.keras")
    again = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(inputs, verbose=0), model.predict(inputs, verbose=0))


def _by_path(model):
    return {weight.path: np.asarray(weight) for weight in model.weights}


def test_wrong_arguments():
    vision = ViT(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    with pytest.raises(ValueError, match="begin_image_id"):
        Kosmos(Size(1, 16, 2, 24), 10, vision, begin_image_id=10)
    with pytest.raises(ValueError, match="must return tokens"):
        Kosmos(Size(1, 16, 2, 24), 10, tasks.ImageClassifier(vision, 3), begin_image_id=1)


def test_kosmos_2_has_the_published_number_of_weights():
    with unallocated():
        model = models.Kosmos2()
    assert sum(int(np.prod(weight.shape)) for weight in model.trainable_weights) == 1_664_485_376
