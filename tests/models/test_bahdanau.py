"""The recurrent encoder-decoder against the formulas of the paper, in its steps, and what it learns."""

import math

import keras
import numpy as np
import pytest

from keras_transformer import attention, models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.models import Stepwise
from keras_transformer.models.recurrent import bahdanau
from keras_transformer.models.recurrent.attentional_gru import AttentionalGRU
from keras_transformer.models.recurrent.bidirectional_gru import BidirectionalGRU
from keras_transformer.utils.serialization import load_model

SIZE = models.BahdanauSize(embedding_dim=5, hidden_dim=4, alignment_dim=6, readout_dim=3)
SOURCE = np.array([[3, 1, 4, 1], [9, 2, 0, 0]], "int32")
TARGET = np.array([[1, 5, 9, 2, 6], [1, 5, 3, 0, 0]], "int32")


def build(**options):
    keras.utils.set_random_seed(0)
    model = models.Bahdanau(SIZE, vocabulary_size=10, **options)
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.7, weight.shape))
    return model


def inputs(source=SOURCE, target=TARGET):
    return {
        "source_token_ids": source,
        "source_padding_mask": source > 0,
        "target_token_ids": target,
        "target_padding_mask": target > 0,
    }


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(state, given, kernels):
    """Appendix A.1.1: z, r and the candidate, each of what comes in and of the state."""
    candidate, update, reset = np.split(given, 3)
    z, r = sigmoid(update + state @ kernels[0]), sigmoid(reset + state @ kernels[1])
    return (1 - z) * state + z * np.tanh(candidate + (r * state) @ kernels[2])


def arrays(layer):
    """The weights by their paths in the layer."""
    return {weight.path.removeprefix(f"{layer.path}/"): weight.numpy().astype("float64") for weight in layer.weights}


def kernels_of(weights, name):
    return [weights[f"{name}_{part}_kernel"] for part in ("update", "reset", "candidate")]


def annotations(layer, x):
    weights = arrays(layer)
    kernel, bias = weights["input/kernel"], weights["input/bias"]
    given, size = x @ kernel + bias, layer.units
    forward, backward = np.zeros((len(x), size)), np.zeros((len(x), size))
    state = np.zeros(size)
    for t in range(len(x)):
        forward[t] = state = step(state, given[t, : 3 * size], kernels_of(weights, "forward"))
    state = np.zeros(size)
    for t in reversed(range(len(x))):
        backward[t] = state = step(state, given[t, 3 * size :], kernels_of(weights, "backward"))
    return np.concatenate([forward, backward], axis=1)


def by_hand(model, source, target):
    """One pair without padding: the readout and the alignment, one word after another."""
    tables = {side: arrays(model.get_layer(f"{side}_token_embedding"))["embeddings"] for side in ("source", "target")}
    at = arrays(model.get_layer("decoder"))
    h, x = annotations(model.get_layer("encoder"), tables["source"][source]), tables["target"][target]
    query, keys, score = (at[f"scoring/{name}_kernel"][0] for name in ("query", "key", "score"))
    state = np.tanh(h[0, SIZE.hidden_dim :] @ at["first_state_kernel"] + at["first_state_bias"])
    readouts, alignment = [], []
    for word in x:
        scores = np.exp((np.tanh(state @ query + h @ keys) @ score)[:, 0])
        alignment.append(scores / scores.sum())
        context = alignment[-1] @ h
        pairs = np.concatenate([state, word, context]) @ at["readout/kernel"] + at["readout/bias"]
        readouts.append(pairs.reshape(-1, 2).max(axis=1))
        given = word @ at["input/kernel"] + at["input/bias"] + context @ at["context_kernel"]
        state = step(state, given, kernels_of(at, "state"))
    return np.array(readouts), np.array(alignment)


