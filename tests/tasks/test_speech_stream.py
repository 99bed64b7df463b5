"""Text while it is spoken: that of the whole recording, however the samples arrive."""

import pathlib

import keras
import numpy as np
import pytest

from keras_transformer import audio, generation, models, tasks, text

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "wav2vec2-CTC"
LENGTHS = (533, 97, 250)
RECORDINGS = [np.random.default_rng(0).normal(size=length).astype("float32") for length in LENGTHS]


def recognizer():
    keras.utils.set_random_seed(2)
    encoder = audio.FeatureEncoder((6, 8), kernel_sizes=(6, 3), strides=(4, 3), norm="layer")
    position = audio.ConvolutionalPosition(5, 2, padding="causal")
    options = {"feature_encoder": encoder, "position": position}
    backbone = models.StreamingWav2Vec2(models.Size(1, 16, 2, 24), chunk_length=3, chunks_before=2, **options)
    model = tasks.SpeechRecognizer(backbone, 11, blank_id=3)
    model.tokenizer = text.from_huggingface(FOLDER)
    return model


@pytest.fixture(scope="module")
def model():
    """With a head that says many letters, some over several frames."""
    model = recognizer()
    head = model.get_layer("frame_logits")
    head.set_weights([20 * head.get_weights()[0], np.random.default_rng(1).normal(size=11)])
    return model


@pytest.fixture(scope="module")
def texts(model):
    texts = tasks.transcribe(model, RECORDINGS)
    assert len(texts[0]) > 10
    assert any(a == b for a, b in zip(texts[0], texts[0][1:], strict=False)) or " " in texts[0]
    return texts


def fed(stream, sizes, random):
    """The texts of streams that get pieces of random sizes, each at a pace of its own."""
    found, begin = [""] * len(RECORDINGS), [0] * len(RECORDINGS)
    while any(at < len(recording) for at, recording in zip(begin, RECORDINGS, strict=True)):
        ends = [at + int(random.integers(*sizes)) for at in begin]
        pieces = [each[at:end] for each, at, end in zip(RECORDINGS, begin, ends, strict=True)]
        found = [old + new for old, new in zip(found, stream.feed(pieces), strict=True)]
        begin = ends
    return [old + new for old, new in zip(found, stream.finish(), strict=True)]


def test_streams_give_the_texts_of_the_recordings(model, texts):
    stream, random = tasks.SpeechStream(model, num_streams=3), np.random.default_rng(3)
    assert stream.chunk_samples == 36
    assert fed(stream, (0, 90), random) == texts
    assert fed(stream, (200, 400), random) == texts  # Other recordings, in the same streams.


def test_text_comes_before_the_end(model, texts):
    stream = tasks.SpeechStream(model)
    first = stream.feed([RECORDINGS[0][:300]])[0]
    assert texts[0].startswith(first.rstrip())
    assert first.strip()
    assert first + stream.feed([RECORDINGS[0][300:]])[0] + stream.finish()[0] == texts[0]


def test_one_stream_ends_and_the_others_go_on(model, texts):
    stream, half = tasks.SpeechStream(model, 2), LENGTHS[0] // 2
    found = stream.feed([RECORDINGS[0][:half], RECORDINGS[2]])
    ended = stream.finish(1)
    assert ended[0] == ""
    assert found[1] + ended[1] == texts[2]
    rest = stream.feed([RECORDINGS[0][half:], RECORDINGS[2]])
    ended = stream.finish()
    assert [found[0] + rest[0] + ended[0], rest[1] + ended[1]] == [texts[0], texts[2]]


def test_fewer_samples_than_one_frame(model):
    stream = tasks.SpeechStream(model)
    for count in (0, 3, 10):
        assert stream.feed([np.zeros(count)]) == [""]
        assert stream.finish() == [""]


def test_the_best_path_in_parts():
    logits = np.random.default_rng(0).normal(size=(2, 40, 3))
    stream, found = generation.CTCStream(2, blank_id=1), [[], []]
    for start in range(0, 40, 7):
        for row, ids in enumerate(stream.push(logits[:, start : start + 7])):
            found[row] += ids
    assert found == generation.ctc_greedy(logits, blank_id=1)
    token = np.array([[[0.0, 0.0, 1.0]]] * 2)
    assert stream.push(token, is_active=[True, False])[1] == []
    stream.forget(0)
    assert stream.push(token)[0] == [2]
    with pytest.raises(ValueError, match="2 rows"):
        stream.push(logits[:1])
    with pytest.raises(ValueError, match="num_rows"):
        generation.CTCStream(0)


def test_what_has_no_stream(model):
    with pytest.raises(ValueError, match="with a tokenizer"):
        tasks.SpeechStream(recognizer().layers[1])
    with pytest.raises(ValueError, match="2 streams"):
        tasks.SpeechStream(model, 2).feed([np.zeros(9)])
    with pytest.raises(ValueError, match="arrays"):
        tasks.SpeechStream(model).feed([np.zeros((1, 9))])
    normalized = recognizer()
    normalized.processor = audio.SampleNormalization()
    with pytest.raises(ValueError, match="whole recordings"):
        tasks.SpeechStream(normalized)
