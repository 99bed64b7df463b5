"""Keras models in an engine: the texts of `generate`, nothing compiled while serving, pools updated where they lie."""

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import attention, models, tasks
from keras_transformer.backend.compilation.in_place import InPlace
from keras_transformer.generation import Engine, GenerationError, Random
from keras_transformer.tasks.decoding.paged_steps import PagedSteps

pytestmark = pytest.mark.slow


def language_model(jit_compile=False, num_layers=2, max_sequence_length=40, **options):
    size = models.Size(num_layers, 16, 4, 32)
    return with_weights(models.Decoder(size, 30, max_sequence_length=max_sequence_length, **options), jit_compile)


def with_weights(backbone, jit_compile=False):
    model = tasks.LanguageModel(backbone, end_id=0)
    rng = np.random.default_rng(0)
    for weight in model.weights:  # Off what they start with, so that texts are not all of one token.
        weight.assign(weight + 0.4 * rng.normal(size=weight.shape))
    model.compile(jit_compile=jit_compile)
    return model


def mixed_asks(count, longest):
    rng = np.random.default_rng(5)
    begin = rng.integers(1, 30, 9).tolist()
    asks = []
    for number in range(count):
        prompt = rng.integers(1, 30, rng.integers(1, longest - 9)).tolist()
        options = {
            "max_new_tokens": int(rng.integers(1, 12)),
            "sampler": ["greedy", Random(0.8, top_p=0.9)][number % 2],
            "seed": number,
            "repetition_penalty": [1.0, 1.3, 1.0][number % 3],
            "stop": [None, [[7], [3, 2]]][number % 2],
        }
        asks.append((begin + prompt if number % 3 else prompt, options))
    return asks


@pytest.mark.parametrize("position, num_blocks", exhaustive_but([("learned", 60), ("rotary", 11)], ("rotary", 11)))
def test_texts_are_those_of_generate(position, num_blocks):
    model = language_model(position=position)
    asks = mixed_asks(11, longest=28)
    expected = [model.generate(prompt, **options) for prompt, options in asks]
    with Engine(model, max_batch_size=5, num_blocks=num_blocks, block_size=4, chunk_size=6) as engine:
        requests = [engine.submit(prompt, **options) for prompt, options in asks]
        samples = engine.submit_samples(asks[1][0], 3, max_new_tokens=8, sampler="random", seed=2)
        assert [request.result(60) for request in requests] == expected
        found = [sample.result(60) for sample in samples]
    assert found == model.generate([asks[1][0]] * 3, max_new_tokens=8, sampler="random", seed=2)
    assert len(set(map(tuple, expected))) > 7
    assert engine.stats()["prefix_tokens"] > 0
    assert (engine.stats()["preemptions"] > 0) == (num_blocks == 11)
    assert engine.stats()["blocks_used"] == 0


def test_a_full_text_reaches_the_last_position():
    model = language_model(max_sequence_length=12)
    prompts = [list(range(1, 10)), [4, 2]]
    expected = [model.generate(prompt, max_new_tokens=12 - len(prompt)) for prompt in prompts]
    with Engine(model, num_blocks=9, block_size=5, chunk_size=8) as engine:
        requests = [engine.submit(prompt, max_new_tokens=12 - len(prompt)) for prompt in prompts]
        assert [request.result(60) for request in requests] == expected


@pytest.mark.exhaustive
def test_compiled_serving_compiles_nothing_after_the_warm_up(monkeypatch):
    model = language_model(jit_compile=True, num_layers=1, max_sequence_length=19)
    traces = []
    extend = model.extend
    monkeypatch.setattr(model, "extend", lambda *given: traces.append(given[0].shape) or extend(*given))
    asks = [
        (list(range(1, 18)), {"max_new_tokens": 2}),  # Read up to the last position, without slots for padding.
        ([3, 1, 4], {"max_new_tokens": 9}),
        ([3, 1], {"max_new_tokens": 3}),
        ([5], {"max_new_tokens": 14}),
    ]
    expected = [model.generate(prompt, **options) for prompt, options in asks[:2]]
    traces.clear()
    engine = Engine(model, max_batch_size=2, num_blocks=8, block_size=10, chunk_size=4).warm_up()
    warm = len(traces)
    assert 0 < warm <= 6
    with engine:
        requests = [engine.submit(prompt, **options) for prompt, options in asks]
        found = [request.result(60) for request in requests]
        engine.submit_samples([2, 2, 2], 2, max_new_tokens=3, sampler="random")[1].result(60)
    assert found[:2] == expected
    assert len(traces) == warm


