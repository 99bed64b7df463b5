"""The mixture of experts against reference implementations and its formulas in float64; its places, losses and counts."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import DecoderBlock, EncoderBlock
from keras_transformer.feedforward import ClampedSwiGLU, MixtureOfExperts, TopKRouter

_INPUTS = ("gate", "hidden")
DATA = Path(__file__).parents[1] / "data"


def tokens(batch_size=2, length=7, width=6, seed=0):
    return np.random.default_rng(seed).normal(size=(batch_size, length, width)).astype("float32")


def made(layer, x):
    layer.build(x.shape)
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        if weight.dtype == "float32":
            weight.assign(rng.normal(size=weight.shape))
    return layer


def silu(x):
    return x / (1 + np.exp(-x))


def probabilities(layer, x):
    logits = x.astype("float64") @ np.asarray(layer.router.kernel, "float64")
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def expected(layer, x, kept=None):
    """Token by token: `kept` `(B, T, E)` says at which experts a token has a place."""
    gate, hidden, output = (
        np.asarray(kernel, "float64") for kernel in (layer.gate_kernel, layer.hidden_kernel, layer.output_kernel)
    )
    weights, y = probabilities(layer, x), np.zeros(x.shape)
    for place in np.ndindex(x.shape[:2]):
        chosen = np.argsort(-weights[place], kind="stable")[: layer.router.top_k]
        total = weights[place][chosen].sum() if layer.router.top_k > 1 else 1
        for expert in chosen:
            if kept is None or kept[place][expert]:
                inner = silu(x[place] @ gate[expert]) * (x[place] @ hidden[expert])
                y[place] += weights[place][expert] / total * (inner @ output[expert])
    return y


def test_mixtral():
    golden = np.load(DATA / "mixtral_moe.npz")
    x = golden["inputs/x"]
    layer = MixtureOfExperts(20, router=TopKRouter(4, top_k=2))
    layer.build(x.shape)
    gate, hidden = np.split(golden["params/experts.gate_up_proj"], 2, axis=1)
    layer.router.kernel.assign(golden["params/gate.weight"].T)
    layer.gate_kernel.assign(gate.transpose(0, 2, 1))
    layer.hidden_kernel.assign(hidden.transpose(0, 2, 1))
    layer.output_kernel.assign(golden["params/experts.down_proj"].transpose(0, 2, 1))
    np.testing.assert_allclose(layer(x), golden["outputs/y"], atol=1e-5)
    routing = layer.router(x)
    np.testing.assert_array_equal(np.reshape(routing.experts, (-1, 2)), golden["outputs/top_index"])
    np.testing.assert_allclose(np.reshape(routing.weights, (-1, 2)), golden["outputs/top_weight"], atol=1e-6)


def test_experts_and_router_with_biases_and_a_clamped_swiglu():
    x = tokens()
    router = TopKRouter(5, top_k=3, use_bias=True)
    layer = made(MixtureOfExperts(8, router=router, activation=ClampedSwiGLU(1.2, 0.8), use_bias=True), x)
    weights = {weight.path.split("/", 1)[-1]: np.asarray(weight, "float64") for weight in layer.weights}
    y = np.zeros(x.shape)
    for place in np.ndindex(x.shape[:2]):
        logits = x[place] @ weights["router/kernel"] + weights["router/bias"]
        chosen = np.argsort(-logits)[:3]
        shares = np.exp(logits[chosen]) / np.exp(logits[chosen]).sum()
        for share, expert in zip(shares, chosen, strict=True):
            gate, hidden = (x[place] @ weights[f"{n}_kernel"][expert] + weights[f"{n}_bias"][expert] for n in _INPUTS)
            gate, hidden = np.minimum(gate, 0.8), np.clip(hidden, -0.8, 0.8)
            inner = (hidden + 1) * gate / (1 + np.exp(-1.2 * gate))
            y[place] += share * (inner @ weights["output_kernel"][expert] + weights["output_bias"][expert])
    np.testing.assert_allclose(layer(x), y, atol=2e-5 * np.abs(y).max())


def switch(capacity_factor):
    golden = np.load(DATA / "switch_moe.npz")
    router = TopKRouter(4, top_k=1, capacity_factor=capacity_factor)
    layer = MixtureOfExperts(24, router=router, gated=False, activation="relu")
    layer.build(golden["inputs/x"].shape)
    experts = [f"params/mlp.experts.expert_{index}" for index in range(4)]
    layer.router.kernel.assign(golden["params/mlp.router.classifier.weight"].T)
    layer.hidden_kernel.assign(np.stack([golden[f"{name}.wi.weight"].T for name in experts]))
    layer.output_kernel.assign(np.stack([golden[f"{name}.wo.weight"].T for name in experts]))
    return layer, golden


def test_switch_with_its_capacity():
    layer, golden = switch(capacity_factor=4 * 4 / 14)  # 4 places in rows of 14.
    np.testing.assert_allclose(layer(golden["inputs/x"], training=True), golden["outputs/moe"], atol=1e-5)
    counts = {name: int(count) for name, count in layer.counts.result().items()}
    dispatched = golden["outputs/dispatch"].sum()
    assert counts[f"{layer.counts.name}/dropped"] == 2 * 14 - dispatched > 0
    assert sum(counts.values()) == 2 * 14 + counts[f"{layer.counts.name}/dropped"]


def test_switch_drops_nothing_in_inference():
    layer, golden = switch(capacity_factor=4 * 4 / 14)
    kept = golden["outputs/dispatch"].any(-1)
    y = np.asarray(layer(golden["inputs/x"]))
    np.testing.assert_allclose(y[kept], golden["outputs/moe"][kept], atol=1e-5)
    assert np.all(np.abs(y[~kept]).max(-1) > 1e-3)


@pytest.mark.parametrize("length", [1, 2, 40])
@pytest.mark.parametrize("num_experts, top_k", [(1, 1), (3, 1), (3, 3), (5, 2)])
def test_every_token_gets_its_experts(length, num_experts, top_k):
    x = tokens(length=length)
    layer = made(MixtureOfExperts(8, router=TopKRouter(num_experts, top_k=top_k)), x)
    y = expected(layer, x)
    np.testing.assert_allclose(layer(x), y, atol=2e-5 * max(1, np.abs(y).max()))


def test_one_expert_that_all_choose_is_no_trouble():
    x = np.abs(tokens(length=30))
    layer = made(MixtureOfExperts(8, router=TopKRouter(6, top_k=1)), x)
    layer.router.kernel.assign(np.eye(6)[[3] * 6])  # The fourth.
    np.testing.assert_array_equal(layer.router(x).counts, [0, 0, 0, 60, 0, 0])
    np.testing.assert_allclose(layer(x), expected(layer, x), rtol=1e-4, atol=1e-4)


def places(layer, x, mask, capacity):
    """Token by token: who comes first has a place."""
    weights, kept = probabilities(layer, x), np.zeros((*x.shape[:2], layer.router.num_experts), bool)
    for row, column in np.ndindex(x.shape[:2]):
        for expert in np.argsort(-weights[row, column])[: layer.router.top_k] if mask[row, column] else ():
            kept[row, column, expert] = kept[row, :, expert].sum() < capacity[row]
    return kept


def test_capacity_is_of_the_real_tokens_of_each_row():
    x = tokens(length=10)
    mask = np.ones((2, 10), bool)
    mask[1, [0, 1, 5, 9]] = False
    layer = made(MixtureOfExperts(8, router=TopKRouter(4, top_k=2, capacity_factor=0.9)), x)
    kept = places(layer, x, mask, capacity=[5, 3])  # 0.9 * 2 * 10 / 4 = 4.5; 0.9 * 2 * 6 / 4 = 2.7.
    y = expected(layer, x, kept)
    np.testing.assert_allclose(layer(x, padding_mask=mask, training=True), y, rtol=1e-4, atol=1e-4)
    assert int(layer.counts.result()[f"{layer.counts.name}/dropped"]) == 2 * mask.sum() - kept.sum() > 0


def test_capacity_looks_at_no_later_token():
    x, later = tokens(length=10), tokens(length=10)
    later[:, 6:] = tokens(length=4, seed=3)
    layer = made(MixtureOfExperts(8, router=TopKRouter(4, top_k=2, capacity_factor=0.6)), x)
    before, after = np.asarray(layer(x, training=True)), np.asarray(layer(later, training=True))
    np.testing.assert_allclose(before[:, :6], after[:, :6], atol=1e-5)
    assert np.abs(before[:, 6:] - after[:, 6:]).max() > 0.1


@pytest.mark.parametrize("training", [False, True])
def test_padding_goes_nowhere(training):
    x, mask = tokens(length=9), np.ones((2, 9), bool)
    mask[:, 7:] = False
    options = {"capacity_factor": 1.0, "z_weight": 0.1}
    layer = made(MixtureOfExperts(8, router=TopKRouter(4, **options)), x)
    padded, losses = np.asarray(layer(x, padding_mask=mask, training=training)), [float(loss) for loss in layer.losses]
    np.testing.assert_allclose(padded[:, :7], layer(x[:, :7], training=training), atol=1e-5)
    assert np.all(padded[:, 7:] == 0)
    np.testing.assert_allclose(losses, [float(loss) for loss in layer.losses], rtol=1e-5)


def test_blocks_say_what_is_padding():
    x, mask = tokens(length=9, width=8), np.ones((2, 9), bool)
    mask[0, 4:] = False
    for block in (EncoderBlock, DecoderBlock):
        layer = block(MultiHeadAttention(2, 4), MixtureOfExperts(8, router=TopKRouter(4, top_k=1)))
        layer(x, padding_mask=mask, training=True)
        counts = layer.feedforward.counts.result()
        assert sum(int(count) for count in counts.values()) == mask.sum()


def test_losses():
    x = tokens()
    router = TopKRouter(4, top_k=2, load_balancing_weight=0.5, z_weight=0.1)
    layer = made(MixtureOfExperts(8, router=router), x)
    layer(x)
    weights = probabilities(layer, x)
    shares = (np.argsort(np.argsort(-weights)) < 2).mean((0, 1)) / 2
    logits = x.astype("float64") @ np.asarray(layer.router.kernel, "float64")
    balance = 4 * np.sum(shares * weights.mean((0, 1)))
    z = np.mean(np.log(np.exp(logits).sum(-1)) ** 2)
    np.testing.assert_allclose([float(loss) for loss in layer.losses], [0.5 * balance, 0.1 * z], rtol=1e-5)


def test_equal_experts_have_a_balance_of_one():
    x = np.repeat(np.eye(4, dtype="float32")[None], 2, 0)
    layer = MixtureOfExperts(8, router=TopKRouter(4, top_k=1, load_balancing_weight=1.0))
    layer.build(x.shape)
    layer.router.kernel.assign(np.eye(4))
    layer(x)
    np.testing.assert_allclose(float(layer.losses[0]), 1, rtol=1e-6)


def test_jitter_is_of_training_alone():
    x = tokens()
    layer = made(MixtureOfExperts(8, router=TopKRouter(4, jitter=0.5, seed=3)), x)
    still, moved = np.asarray(layer.router(x).weights), np.asarray(layer.router(x, training=True).weights)
    np.testing.assert_array_equal(still, layer.router(x).weights)
    assert np.abs(still - moved).max() > 0.01


def test_training_logs_loads_and_drops_and_learns_the_router():
    x = tokens(batch_size=8)
    inputs = keras.Input((None, 6))
    y = inputs
    for index in range(2):
        router = TopKRouter(3, top_k=1, capacity_factor=1.0)
        block = EncoderBlock(
            MultiHeadAttention(2, 3), MixtureOfExperts(8, router=router, name="feedforward"), name=f"block_{index}"
        )
        y = block(y)
    model = keras.Model(inputs, y)
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    router = model.get_layer("block_1").feedforward.router
    start = np.array(router.kernel)
    logs = model.fit(x, x[::-1], batch_size=4, epochs=2, verbose=0).history
    for index in range(2):
        loads = [logs[f"block_{index}/feedforward/load_{expert}"] for expert in range(3)]
        np.testing.assert_array_equal(np.sum(loads, axis=0), [8 * 7] * 2)  # Each epoch counts anew.
        assert f"block_{index}/feedforward/dropped" in logs
    assert np.abs(np.asarray(router.kernel) - start).max() > 1e-4


def test_experts_start_as_they_would_alone():
    layer = MixtureOfExperts(40, router=16, kernel_initializer=keras.initializers.GlorotUniform(seed=5))
    layer.build((None, None, 30))
    kernel = np.asarray(layer.hidden_kernel)
    limit = np.sqrt(6 / (30 + 40))
    assert 0.95 * limit < np.abs(kernel).max() <= limit
    assert np.abs(kernel[0] - kernel[1]).max() > 0.1


def test_steps_are_the_whole():
    x = tokens(length=6, width=8)
    layer = DecoderBlock(MultiHeadAttention(2, 4), MixtureOfExperts(8, router=TopKRouter(4, capacity_factor=1.0)))
    whole, cache, steps = layer(x), layer.init_cache(2, 6), []
    for index in range(6):
        step, cache = layer(x[:, index : index + 1], cache=cache, cache_index=index)
        steps.append(step)
    np.testing.assert_allclose(np.concatenate(steps, 1), whole, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"num_experts": 0},
        {"num_experts": 2, "top_k": 3},
        {"num_experts": 2, "capacity_factor": 0.0},
        {"num_experts": 2, "jitter": 1.0},
        {"num_experts": 2, "z_weight": -1.0},
    ],
)
def test_refuses(options):
    with pytest.raises(ValueError, match=list(options)[-1]):
        TopKRouter(**options)
