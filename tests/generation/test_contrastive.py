"""Contrastive search against equation 5, computed for every token without a cache."""

import numpy as np
import pytest

from keras_transformer.generation import Contrastive, Generator
from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput


def equation_5(steps, prompt, max_new_tokens, end_id, k, alpha, penalty=1.0):
    """Returns the tokens, with all hidden states recomputed in float64."""
    source, text = np.zeros((1, 1)), list(prompt)
    while len(text) < len(prompt) + max_new_tokens:
        states = [steps.formula(np.array([text[: end + 1]]), source)[1][0] for end in range(len(text))]
        logits = steps.formula(np.array([text]), source)[0][0]
        for token in set(text):
            logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
        probabilities = np.exp(logits) / np.exp(logits).sum()
        best_score, best = -np.inf, None
        for token in np.argsort(-probabilities)[:k]:
            state = steps.formula(np.array([[*text, token]]), source)[1][0]
            cosines = [state @ each / np.linalg.norm(state) / np.linalg.norm(each) for each in states]
            score = (1 - alpha) * probabilities[token] - alpha * max(cosines)
            if score > best_score:
                best_score, best = score, int(token)
        if best == end_id:
            break
        text.append(best)
    return text[len(prompt) :]


@pytest.mark.parametrize("k", [2, 4, 20])
@pytest.mark.parametrize("alpha", [0.2, 0.6, 1.0])
def test_equals_equation_5(models, k, alpha):
    steps = models.History(vocabulary_size=11, seed=3)
    generator = Generator(steps, end_id=0)
    prompts = [[4], [1, 2, 3, 4, 5], [10, 10]]
    found = generator.generate(prompts, max_new_tokens=8, sampler=Contrastive(k, alpha))
    assert found == [equation_5(steps, prompt, 8, 0, k, alpha) for prompt in prompts]
    assert found != generator.generate(prompts, max_new_tokens=8)


def test_repetition_penalty_comes_before_the_softmax(models):
    steps = models.History(vocabulary_size=11, seed=3)
    found = Generator(steps).generate([4, 7], max_new_tokens=8, sampler=Contrastive(4, 0.3), repetition_penalty=2.5)
    assert found == equation_5(steps, [4, 7], 8, None, 4, 0.3, penalty=2.5)
    assert found != equation_5(steps, [4, 7], 8, None, 4, 0.3)


@pytest.mark.parametrize("sampler", [Contrastive(1, 0.6), Contrastive(4, 0.0)], ids=["k=1", "alpha=0"])
def test_without_choice_or_penalty_it_is_greedy(models, sampler):
    generator = Generator(models.History(seed=8), end_id=0)
    prompts = [[1], [2, 3, 4], [5, 5]]
    assert generator.generate(prompts, sampler=sampler, max_new_tokens=9) == generator.generate(
        prompts, max_new_tokens=9
    )


def test_ragged_batch_is_each_alone_and_the_stream(models):
    generator = Generator(models.History(vocabulary_size=9, seed=6), end_id=0)
    options = {"max_new_tokens": 9, "sampler": "contrastive", "stop": [[1, 2], [5]], "repetition_penalty": 1.3}
    prompts = [[1], [2, 3, 4, 5, 6, 7], [8, 8, 1], [3, 3]]
    together = generator.generate(prompts, **options)
    assert together == [generator.generate(prompt, **options) for prompt in prompts]
    assert together == [list(generator.stream(prompt, **options)) for prompt in prompts]
    assert len(set(map(len, together))) > 1


def test_padding_of_the_context_is_not_compared():
    request = DecodingRequest([np.array([0]), np.array([0, 0])], max_new_tokens=1, seeds=[None, None])
    search = Contrastive(top_k=2, alpha=0.5).search(request)
    hidden_states = np.array([[[1.0, 0.0], [np.nan, np.nan]], [[1.0, 0.0], [1.0, 0.0]]])
    search.advance(ModelOutput(np.log([[[0.1, 0.5, 0.4]]] * 2), hidden_states))
    # Cosines of -0.6 and -1: 0.25 + 0.3 against 0.2 + 0.5. Against zeros the first would win.
    candidates = np.array([[[-0.6, 0.8]], [[-1.0, 0.0]]] * 2)
    search.advance(ModelOutput(np.zeros((4, 1, 3)), candidates))
    assert search.results() == [[[2]], [[2]]]


def test_reads_no_further_than_the_model_reaches(models):
    steps = models.History(max_length=6)
    assert len(Generator(steps).generate([1, 2], max_new_tokens=4, sampler=Contrastive(3))) == 4
    # The prompt, and four steps with three candidates each.
    assert steps.calls == [(1, 2), *[(3, 1)] * 4]


@pytest.mark.parametrize("options, culprit", [({"top_k": 0}, "top_k"), ({"alpha": 1.5}, "alpha")])
def test_bad_options_are_refused(options, culprit):
    with pytest.raises(ValueError, match=culprit):
        Contrastive(**options)
