"""Threads that share a model: each gets what it gets alone, compilation included."""

import threading

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.generation import Engine

pytestmark = pytest.mark.slow

ASKS = [
    ([3, 1, 4, 1, 5], {"max_new_tokens": 9}),
    (list(range(1, 21)), {"max_new_tokens": 7, "sampler": "random", "seed": 3}),
    ([7], {"max_new_tokens": 12, "repetition_penalty": 1.3}),
    ([9, 2, 6], {"max_new_tokens": 40 - 3, "stop": [[5]]}),
]


def language_model():
    keras.utils.set_random_seed(0)
    model = tasks.LanguageModel(models.Decoder(models.Size(2, 16, 4, 32), 30, max_sequence_length=40), end_id=0)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(weight + 0.4 * rng.normal(size=weight.shape))
    model.compile(jit_compile=False)
    return model


@pytest.fixture(scope="module")
def alone():
    model = language_model()
    return [model.generate(prompt, **options) for prompt, options in ASKS]


def together(functions):
    """Runs functions in a thread each, all at once; returns their results."""
    results, start = [None] * len(functions), threading.Barrier(len(functions))

    def run(number):
        start.wait(60)
        results[number] = functions[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return results


@pytest.mark.exhaustive
def test_generate(alone):
    model = language_model()
    asks = ASKS * 2
    calls = [lambda prompt=prompt, options=options: model.generate(prompt, **options) for prompt, options in asks]
    assert together(calls) == alone * 2


def test_generate_beside_an_engine(alone):
    model = language_model()
    with Engine(model, max_batch_size=3, num_blocks=30, block_size=4, chunk_size=6) as engine:
        calls = [lambda prompt=prompt, options=options: model.generate(prompt, **options) for prompt, options in ASKS]
        calls += [
            lambda prompt=prompt, options=options: engine.submit(prompt, **options).result(300)
            for prompt, options in ASKS
        ]
        assert together(calls) == alone * 2