def test_formulas_of_the_paper():
    """Every row as if alone, whatever is padded; and the alignment is what attention_maps shows."""
    model = build()
    whole, maps = np.asarray(model(inputs())), attention.attention_maps(model)(inputs())
    assert list(maps) == ["decoder"]
    for row, (source, target) in enumerate(zip(SOURCE, TARGET, strict=True)):
        source, target = source[source > 0], target[target > 0]
        readouts, alignment = by_hand(model, source, target)
        np.testing.assert_allclose(whole[row, : len(target)], readouts, atol=1e-5)
        np.testing.assert_allclose(maps["decoder"][row, 0, : len(target), : len(source)], alignment, atol=1e-6)
        np.testing.assert_array_equal(maps["decoder"][row, 0, :, len(source) :], 0)


@pytest.mark.parametrize("sizes", [[5], [2, 3], [1, 1, 1, 1, 1]])
def test_steps_are_the_whole(sizes):
    model = build()
    source = np.concatenate([SOURCE[:1], SOURCE[:1, ::-1]])
    target = np.concatenate([TARGET[:1], TARGET[:1, ::-1]])
    whole = np.asarray(model(inputs(source, target)))
    steps = Stepwise(model)
    cache = steps.init_cache(2, max_length=1) | steps.encode(source, source > 0)
    assert {name: tuple(tensor.shape) for name, tensor in cache.items()} == {
        "decoder_state": (2, 4),
        "decoder_cross_key": (2, 1, 4, 6),
        "decoder_cross_value": (2, 1, 4, 8),
        "source_padding_mask": (2, 4),
    }
    start = 0
    for size in sizes:
        output, cache = steps(target[:, start : start + size], cache, np.full(2, start, "int32"))
        np.testing.assert_allclose(output, whole[:, start : start + size], atol=1e-6)
        start += size
    assert not steps.cache_is_rewindable


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="elsewhere there is one way to loop")
def test_training_has_the_gradients_of_the_formulas():
    """Lists of rows, which it trains with, against central differences in float64 of what the formulas give."""
    import tensorflow as tf

    model, weights = build(), np.random.default_rng(2).normal(size=(2, 5, 3)) * (TARGET > 0)[..., None]
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model(inputs(), training=True) * weights.astype("float32"))
    found = dict(
        zip(
            (each.path for each in model.trainable_weights),
            tape.gradient(total, [w.value for w in model.trainable_weights]),
            strict=True,
        )
    )

    def summed():
        rows = zip(SOURCE, TARGET, weights, strict=True)
        return sum((by_hand(model, s[s > 0], t[t > 0])[0] * w[: (t > 0).sum()]).sum() for s, t, w in rows)

    for weight in model.trainable_weights:
        value = weight.numpy()
        place = tuple(size // 2 for size in value.shape)
        sums = []
        for change in (-0.01, 0.01):
            moved = value.copy()
            moved[place] += change
            weight.assign(moved)
            sums.append(summed())
        weight.assign(value)
        gradient = np.asarray(tf.convert_to_tensor(found[weight.path]))[place]
        np.testing.assert_allclose(gradient, (sums[1] - sums[0]) / 0.02, rtol=0.01, atol=1e-3, err_msg=weight.path)


def test_padding_leaves_the_state():
    model = build()
    steps = Stepwise(model)
    source = SOURCE[:1, :3]
    fresh = steps.init_cache(1, 1) | steps.encode(source, source > 0)
    _, padded = steps(TARGET[1:], fresh, cache_index=0, lengths=np.array([3], "int32"))
    _, plain = steps(TARGET[1:, :3], fresh, cache_index=0)
    # Matrix products of another number of rows are summed in another order on some processors.
    np.testing.assert_allclose(padded["decoder_state"], plain["decoder_state"], atol=1e-6)
    wider = steps.init_cache(1, 1) | steps.encode(np.array([[3, 1, 4, 7, 7]], "int32"), np.arange(5)[None] < 3)
    _, wider = steps(TARGET[1:, :3], wider, cache_index=0)
    np.testing.assert_allclose(wider["decoder_state"], plain["decoder_state"], atol=1e-6)


def test_a_source_of_nothing_gives_no_context():
    layer = AttentionalGRU(3, 4, 2)
    x, source = np.ones((1, 2, 5), "float32"), np.ones((1, 4, 6), "float32")
    nothing = np.zeros((1, 4), bool)
    hidden = layer(x, source, encoder_padding_mask=nothing)
    layer.context_kernel.assign(np.zeros(layer.context_kernel.shape))
    kernel = layer.readout_dense.kernel.numpy()
    kernel[-6:] = 0
    layer.readout_dense.kernel.assign(kernel)
    np.testing.assert_array_equal(hidden, layer(x, source, encoder_padding_mask=nothing))


def test_published_parameters():
    """Appendix A.2.3: 620, 1,000, 1,000 and 500, 30,000 words each; biases and the head's matrix counted."""
    size = bahdanau.SIZES["base"]
    m, n, a, length = size
    encoder = 2 * (3 * n * (m + n) + 3 * n)
    decoder = 3 * n * (m + n + 2 * n) + 3 * n + n * n + n + a * (n + 2 * n + 1) + 2 * length * (m + n + 2 * n + 1)
    with unallocated():
        weights = models.Bahdanau().weights
    assert (
        sum(math.prod(weight.shape) for weight in weights if "seed" not in weight.path)
        == 2 * 30000 * m + encoder + decoder
    )


def test_shared_table_and_refusals():
    model = build(tie_embeddings=True)
    assert [weight.path for weight in model.weights if "embedding" in weight.path] == ["token_embedding/embeddings"]
    with pytest.raises(ValueError, match="one vocabulary"):
        models.Bahdanau(SIZE, 10, target_vocabulary_size=11, tie_embeddings=True)
    with pytest.raises(ValueError, match="Valid names: base"):
        models.Bahdanau("large")
    with pytest.raises(ValueError, match="units"):
        BidirectionalGRU(0)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_generation_learning_and_saving(tmp_path):
    """It learns to turn a source around, whatever stands beside it; as it does in beams, and after loading."""
    keras.utils.set_random_seed(0)
    size = models.BahdanauSize(24, 32, 24, 24)
    backbone = models.Bahdanau(size, 12, tie_embeddings=True, dropout=0.02)
    model = tasks.LanguageModel(backbone, start_id=1, end_id=2)
    rng = np.random.default_rng(0)
    source = rng.integers(3, 12, (512, 5)).astype("int32")
    text = np.concatenate([np.full((512, 1), 1), source[:, ::-1], np.full((512, 1), 2)], axis=1).astype("int32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss=loss, jit_compile=keras.backend.backend() == "jax")
    model.fit(inputs(source, text[:, :-1]), text[:, 1:], epochs=8, batch_size=32, verbose=0)
    asked = [source[0].tolist(), source[1, :4].tolist(), source[2].tolist()]
    answers = model.generate(asked, max_new_tokens=8)
    assert answers[0] == asked[0][::-1]
    assert answers[2] == asked[2][::-1]
    beams = model.generate(asked, max_new_tokens=8, sampler="beam")
    assert beams[0] == answers[0]
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    loaded.jit_compile = model.jit_compile
    assert loaded.generate(asked, max_new_tokens=8) == answers


def test_mixed_precision_keeps_the_state_in_float32():
    layer = AttentionalGRU(4, 4, 3, dtype="mixed_bfloat16")
    x, source = np.ones((2, 3, 5), "float32"), np.ones((2, 4, 6), "float32")
    whole = layer(x, source)
    cache = layer.init_cache(2) | layer.memory_cache(source)
    output, cache = layer(x, cache=cache, cache_index=0)
    assert keras.backend.standardize_dtype(cache["state"].dtype) == "float32"
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    np.testing.assert_allclose(np.array(output, "float32"), np.array(whole, "float32"), atol=0.02)
    encoder = BidirectionalGRU(4, dtype="mixed_bfloat16")
    assert keras.backend.standardize_dtype(encoder(x).dtype) == "bfloat16"
