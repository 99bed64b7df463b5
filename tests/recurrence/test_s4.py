"""State spaces against the reference's convolution, step and kernel, and a system in float64."""

import numpy as np
import pytest

from keras_transformer.recurrence import S4, S4D
from keras_transformer.recurrence.state_spaces.s4 import hippo
from keras_transformer.recurrence.state_spaces.state_space import system_response


def time_second(x):
    """The reference has `(B, D, T)`."""
    return x.transpose(0, 2, 1)


def parts(x):
    """Complex numbers, held along the last axis."""
    return x[..., 0], x[..., 1]


def complex_of(x):
    return x[..., 0] + 1j * x[..., 1]


def s4d(golden, **options):
    arrays = golden("s4d_layer")
    layer = S4D(8, **options)
    layer.build((2, 16, 8))
    kernel, bias = arrays["params/output_linear.0.weight"][:, :, 0], arrays["params/output_linear.0.bias"]
    system = [arrays[f"params/kernel.{name}"] for name in ("log_dt", "log_A_real", "A_imag")]
    outputs = parts(arrays["params/kernel.C"])
    layer.set_weights([*system, *outputs, arrays["params/D"], kernel[:8].T, bias[:8], kernel[8:].T, bias[8:]])
    return layer, arrays


@pytest.mark.parametrize("chunk_size", [1, 5, 64])
def test_s4d_of_the_reference(golden, read, chunk_size):
    layer, arrays = s4d(golden, chunk_size=chunk_size)
    u, expected = time_second(arrays["inputs/u"]), time_second(arrays["outputs/y"])
    np.testing.assert_allclose(layer._system(16).kernel[:, 0], arrays["outputs/kernel"], atol=1e-6)
    np.testing.assert_allclose(layer(u), expected, atol=2e-6)
    for sizes in ([16], [7, 9], [1] * 16):
        np.testing.assert_allclose(read(layer, u, sizes)[0], expected, atol=2e-6)


def test_diagonal_system_of_the_reference(golden):
    """The general layer of the reference has a b, which is part of our c, and a state without it."""
    arrays = golden("s4_diag")
    layer = S4D(8)
    layer.build((2, 16, 8))
    inputs = complex_of(arrays["params/kernel.B"][0])
    outputs = complex_of(arrays["params/kernel.C"][0]) * inputs
    step, decay = arrays["params/kernel.inv_dt"][:, 0], arrays["params/kernel.A_real"]
    starts = [step, decay, -arrays["params/kernel.A_imag"], outputs.real, outputs.imag, arrays["params/D"][0]]
    layer.set_weights([*starts, *layer.get_weights()[6:]])
    for size in (3, 16):
        system = layer._system(size)
        u = time_second(arrays["inputs/u"])
        _, state = system_response(system, u, None, np.zeros((2, 8, 8), "float32"))
        state = (np.asarray(state)[..., :4] + 1j * np.asarray(state)[..., 4:]) * inputs
        np.testing.assert_allclose(state, complex_of(arrays["outputs/state"]), atol=2e-6)
        np.testing.assert_allclose(system.kernel[:, 0], arrays["outputs/kernel"][0][:, :size], atol=1e-6)


def s4(golden, **options):
    arrays = golden("s4_dplr")
    layer = S4(8, **options)
    layer.build((2, 16, 6))
    system = [arrays["params/kernel.inv_dt"][:, 0], arrays["params/kernel.A_real"], -arrays["params/kernel.A_imag"]]
    for name in ("P", "B", "C"):
        system += parts(arrays[f"params/kernel.{name}"][0])
    layer.set_weights([*system, arrays["params/D"][0], *layer.get_weights()[10:]])
    return layer, arrays


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
def test_s4_of_the_reference(golden, size):
    layer, arrays = s4(golden)
    system, u = layer._system(size), time_second(arrays["inputs/u"])
    np.testing.assert_allclose(system.kernel[:, 0], arrays["outputs/kernel"][0][:, :size], atol=1e-6)
    y, state = system_response(system, u, None, np.zeros((2, 6, 8), "float32"))
    y = np.asarray(layer.activation(y + arrays["params/D"][0] * u))
    np.testing.assert_allclose(time_second(y), arrays["outputs/y_conv"], atol=3e-6)
    np.testing.assert_allclose(time_second(y), arrays["outputs/y_step"], atol=3e-6)
    np.testing.assert_allclose(state, np.concatenate(parts(arrays["outputs/state"][:, :, :4]), axis=-1), atol=1e-6)


