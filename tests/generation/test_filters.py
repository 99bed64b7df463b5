"""Filters against formulas in float64, and with `keras.ops` against NumPy."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.generation import Greedy, Random, filters
from keras_transformer.generation.arrays import numpy_ops

LOGITS = np.random.default_rng(0).normal(size=(6, 40)).astype("float32") * 3


def softmax(logits):
    exponents = np.exp(logits - logits.max())
    return exponents / exponents.sum()


def reference(logits, temperature, top_k, top_p, min_p):
    """Returns the probabilities of one row, renormalized after each filter."""
    p = softmax(logits.astype("float64") / temperature)
    if top_k is not None:
        kept = np.argsort(-p)[:top_k]
        p = np.where(np.isin(np.arange(len(p)), kept), p, 0)
        p /= p.sum()
    if top_p is not None and top_p < 1:
        order = np.argsort(-p)
        needed = next(n for n in range(1, len(p) + 1) if n == len(p) or p[order[:n]].sum() >= top_p)
        p = np.where(np.isin(np.arange(len(p)), order[:needed]), p, 0)
        p /= p.sum()
    if min_p is not None:
        p = np.where(p >= min_p * p.max(), p, 0)
        p /= p.sum()
    return p


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [None, 1, 7, 100])
@pytest.mark.parametrize("top_p", [None, 1e-6, 0.8, 1.0])
@pytest.mark.parametrize("min_p", [None, 0.0, 0.2, 1.0])
def test_random_draws_from_the_formula(temperature, top_k, top_p, min_p):
    sampler = Random(temperature, top_k, top_p, min_p)
    found = numpy_ops.softmax(sampler.filter(numpy_ops, LOGITS))
    expected = [reference(row, temperature, top_k, top_p, min_p) for row in LOGITS]
    np.testing.assert_allclose(found, expected, atol=2e-7)
    assert (found > 0).sum() == np.count_nonzero(expected)


def test_ties_are_kept_together():
    logits = np.log(np.array([[0.1, 0.3, 0.1, 0.3, 0.2]]))
    hidden = float("-inf")
    np.testing.assert_array_equal(
        filters.keep_top_k(numpy_ops, logits, 1), [[hidden, logits[0, 1], hidden, logits[0, 3], hidden]]
    )
    # One 0.3 reaches 0.25; the other 0.3 is a tie and is kept.
    np.testing.assert_array_equal(
        filters.keep_top_p(numpy_ops, logits, 0.25), [[hidden, logits[0, 1], hidden, logits[0, 3], hidden]]
    )
    kept = filters.keep_top_k(numpy_ops, logits, 4)
    np.testing.assert_array_equal(kept, logits)


def test_top_p_stops_at_the_token_that_reaches_it():
    logits = np.log(np.array([[0.125, 0.5, 0.25, 0.125]]))
    kept = [np.isfinite(filters.keep_top_p(numpy_ops, logits, p))[0].tolist() for p in (0.49, 0.51, 0.74, 0.76)]
    assert kept == [
        [False, True, False, False],
        [False, True, True, False],
        [False, True, True, False],
        [True, True, True, True],
    ]


def test_top_p_that_is_reached_exactly_needs_no_more():
    logits = np.array([[0.0, -200.0, -300.0]], "float32")
    assert np.isfinite(filters.keep_top_p(numpy_ops, logits, 1.0)).tolist() == [[True, False, False]]


def test_min_p_by_hand():
    logits = np.log(np.array([[0.5, 0.3, 0.149, 0.051]]))
    assert np.isfinite(filters.keep_min_p(numpy_ops, logits, 0.3))[0].tolist() == [True, True, False, False]


def test_repetition_penalty_by_hand():
    logits, seen = np.array([[2.0, -2.0, 2.0, -2.0, 0.0]]), np.array([[True, True, False, False, True]])
    np.testing.assert_array_equal(filters.penalize_repetition(numpy_ops, logits, seen, 4.0), [[0.5, -8, 2, -2, 0]])


def test_draw_gives_each_token_its_share():
    count = 100_000
    uniforms = ((np.arange(count) + 0.5) / count).astype("float32")
    logits = LOGITS[:1, :12].repeat(count, axis=0)
    shares = np.bincount(filters.draw(numpy_ops, logits, uniforms), minlength=12) / count
    np.testing.assert_allclose(shares, softmax(LOGITS[0, :12].astype("float64")), atol=3e-5)


@pytest.mark.parametrize("uniform, token", [(0.0, 1), (0.49, 1), (0.51, 3), (1 - 2**-24, 3)])
def test_draw_never_gives_what_is_hidden(uniform, token):
    logits = np.array([[-np.inf, 0.0, -np.inf, 0.0, -np.inf]], "float32")
    assert filters.draw(numpy_ops, logits, np.array([uniform], "float32")).tolist() == [token]


def test_draw_never_gives_what_is_hidden_at_the_end():
    logits = np.random.default_rng(4).normal(size=(500, 9)).astype("float32")
    logits[:, 6:] = -np.inf
    assert set(filters.draw(numpy_ops, logits, np.full(500, 1 - 2**-24, "float32")).tolist()) == {5}


def test_first_of_equal_tokens_is_the_most_likely():
    logits = np.array([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]], "float32")
    assert filters.most_likely(numpy_ops, logits).tolist() == [1, 0]
    assert np.asarray(filters.most_likely(ops, logits)).tolist() == [1, 0]
    assert Greedy().filter(numpy_ops, logits).tolist() == [[-np.inf, 0, -np.inf, -np.inf], [0] + [-np.inf] * 3]


@pytest.mark.parametrize("k", [1, 3, 8])
def test_top_k_orders_ties_by_index(k):
    x = np.random.default_rng(1).integers(0, 4, (50, 8)).astype("float32")
    values, indices = numpy_ops.top_k(x, k)
    for row, found_values, found in zip(x, values, indices, strict=True):
        expected = sorted(range(8), key=lambda index: (-row[index], index))[:k]
        assert found.tolist() == expected
        assert found_values.tolist() == row[expected].tolist()


def test_softmax_and_log_softmax_of_large_logits():
    logits = np.array([[1000.0, 999.0, -np.inf]])
    expected = np.array([[1, np.exp(-1), 0]]) / (1 + np.exp(-1))
    np.testing.assert_allclose(numpy_ops.softmax(logits), expected)
    np.testing.assert_allclose(numpy_ops.log_softmax(logits)[0, :2], np.log(expected[0, :2]))


SEEN = np.random.default_rng(2).random(LOGITS.shape) < 0.3
UNIFORMS = np.random.default_rng(3).random(len(LOGITS)).astype("float32")


@pytest.mark.parametrize(
    "function",
    [
        lambda ops: filters.penalize_repetition(ops, LOGITS, SEEN, 1.3),
        lambda ops: filters.keep_top_k(ops, LOGITS, 5),
        lambda ops: filters.keep_top_k(ops, LOGITS, 500),
        lambda ops: filters.keep_top_p(ops, LOGITS, 0.7),
        lambda ops: filters.keep_min_p(ops, LOGITS, 0.1),
        lambda ops: filters.draw(ops, LOGITS, UNIFORMS),
        lambda ops: filters.most_likely(ops, LOGITS),
        lambda ops: Greedy().filter(ops, LOGITS),
        lambda ops: Random(0.7, 9, 0.9, 0.05).filter(ops, LOGITS),
        lambda ops: Random(0.7, 9, 0.9, 0.05)(ops, LOGITS, UNIFORMS),
    ],
    ids=["penalty", "top_k", "all", "top_p", "min_p", "draw", "most_likely", "greedy", "random", "sampler"],
)
def test_keras_ops_give_what_numpy_gives(function):
    np.testing.assert_allclose(np.asarray(function(ops)), function(numpy_ops), rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": -1},
        {"top_k": 0},
        {"top_k": 2.0},
        {"top_p": 0},
        {"top_p": 1.1},
        {"min_p": -0.1},
    ],
)
def test_random_refuses_what_is_out_of_range(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Random(**options)
