"""Contrastive pretraining: the formulas of wav2vec 2.0 in float64, the distractors, the codebooks, and `fit`."""

import keras
import numpy as np
import pytest

from keras_transformer import audio, models, tasks

RNG = np.random.default_rng(0)
HIDDEN = np.array([[0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0]], bool)


def test_losses_are_the_formulas_of_the_paper():
    layer = tasks.ContrastiveSpeechLoss(num_distractors=4, temperature=0.3, diversity_weight=0.7, seed=1)
    predictions, targets = RNG.normal(size=(2, 3, 6, 5)).astype("float32")
    ids = RNG.integers(0, 2, (3, 6, 2)).astype("int32")
    ids[0, 1], ids[0, 2] = ids[0, 4], [5, 5]
    probabilities = RNG.dirichlet(np.ones(3), (3, 6, 2)).astype("float32")
    chosen, exists = (np.array(each) for each in layer.distractors(HIDDEN))
    layer = tasks.ContrastiveSpeechLoss(num_distractors=4, temperature=0.3, diversity_weight=0.7, seed=1)
    output = layer(predictions, targets, ids=ids, probabilities=probabilities, hidden=HIDDEN, training=True)
    np.testing.assert_array_equal(output, predictions)

    losses, hits = [], []
    for row, time in zip(*np.nonzero(HIDDEN), strict=True):
        c = predictions[row, time].astype("float64")

        def similarity(other, c=c, row=row):
            q = targets[row, other].astype("float64")
            return c @ q / np.linalg.norm(c) / np.linalg.norm(q) / 0.3

        others = [
            similarity(other)
            for other, found in zip(chosen[row, time], exists[row, time], strict=True)
            if found and (ids[row, other] != ids[row, time]).any()
        ]
        own = similarity(time)
        losses.append(-np.log(np.exp(own) / np.exp([own, *others]).sum()))
        hits.append(own >= max([own, *others]))
    mean = probabilities[HIDDEN].astype("float64").mean(axis=0)
    diversity = (mean * np.log(mean)).sum() / 6
    assert float(layer.losses[0]) == pytest.approx(np.mean(losses) + 0.7 * diversity, rel=1e-5)
    (metric,) = layer.metrics
    metrics = {name: float(value) for name, value in metric.result().items()}
    assert metrics["accuracy"] == pytest.approx(np.mean(hits))
    assert metrics["code_perplexity"] == pytest.approx(np.exp(-(mean * np.log(mean)).sum(axis=-1)).sum(), abs=1e-3)


def test_distractors_are_other_hidden_frames_of_the_row():
    layer = tasks.ContrastiveSpeechLoss(num_distractors=600, seed=0)
    chosen, exists = (np.array(each) for each in layer.distractors(HIDDEN))
    assert chosen.shape == (3, 6, 600)
    for row, time in zip(*np.nonzero(HIDDEN), strict=True):
        others = set(np.flatnonzero(HIDDEN[row])) - {time}
        assert exists[row, time].all() == exists[row, time].any() == bool(others)
        if others:
            found, counts = np.unique(chosen[row, time], return_counts=True)
            assert set(found) == others
            np.testing.assert_allclose(counts / 600, 1 / len(others), atol=0.07)


def test_quantizer_chooses_the_largest_logit_and_in_training_at_random():
    layer = audio.GumbelQuantizer(2, 3, 4, temperature=(2.0, 0.5, 0.5), seed=0)
    x = RNG.normal(size=(1, 4000, 5)).astype("float32") * 0 + np.array([0.3, -0.2, 0.1, 0.4, -0.5], "float32")
    entries, ids, probabilities = (np.array(each) for each in layer(x))
    kernel, bias = (np.array(weight) for weight in layer._logits_dense.get_weights())
    logits = (x[0, 0] @ kernel + bias).reshape(2, 3)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities[0, 0], expected, atol=1e-5)
    assert ids[0, 0].tolist() == logits.argmax(axis=1).tolist()
    table = np.array(layer.codevectors).reshape(2, 3, 2)
    np.testing.assert_allclose(entries[0, 0], np.concatenate([table[0, ids[0, 0, 0]], table[1, ids[0, 0, 1]]]))
    # With Gumbel noise an entry is chosen with its probability, at any temperature.
    drawn, ids, _ = (np.array(each) for each in layer(x, training=True))
    shares = np.stack([np.bincount(ids[0, :, group], minlength=3) / 4000 for group in (0, 1)])
    np.testing.assert_allclose(shares, expected, atol=0.03)
    np.testing.assert_allclose(drawn[0, 7, :2], table[0, ids[0, 7, 0]], atol=1e-6)
    assert int(layer.steps) == 1


