"""The engine returns the texts of `generate`, independent of other requests, and loses nothing after errors.

The model is a formula over all tokens, and its blocks and states store the tokens, so that a wrong one is a wrong text.
"""

import collections
import dataclasses
import random
import threading
import time

import numpy as np
import pytest

from keras_transformer.generation import (
    Engine,
    EngineClosedError,
    EngineError,
    GenerationError,
    Generator,
    MissingTokenizerError,
    PromptTooLongError,
    QueueFullError,
    Random,
    RequestCancelledError,
    UserLimitError,
)
from keras_transformer.text import Characters

TOKENIZER = Characters("abcdefgh ")
UNWRITTEN = -1


class PagedFormula:
    """A formula that reads its tokens from blocks, states or both, which must then agree."""

    model_version = 0

    def __init__(self, formula, spec, keeps, num_blocks, block_size, max_batch_size, chunk_size, quantize):
        self.formula, self.block_size = formula, block_size
        self.keeps_slots, self.keeps_states = "slots" in keeps, "states" in keeps
        self.chunk_size = chunk_size
        self.max_batch_size = max_batch_size
        capacity = (num_blocks - 1) * block_size if self.keeps_slots else 1000
        self.spec = dataclasses.replace(spec, max_length=min(capacity, spec.max_length or capacity))
        self.pool = np.full((num_blocks, block_size), UNWRITTEN)
        self.states = [[UNWRITTEN]] * (max_batch_size + 1)
        self.calls = []  # (rows, tokens of each) of every step.
        self.gate = threading.Event()
        self.gate.set()
        self.fail = lambda: False

    def step(self, token_ids, tables, cache_index, states):
        self.gate.wait(10)
        self.calls.append((len(token_ids), len(token_ids[0])))
        assert len(token_ids) <= self.max_batch_size
        assert len(token_ids) == 1 or len(token_ids[0]) == 1
        if self.fail():
            raise RuntimeError("out of memory\nand more")
        assert len(set(states)) == len(states) or not self.keeps_states
        logits = []
        for new, table, index, state in zip(token_ids, tables, cache_index, states, strict=True):
            reads = []
            if self.keeps_slots:
                reads.append(self._read_slots(new, table, index))
            if self.keeps_states:
                reads.append(self._read_state(new, state, index))
            assert all(read == reads[0] for read in reads)
            logits.append(self.formula.formula(np.array(reads[0])[None], np.zeros((1, 1)))[0][0])
        return np.array(logits, "float32")

    def _read_slots(self, new, table, index):
        assert 0 not in table
        for slot, token in enumerate(new, index):
            self.pool[table[slot // self.block_size], slot % self.block_size] = token
        read = self.pool[table].ravel()[: index + len(new)].tolist()
        assert UNWRITTEN not in read, "a token was skipped"
        return read

    def _read_state(self, new, state, index):
        assert state != 0
        self.states[state] = [*(self.states[state] if index else []), *new]
        assert len(self.states[state]) == index + len(new)
        return self.states[state]

    def copy(self, pairs):
        assert self.keeps_slots
        for source, target in pairs:
            self.pool[target] = self.pool[source]

    def copy_states(self, pairs):
        for source, target in pairs:
            self.states[target] = list(self.states[source])

    def reset(self):
        self.pool[:] = UNWRITTEN
        self.states = [[UNWRITTEN]] * len(self.states)

    def warm_up(self):
        self.calls.append("warm_up")


class FormulaModel:
    """Implements the model protocol of the engine."""

    def __init__(self, formula, tokenizer=None, end_id=None, keeps=("slots",)):
        self.keeps = keeps
        self.formula, self._generator = formula, Generator(formula, tokenizer, end_id=end_id)

    def generator(self):
        return self._generator

    def generate(self, *arguments, **options):
        return self._generator.generate(*arguments, **options)

    def paged_steps(self, num_blocks, block_size, **options):
        return PagedFormula(self.formula, self._generator.spec, self.keeps, num_blocks, block_size, **options)


@pytest.fixture
def model(models):
    return FormulaModel(models.History(seed=3, max_length=64), end_id=0)


@pytest.fixture(params=[("slots",), ("states",), ("slots", "states")], ids="+".join)
def any_model(models, request):
    return FormulaModel(models.History(seed=3, max_length=64), end_id=0, keeps=request.param)


@pytest.fixture
def text_model(models):
    return FormulaModel(models.History(vocabulary_size=TOKENIZER.vocabulary_size, seed=1), TOKENIZER)


def engine_of(model, **options):
    return Engine(
        model,
        **{"max_batch_size": 4, "num_blocks": 24, "block_size": 4, "chunk_size": 6, "prompt_tokens": 9, **options},
    )


def is_whole(engine):
    """Returns whether every block and state is free, and counted once."""

    def is_free(pool):
        return sorted(pool._free) == list(range(1, pool.num_blocks)) and not any(
            map(pool.references, range(pool.num_blocks))
        )

    parts = engine._scheduler.pool.pools
    return len(parts) > 0 and all(map(is_free, parts))


def mixed_asks(count, longest=30):
    """Returns prompts of all lengths, half of them with a common prefix, with every option."""
    draw = random.Random(7)
    begin = [draw.randrange(1, 7) for _ in range(13)]
    asks = []
    for number in range(count):
        prompt = [draw.randrange(1, 7) for _ in range(draw.randint(1, longest))]
        options = {
            "max_new_tokens": draw.randint(1, 15),
            "sampler": ["greedy", "random", Random(0.7, top_k=3)][number % 3],
            "seed": number,
            "repetition_penalty": [1.0, 1.4][number % 2],
            "stop": [None, [5, 5], [[2, 3, 1], [4]]][draw.randrange(3)],
        }
        asks.append(((begin + prompt)[:longest] if number % 2 else prompt, options))
    return asks


@pytest.mark.parametrize("num_blocks", [200, 16, 12])
def test_texts_are_those_of_each_request_alone(any_model, num_blocks):
    model, keeps = any_model, any_model.keeps
    asks = mixed_asks(40)
    expected = [model.generate(prompt, **options) for prompt, options in asks]
    with engine_of(model, num_blocks=num_blocks) as engine:
        requests = [engine.submit(prompt, **options) for prompt, options in asks]
        assert [request.result(20) for request in requests] == expected
    stats = engine.stats()
    assert stats["finished"] == 40
    assert (stats["prefix_tokens"] > 0) == (keeps == ("slots",))  # States are not shared by prefixes.
    assert (stats["preemptions"] > 0) == (num_blocks < 200 and "slots" in keeps)
    assert (stats["blocks"], stats["states"]) == (num_blocks * ("slots" in keeps), 4 * ("states" in keeps))
    assert max(rows for rows, _ in engine.steps.calls) >= 3
    assert is_whole(engine)
    assert len({request.finish_reason for request in requests}) == 2
    for request, text in zip(requests, expected, strict=True):
        ended = len(request.new_tokens) < request.decoding_request.max_new_tokens or len(text) < len(request.new_tokens)
        assert request.finish_reason == ("stop" if ended else "length")


def test_text_streams_as_generate_writes_it(text_model):
    asks = [("abc", {"seed": 1, "sampler": "random"}), ("h e", {"stop": "a"}), ("bbb", {"stop": ["gh", "ca"]})]
    expected = [text_model.generate(prompt, max_new_tokens=30, **options) for prompt, options in asks]
    with engine_of(text_model) as engine:
        streams = [engine.submit(prompt, max_new_tokens=30, **options).stream() for prompt, options in asks]
        pieces = [list(stream) for stream in streams]
    assert list(map("".join, pieces)) == expected
    assert max(map(len, pieces)) > 5
    assert is_whole(engine)


def test_samples_of_one_prompt_read_it_once(any_model):
    prompt = [3, 1, 4, 1, 5, 2, 6]
    expected = any_model.generate([prompt] * 4, max_new_tokens=9, sampler="random", seed=5)
    assert len(set(map(tuple, expected))) > 1
    with engine_of(any_model) as engine:
        requests = engine.submit_samples(prompt, 4, max_new_tokens=9, sampler="random", seed=5)
        assert [request.result(10) for request in requests] == expected
    # The prompt once, and all tokens of each text except the last.
    assert engine.stats()["tokens_read"] == 7 + sum(len(request.new_tokens) - 1 for request in requests)
    assert engine.stats()["prefix_tokens"] == 0
    assert is_whole(engine)


def test_samples_beyond_the_batch_wait_for_a_place(any_model):
    prompt = [3, 1, 4, 1, 5, 2, 6]
    expected = any_model.generate([prompt] * 9, max_new_tokens=9, sampler="random", seed=5)
    with engine_of(any_model, max_batch_size=2, num_blocks=9) as engine:
        requests = engine.submit_samples(prompt, 9, max_new_tokens=9, sampler="random", seed=5)
        assert [request.result(10) for request in requests] == expected
    assert is_whole(engine)


@pytest.mark.parametrize("keeps", [("states",), ("slots", "states")], ids="+".join)
@pytest.mark.parametrize("num_states", [1, 2])
def test_who_finds_no_state_waits_for_one(models, keeps, num_states):
    model = FormulaModel(models.History(seed=3, max_length=64), end_id=0, keeps=keeps)
    asks, prompt = mixed_asks(12), [3, 1, 4, 1, 5, 2, 6]
    expected = [model.generate(text, **options) for text, options in asks]
    samples = model.generate([prompt] * 4, max_new_tokens=9, sampler="random", seed=5)
    engine = engine_of(model, num_blocks=40)
    states = engine._scheduler.pool.states
    held = [states.allocate() for _ in range(4 - num_states)]
    engine.steps.gate.clear()  # All wait before the first step is over, however slow this thread is.
    with engine:
        shared = engine.submit_samples(prompt, 4, max_new_tokens=9, sampler="random", seed=5)
        requests = [engine.submit(text, **options) for text, options in asks]
        engine.steps.gate.set()
        assert [request.result(20) for request in shared] == samples
        assert [request.result(20) for request in requests] == expected
    assert engine.stats()["preemptions"] > 0
    for state in held:
        states.release(state)
    assert is_whole(engine)


def test_a_long_prompt_holds_nobody_up(models):
    engine = engine_of(FormulaModel(models.History(seed=3)), chunk_size=5, prompt_tokens=5)
    engine.steps.gate.clear()
    short, long = engine.submit([1], max_new_tokens=20), engine.submit([2] * 31, max_new_tokens=1)
    engine.steps.gate.set()
    with engine:
        long.result(10)
        short.result(10)
    calls = engine.steps.calls
    # The short one may start alone; then it runs after every chunk of the long one.
    start = calls.index((1, 5))
    assert calls[:start] == [(1, 1)] * start
    assert calls[start : start + 12] == [(1, 5), (1, 1)] * 5 + [(1, 5), (2, 1)]
    assert calls[start + 12 :] == [(1, 1)] * (20 - start - 6)


def test_several_prompts_are_read_in_a_step(models):
    engine = engine_of(FormulaModel(models.History(seed=3)), chunk_size=4, prompt_tokens=11)
    engine.steps.gate.clear()
    requests = [engine.submit([1], max_new_tokens=9)]
    while engine.stats()["running"] < 1:
        time.sleep(0.001)
    requests += [engine.submit([number] * 7, max_new_tokens=3) for number in (2, 3)]
    engine.steps.gate.set()
    with engine:
        for request in requests:
            request.result(10)
    # Seven tokens of one prompt and four of the other, with a step of the first two; then the rest, with a step of all.
    assert engine.steps.calls[:8] == [(1, 1), (1, 4), (1, 3), (1, 4), (2, 1), (1, 3), (3, 1), (2, 1)]


def order_of_ends(engine, requests):
    """Opens the gate of an engine and returns the indices of the requests in the order in which they finish."""
    ends = []
    for number, request in enumerate(requests):
        finish = request.finish
        request.finish = lambda error=None, number=number, finish=finish: (ends.append(number), finish(error))
    engine.steps.gate.set()
    engine.close(drain=True)
    return ends


def test_first_come_first_served(model):
    engine = engine_of(model, max_batch_size=1)
    engine.steps.gate.clear()
    requests = [engine.submit([1 + number % 5], max_new_tokens=3) for number in range(6)]
    assert order_of_ends(engine, requests) == [0, 1, 2, 3, 4, 5]


def test_users_take_turns(models):
    """Tokens count, not requests: a text of 12 tokens for one user, then four of 3 for another."""
    engine = engine_of(FormulaModel(models.History(seed=3)), max_batch_size=1)
    engine.steps.gate.clear()
    asks = [("first", 1), *[("many", 12)] * 3, *[("few", 3)] * 5]
    requests = [engine.submit([1, 2], max_new_tokens=count, user=user) for user, count in asks]
    # Read and written: 2 + 11 + 2 · 12 = 37 for "many", 2 + 2 + 2 · 3 = 10 for each text of "few".
    assert order_of_ends(engine, requests) == [0, 1, 4, 5, 6, 7, 2, 8, 3]
    assert engine._scheduler.waiting._charges == {}


def test_an_absence_saves_nothing_up(models):
    """Who comes when another has received a lot takes turns from then on, and does not catch up first."""
    engine = engine_of(FormulaModel(models.History(seed=3)), max_batch_size=1)
    engine.steps.gate.clear()
    requests = [engine.submit([1], max_new_tokens=20, user="early") for _ in range(4)]
    while engine.stats()["running"] < 1:
        time.sleep(0.001)
    engine._scheduler.waiting.charge("early", written=1000)
    requests += [engine.submit([1], max_new_tokens=20, user="late") for _ in range(4)]
    assert order_of_ends(engine, requests) == [0, 4, 1, 5, 2, 6, 3, 7]


def test_priorities_come_first(models):
    engine = engine_of(FormulaModel(models.History(seed=3)), max_batch_size=1)
    engine.steps.gate.clear()
    requests = [engine.submit([1], max_new_tokens=3, user=user, priority=priority) for user, priority in PRIORITIES]
    assert order_of_ends(engine, requests) == [3, 5, 1, 4, 2, 0]


# The first one runs when the others come. It gives way to the fourth.
PRIORITIES = [("a", -1), ("a", 1), ("b", 0), ("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.parametrize("options", [{"max_batch_size": 2}, {"num_blocks": 6}], ids=["rows", "blocks"])
def test_a_request_of_larger_priority_takes_the_place_of_the_youngest(models, options):
    model = FormulaModel(models.History(seed=3, max_length=64))
    engine = engine_of(model, **options)
    engine.steps.gate.clear()
    asks = [([1] * 8, 4), ([2] * 8, 4)]
    requests = [engine.submit(prompt, max_new_tokens=count) for prompt, count in asks]
    while engine.stats()["running"] < 2:
        time.sleep(0.001)
    asks.append(([3] * 9, 3))
    requests.append(engine.submit([3] * 9, max_new_tokens=3, priority=1))
    assert order_of_ends(engine, requests)[-1] == 1
    assert engine.stats()["preemptions"] > 0
    for request, (prompt, count) in zip(requests, asks, strict=True):
        assert request.result(0) == model.generate(prompt, max_new_tokens=count)
    assert is_whole(engine)


def test_the_requests_of_a_user_are_limited(model):
    engine = engine_of(model, max_batch_size=1, max_per_user=3)
    engine.steps.gate.clear()
    requests = [
        engine.submit([1], max_new_tokens=2, user="a"),
        *engine.submit_samples([2], 2, max_new_tokens=2, user="a"),
    ]
    with pytest.raises(UserLimitError, match="The user has 3 of at most 3 requests"):
        engine.submit([1], max_new_tokens=2, user="a")
    with pytest.raises(UserLimitError, match="0 of at most 3"):
        engine.submit_samples([1], 4, max_new_tokens=2, user="c", wait=None)  # It would wait forever.
    others = [engine.submit([1], max_new_tokens=2, user=user) for user in ("b", None)]
    engine.steps.gate.set()
    assert engine.submit([3], max_new_tokens=2, user="a", wait=None).result(10) == model.generate([3], max_new_tokens=2)
    for request in requests + others:
        request.result(10)
    engine.close()
    assert is_whole(engine)


@pytest.mark.parametrize("options, message", [({"priority": 1.5}, "priority must be"), ({"user": []}, "user must be")])
def test_priorities_and_users_are_checked(model, options, message):
    with engine_of(model) as engine, pytest.raises(GenerationError, match=message):
        engine.submit([1], max_new_tokens=2, **options)


def test_a_preempted_request_resumes_before_later_arrivals(models):
    """The second request is preempted by the first; the third, which would fit, waits for the second."""
    model = FormulaModel(models.History(seed=3))
    engine = engine_of(model, max_batch_size=2, num_blocks=6)
    engine.steps.gate.clear()
    asks = [([1] * 8, 14), ([2] * 8, 14), ([3], 2)]
    requests = [engine.submit(prompt, max_new_tokens=count) for prompt, count in asks]
    ends = []
    for number, request in enumerate(requests):
        finish = request.finish
        request.finish = lambda error=None, number=number, finish=finish: (ends.append(number), finish(error))
    engine.steps.gate.set()
    engine.close(drain=True)
    assert engine.stats()["preemptions"] > 0
    # Before the second, the third with its two tokens would end first.
    assert ends == [0, 2, 1]
    assert [each.result(1) for each in requests] == [model.generate(each, max_new_tokens=count) for each, count in asks]


def test_a_changed_model_reads_everything_again(models):
    """Running requests continue in order, and no block of the previous weights is reused."""
    model = FormulaModel(models.History(seed=3))
    asks = [([number] * 9, 6) for number in (1, 2, 3)]
    expected = [model.generate(prompt, max_new_tokens=count) for prompt, count in asks]
    with engine_of(model, num_blocks=40) as engine:
        assert engine.submit(asks[0][0], max_new_tokens=6).result(10) == expected[0]
        engine.steps.pool[:] = 6  # Reading an old block would change the text.
        engine.steps.model_version = 1
        assert engine.submit(asks[0][0], max_new_tokens=6).result(10) == expected[0]
        assert engine.stats()["prefix_tokens"] == 0
        read = engine.stats()["tokens_read"]
        calls = []

        def change_once():
            calls.append(0)
            if len(calls) == 8:
                engine.steps.model_version = 2

        engine.steps.fail = change_once
        requests = [engine.submit(prompt, max_new_tokens=count) for prompt, count in asks[1:]]
        assert [request.result(10) for request in requests] == expected[1:]
    assert engine.stats()["tokens_read"] - read > 2 * (9 + 5)
    assert is_whole(engine)


def test_reset_prefix_cache_reads_everything_again(models):
    """After a reset no earlier block is found, and a running request reads its tokens again."""
    model, prompt = FormulaModel(models.History(seed=3)), [1] * 9
    expected = model.generate(prompt, max_new_tokens=6)
    with engine_of(model, num_blocks=40) as engine:
        assert engine.submit(prompt, max_new_tokens=6).result(10) == expected
        engine.steps.pool[:] = 6  # A stale block gives another text.
        engine.reset_prefix_cache()
        assert engine.submit(prompt, max_new_tokens=6).result(10) == expected
        assert engine.stats()["prefix_tokens"] == 0
        read, calls = engine.stats()["tokens_read"], []

        def reset_once():
            calls.append(0)
            if len(calls) == 4:
                engine.reset_prefix_cache()

        engine.steps.fail = reset_once
        assert engine.submit(prompt, max_new_tokens=6).result(10) == expected
        assert engine.stats()["prefix_tokens"] == 8  # From before the reset in the fourth step.
    assert engine.stats()["tokens_read"] - read > 9 + 5
    assert is_whole(engine)


def test_the_queue_is_bounded(model):
    engine = engine_of(model, max_batch_size=1, max_waiting=2)
    engine.steps.gate.clear()
    first = engine.submit([1, 2, 3], max_new_tokens=4)
    deadline = time.monotonic() + 5
    while engine.stats()["running"] < 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    others = [engine.submit([2], max_new_tokens=2) for _ in range(2)]
    with pytest.raises(QueueFullError, match="2 of at most 2 requests are waiting"):
        engine.submit([3], max_new_tokens=2)
    with pytest.raises(QueueFullError):
        engine.submit([3], max_new_tokens=2, wait=0.05)
    with pytest.raises(QueueFullError):
        engine.submit_samples([3], 3, max_new_tokens=2, wait=None)  # Larger than the queue.
    threading.Timer(0.05, engine.steps.gate.set).start()
    late = engine.submit([3], max_new_tokens=2, wait=None)
    assert late.result(5) == model.generate([3], max_new_tokens=2)
    assert first.result(5) == model.generate([1, 2, 3], max_new_tokens=4)
    assert [other.result(5) for other in others] == [model.generate([2], max_new_tokens=2)] * 2
    engine.close(drain=True)


def test_requests_that_cannot_be_served_are_refused_at_once(model, text_model):
    engine = engine_of(model, num_blocks=8)  # 32 tokens.
    with pytest.raises(PromptTooLongError, match="exceeds the 32"):
        engine.submit([1] * 30, max_new_tokens=3)
    assert engine.submit([1] * 30, max_new_tokens=2).result(5) == model.generate([1] * 30, max_new_tokens=2)
    for options, words in (
        ({"sampler": "beam"}, "not supported by an engine"),
        ({"sampler": "contrastive"}, "not supported by an engine"),
        ({"max_new_tokens": 0}, "positive integer"),
        ({"repetition_penalty": 0}, "above 0"),
        ({"stop": [[]]}, "stop must be"),
    ):
        with pytest.raises(GenerationError, match=words):
            engine.submit([1], **options)
    with pytest.raises(MissingTokenizerError):
        engine.submit("text")
    with pytest.raises(MissingTokenizerError):
        engine.submit_samples([1], 1, as_text=True)
    with pytest.raises(GenerationError, match="count must be"):
        engine.submit_samples([1], 0)
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.submit([1])
    with engine_of(text_model) as other:
        ids = TOKENIZER.encode("abc")
        request = other.submit_samples(ids, 1, as_text=True, max_new_tokens=5)[0]
        assert request.result(5) == text_model.generate("abc", max_new_tokens=5)


@pytest.mark.parametrize(
    "options", [{"num_blocks": 0}, {"block_size": 2.0}, {"max_waiting": -1}, {"quantize": "int4"}, {"chunk_size": 0}]
)
def test_sizes_are_checked(model, options):
    with pytest.raises(GenerationError, match=next(iter(options))):
        engine_of(model, **options)


def test_canceling_frees_the_blocks_and_changes_no_other(any_model):
    engine = engine_of(any_model)
    engine.steps.gate.clear()
    requests = [engine.submit([1, 2, number], max_new_tokens=12) for number in range(6)]
    followed = engine.submit_samples([2, 2, 2, 2], 3, max_new_tokens=6, sampler="random", seed=1)
    for request in (requests[1], requests[5], followed[0]):
        request.cancel()
    engine.steps.gate.set()
    for request in (requests[1], requests[5], followed[0]):
        with pytest.raises(RequestCancelledError):
            request.result(5)
        with pytest.raises(RequestCancelledError):
            list(request.stream())
        assert request.finish_reason == "cancelled"
    kept = [requests[number] for number in (0, 2, 3, 4)]
    expected = [any_model.generate([1, 2, number], max_new_tokens=12) for number in (0, 2, 3, 4)]
    assert [request.result(5) for request in kept] == expected
    samples = any_model.generate([[2, 2, 2, 2]] * 3, max_new_tokens=6, sampler="random", seed=1)
    assert [request.result(5) for request in followed[1:]] == samples[1:]
    engine.close(drain=True)
    assert is_whole(engine)


def test_who_stops_reading_a_stream_cancels_it(models):
    with engine_of(FormulaModel(models.History(seed=3)), max_batch_size=1) as engine:
        engine.steps.fail = lambda: time.sleep(0.005)
        request = engine.submit([1, 2], max_new_tokens=60)
        stream = request.stream()
        next(stream)
        stream.close()
        with pytest.raises(RequestCancelledError):
            request.result(5)
        assert len(request.new_tokens) < 30
        with pytest.raises(RuntimeError, match="streamed once"):
            request.stream()
    assert is_whole(engine)


def test_a_failing_model_ends_what_runs_and_the_engine_goes_on(models):
    model = FormulaModel(models.History(seed=3))
    engine = engine_of(model)
    failures = iter([False, False, True])
    engine.steps.fail = lambda: next(failures, False)
    request = engine.submit([1, 2, 3], max_new_tokens=10)
    with pytest.raises(EngineError, match="RuntimeError: out of memory$"):
        request.result(5)
    assert request.finish_reason == "error"
    assert engine.submit([1, 2, 3], max_new_tokens=10).result(5) == model.generate([1, 2, 3], max_new_tokens=10)
    engine.close()
    assert is_whole(engine)


class PanicException(BaseException):
    """As the panics of libraries in Rust."""


@pytest.mark.parametrize("error", [ZeroDivisionError, PanicException])
def test_a_failing_sampler_ends_its_own_request_alone(model, error):
    class Broken(Random):
        def __call__(self, ops, logits, uniforms):
            raise error("no")

    with engine_of(model) as engine:
        broken, whole = engine.submit([1], sampler=Broken()), engine.submit([1], max_new_tokens=9)
        assert whole.result(5) == model.generate([1], max_new_tokens=9)
        with pytest.raises(EngineError, match=error.__name__):
            broken.result(5)
        assert engine.is_open
        assert engine.submit([1], max_new_tokens=9).result(5) == whole.result(5)
    assert is_whole(engine)


def test_a_panic_of_the_model_ends_what_runs_and_the_engine_goes_on(models, monkeypatch):
    model = FormulaModel(models.History(seed=3))
    with engine_of(model) as engine:
        step, panics = engine.steps.step, [PanicException("index out of bounds")]

        def fails_once(*arguments):
            if panics:
                raise panics.pop()
            return step(*arguments)

        monkeypatch.setattr(engine.steps, "step", fails_once)
        with pytest.raises(EngineError, match="PanicException: index out of bounds"):
            engine.submit([1]).result(5)
        assert engine.submit([1, 2], max_new_tokens=9).result(5) == model.generate([1, 2], max_new_tokens=9)
    assert is_whole(engine)


def test_token_ids_that_would_wrap_are_refused(model):
    with engine_of(model) as engine:
        for prompt in ([-7], np.array([1, -7]), [10**9]):
            with pytest.raises(GenerationError, match="token ids outside 0 to"):
                engine.submit(prompt)


def test_closing_ends_every_request(models):
    engine = engine_of(FormulaModel(models.History(seed=3)), max_batch_size=2)
    engine.steps.gate.clear()
    requests = [engine.submit([number], max_new_tokens=50) for number in range(1, 6)]
    threading.Timer(0.05, engine.steps.gate.set).start()
    engine.close()
    for request in requests:
        with pytest.raises(EngineClosedError):
            request.result(1)
    assert is_whole(engine)


def test_a_thousand_requests_under_fault(any_model):
    """Random arrivals, cancellations, too long prompts, abandoned streams, a failing model and too few blocks."""
    asks = mixed_asks(60, longest=28)
    expected = [any_model.generate(prompt, **options) for prompt, options in asks]
    engine = engine_of(any_model, max_batch_size=6, num_blocks=11, max_waiting=8)
    draw = random.Random(1)
    engine.steps.fail = lambda: draw.random() < 0.002
    outcomes, wrong, lock = collections.Counter(), [], threading.Lock()

    def client(seed, count):
        mine = random.Random(seed)
        for _ in range(count):
            outcome = one(mine)
            with lock:
                outcomes[outcome] += 1

    def one(mine):
        kind = mine.choices(["answer", "stream", "cancel", "leave", "long", "samples"], [40, 20, 10, 10, 10, 10])[0]
        number = mine.randrange(len(asks))
        prompt, options = asks[number]
        request = None
        try:
            if kind == "long":
                engine.submit([1] * mine.randint(60, 90), max_new_tokens=10)
                wrong.append("a too long prompt was accepted")
            if kind == "samples":
                found = [each.result(20) for each in engine.submit_samples(prompt, 3, wait=5, **options)][0]
            else:
                request = engine.submit(prompt, wait=mine.choice([0, 5]), **options)
                if kind == "cancel":
                    time.sleep(mine.random() / 500)
                    request.cancel()
                if kind == "leave":
                    stream = request.stream()
                    next(stream, None)
                    stream.close()
                found = list(request.stream()) if kind == "stream" else request.result(20)
        except (PromptTooLongError, QueueFullError, RequestCancelledError, EngineError) as error:
            return type(error).__name__
        except BaseException as error:
            wrong.append(repr(error))
            return "wrong"
        if kind != "samples" and found != expected[number]:
            wrong.append((kind, prompt, options, found, expected[number]))
        return "answer"

    threads = [threading.Thread(target=client, args=(seed, 50)) for seed in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    engine.close(drain=True)
    assert wrong == []
    assert sum(outcomes.values()) == 1000
    assert set(outcomes) == {"answer", "PromptTooLongError", "QueueFullError", "RequestCancelledError", "EngineError"}
    assert outcomes["answer"] > 300
    assert (engine.stats()["preemptions"] > 0) == ("slots" in any_model.keeps)
    assert (engine.stats()["running"], engine.stats()["waiting"]) == (0, 0)
    assert is_whole(engine)