def loop(layer, u, mask, state):
    """The system step by step, in float64; padding at the end is no step. Each channel's matrices are read off one step."""
    one, states, outputs = layer._system(1), np.zeros(state.shape), np.zeros(u.shape)
    kernel, reads, writes = (np.asarray(x, "float64") for x in (one.kernel[:, 0], one.reads, one.writes))
    identity = np.eye(layer.state_dim, dtype="float32")
    moved = one.apply(one.transition, (np.tile(identity, (u.shape[2], 1, 1, 1)),))[0]
    transition = np.asarray(moved, "float64")[:, 0]  # (D, S, S): row i is A times unit vector i
    for row in range(len(u)):
        h = state[row].astype("float64")
        for t in range(u.shape[1]):
            if mask[row, t:].any():
                x = u[row, t] * mask[row, t]
                outputs[row, t] = (reads[:, :, 0] * h).sum(1) + kernel[:, 0] * x
                h = np.einsum("ds,dsr->dr", h, transition) + writes[:, 0] * x[:, None]
        states[row] = h
    return outputs, states


@pytest.mark.parametrize("cls", [S4D, S4])
@pytest.mark.parametrize("length", [1, 7, 65, 130])
def test_any_length_in_any_chunks_is_the_loop(cls, length):
    rng = np.random.default_rng(length)
    layer = cls(6, min_step=0.02, seed=3)
    layer.build((2, length, 3))
    u, state = rng.normal(size=(2, length, 3)).astype("float32"), rng.normal(size=(2, 3, 6)).astype("float32")
    ragged = (np.arange(length) < np.array([[length], [length // 2]])) * 1.0
    ragged[0, length // 3] = 0.0
    ragged[0, -1] = 1.0
    for chunk_size in (1, 7, 64):
        for mask in (np.ones((2, length)), ragged):
            given = None if mask.all() else mask.astype("float32")
            lengths_only = given if given is None else np.maximum.accumulate(given[:, ::-1], axis=1)[:, ::-1]
            inputs = u if given is None else u * given[:, :, None]
            expected, following = loop(layer, u, mask, state)
            output, last = system_response(layer._system(min(chunk_size, length)), inputs, lengths_only, state)
            seen = np.ones((2, length, 1)) if given is None else lengths_only[:, :, None]
            np.testing.assert_allclose(output * seen, expected * seen, atol=2e-5)
            np.testing.assert_allclose(last, following, atol=2e-5)


def diagonal(layer):
    """Dense A and B of each input, by the formulas of the discretizations in float64."""
    step = np.exp(np.asarray(layer.log_step, "float64"))[:, None]
    a = -np.exp(np.asarray(layer.log_decay, "float64")) + 1j * np.asarray(layer.frequency, "float64")
    if layer.discretization == "zoh":
        moved, written = np.exp(step * a), (np.exp(step * a) - 1) / a
    else:
        moved, written = (1 + step * a / 2) / (1 - step * a / 2), step / (1 - step * a / 2)
    return moved[:, :, None] * np.eye(a.shape[1]), written


def low_rank(layer):
    """Dense A and B of each input: the bilinear transform of the whole matrix, with both of each conjugate pair."""

    def pair(name):
        half = np.asarray(getattr(layer, f"{name}_real"), "float64") + 1j * np.asarray(
            getattr(layer, f"{name}_imaginary")
        )
        return np.concatenate([half, half.conj()], axis=1)

    step = np.exp(np.asarray(layer.log_step, "float64"))[:, None, None]
    rates = -np.exp(np.asarray(layer.log_decay, "float64")) + 1j * np.asarray(layer.frequency, "float64")
    rates, p = np.concatenate([rates, rates.conj()], axis=1), pair("low_rank")
    a = rates[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None].conj()
    inverse = np.linalg.inv(np.eye(p.shape[1]) - step / 2 * a)
    return inverse @ (np.eye(p.shape[1]) + step / 2 * a), (step * inverse @ pair("input")[:, :, None])[:, :, 0]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("cls, options", [(S4D, "zoh"), (S4D, "bilinear"), (S4, None)])
def test_channels_and_discretizations_are_their_formulas(cls, options, channels):
    layer = cls(6, min_step=0.2, max_step=0.9, seed=3, channels=channels, chunk_size=4)
    layer = layer if options is None else S4D.from_config(layer.get_config() | {"discretization": options})
    rng, width, half = np.random.default_rng(0), 2, 3
    u = rng.normal(size=(2, 11, width)).astype("float32")
    layer.build(u.shape)
    layer.skip.assign(rng.normal(size=channels * width))
    c = np.asarray(layer.output_real, "float64") + 1j * np.asarray(layer.output_imaginary, "float64")
    c = c.reshape(channels, width, half)
    a, b = low_rank(layer) if cls is S4 else diagonal(layer)
    h, outputs = np.zeros((2, *b.shape), complex), []
    for t in range(11):
        h = np.einsum("dij,bdj->bdi", a, h) + b * u[:, t, :, None]
        outputs.append(2 * np.einsum("mds,bds->bmd", c, h[:, :, :half]).real)
    y = np.stack(outputs, axis=1).reshape(2, 11, -1) + np.asarray(layer.skip) * np.tile(u, channels)
    y = np.asarray(layer.activation(y.astype("float32")))
    gate = 1 / (1 + np.exp(-(y @ np.asarray(layer.gate_dense.kernel))))
    expected = y @ np.asarray(layer.output_dense.kernel) * gate
    np.testing.assert_allclose(layer(u), expected, atol=2e-5)
    first, cache = layer(u[:, :5], cache=layer.init_cache(2), cache_index=0)
    second, _ = layer(u[:, 5:], cache=cache, cache_index=5)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), expected, atol=2e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("cls", [S4D, S4])
def test_a_hundred_thousand_tokens(cls, read):
    layer = cls(4, seed=1)
    x = np.random.default_rng(0).normal(size=(1, 100_000, 3)).astype("float32")
    whole = np.asarray(layer(x))
    output, state = read(layer, x, [1000] * 99 + [997, 1, 1, 1])
    assert state["state"].shape == (1, 3, 4)
    assert np.all(np.isfinite(output))
    np.testing.assert_allclose(output[:, -1000:], whole[:, -1000:], atol=1e-4)


def test_hippo_is_the_matrix_of_the_paper():
    """Its eigenvalues, those of the diagonal less the product; and its products with input and low rank vectors."""
    rates, low_rank, inputs = hippo(8)
    n = np.arange(8)
    a = -np.tril(np.sqrt(np.outer(2 * n + 1, 2 * n + 1)), -1) - np.diag(n + 1)
    rates, low_rank, inputs = (np.concatenate([x, x.conj()]) for x in (rates, low_rank, inputs))
    a_there = np.diag(rates) - np.outer(low_rank, low_rank.conj())
    for power in range(3):
        here = np.sqrt(2 * n + 1) @ np.linalg.matrix_power(a, power) @ np.sqrt(n + 0.5)
        there = inputs.conj() @ np.linalg.matrix_power(a_there, power) @ low_rank
        np.testing.assert_allclose(there, here, rtol=1e-9)


@pytest.mark.parametrize("cls", [S4D, S4])
def test_starts(cls):
    layer, again, other = (cls(4, min_step=0.01, max_step=0.2, seed=seed) for seed in (1, 1, 2))
    for each in (layer, again, other):
        each.build((1, 1, 200))
    steps = np.exp(layer.log_step)
    assert 0.01 <= steps.min() < 0.012
    assert 0.17 < steps.max() <= 0.2
    for name in ("log_step", "output_real", "output_imaginary"):
        start = np.asarray(getattr(layer, name))
        np.testing.assert_array_equal(start, getattr(again, name))
        assert np.all(start != np.asarray(getattr(other, name)))
    assert np.all(np.asarray(layer.output_real) != np.asarray(layer.output_imaginary))


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="state_dim must be even"):
        S4D(state_dim=3)
    with pytest.raises(ValueError, match="min_step"):
        S4(min_step=0.2, max_step=0.1)