def model(seed=0):
    keras.utils.set_random_seed(seed)
    encoder = audio.FeatureEncoder((8, 8), kernel_sizes=(4, 2), strides=(2, 2), norm="layer")
    backbone = models.Wav2Vec2(
        models.Size(1, 16, 2, 24),
        feature_encoder=encoder,
        position=audio.ConvolutionalPosition(5, 2),
        span_masking=audio.SpanMasking(0.5, span_length=3, min_spans=1),
    )
    quantizer = audio.GumbelQuantizer(2, 6, 8)
    return backbone, tasks.SpeechPretraining(backbone, quantizer=quantizer, projection_dim=8, num_distractors=7)


def test_fit_needs_recordings_only():
    backbone, pretraining = model()
    lengths = np.array([160, 100])
    mask = np.arange(160) < lengths[:, None]
    # Tones that change: what is hidden follows from what is around it.
    times = np.arange(160)
    samples = np.stack([np.sin(times * (0.1 + times / 200)), np.sin(times * (0.9 - times / 400))]).astype("float32")
    inputs = {"samples": np.where(mask, samples, 0), "padding_mask": mask}
    inputs = {name: np.tile(array, (16, 1)) for name, array in inputs.items()}
    pretraining.compile(keras.optimizers.Adam(0.01), jit_compile=False)
    history = pretraining.fit(inputs, batch_size=8, epochs=5, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert {"accuracy", "code_perplexity"} <= set(history)
    assert all(2 <= value <= 12 for value in history["code_perplexity"])
    assert int(pretraining.get_layer("quantizer").steps) == 20
    # The same layers: a recognizer starts from the pretrained weights.
    recognizer = tasks.SpeechRecognizer(backbone, 5)
    assert any(weight is pretraining.get_layer("feature_projection").kernel for weight in recognizer.weights)


def test_a_backbone_without_masking_is_refused():
    encoder = audio.FeatureEncoder((8,), kernel_sizes=(4,), strides=(2,))
    for build in (models.Wav2Vec2, models.HuBERT):
        options = {"normalizes_features": False} if build is models.HuBERT else {}
        backbone = build(
            models.Size(1, 16, 2, 24), feature_encoder=encoder, position=audio.ConvolutionalPosition(5, 2), **options
        )
        with pytest.raises(ValueError, match="SpanMasking"):
            tasks.SpeechPretraining(backbone)


@pytest.mark.parametrize(
    "make",
    [
        lambda: audio.GumbelQuantizer(num_codebooks=0),
        lambda: audio.GumbelQuantizer(3, codevector_dim=8),
        lambda: audio.GumbelQuantizer(temperature=(1.0, 0.5)),
        lambda: audio.GumbelQuantizer(temperature=(1.0, 0.0, 0.9)),
        lambda: tasks.ContrastiveSpeechLoss(0),
        lambda: tasks.ContrastiveSpeechLoss(temperature=0.0),
        lambda: tasks.ContrastiveSpeechLoss(diversity_weight=-1.0),
    ],
)
def test_invalid_arguments(make):
    with pytest.raises(ValueError, match="Received"):
        make()


@pytest.mark.parametrize(
    "layer",
    [audio.GumbelQuantizer(3, 7, 9, (1.5, 0.25, 0.9), seed=3), tasks.ContrastiveSpeechLoss(7, 0.2, 0.3, seed=4)],
    ids=lambda layer: type(layer).__name__,
)
def test_configs_are_complete(layer):
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config
    own = set(config) - set(keras.layers.Layer(name="layer").get_config())
    assert [key for key in own if config[key] == type(layer)().get_config()[key]] == []
