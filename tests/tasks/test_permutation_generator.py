"""Texts of XLNet: those of transformers, whatever the batch, with samplers that read hidden states or reorder rows."""

import pathlib

import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.checkpoints import from_huggingface
from keras_transformer.generation import BeamSearch

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "xlnet-LMHeadModel"


@pytest.fixture(scope="module")
def generator():
    return tasks.permutation_generator(from_huggingface(FOLDER, verbose=0))


def test_greedy_texts_are_those_of_transformers(generator):
    with np.load(FOLDER / "texts.npz") as arrays:
        prompts = [[int(token) for token in row if token >= 0] for row in arrays["prompt"]]
        expected, logits = arrays["generated"].tolist(), arrays["logits"].reshape(3, 6, -1)
    assert generator.generate(prompts, max_new_tokens=6) == expected
    assert [generator.generate(prompt, max_new_tokens=6) for prompt in prompts] == expected
    for row, (prompt, text) in enumerate(zip(prompts, expected, strict=True)):
        output, cache = generator.steps.prefill([prompt], [len(prompt)], generator.steps.init_cache(1, 12))
        np.testing.assert_allclose(output.logits[0, 0], logits[row, 0], atol=1e-5)
        output, _ = generator.steps.decode_step([text[:5]], cache, [len(prompt)])
        np.testing.assert_allclose(output.logits[0], logits[row, 1:], atol=1e-5)


def test_beams_have_the_scores_of_their_texts(generator):
    texts, scores = generator.generate(
        [7, 40, 12], sampler=BeamSearch(3, length_penalty=0.0), max_new_tokens=3, return_scores=True
    )
    text = np.atleast_2d(texts)[0].tolist()
    logs = []
    for count in range(3):
        output, _ = generator.steps.prefill(
            np.array([[7, 40, 12, *text[:count]]], "int32"), [3 + count], generator.steps.init_cache(1, 8)
        )
        logits = output.logits[0, 0].astype("float64")
        logs.append(logits[text[count]] - np.log(np.exp(logits).sum()))
    np.testing.assert_allclose(np.ravel(scores)[0], sum(logs), atol=1e-4)


def test_several_tokens_are_one_after_the_other(generator):
    steps = generator.steps
    _, cache = steps.prefill(np.array([[7, 40], [9, 0]], "int32"), [2, 1], steps.init_cache(2, 6))
    index = np.array([2, 1], "int32")
    together, _ = steps.decode_step(np.array([[3, 5], [8, 6]]), cache, index)
    first, cache = steps.decode_step(np.array([[3], [8]]), cache, index)
    second, _ = steps.decode_step(np.array([[5], [6]]), cache, index + 1)
    np.testing.assert_allclose(together.logits, np.concatenate([first.logits, second.logits], axis=1), atol=1e-5)
    assert together.hidden_states.shape == (2, 2, 16)


def test_another_model_is_refused():
    with pytest.raises(ValueError, match="no PermutationLanguageModel"):
        tasks.permutation_generator(models.XLNet(models.Size(1, 8, 2, 8), 10))
