"""Speech that is read chunk by chunk: equal to the whole recording, with a cache of fixed size."""

import keras
import numpy as np
import pytest

from keras_transformer import audio, models, tasks
from keras_transformer.attention import ChunkedAttention, MultiHeadAttention
from keras_transformer.blocks import StreamingEncoderBlock
from keras_transformer.feedforward import DenseFeedForward

CHUNK, LENGTHS = 4, np.array([437, 300, 150])
SAMPLES = np.random.default_rng(0).normal(size=(3, LENGTHS.max())).astype("float32")
MASK = np.arange(LENGTHS.max()) < LENGTHS[:, None]


def backbone(before=2, **options):
    encoder = audio.FeatureEncoder((6, 8, 7), kernel_sizes=(10, 3, 3), strides=(5, 2, 2), norm="layer", use_bias=True)
    defaults = {"feature_encoder": encoder, "position": audio.ConvolutionalPosition(7, 2, padding="causal")}
    size = models.Size(2, 16, 2, 24)
    return models.StreamingWav2Vec2(size, chunk_length=CHUNK, chunks_before=before, **{**defaults, **options})


def recognizer(before=2, **options):
    keras.utils.set_random_seed(1)
    return tasks.SpeechRecognizer(backbone(before, **options), 5, blank_id=1)


@pytest.fixture(scope="module")
def steps():
    return models.Chunkwise(recognizer())


@pytest.fixture(scope="module")
def expected(steps):
    return whole(steps.model)


@pytest.fixture(scope="module")
def found(steps):
    """The outputs of all chunks, and the caches after each."""
    return streamed(steps, SAMPLES, MASK)


def streamed(steps, samples, mask, run=None):
    """The outputs of all chunks, as far as the recordings reach, and the caches after each."""
    lead, size = steps.num_lead_samples, steps.chunk_samples
    rest = -(samples.shape[1] - lead) % size
    samples, mask = (np.pad(each, ((0, 0), (0, rest))) for each in (samples, mask))
    cache, outputs, caches = steps.begin(samples[:, :lead]), [], []
    for start in range(lead, samples.shape[1], size):
        output, cache = (run or steps)(samples[:, start : start + size], mask[:, start : start + size], cache)
        outputs.append(keras.ops.convert_to_numpy(output))
        caches.append(cache)
    return np.concatenate(outputs, axis=1), caches


def whole(model, samples=SAMPLES, mask=MASK):
    return keras.ops.convert_to_numpy(model({"samples": samples, "padding_mask": mask}))


@pytest.mark.parametrize("before, residual", [(2, "pre"), (0, "post")])
def test_chunks_are_the_whole(before, residual):
    """In float64, where the two ways through the model differ by their rounding alone."""
    keras.config.set_dtype_policy("float64")
    try:
        steps = models.Chunkwise(recognizer(before, residual=residual))
        # The head is in float32.
        steps.model.get_layer("frame_logits").dtype_policy = keras.DTypePolicy("float64")
        expected = whole(steps.model)
        found, caches = streamed(steps, SAMPLES, MASK)
    finally:
        keras.config.set_dtype_policy("float32")
    assert found.shape[1] - expected.shape[1] in range(CHUNK + 1)
    # JAX has no float64 unless it is asked to.
    tolerance = 1e-7 if expected.dtype == "float64" else 1e-5
    np.testing.assert_allclose(found[:, : expected.shape[1]], expected, atol=tolerance)
    assert {len(cache) for cache in caches} == {2 + 5 * (before > 0)}


def test_chunks_are_the_whole_in_float32(expected, found):
    real = expected > -1e8
    assert np.abs(found[0][:, : expected.shape[1]] - expected).max() <= 2e-6 * np.abs(expected[real]).max()
    assert (~real).any(axis=(1, 2)).tolist() == [False, True, True]


def test_the_step_as_a_model(steps, found, tmp_path):
    """It shares the weights, is saved, and does not grow: every size is fixed, and so is the count of frames."""
    model = steps.to_model()
    assert all(None not in tensor.shape[1:] for tensor in [*model.inputs, *model.outputs])
    assert {id(each) for each in model.weights} == {id(each) for each in steps.model.weights}
    model.save(tmp_path / "step.keras")
    for step in (model, keras.models.load_model(tmp_path / "step.keras")):

        def run(samples, mask, cache, step=step):
            arrays = {name: np.asarray(tensor) for name, tensor in cache.items()}
            outputs = step.predict_on_batch({"samples": samples, "padding_mask": mask, **arrays})
            return outputs.pop("logits"), outputs

        outputs, caches = streamed(steps, SAMPLES, MASK, run)
        np.testing.assert_allclose(outputs, found[0], atol=1e-5)
        shapes = [{name: tuple(tensor.shape) for name, tensor in cache.items()} for cache in caches]
        assert all(each == shapes[0] for each in shapes)
        assert [cache["num_frames"][0] for cache in caches[:4]] == [CHUNK, 2 * CHUNK, 2 * CHUNK, 2 * CHUNK]


