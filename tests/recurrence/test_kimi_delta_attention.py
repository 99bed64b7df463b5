"""Kimi Delta Attention against the paper's recurrence in float64, token by token, and against transformers."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.recurrence import KimiDeltaAttention
from keras_transformer.recurrence.delta.channel_delta_products import channel_delta_products
from keras_transformer.recurrence.delta.channel_pairs import channel_pairs
from keras_transformer.recurrence.delta.state_scan import state_scan


def sequential(query, read, write, value, log_decay, mask, state, key=None):
    """The rule of `channel_delta_products` in float64, token by token."""
    state, outputs = state.astype("float64"), np.zeros(value.shape)
    for b, t, n in np.ndindex(value.shape[:3]):
        if mask[b, t]:
            q, r, w, v = (x[b, t, n].astype("float64") for x in (query, read, write, value))
            removed = r @ state[b, n]
            state[b, n] = np.exp(log_decay[b, t, n].astype("float64"))[:, None] * state[b, n]
            if key is None:
                state[b, n] += np.outer(w, v - removed)
            else:
                state[b, n] += np.outer(key[b, t, n], v) - np.outer(w, removed)
        outputs[b, t, n] = query[b, t, n] @ state[b, n]
    return outputs, state


def problem(length, speed=1.0, seed=0):
    """Queries, reads, writes, values, decays and keys that keep the rule stable, and a state."""
    rng = np.random.default_rng(seed)
    query, unit, key = rng.normal(size=(3, 2, length, 3, 5)).astype("float32")
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    value = rng.normal(size=(2, length, 3, 4)).astype("float32")
    log_decay = -speed * rng.exponential(size=(2, length, 3, 5)).astype("float32")
    read, write = unit * np.exp(log_decay), unit * rng.uniform(size=(2, length, 3, 1)).astype("float32")
    return query, read, write, value, log_decay, key, rng.normal(size=(2, 3, 5, 4)).astype("float32")


def test_products_of_pairs():
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(2, 2, 4, 3, 8, 5)).astype("float32")
    rows, columns = list(rows), list(columns)
    decay = rng.uniform(size=(4, 3, 8, 5)).astype("float32")
    decay[:, :, 3] = 0.0
    pairs = channel_pairs(rows, columns, decay)
    running = np.ones((4, 3, 5))
    for t in range(8):
        np.testing.assert_allclose(np.asarray(pairs.before)[:, :, t], running, rtol=1e-6)
        running = running * decay[:, :, t]
        np.testing.assert_allclose(np.asarray(pairs.after)[:, :, t], np.prod(decay[:, :, t + 1 :], axis=2), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(pairs.whole)[:, :, 0], running, rtol=1e-6)
    for products, column in zip(pairs.products, columns, strict=True):
        for product, row in zip(products, rows, strict=True):
            for t, s in np.ndindex(8, 8):
                between = np.prod(decay[:, :, s + 1 : t].astype("float64"), axis=2) * (s < t)
                expected = (row[:, :, t] * between * column[:, :, s]).sum(-1)
                np.testing.assert_allclose(np.asarray(product)[:, :, t, s], expected, atol=2e-6)


@pytest.mark.parametrize("length", [1, 7, 64, 150])
@pytest.mark.parametrize("with_key", [False, True])
def test_any_length_in_any_chunks_is_the_recurrence(length, with_key):
    *parts, key, state = problem(length)
    key = key if with_key else None
    holes = np.random.default_rng(1).uniform(size=(2, length)) > 0.4
    for mask, start in ((np.ones((2, length), bool), np.zeros_like(state)), (holes, state)):
        expected, expected_state = sequential(*parts, mask, start, key)
        for chunk_size in (1 if length < 10 else 5, 7, 64):
            output, following = channel_delta_products(
                *parts,
                chunk_size,
                key,
                None if mask.all() else mask.astype("float32"),
                start if start.any() else None,
            )
            np.testing.assert_allclose(np.asarray(output)[mask], expected[mask], atol=2e-5)
            np.testing.assert_allclose(following, expected_state, atol=2e-5)


def test_slow_tokens_after_fast_decay():
    """Factors of a whole chunk would be exp(32,000) and exp(-32,000) here; sums of logarithms are wrong by 1e-3."""
    query, read, write, value, log_decay, _, state = problem(48)
    log_decay[:, :16, :, ::2] = -2000.0
    output, _ = channel_delta_products(query, read, write, value, log_decay, 64, state=state)
    expected, _ = sequential(query, read, write, value, log_decay, np.ones((2, 48), bool), state)
    np.testing.assert_allclose(output, expected, atol=2e-5)


def loaded(arrays, **options):
    """The layer with the weights of the reference, which has 3 heads of 6 channels."""
    layer = KimiDeltaAttention(3, 6, kernel_size=3, activation="gelu", epsilon=0.003, **options)
    layer.build((None, None, 10))
    params = {name.removeprefix("params/"): arrays[name] for name in arrays if name.startswith("params/")}
    names = {
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        "rate": "b_proj",
        "step_input": "forget_gate.f_a_proj",
        "step": "forget_gate.f_b_proj",
        "gate_input": "g_a_proj",
        "gate": "g_b_proj",
        "output": "o_proj",
    }
    for ours, theirs in names.items():
        getattr(layer, f"{ours}_dense").kernel.assign(params[f"{theirs}.weight"].T)
    layer.convolution.kernel.assign(params["conv1d.weight"].transpose(2, 0, 1))
    layer.decay.log_speed.assign(params["forget_gate.A_log"].ravel())
    layer.decay.step_bias.assign(params["forget_gate.dt_bias"])
    layer.norm_scale.assign(params["o_norm.weight"])
    return layer


def test_layer_of_transformers(golden, read):
    arrays = golden("kimi_delta_attention")
    layer, x, mask = loaded(arrays, chunk_size=16), arrays["x"], arrays["mask"]
    scale = np.abs(arrays["output"]).max()
    np.testing.assert_allclose(layer(x), arrays["output"], atol=2e-6 * scale)
    masked = np.asarray(layer(x, query_mask=mask))
    np.testing.assert_allclose(masked[mask], arrays["masked_output"][mask], atol=2e-6 * scale)
    np.testing.assert_allclose(read(layer, x, [9, 1, 20, 10])[0], arrays["output"], atol=2e-6 * scale)


def test_weights_make_the_layer():
    """The layer with widths of its own, from its weights, by hand in float64."""
    layer = KimiDeltaAttention(2, 5, value_dim=3, gate_rank=4, kernel_size=3, activation="tanh", epsilon=0.01)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 9, 6)).astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    w = {weight.path.split("/", 1)[-1]: np.asarray(weight, "float64") for weight in layer.weights}
    mixed = np.concatenate([x @ w[f"{name}/kernel"] for name in ("query", "key", "value")], axis=2)
    padded = np.concatenate([np.zeros((1, 2, 26)), mixed], axis=1)
    filters = w["convolution/kernel"][:, :, 0]
    mixed = np.tanh(sum(padded[:, i : i + 9] * filters[i] for i in range(3)))
    query, key = (part.reshape(1, 9, 2, 5) for part in (mixed[..., :10], mixed[..., 10:20]))
    query, key = (part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6) for part in (query, key))
    rate = sigmoid(x @ w["rate/kernel"])[..., None]
    steps = np.log1p(np.exp(x @ w["step_input/kernel"] @ w["step/kernel"] + w["decay/step_bias"])).reshape(1, 9, 2, 5)
    log_decay = -np.exp(w["decay/log_speed"])[:, None] * steps
    parts = (query / 5**0.5, key * np.exp(log_decay), key * rate, mixed[..., 20:].reshape(1, 9, 2, 3), log_decay)
    y, _ = sequential(*parts, np.ones((1, 9), bool), np.zeros((1, 2, 5, 3)))
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + 0.01) * w["norm_scale"]
    y = y.reshape(1, 9, 6) * sigmoid(x @ w["gate_input/kernel"] @ w["gate/kernel"])
    np.testing.assert_allclose(layer(x), y @ w["output/kernel"], rtol=1e-5, atol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_padding_on_the_right_of_a_chunk():
    """Each row of a ragged batch, continued after its padding, is what the row alone gives."""
    layer = KimiDeltaAttention(2, 4, kernel_size=4, chunk_size=4)
    x = np.random.default_rng(0).normal(size=(3, 12, 6)).astype("float32")
    whole, lengths = np.asarray(layer(x)), np.array([7, 2, 1])
    mask = np.arange(7) < lengths[:, None]
    garbage = np.where(mask[:, :, None], x[:, :7], 50.0)
    output, cache = layer(garbage, cache=layer.init_cache(3), query_mask=mask, cache_index=0)
    np.testing.assert_allclose(np.asarray(output)[mask], whole[:, :7][mask], atol=1e-5)
    following = np.stack([row[length : length + 5] for row, length in zip(x, lengths, strict=True)])
    output, _ = layer(following, cache=cache, cache_index=lengths.astype("int32"))
    expected = np.stack([row[length : length + 5] for row, length in zip(whole, lengths, strict=True)])
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_starts_of_the_decay():
    layer = KimiDeltaAttention(3, 4)
    layer.build((None, None, 6))
    np.testing.assert_allclose(np.exp(layer.decay.log_speed), [1, 8.5, 16], rtol=1e-6)
    steps = np.log1p(np.exp(np.asarray(layer.decay.step_bias))).reshape(3, 4)
    np.testing.assert_allclose(steps, [np.geomspace(0.001, 0.1, 4)] * 3, rtol=1e-5)


def test_gradients_of_a_decay_for_each_row_of_the_state():
    """The hand-written gradient against that of the unrolled recurrence."""
    rng = np.random.default_rng(0)
    shapes = ((3, 2, 4, 1), (3, 2, 4, 5), (3, 2, 5, 4), (3, 2, 4, 3), (2, 4, 3))
    tensors = [ops.convert_to_tensor(rng.normal(size=shape) * 0.5, "float32") for shape in shapes]
    direction = ops.convert_to_tensor(rng.normal(size=(3, 2, 4, 3)), "float32")

    def unrolled(left, writes, reads, added, state):
        total = 0.0
        for index in range(3):
            state = left[index] * state - ops.matmul(writes[index], ops.matmul(reads[index], state)) + added[index]
            total += ops.sum(state * direction[index])
        return total

    _, expected = vjp(unrolled, *tensors)
    _, found = vjp(lambda *arguments: ops.sum(state_scan(*arguments) * direction), *tensors)
    for ours, theirs in zip(found(ops.ones(())), expected(ops.ones(())), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
