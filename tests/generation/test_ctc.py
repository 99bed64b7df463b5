"""Decoding of CTC: best path and prefix beam search, against the sum over all alignments."""

import itertools
import math

import numpy as np
import pytest

from keras_transformer.generation import ctc_beam_search, ctc_greedy

RNG = np.random.default_rng(1)
V = 3


def text_of(alignment, blank_id=0):
    return tuple(token for token, _ in itertools.groupby(alignment) if token != blank_id)


def chances_of_texts(logits, blank_id=0):
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    found = {}
    for alignment in itertools.product(range(logits.shape[1]), repeat=len(logits)):
        text = text_of(alignment, blank_id)
        found[text] = found.get(text, 0.0) + math.prod(chances[np.arange(len(logits)), alignment])
    return found


def test_greedy_joins_repetitions_and_keeps_those_around_a_blank():
    path = [0, 2, 2, 0, 2, 1, 1, 0]
    logits = np.eye(V)[[path, [1] * 8]]
    assert ctc_greedy(logits) == [[2, 2, 1], [1]]
    assert ctc_greedy(logits, blank_id=2) == [[0, 0, 1, 0], [1]]


@pytest.mark.parametrize("blank_id", [0, 2])
def test_wide_beam_finds_every_text_with_its_probability(blank_id):
    logits = RNG.normal(size=(2, 5, V))
    for row, found in zip(logits, ctc_beam_search(logits, blank_id, num_beams=500, num_results=500), strict=True):
        expected = chances_of_texts(row, blank_id)
        assert {tuple(result.token_ids) for result in found} == set(expected)
        for result in found:
            assert result.score == pytest.approx(math.log(expected[tuple(result.token_ids)]), abs=1e-9)
        scores = [result.score for result in found]
        assert scores == sorted(scores, reverse=True)


def test_best_text_is_not_that_of_the_best_path():
    logits = np.log([[[0.6, 0.4], [0.6, 0.4]]])
    assert ctc_greedy(logits) == [[]]
    ((best, other),) = ctc_beam_search(logits, num_beams=2, num_results=2)
    assert (best.token_ids, other.token_ids) == ([1], [])
    assert math.exp(best.score) == pytest.approx(0.64)


def test_language_model_and_bonus_are_added_to_every_text():
    logits = RNG.normal(size=(1, 4, V))
    follows = {1: {1: 0.1, 2: 0.6, None: 0.3}, 2: {1: 0.5, 2: 0.2, None: 0.3}, 0: {1: 0.7, 2: 0.2, None: 0.1}}

    def language_model(prefix, token):
        return math.log(follows[prefix[-1] if prefix else 0][token])

    (found,) = ctc_beam_search(
        logits, num_beams=300, language_model=language_model, language_weight=0.8, length_bonus=0.25, num_results=300
    )
    chances = chances_of_texts(logits[0])
    assert len(found) == len(chances)
    for tokens, score in found:
        pairs = zip([0, *tokens], [*tokens, None], strict=True)
        expected = math.log(chances[tuple(tokens)]) + 0.25 * len(tokens)
        expected += 0.8 * sum(math.log(follows[before][after]) for before, after in pairs)
        assert score == pytest.approx(expected, abs=1e-9)


def test_language_model_decides_between_similar_letters():
    logits = np.log([[[0.1, 0.5, 0.4], [0.8, 0.1, 0.1]]])
    assert ctc_beam_search(logits)[0][0].token_ids == [1]
    prefers_two = ctc_beam_search(logits, language_model=lambda prefix, token: -3.0 if token == 1 else 0.0)
    assert prefers_two[0][0].token_ids == [2]


def test_narrow_beam_and_padding():
    logits = RNG.normal(size=(1, 6, V))
    padding = np.tile(np.where(np.arange(V) == 0, 0.0, -1e9), (1, 40, 1))
    padded = np.concatenate([logits, padding], axis=1)
    alone, together = (ctc_beam_search(each, num_beams=3, num_results=3)[0] for each in (logits, padded))
    assert [result.token_ids for result in alone] == [result.token_ids for result in together]
    np.testing.assert_allclose([each.score for each in alone], [each.score for each in together], atol=1e-9)
    assert ctc_greedy(logits) == ctc_greedy(padded)
    # All of it padding.
    assert ctc_beam_search(padding)[0][0] == ([], 0.0)


@pytest.mark.parametrize(
    "arguments", [{"blank_id": 3}, {"num_beams": 0}, {"num_results": 0}, {"min_log_probability": 0.0}], ids=str
)
def test_arguments_out_of_range(arguments):
    with pytest.raises(ValueError, match="Received"):
        ctc_beam_search(np.zeros((1, 2, V)), **arguments)
    with pytest.raises(ValueError, match="B, T, V"):
        ctc_greedy(np.zeros((2, V)))
