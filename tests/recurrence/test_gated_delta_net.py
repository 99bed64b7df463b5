"""Gated DeltaNet against the paper's recurrence in float64, token by token."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.recurrence import GatedDeltaNet
from keras_transformer.recurrence.delta.delta_products import delta_products
from keras_transformer.recurrence.delta.state_scan import state_scan
from keras_transformer.recurrence.delta.triangular_inverse import unit_lower_inverse


def sequential(query, key, value, rate, log_decay, mask, state):
    """Equation 10 of arXiv 2412.06464, in float64. `S_t = S_{t - 1} α_t (I - β_t k_t k_tᵀ) + β_t v_t k_tᵀ`, transposed."""
    group = value.shape[2] // query.shape[2]
    query, key = (np.repeat(x.astype("float64"), group, axis=2) for x in (query, key))
    state, outputs = state.astype("float64"), np.zeros(value.shape)
    for b, t, n in np.ndindex(value.shape[:3]):
        if mask[b, t]:
            k, beta, alpha = key[b, t, n], rate[b, t, n], np.exp(log_decay[b, t, n])
            forget = alpha * (np.eye(len(k)) - beta * np.outer(k, k))
            state[b, n] = forget @ state[b, n] + beta * np.outer(k, value[b, t, n])
        outputs[b, t, n] = state[b, n].T @ query[b, t, n]
    return outputs, state


def problem(length, speed=1.0, seed=0):
    rng = np.random.default_rng(seed)
    query, key = rng.normal(size=(2, 2, length, 2, 5)).astype("float32")
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    value = rng.normal(size=(2, length, 4, 3)).astype("float32")
    rate = rng.uniform(size=(2, length, 4)).astype("float32")
    log_decay = -speed * rng.exponential(size=(2, length, 4)).astype("float32")
    state = rng.normal(size=(2, 4, 5, 3)).astype("float32")
    return query, key, value, rate, log_decay, state


@pytest.mark.parametrize("length", [1, 7, 64, 150])
@pytest.mark.parametrize("decays", [True, False])
def test_any_length_in_any_chunks_is_the_recurrence(length, decays):
    *parts, log_decay, state = problem(length)
    holes = np.random.default_rng(1).uniform(size=(2, length)) > 0.4
    for mask, start in ((np.ones((2, length), bool), np.zeros_like(state)), (holes, state)):
        expected, expected_state = sequential(*parts, log_decay * decays, mask, start)
        for chunk_size in (1 if length < 10 else 5, 7, 64):
            output, following = delta_products(
                *parts,
                log_decay if decays else None,
                chunk_size,
                None if mask.all() else mask.astype("float32"),
                start if start.any() else None,
            )
            np.testing.assert_allclose(output[mask], expected[mask], atol=2e-5)
            np.testing.assert_allclose(following, expected_state, atol=2e-5)


def test_slow_tokens_after_fast_decay():
    """Running sums of the logarithms would be 30,000 here, and their differences wrong by 1e-3."""
    *parts, log_decay, state = problem(48)
    log_decay[:, :16] = -2000.0
    output, _ = delta_products(*parts, log_decay, 48, state=state)
    expected, _ = sequential(*parts, log_decay, np.ones((2, 48), bool), state)
    np.testing.assert_allclose(output, expected, atol=2e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 16, 33, 64, 96, 128])
def test_inverse_of_triangular_matrices(size):
    lower = np.tril(np.random.default_rng(size).normal(size=(2, 3, size, size)), -1).astype("float32") / size**0.5
    expected = np.linalg.inv(np.eye(size) + lower.astype("float64"))
    np.testing.assert_allclose(unit_lower_inverse(lower), expected, atol=1e-5 * np.abs(expected).max())


def test_inverse_for_equal_keys():
    """With the same key for all tokens, powers of the matrix have elements of 1e18, and the inverse only 0, 1 and -1."""
    lower = np.tril(np.ones((1, 1, 64, 64), "float32"), -1)
    np.testing.assert_array_equal(unit_lower_inverse(lower)[0, 0], np.eye(64) - np.eye(64, k=-1))


def test_weights_make_the_layer():
    """The layer from its weights, by hand in float64: convolution, lengths, gates, norm."""
    layer = GatedDeltaNet(
        4, 5, value_dim=3, num_key_heads=2, kernel_size=3, chunk_size=4, epsilon=0.01, activation="tanh"
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 9, 6)).astype("float32")
    layer.build(x.shape)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    weights = {weight.path.split("/", 1)[-1]: np.asarray(weight, "float64") for weight in layer.weights}
    names = ("query", "key", "value")
    mixed = np.concatenate([x @ weights[f"{name}/kernel"] for name in names], axis=2)
    padded = np.concatenate([np.zeros((1, 2, 32)), mixed], axis=1)
    filters = weights["convolution/kernel"][:, :, 0]
    mixed = np.tanh(sum(padded[:, i : i + 9] * filters[i] for i in range(3)))
    query, key = (part.reshape(1, 9, 2, 5) for part in (mixed[..., :10], mixed[..., 10:20]))
    query, key = (part / np.sqrt((part**2).sum(-1, keepdims=True) + 1e-6) for part in (query, key))
    rate = 1 / (1 + np.exp(-x @ weights["rate/kernel"]))
    steps = np.log1p(np.exp(x @ weights["step/kernel"] + weights["decay/step_bias"]))
    value = mixed[..., 20:].reshape(1, 9, 4, 3)
    decay = -np.exp(weights["decay/log_speed"]) * steps
    y, _ = sequential(query / 5**0.5, key, value, rate, decay, np.ones((1, 9), bool), np.zeros((1, 4, 5, 3)))
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + 0.01) * weights["norm_scale"]
    gate = x @ weights["gate/kernel"]
    y = y.reshape(1, 9, 12) * gate / (1 + np.exp(-gate))
    np.testing.assert_allclose(layer(x), y @ weights["output/kernel"], rtol=1e-5, atol=1e-5)


def test_padding_on_the_right_of_a_chunk(read):
    """Each row of a ragged batch, continued after its padding, is what the row alone gives."""
    layer = GatedDeltaNet(2, 4, kernel_size=4, chunk_size=3)
    x = np.random.default_rng(0).normal(size=(3, 12, 6)).astype("float32")
    whole = np.asarray(layer(x))
    lengths = np.array([7, 2, 1])
    mask = np.arange(7) < lengths[:, None]
    output, cache = layer(
        np.where(mask[:, :, None], x[:, :7], 50.0), cache=layer.init_cache(3), query_mask=mask, cache_index=0
    )
    np.testing.assert_allclose(np.asarray(output)[mask], whole[:, :7][mask], atol=1e-5)
    following = np.stack([row[length : length + 5] for row, length in zip(x, lengths, strict=True)])
    output, _ = layer(following, cache=cache, cache_index=lengths.astype("int32"))
    expected = np.stack([row[length : length + 5] for row, length in zip(whole, lengths, strict=True)])
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_starts_of_the_decay():
    layer = GatedDeltaNet(3, 4)
    layer.build((None, None, 6))
    np.testing.assert_allclose(np.exp(layer.decay.log_speed), [1, 8.5, 16], rtol=1e-6)
    np.testing.assert_allclose(np.log1p(np.exp(np.asarray(layer.decay.step_bias))), [0.001, 0.01, 0.1], rtol=1e-5)


def test_heads_and_kernels_are_checked():
    with pytest.raises(ValueError, match="num_key_heads must divide num_heads=4"):
        GatedDeltaNet(4, 3, num_key_heads=3)
    with pytest.raises(ValueError, match="kernel_size must be 2 or more"):
        GatedDeltaNet(4, 3, kernel_size=1)


def test_gradients_of_the_scan_of_states():
    """The hand-written gradient against finite differences in float64 of the recurrence itself."""
    rng = np.random.default_rng(0)
    shapes = ((3, 2, 1, 1), (3, 2, 4, 5), (3, 2, 5, 4), (3, 2, 4, 3), (2, 4, 3))
    arrays = [rng.normal(size=shape) * 0.5 for shape in shapes]
    direction = rng.normal(size=(3, 2, 4, 3))

    def loss(left, writes, reads, added, state):
        total = 0.0
        for index in range(3):
            state = left[index] * state - writes[index] @ reads[index] @ state + added[index]
            total += (state * direction[index]).sum()
        return total

    tensors = [ops.convert_to_tensor(array, "float32") for array in arrays]
    _, pullback = vjp(lambda *arguments: ops.sum(state_scan(*arguments) * ops.cast(direction, "float32")), *tensors)
    for position, gradient in enumerate(pullback(ops.ones(()))):
        for index in [tuple(rng.integers(0, shapes[position])) for _ in range(6)]:
            changes = []
            for step in (1e-6, -1e-6):
                moved = [array.copy() for array in arrays]
                moved[position][index] += step
                changes.append(loss(*moved))
            expected = (changes[0] - changes[1]) / 2e-6
            np.testing.assert_allclose(np.asarray(gradient)[index], expected, atol=2e-5)
