"""Beam search against an enumeration of all texts, and against transformers."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.generation import BeamSearch, GenerationError, Generator

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "beam_search.npz")
CASES = list(itertools.product((-1.0, 0.0, 0.6, 1.0, 2.0), (False, True, "never")))
END = 0


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.log(np.exp(logits).sum())


def all_texts(steps, prompt, max_new_tokens, end_id, penalty=1.0):
    """Yields every complete text and its log-probability, by recursion without a cache."""
    for first in itertools.product(range(steps.spec.vocabulary_size), repeat=max_new_tokens):
        length = first.index(end_id) + 1 if end_id in first else max_new_tokens
        if any(first[length:]):
            continue  # Differs from another only after the end token.
        total, text = 0.0, list(prompt)
        for token in first[:length]:
            logits = steps.formula(np.array([text]), np.zeros((1, 1)))[0][0]
            seen = np.isin(np.arange(len(logits)), text)
            logits = np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)
            total += log_softmax(logits)[token]
            text.append(token)
        yield list(first[:length]), total


@pytest.mark.parametrize("normalizer", ["gnmt", "hugging_face"])
@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.7, 2.0])
@pytest.mark.parametrize("penalty", [1.0, 1.7])
def test_wide_beam_finds_the_best_of_all_texts(models, normalizer, alpha, penalty):
    steps = models.History(vocabulary_size=4, seed=5)
    sampler = BeamSearch(64, alpha, normalizer, early_stopping="never", num_results=5)
    found, scores = Generator(steps, end_id=END).generate(
        [2, 3], max_new_tokens=4, sampler=sampler, repetition_penalty=penalty, return_scores=True
    )

    def score(text, total):
        return total / (((5 + len(text)) / 6) ** alpha if normalizer == "gnmt" else len(text) ** alpha)

    expected = sorted(
        ((score(*each), each[0]) for each in all_texts(steps, [2, 3], 4, END, penalty)), key=lambda each: -each[0]
    )[:5]
    assert found == [text[:-1] if text[-1] == END else text for _, text in expected]
    np.testing.assert_allclose(scores, [score for score, _ in expected], rtol=1e-5)


@pytest.mark.parametrize("num_beams", [2, 3, 5])
@pytest.mark.parametrize("case", range(len(CASES)), ids=[f"{alpha}-{stop}" for alpha, stop in CASES])
def test_transformers_finds_the_same(models, num_beams, case):
    alpha, early_stopping = CASES[case]
    sampler = BeamSearch(num_beams, alpha, "hugging_face", early_stopping, num_results=num_beams)
    found, scores = Generator(models.Table(GOLDEN["table"]), end_id=END).generate(
        list(GOLDEN["prompts"]), max_new_tokens=7, sampler=sampler, return_scores=True
    )
    for row, texts in enumerate(GOLDEN[f"tokens/{num_beams}"][case].tolist()):
        assert found[row] == [[token for token in text if token not in (-1, END)] for text in texts]
    np.testing.assert_allclose(scores, GOLDEN[f"scores/{num_beams}"][case], rtol=1e-5)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_ragged_batch_is_each_alone(models, early_stopping):
    steps = models.History(vocabulary_size=9, seed=2)
    generator = Generator(steps, end_id=END)
    options = {
        "sampler": BeamSearch(3, 0.6, early_stopping=early_stopping, num_results=3),
        "max_new_tokens": 8,
        "repetition_penalty": 1.2,
        "return_scores": True,
        "stop": [[1, 2], [5]],
    }
    prompts = [[1], [2, 3, 4, 5, 6, 7], [8, 8, 1], [3, 3], [7, 1, 4, 4, 2]]
    together, scores = generator.generate(prompts, **options)
    alone = [generator.generate(prompt, **options) for prompt in prompts]
    assert together == [texts for texts, _ in alone]
    assert scores == [pytest.approx(each) for _, each in alone]
    # Rows end at different times, so finished rows were processed with others.
    assert len({max(map(len, texts)) for texts in together}) > 1


def test_one_beam_is_greedy(models):
    generator = Generator(models.History(seed=4), end_id=END)
    options = {"max_new_tokens": 9, "repetition_penalty": 1.4}
    for prompt in ([1], [2, 5, 6]):
        beam = generator.generate(prompt, sampler=BeamSearch(1), **options)
        assert beam == generator.generate(prompt, sampler="greedy", **options)


def test_stop_sequence_ends_one_hypothesis_and_is_scored_with_it(models):
    # "1 2" is a stop sequence; the model predicts 1, then 2 or 3 with odds 3 to 1, then always 3.
    table = np.full((4, 4, 4), -30.0)
    table[:, 0, 1] = 0.0
    table[:, 1, 2], table[:, 1, 3] = np.log(3), 0.0
    table[:, 2:, 3] = 0.0
    sampler = BeamSearch(2, length_penalty=0.0, num_results=2)
    found, scores = Generator(models.Table(table)).generate(
        [0, 0], max_new_tokens=4, sampler=sampler, stop=[1, 2], return_scores=True
    )
    assert found == [[], [1, 3, 3, 3]]
    np.testing.assert_allclose(scores, np.log([0.75, 0.25]), rtol=1e-6)


def test_never_goes_on_while_a_live_beam_may_win(models):
    # Negative alpha favors short texts. 4 is the start; "1 2 end" is finished after "3 end", and scores better.
    table = np.full((5, 5, 5), 1e-12)
    table[4, 4, [END, 1, 3]] = 0.35, 0.45, 0.2
    table[4, 1, [END, 2]] = 0.01, 0.99
    table[4, 3, [END, 2]] = 0.9, 0.1
    table[1, 2, [END, 1]] = 0.99, 0.01
    sampler = BeamSearch(2, -1.0, "hugging_face", early_stopping="never", num_results=2)
    generator = Generator(models.Table(np.log(table)), end_id=END)
    found, scores = generator.generate([4, 4], max_new_tokens=5, sampler=sampler, return_scores=True)
    assert found == [[], [1, 2]]
    np.testing.assert_allclose(scores, [np.log(0.35), 3 * np.log(0.45 * 0.99 * 0.99)], rtol=1e-6)


def test_looks_past_continuations_that_all_end(models):
    # Three of the four most likely tokens after the prompt are stop sequences; 0 and 4 never end.
    table = np.full((5, 5, 5), 1e-12)
    table[3, 3] = 0.15, 0.35, 0.25, 0.2, 0.05
    for token in (0, 4):
        table[:, token, token] = 1
    sampler = BeamSearch(2, 3.0, "hugging_face", early_stopping="never", num_results=2)
    found = Generator(models.Table(np.log(table))).generate(
        [3, 3], max_new_tokens=4, sampler=sampler, stop=[[1], [2], [3]]
    )
    assert found == [[0] * 4, [4] * 4]


def test_more_beams_than_texts(models):
    found = Generator(models.History(vocabulary_size=3)).generate(
        [1], max_new_tokens=1, sampler=BeamSearch(8, num_results=8)
    )
    assert sorted(found) == [[0], [1], [2]]


def test_normalizers_by_hand():
    assert BeamSearch(length_penalty=0.6).normalize(-3.0, 7) == pytest.approx(-3.0 / 2**0.6)
    assert BeamSearch(length_penalty=2.0, normalizer="hugging_face").normalize(-3.0, 4) == pytest.approx(-3.0 / 16)


@pytest.mark.parametrize(
    "options, culprit",
    [
        ({"num_beams": 0}, "num_beams"),
        ({"normalizer": "none"}, "gnmt, hugging_face"),
        ({"early_stopping": "sometimes"}, "early_stopping"),
        ({"num_beams": 2, "num_results": 3}, "num_results"),
    ],
)
def test_bad_options_are_refused(options, culprit):
    with pytest.raises(ValueError, match=culprit):
        BeamSearch(**options)


def test_cannot_be_streamed(models):
    steps = models.History()
    with pytest.raises(GenerationError, match="BeamSearch has results only in the end"):
        Generator(steps).stream([1], sampler="beam")
    assert steps.calls == []
