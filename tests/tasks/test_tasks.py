import keras
import numpy as np
import pytest

from keras_transformer import models, tasks

SIZE = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)


def backbone(class_token=True):
    return models.ViT(SIZE, patch_size=4, image_size=8, class_token=class_token)


def images():
    return np.random.default_rng(0).uniform(size=(2, 8, 8, 3)).astype("float32")


@pytest.mark.parametrize("pooling, class_token", [("class_token", True), ("mean", True), ("mean", False)])
def test_probabilities_come_from_the_pooled_token(pooling, class_token):
    tokens = backbone(class_token)
    model = tasks.ImageClassifier(tokens, 3, pooling=pooling)
    kernel, bias = (np.asarray(weight) for weight in model.get_layer("probabilities").weights)
    output = np.asarray(tokens(images()))
    pooled = output[:, 0] if pooling == "class_token" else output[:, int(class_token) :].mean(axis=1)
    logits = pooled @ kernel + bias
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(model(images()), expected, atol=1e-6)


def test_logits_without_activation():
    model = tasks.ImageClassifier(backbone(), 3, activation=None)
    assert model.output_names == ["logits"]
    assert np.abs(np.asarray(model(images())).sum(-1) - 1).max() > 1e-3


@pytest.mark.parametrize(
    "options, message", [({"pooling": "max"}, "'mean'"), ({"pooling": "class_token"}, "no class token")]
)
def test_pooling_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        tasks.ImageClassifier(backbone(class_token=False), 3, **options)


def test_head_stays_float32_in_mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        image_model = tasks.ImageClassifier(backbone(), 3)
        language_model = tasks.LanguageModel(models.Decoder(SIZE, 11))
    finally:
        keras.config.set_dtype_policy("float32")
    assert image_model.output.dtype == language_model.output.dtype == "float32"


def test_language_model_needs_a_token_embedding():
    with pytest.raises(ValueError, match="no token embedding"):
        tasks.LanguageModel(backbone())