def test_int8_blocks_change_little():
    model = language_model()
    prompt = np.random.default_rng(1).integers(1, 30, 20).tolist()
    logits = {}
    for quantize in (False, True):
        steps = PagedSteps(model, num_blocks=8, block_size=4, max_batch_size=1, chunk_size=8, quantize=quantize)
        table = [[3, 1, 4, 2, 6]]
        for start in range(0, 20, 5):
            logits[quantize] = steps.step([prompt[start : start + 5]], table, [start])
    difference = np.abs(logits[True] - logits[False]).max() / np.abs(logits[False]).max()
    assert 1e-6 < difference < 0.03


def test_pools_stay_where_they_are():
    """On TensorFlow without XLA a step writes into the variable itself, whose buffer does not move."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Other backends have no variables.")
    state = InPlace(lambda: {"pool": keras.ops.zeros((4, 2))}, None, jit_compile=False)

    def add(state, take, put, row, value):
        old = take(state["pool"], row)
        return old, {"pool": put(state["pool"], keras.ops.expand_dims(row, 1), old + keras.ops.expand_dims(value, 1))}

    run = state.compiled(add, ["int32", "float32"])
    run([1], [2.0])
    before = state._state["pool"].numpy().__array_interface__["data"][0]
    assert run([1], [3.0]).tolist() == [[2.0, 2.0]]
    assert state._state["pool"].numpy().__array_interface__["data"][0] == before
    assert state.numpy()["pool"].tolist() == [[0, 0], [5, 5], [0, 0], [0, 0]]
    state.reset()
    assert not state.numpy()["pool"].any()


SIZE = models.Size(1, 16, 2, 24)
# Prompts and texts are longer than the windows, segments and chunks.
STATE_MODELS = {
    "retnet": lambda: models.RetNet(SIZE, 30, chunk_size=4),
    "rwkv": lambda: models.RWKV(SIZE, 30),
    "s4": lambda: models.S4Model(SIZE, 30),
    "transformer_xl": lambda: models.TransformerXL(SIZE, 30, segment_length=4, memory_length=3),
    "recurrent_memory": lambda: models.RecurrentMemory(SIZE, 30, segment_length=4, num_memory_tokens=2),
    "linear": lambda: decoder_of(attention.LinearAttention()),
    "infini": lambda: decoder_of(attention.InfiniAttention(4)),
    "yoco": lambda: models.YOCO(SIZE._replace(num_layers=2), 30, window=4),
}


def decoder_of(mechanism):
    mixer = attention.MultiHeadAttention(2, 8, mechanism=mechanism, position="rotary")
    return models.Decoder(SIZE, 30, position=None, attention=mixer)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STATE_MODELS)
def test_models_with_a_state_give_the_texts_of_generate(name):
    """Mixed requests, samples that share what they have read, and one that is cancelled."""
    model, options = with_weights(STATE_MODELS[name]()), {"max_new_tokens": 9, "sampler": "random"}
    asks = [(list(range(1, length)), seed) for seed, length in enumerate((22, 14, 27, 30, 5, 19))]
    expected = [model.generate(prompt, seed=seed, **options) for prompt, seed in asks]
    assert len(set(map(tuple, expected))) > 3
    with Engine(model, max_batch_size=4, chunk_size=6, block_size=4, num_blocks=15) as engine:
        cancelled = engine.submit(asks[0][0], max_new_tokens=9)
        requests = [engine.submit(prompt, seed=seed, **options) for prompt, seed in asks]
        cancelled.cancel()
        samples = engine.submit_samples(asks[1][0], 3, seed=2, **options)
        assert [request.result(60) for request in requests] == expected
        found = [sample.result(60) for sample in samples]
    assert found == model.generate([asks[1][0]] * 3, seed=2, **options)
    stats = engine.stats()
    assert (stats["states"], stats["states_used"], stats["blocks_used"], stats["prefix_tokens"]) == (4, 0, 0, 0)
    assert stats["blocks"] == (15 if name == "yoco" else 0)
    assert (stats["preemptions"] > 0) == (name == "yoco")  # Few blocks, as many states as ever.


@pytest.mark.exhaustive
def test_compiled_states_beside_slots():
    model = with_weights(models.YOCO(SIZE._replace(num_layers=2), 30, self_decoder="retention"), jit_compile=True)
    prompts = [list(range(1, 15)), [3, 1, 4]]
    expected = [model.generate(prompt, max_new_tokens=5) for prompt in prompts]
    with Engine(model, max_batch_size=2, num_blocks=4, block_size=10, chunk_size=4) as engine:
        requests = [engine.submit(prompt, max_new_tokens=5) for prompt in prompts]
        assert [request.result(60) for request in requests] == expected


def test_int8_is_for_slots():
    with pytest.raises(GenerationError, match="this model has states only"):
        Engine(with_weights(STATE_MODELS["retnet"]()), quantize="int8")


def test_models_that_an_engine_cannot_run_are_refused():
    transformer = tasks.LanguageModel(models.Transformer(models.Size(1, 16, 2, 32), 30), start_id=1)
    with pytest.raises(GenerationError, match="depends on its source"):
        Engine(transformer)
