"""Models are ordinary Keras models: they fit, save, load, and train under every policy and strategy."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks

pytestmark = pytest.mark.exhaustive

SMALL = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=32)


def make(name):
    if name == "vit":
        backbone = models.ViT(SMALL, patch_size=4, image_size=8, dropout=0.1, attention_dropout=0.1)
        return tasks.ImageClassifier(backbone, num_classes=3)
    if name == "encoder":
        tokens = models.Encoder(SMALL, 11, residual="sandwich", norm="rms_norm", dropout=0.1)
        x = keras.layers.GlobalAveragePooling1D()(tokens.output)
        return keras.Model(tokens.input, keras.layers.Dense(3, activation="softmax", dtype="float32")(x))
    if name == "decoder":
        return tasks.LanguageModel(models.Decoder(SMALL, 11, position="rotary", feedforward="gated", activation="silu"))
    return tasks.LanguageModel(models.Transformer(SMALL, 11))


def data(name, examples=16, length=6):
    rng = np.random.default_rng(0)
    if name == "vit":  # The class is the brightest channel.
        labels = rng.integers(0, 3, examples)
        return (rng.uniform(size=(examples, 8, 8, 3)) + np.eye(3)[labels][:, None, None]).astype("float32"), labels
    ids, mask = rng.integers(0, 11, (examples, length)), np.ones((examples, length), bool)
    mask[::2, 4:] = False
    if name == "transformer":
        inputs = {
            "source_token_ids": ids,
            "source_padding_mask": mask,
            "target_token_ids": ids,
            "target_padding_mask": mask,
        }
        return inputs, ids
    inputs = {"token_ids": ids, "padding_mask": mask}
    return inputs, rng.integers(0, 3, examples) if name == "encoder" else ids


def compiled(name, **options):
    model = make(name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=name in ("decoder", "transformer"))
    model.compile(keras.optimizers.Adam(1e-2), loss=loss, **options)
    return model


NAMES = ["vit", "encoder", "decoder", "transformer"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_fit_lowers_the_loss(name, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = compiled(name, jit_compile=policy == "mixed_bfloat16")
    finally:
        keras.config.set_dtype_policy("float32")
    x, y = data(name)
    losses = model.fit(x, y, epochs=8, batch_size=8, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0] * 0.97
    assert model.output.dtype == "float32"


@pytest.mark.parametrize("name", NAMES)
def test_save_and_load(name, tmp_path):
    model = compiled(name)
    x, y = data(name)
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    # Training goes on where it stopped: the optimizer came along.
    assert loaded.optimizer.iterations == model.optimizer.iterations


@pytest.mark.parametrize("name", NAMES)
def test_compiled_by_xla_is_eager(name):
    model = make(name)
    x, _ = data(name)
    expected = np.asarray(model(x))
    model.compile(jit_compile=True)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=2e-5 * max(1, np.abs(expected).max()))
