"""The CTC head: padding is blank, and `fit` learns texts without alignments."""

import keras
import numpy as np
import pytest

from keras_transformer import audio, generation, models, tasks
from keras_transformer.training import CTCLoss

LENGTHS = np.array([60, 36, 24])
TEXTS = [[1, 2, 2], [3, 1], [2]]


def recognizer(**options):
    encoder = audio.FeatureEncoder((6, 8), kernel_sizes=(4, 2), strides=(2, 2), norm="layer")
    backbone = models.Wav2Vec2(
        models.Size(1, 16, 2, 24), feature_encoder=encoder, position=audio.ConvolutionalPosition(5, 2)
    )
    return tasks.SpeechRecognizer(backbone, 4, **options)


def arrays():
    mask = np.arange(60) < LENGTHS[:, None]
    samples = np.random.default_rng(0).normal(size=mask.shape).astype("float32")
    return {"samples": np.where(mask, samples, 0).astype("float32"), "padding_mask": mask}


@pytest.mark.parametrize("blank_id", [0, 3])
def test_padding_is_blank(blank_id):
    logits = recognizer(blank_id=blank_id).predict(arrays(), verbose=0)
    frames = audio.speech.frames.num_frames(LENGTHS, (4, 2), (2, 2))
    assert logits.shape == (3, 14, 4)
    expected = np.where(np.arange(4) == blank_id, 0.0, -1e9)
    for row, count in zip(logits, frames, strict=True):
        assert (np.abs(row[:count]) < 100).all()
        np.testing.assert_array_equal(row[count:], np.broadcast_to(expected, (14 - count, 4)))


def test_fit_learns_the_texts():
    keras.utils.set_random_seed(0)
    model = recognizer()
    labels = np.array([text + [-100] * (3 - len(text)) for text in TEXTS])
    model.compile(keras.optimizers.Adam(0.04), CTCLoss(), jit_compile=False)
    losses = model.fit(arrays(), labels, epochs=25, verbose=0).history["loss"]
    assert losses[-1] < 0.1 < losses[0]
    logits = model.predict(arrays(), verbose=0)
    assert generation.ctc_greedy(logits) == TEXTS
    assert [results[0].token_ids for results in generation.ctc_beam_search(logits)] == TEXTS


def test_the_adapted_frames_have_a_mask_of_their_own():
    encoder = audio.FeatureEncoder((6, 8), kernel_sizes=(4, 2), strides=(2, 2), norm="layer")
    backbone = models.XLSR(
        models.Size(1, 16, 2, 24),
        feature_encoder=encoder,
        position=audio.ConvolutionalPosition(5, 2),
        adapter=audio.SpeechAdapter(1),
    )
    logits = tasks.SpeechRecognizer(backbone, 4).predict(arrays(), verbose=0)
    assert ((logits[:, :, 1] == -1e9).sum(axis=1)).tolist() == [0, 3, 4]
    classifier = tasks.SequenceClassifier(backbone, 3)
    noisy = arrays()
    noisy["samples"] = np.where(noisy["padding_mask"], noisy["samples"], 5.0).astype("float32")
    np.testing.assert_allclose(classifier.predict(noisy, verbose=0), classifier.predict(arrays(), verbose=0), atol=1e-6)


@pytest.mark.parametrize("arguments", [{"vocabulary_size": 1}, {"vocabulary_size": 4, "blank_id": 4}], ids=str)
def test_invalid_arguments(arguments):
    with pytest.raises(ValueError, match="Received"):
        tasks.SpeechRecognizer(models.WhisperEncoder(models.Size(1, 8, 2, 8), num_frames=4), **arguments)
