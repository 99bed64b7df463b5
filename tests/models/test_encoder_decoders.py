"""T5, BART, Marian and Whisper: published parameter counts, and what tells them from the Transformer."""

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import load_model, models, tasks
from keras_transformer.audio import LogMel
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.generation import GenerationError
from keras_transformer.models.audio.whisper import Sinusoids
from keras_transformer.models.building.encoder_decoder import ShiftRight

SMALL = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=12)
WHISPER = {"vocabulary_size": 30, "num_mel_bins": 3, "num_frames": 12, "max_sequence_length": 9}


def whisper(**options):
    return models.Whisper(SMALL, **WHISPER, **options)


def gated_t5(size):
    backbone = models.T5(size, feedforward="gated", activation="gelu_tanh")
    return tasks.LanguageModel(backbone, tie_embeddings=False)


# As transformers counts the published checkpoints, biases of logits and tables of sines left out.
PUBLISHED = {
    "t5-small": (lambda: models.T5("small"), 60_506_624),
    "t5-base": (lambda: models.T5("base"), 222_903_552),
    "t5-large": (lambda: models.T5("large"), 737_668_096),
    "t5-3b": (lambda: models.T5("3b"), 2_851_598_336),
    "t5-v1_1-small": (lambda: gated_t5("v1.1-small"), 76_961_152),
    "flan-t5-base": (lambda: gated_t5("v1.1-base"), 247_577_856),
    "flan-t5-xxl": (lambda: gated_t5("v1.1-xxl"), 11_135_332_352),
    "bart-base": (lambda: models.BART("base"), 139_420_416),
    "bart-large": (lambda: models.BART("large"), 406_291_456),
    "mbart-large-cc25": (lambda: models.MBart("large"), 610_851_840),
    "pegasus-large": (lambda: models.Pegasus("large"), 568_699_904),
    "opus-mt-en-de": (lambda: models.Marian("base"), 74_410_496 - 2 * 512 * 512),
    "whisper-tiny": (lambda: models.Whisper("tiny"), 37_760_640),
    "whisper-large-v2": (lambda: models.Whisper("large"), 1_543_304_960),
}


@pytest.mark.parametrize("name", exhaustive_but(PUBLISHED, "t5-small", "bart-base", "whisper-tiny"))
def test_published_parameters(name):
    make, expected = PUBLISHED[name]
    with unallocated():
        model = make()
    assert sum(int(np.prod(weight.shape)) for weight in model.weights if "seed" not in weight.path) == expected


def test_the_blocks_of_a_side_share_their_biases():
    model = models.T5(models.T5Size(3, 8, 2, 12, head_dim=4, num_decoder_layers=2), 30)
    tables = [weight.path for weight in model.weights if "relative_bias" in weight.path]
    assert tables == [f"{side}_block_0/self_attention/relative_bias/embeddings" for side in ("encoder", "decoder")]
    assert sum("decoder_block" in layer.name for layer in model.layers) == 2


def test_t5_scores_grow_with_the_width_of_heads():
    """Nothing divides them: two tokens that are alike but for their length weigh as `exp` of the plain product."""
    attention = models.T5(models.T5Size(1, 4, 1, 4, head_dim=4), 30).get_layer("encoder_block_0").mixer
    for dense in (attention.query_dense, attention.key_dense):
        dense.kernel.assign(np.eye(4, dtype="float32").reshape(4, 1, 4))
    attention.position.embeddings.assign(np.zeros((32, 1)))
    x = np.array([[[2.0, 0, 0, 0], [0, 1.0, 0, 0]]], "float32")
    _, scores = attention(x, x, return_attention_scores=True)
    np.testing.assert_allclose(scores[0, 0, 0], np.exp([4.0, 0.0]) / np.exp([4.0, 0.0]).sum(), atol=1e-6)


def test_positions_of_bart_begin_behind_two_rows():
    model = models.BART(SMALL, 30, max_sequence_length=5)
    assert {tuple(w.shape) for w in model.weights if "position" in w.path} == {(7, 8)}
    assert tasks.LanguageModel(model).max_length == 5


def test_sinusoids_reach_the_longest_wavelength():
    table = np.array(Sinusoids()((1500, 384)))
    np.testing.assert_allclose(table[700, 191], np.sin(700 / 10000), atol=1e-6)
    np.testing.assert_allclose(table[700, 192], np.cos(700), atol=1e-6)
    assert whisper().get_layer("source_position").trainable_weights == []


def test_frames_of_whisper_are_read_in_pairs():
    """Token s sees the frames 2 s - 2 .. 2 s + 2, as two paddings of one frame have it."""
    model = whisper()
    front = keras.Model(model.inputs[0], model.get_layer("convolution_2").output)
    features = np.random.default_rng(0).normal(size=(1, 12, 3)).astype("float32")
    before, after = (np.array(front(x)) for x in (features, features + np.eye(12, dtype="float32")[6][None, :, None]))
    assert np.flatnonzero(np.abs(after - before).max(axis=(0, 2)) > 1e-7).tolist() == [2, 3, 4]


def test_features_that_are_none_are_refused():
    model = tasks.LanguageModel(whisper(), start_id=1)
    assert model.max_length == 9
    for wrong in ("text", [[1, 2]], np.zeros((12, 4), "float32"), np.zeros((12, 3), "int32")):
        with pytest.raises(GenerationError, match=r"Prompt 0 must be floats of shape \(12, 3\)"):
            model.generate(wrong)
    with pytest.raises(GenerationError, match="No prompts"):
        model.generate([])
    with pytest.raises(GenerationError, match="exceeds the 9"):
        model.generate(np.zeros((12, 3), "float32"), max_new_tokens=9)


