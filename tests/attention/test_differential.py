"""Differential attention against its equations in float64; its pairs of heads, its λ and what it refuses."""

import numpy as np
import pytest

from keras_transformer.attention import DifferentialAttention, MultiHeadAttention, Visibility

HEADS, KEY_HEADS, WIDTH, VALUE = 4, 2, 6, 3


def heads(length=7, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [(2, length, HEADS, WIDTH), (2, length, KEY_HEADS, WIDTH), (2, length, KEY_HEADS, VALUE)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def made(arrays, **options):
    mechanism = DifferentialAttention(**options)
    mechanism.build(*(array.shape for array in arrays))
    rng = np.random.default_rng(1)
    for weight in mechanism.weights:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    return mechanism


def formula(mechanism, query, key, value, mask):
    """Equations 1 to 3 of arXiv 2410.05258 for the pairs of heads; mask `(B | 1, N | 1, T, S)`."""
    query, key, value = (x.astype("float64") for x in (query, key, value))
    q1, k1, q2, k2 = (np.asarray(weight, "float64") for weight in mechanism.weights)
    factor = np.exp(q1 @ k1) - np.exp(q2 @ k2) + mechanism.lambda_init
    group, pairs = HEADS // KEY_HEADS, HEADS // 2
    scores = np.einsum("btnh,bsnh->bnts", query, np.repeat(key, group, axis=2)) / np.sqrt(WIDTH)
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    outputs = []
    for pair in range(pairs):
        own = pair // group
        values = np.concatenate([value[:, :, own], value[:, :, own + KEY_HEADS // 2]], axis=-1)
        y = (weights[:, pair] - factor * weights[:, pair + pairs]) @ values
        norm = np.sqrt(np.mean(y**2, axis=-1, keepdims=True) + mechanism.epsilon)
        outputs.append((1 - mechanism.lambda_init) * y / norm)
    return np.stack(outputs, axis=2).reshape(*query.shape[:3], VALUE)


@pytest.mark.parametrize("options", [{}, {"lambda_init": 0.3, "epsilon": 0.2}])
@pytest.mark.parametrize("causal", [True, False])
def test_equations_of_the_paper(options, causal):
    arrays = heads()
    mechanism, slots = made(arrays, **options), np.arange(7, dtype="int32")
    found = mechanism(*arrays, visibility=Visibility.from_slots(slots, slots, causal=causal))
    mask = np.tri(7, dtype=bool) if causal else np.ones((7, 7), bool)
    np.testing.assert_allclose(found, formula(mechanism, *arrays, mask[None, None]), atol=3e-6)


def test_a_mask_of_heads_is_that_of_both_halves():
    arrays = heads()
    mechanism, slots = made(arrays), np.arange(7, dtype="int32")
    mask = np.random.default_rng(2).uniform(size=(2, HEADS, 7, 7)) < 0.6
    mask |= np.eye(7, dtype=bool)
    found = mechanism(*arrays, visibility=Visibility.from_slots(slots, slots, attention_mask=mask))
    np.testing.assert_allclose(found, formula(mechanism, *arrays, mask), atol=3e-6)


def test_what_both_attentions_see_cancels_out():
    """With equal queries and keys in both halves and λ = 1, nothing is left but what the norm makes of rounding."""
    query, key, value = heads()
    query[:, :, 2:], key[:, :, 1:] = query[:, :, :2], key[:, :, :1]
    mechanism = made((query, key, value), lambda_init=0.5, epsilon=1e-2)
    q1 = np.full(WIDTH, np.sqrt(np.log(1.5) / WIDTH))
    for name, values in zip(("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"), (q1, q1, q1 * 0, q1), strict=True):
        getattr(mechanism, name).assign(values)
    assert np.abs(np.asarray(mechanism(query, key, value))).max() < 1e-5


def test_initial_lambda():
    """Section 2.1: 0.2 in the first block, near 0.8 in late ones."""
    found = [DifferentialAttention.initial_lambda(index) for index in (0, 1, 27)]
    np.testing.assert_allclose(found, [0.2, 0.8 - 0.6 * np.exp(-0.3), 0.8], atol=2e-4)


@pytest.mark.parametrize(
    "options, message",
    [({"num_heads": 3}, "query heads"), ({"num_heads": 4, "num_key_value_heads": 1}, "key/value heads")],
)
def test_refuses_heads_without_pairs(options, message):
    layer = MultiHeadAttention(key_dim=4, mechanism="differential", **options)
    with pytest.raises(ValueError, match=message):
        layer.build((1, 2, 8), (1, 2, 8))


def test_refuses_a_lambda_out_of_range_and_biases():
    with pytest.raises(ValueError, match="lambda_init"):
        DifferentialAttention(1.0)
    layer = MultiHeadAttention(4, 4, mechanism="differential", position="alibi")
    with pytest.raises(ValueError, match="'bias'"):
        layer(np.ones((1, 2, 8)), np.ones((1, 2, 8)))