def test_a_row_without_samples_waits(steps, found):
    before, size = found[1][2], steps.chunk_samples
    mask = np.array([[True], [False], [True]]) & np.ones((3, size), bool)
    _, after = steps(SAMPLES[:, :size], mask, before)
    for name, tensor in after.items():
        same = [np.array_equal(tensor[row], before[name][row]) for row in range(3)]
        assert same == ([True] * 3 if name == "num_frames" else [False, True, False]), name


def test_a_frame_sees_its_chunk_and_the_past(steps):
    """The first changed output: that of the chunk of a changed sample. The last one: as far as blocks and kernel reach."""
    samples, mask = np.random.default_rng(1).normal(size=(1, 999)).astype("float32"), np.ones((1, 999), bool)
    noisy, hop, position = samples.copy(), 20, 402
    noisy[:, position] += 3.0
    before, after = (whole(steps.model, each, mask) for each in (samples, noisy))
    changed = np.abs(after - before)[0].max(axis=-1) > 0
    # Two frames see the sample.
    first = (position - 39) // hop + 1
    assert not changed[: first - first % CHUNK].any()
    assert changed[first - first % CHUNK]
    reach = position // hop + 6 + 2 * 3 * CHUNK  # The kernel, then two blocks of chunks.
    assert not changed[reach:].any()
    assert changed[position // hop + 6 :].any()


REFUSED = {
    "padding='causal'|mixes tokens": {"position": audio.ConvolutionalPosition(7, 2)},
    "StreamingEncoderBlock": {"mechanism": "softmax"},
    "norm='layer'": {"feature_encoder": audio.FeatureEncoder((6, 8), (5, 3), (2, 2))},
    "adapter": {"adapter": audio.SpeechAdapter(1)},
}


@pytest.mark.parametrize("match", REFUSED)
def test_models_that_need_the_whole_recording_are_refused(match):
    with pytest.raises(ValueError, match=match):
        models.Chunkwise(backbone(**REFUSED[match]))


def test_other_inputs_are_refused(steps):
    with pytest.raises(ValueError, match="samples and padding_mask"):
        models.Chunkwise(models.BERT(models.Size(1, 8, 2, 8), 9, max_sequence_length=8))
    with pytest.raises(ValueError, match="chunks of 80 samples"):
        steps(np.zeros((1, 81)), np.ones((1, 81), bool), steps.init_cache(1))
    with pytest.raises(ValueError, match="first 20 samples"):
        steps.begin(np.zeros((1, 24)))


def test_a_block_needs_a_mechanism_that_reads_chunks():
    with pytest.raises(ValueError, match="reads_whole_chunks=True"):
        StreamingEncoderBlock(MultiHeadAttention(2, 4, mechanism=ChunkedAttention(4)), DenseFeedForward(8))
    with pytest.raises(ValueError, match="chunks_after=0"):
        ChunkedAttention(4, chunks_after=1, reads_whole_chunks=True)
    mixer = MultiHeadAttention(2, 4, mechanism=ChunkedAttention(4, reads_whole_chunks=True))
    block = StreamingEncoderBlock(mixer, DenseFeedForward(8))
    x = np.ones((1, 3, 8), "float32")
    block(x)
    with pytest.raises(ValueError, match="whole chunks of 4 tokens"):
        block(x, cache=block.init_cache(1), cache_index=0)


def test_a_published_model_can_be_trained_further():
    """The weights are those of a model that sees the whole recording, in the same order."""
    encoder = backbone().get_layer("feature_encoder")
    position = audio.ConvolutionalPosition(7, 2)
    published = models.XLSR(models.Size(2, 16, 2, 24), feature_encoder=encoder, position=position)
    shapes = [
        [(each.path.partition("/")[2], each.shape) for each in model.weights] for model in (published, backbone())
    ]
    assert shapes[0] == shapes[1]
