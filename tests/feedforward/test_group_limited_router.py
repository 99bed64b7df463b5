"""The router of DeepSeek against its equations, token by token in float64; its correction, and what it refuses."""

import numpy as np
import pytest

from keras_transformer.feedforward import GroupLimitedRouter, MixtureOfExperts, SharedExpertMixture

EXPERTS, GROUPS, WIDTH = 12, 4, 5


def made(seed=0, **options):
    router = GroupLimitedRouter(EXPERTS, 3, GROUPS, 2, **options)
    router.build((None, None, WIDTH))
    rng = np.random.default_rng(seed)
    router.kernel.assign(rng.normal(size=router.kernel.shape))
    if router.correction_bias is not None:
        router.correction_bias.assign(rng.normal(0, 0.3, EXPERTS))
    return router


def tokens(length=7, seed=1):
    return np.random.default_rng(seed).normal(size=(2, length, WIDTH)).astype("float32")


def formula(router, x):
    """Returns the weight of each expert, `(B, T, E)`: zero for those that are not chosen."""
    logits = x.astype("float64") @ np.asarray(router.kernel, "float64")
    if router.activation == "sigmoid":
        scores, best = 1 / (1 + np.exp(-logits)), 2
        corrected = scores + np.asarray(router.correction_bias, "float64")
    else:
        scores, best = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), 1
        corrected = scores
    weights = np.zeros_like(scores)
    for place in np.ndindex(x.shape[:2]):
        grouped = corrected[place].reshape(GROUPS, -1)
        ranks = np.argsort(-np.sort(grouped, axis=1)[:, -best:].sum(1))[: router.top_groups]
        allowed = [e for e in range(EXPERTS) if e // (EXPERTS // GROUPS) in ranks]
        chosen = sorted(allowed, key=lambda e: -corrected[place][e])[: router.top_k]
        total = scores[place][chosen].sum() if router.normalize else 1
        weights[place][chosen] = scores[place][chosen] / total * router.scale
    return weights


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 2.5},
        {"normalize": False},
        {"activation": "softmax", "normalize": False, "scale": 1.5},
        {"activation": "softmax"},
    ],
)
def test_equations(options):
    router, x = made(**options), tokens(50)
    routing = router(x)
    found = np.zeros((2, 50, EXPERTS))
    np.put_along_axis(found, np.asarray(routing.experts), np.asarray(routing.weights), axis=-1)
    expected = formula(router, x)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(routing.counts, (expected > 0).sum((0, 1)))
    free = GroupLimitedRouter(EXPERTS, 3, **options)
    free.build(x.shape)
    free.set_weights(router.get_weights())
    assert not np.array_equal(np.asarray(free(x).experts), np.asarray(routing.experts)), "groups limit nothing here"


def test_padding_is_not_routed():
    router, x = made(), tokens()
    mask = np.arange(7) < np.array([[7], [3]])
    routing = router(x, padding_mask=mask)
    assert np.all(np.asarray(routing.experts)[~mask] == EXPERTS)
    assert np.sum(routing.counts) == mask.sum() * 3


def test_the_correction_balances_loads():
    """It is changed by the rate for each call in training, against the load; and in no other call."""
    router, x = made(bias_update_rate=0.01), tokens(200)
    router.correction_bias.assign(np.linspace(-1, 1, EXPERTS))
    router(x)
    before, first = np.asarray(router.correction_bias), np.asarray(router(x).counts)
    router(x, training=True)
    change = 0.01 * np.sign(first.mean() - first)
    np.testing.assert_allclose(np.asarray(router.correction_bias) - before, change, atol=1e-6)
    for _ in range(150):
        router(x, training=True)
    assert np.std(np.asarray(router(x).counts)) < 0.3 * np.std(first)
    assert [weight.name for weight in router.trainable_weights] == ["kernel"]


def test_balancing_loss_is_one_for_a_uniform_load():
    router = GroupLimitedRouter(4, 4, load_balancing_weight=0.5)
    router.build((1, 1, WIDTH))
    router.kernel.assign(np.zeros((WIDTH, 4)))
    router(tokens())
    np.testing.assert_allclose(float(sum(router.losses)), 0.5, rtol=1e-6)


def test_shared_experts_without_a_gate():
    layer, x = SharedExpertMixture(MixtureOfExperts(6, made()), 8, use_gate=False), tokens()
    expected = np.asarray(layer(x))
    np.testing.assert_allclose(expected, np.asarray(layer.experts(x)) + np.asarray(layer.shared(x)), atol=1e-6)
    assert layer.shared_gate is None


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_groups": 5}, "num_groups must divide"),
        ({"num_groups": 12}, "Groups must have 2"),
        ({"num_groups": 4, "top_groups": 5}, "top_groups must be at most"),
        ({"num_groups": 4, "top_k": 4}, "top_k=4 experts or more"),
        ({"activation": "relu"}, "softmax"),
        ({"scale": 0.0}, "scale must be above 0"),
        ({"activation": "softmax", "bias_update_rate": 0.1}, "correction"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        GroupLimitedRouter(EXPERTS, **options)