@pytest.mark.exhaustive
def test_one_sound_is_answered_as_among_others():
    model = tasks.LanguageModel(whisper(), start_id=1, end_id=2)
    features = np.random.default_rng(0).normal(size=(3, 12, 3)).astype("float32")
    for weight in model.trainable_weights:
        weight.assign(np.random.default_rng(len(weight.path)).normal(0, 0.5, weight.shape))
    together = model.generate(features, max_new_tokens=6)
    assert together == [model.generate(each, max_new_tokens=6) for each in features]
    streamed = list(model.stream(features[1], max_new_tokens=6))
    assert streamed == together[1]


def test_a_front_end_stands_inside_the_model(tmp_path):
    """Samples in, of any length up to that of the model, and the same texts as from the features."""
    log_mel = LogMel.whisper(num_mel_bins=3, num_samples=12 * 160)
    by_features = tasks.LanguageModel(whisper(), start_id=1)
    backbone = models.with_front_end(by_features.backbone, log_mel)
    model = tasks.LanguageModel(backbone, start_id=1)
    samples = [np.random.default_rng(n).normal(0, 0.1, n).astype("float32") for n in (1920, 700, 1500)]
    features = [np.array(log_mel(each[None]))[0] for each in samples]
    expected = by_features.generate(features, max_new_tokens=5)
    assert model.generate(samples, max_new_tokens=5) == expected
    assert model.generate(samples[1], max_new_tokens=5) == expected[1]
    model.save(tmp_path / "model.keras")
    assert load_model(tmp_path / "model.keras").generate(samples, max_new_tokens=5) == expected
    with pytest.raises(ValueError, match="takes no 'features'"):
        models.with_front_end(backbone, log_mel)
    with pytest.raises(ValueError, match=r"returns \(None, 24, 3\)"):
        models.with_front_end(by_features.backbone, LogMel.whisper(num_mel_bins=3, num_samples=24 * 160))


def test_the_head_of_a_language_model():
    """`logits = scale · h Eᵀ + b`, which survives a save."""
    backbone = models.T5(models.T5Size(1, 8, 2, 12, head_dim=4), 30)
    model = tasks.LanguageModel(backbone, head_scale=0.25, head_bias=True)
    model.get_layer("logits").bias.assign(np.arange(30.0))
    tokens, mask = np.array([[3, 4, 5]]), np.ones((1, 3), bool)
    inputs = {"source_token_ids": tokens, "source_padding_mask": mask}
    inputs |= {"target_token_ids": tokens, "target_padding_mask": mask}
    table = np.array(backbone.get_layer("token_embedding").embeddings)
    expected = 0.25 * np.array(backbone(inputs)) @ table.T + np.arange(30.0)
    np.testing.assert_allclose(model(inputs), expected, atol=1e-5)


def test_saved_models_come_back(tmp_path):
    features = np.random.default_rng(0).normal(size=(2, 12, 3)).astype("float32")
    target = {"target_token_ids": np.array([[1, 2], [3, 4]]), "target_padding_mask": np.ones((2, 2), bool)}
    model = tasks.LanguageModel(whisper(), start_id=1, head_bias=True, head_scale=0.5)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    inputs = {"features": features, **target}
    np.testing.assert_allclose(loaded(inputs), model(inputs), atol=1e-6)
    assert loaded.generate(features, max_new_tokens=4) == model.generate(features, max_new_tokens=4)


def test_reading_twice_is_reading_shifted(tmp_path):
    backbone = models.BART(SMALL, 30, max_sequence_length=6)
    reader = models.read_twice(backbone, start_id=2)
    tokens, mask = np.array([[5, 6, 7, 0], [8, 9, 10, 11]]), np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)
    shifted = np.array([[2, 5, 6, 7], [2, 8, 9, 10]])
    whole = {"source_token_ids": tokens, "source_padding_mask": mask}
    expected = backbone({**whole, "target_token_ids": shifted, "target_padding_mask": mask})
    inputs = {"token_ids": tokens, "padding_mask": mask}
    np.testing.assert_allclose(reader(inputs), expected, atol=1e-6)
    reader.save(tmp_path / "reader.keras")
    np.testing.assert_allclose(load_model(tmp_path / "reader.keras")(inputs), expected, atol=1e-6)
    assert ShiftRight.from_config(ShiftRight(2).get_config()).start_id == 2


def test_sides_of_unequal_depth():
    size = models.Size(2, 8, 2, 12)
    model = models.Transformer(size, 30, decoder_size=models.Size(1, 8, 4, 10), position="learned", embedding_norm=True)
    assert sum("encoder_block" in layer.name for layer in model.layers) == 2
    assert model.get_layer("decoder_block_0").mixer.num_heads == 4
    assert model.get_layer("decoder_block_0").cross_attention.num_heads == 4
    with pytest.raises(ValueError, match="one width"):
        models.Transformer(size, 30, decoder_size=models.Size(1, 16, 4, 10))
    with pytest.raises(ValueError, match="give it to the attention"):
        models.Transformer(size, 30, position="rotary")
    with pytest.raises(ValueError, match="even"):
        models.Whisper(size, num_frames=7)
