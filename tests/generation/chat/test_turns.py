"""How a turn of a conversation is read: in one call, which compiles little."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.backend.compilation.compiling import needs_fixed_shapes
from keras_transformer.generation.chat import sizes
from keras_transformer.generation.chat.conversation_steps import ConversationSteps

SIZE = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=24)
# New tokens of each turn.
TURNS = (5, 1, 21, 7, 19)
BACKBONES = {
    "decoder": lambda: models.Decoder(SIZE, 30, max_sequence_length=64),
    "rwkv": lambda: models.RWKV(SIZE, 30),
}


class Recorder:
    """The steps of a model, with the number of tokens of each call and their index."""

    def __init__(self, steps):
        self._steps = steps
        self.reads = []

    def __getattr__(self, name):
        return getattr(self._steps, name)

    def extend(self, token_ids, cache, cache_index):
        self.reads.append((int(cache_index[0]), token_ids.shape[1]))
        return self._steps.extend(token_ids, cache, cache_index)


@pytest.fixture(autouse=True)
def few_slots(monkeypatch):
    monkeypatch.setattr(sizes, "FEWEST_SLOTS", 8)


def language_model(name, jit_compile=False):
    keras.utils.set_random_seed(0)
    model, random = tasks.LanguageModel(BACKBONES[name]()), np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(np.asarray(weight) + random.normal(0, 0.4, weight.shape))
    model.compile(jit_compile=jit_compile)
    return model


def talk(model, new=2):
    """Reads the turns and answers them; returns the steps of the model and those of the conversation."""
    steps, tokens = Recorder(model.generator().steps), []
    conversation = ConversationSteps(steps)
    generator = model.generator().with_steps(conversation)
    for count in TURNS:
        tokens += range(1, count + 1)
        tokens += generator.generate(tokens, max_new_tokens=new)
    return steps, conversation


@pytest.mark.parametrize("name", BACKBONES)
def test_a_turn_is_one_call(name):
    steps, conversation = talk(language_model(name))
    # The last token of an answer is read with the next turn.
    assert steps.reads == [(0, 5), (6, 2), (9, 22), (32, 8), (41, 20)]
    assert conversation.num_read == len(conversation.tokens) == 62


def read_turns(steps):
    """Reads the turns without answers; returns the last output, the cache and the tokens."""
    conversation, tokens = ConversationSteps(steps), []
    for count in TURNS:
        tokens += range(1, count + 1)
        cache = conversation.init_cache(1, len(tokens))
        output, cache = conversation.prefill(np.array([tokens], "int32"), [len(tokens)], cache)
    return output, cache, tokens


@pytest.mark.skipif(needs_fixed_shapes(False) or keras.backend.backend() == "torch", reason="Others have fixed shapes.")
def test_all_turns_share_a_trace(monkeypatch):
    model, traced = language_model("decoder"), []

    def recorded(function):
        def call(*given):
            traced.append(tuple(given[0].shape))
            return function(*given)

        return call

    monkeypatch.setattr(model, "extend", recorded(model.extend))
    monkeypatch.setattr(model, "decode_step", recorded(model.decode_step))
    steps = model.generator().steps
    _, cache, tokens = read_turns(steps)
    for index in range(len(tokens), len(tokens) + 2):
        _, cache = steps.decode_step(np.array([[4]], "int32"), steps.grow(cache, 60), np.array([index], "int32"))
    assert traced == [(None, None), (None, 1)]


@pytest.mark.exhaustive
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Nothing is compiled.")
@pytest.mark.parametrize(
    "name, reads",
    [
        # The third and the last turn leave no room for padding: 6 + 64 and 34 + 64 are more than 64.
        ("decoder", [(16, 32), (16, 32), (21, 32), (16, 64), (19, 64)]),
        ("rwkv", [(16, None), (16, None), (64, None), (16, None), (64, None)]),
    ],
)
def test_compiled_turns_have_few_sizes(monkeypatch, name, reads):
    steps, shapes = language_model(name, jit_compile=True).generator().steps, []
    extend = steps._extend

    def record(token_ids, lengths, cache, cache_index):
        shapes.append((token_ids.shape[1], next((x.shape[2] for x in cache.values() if len(x.shape) == 4), None)))
        return extend(token_ids, lengths, cache, cache_index)

    monkeypatch.setattr(steps, "_extend", record)
    output, cache, tokens = read_turns(steps)
    assert shapes == reads
    whole = language_model(name).generator().steps
    lengths = np.array([len(tokens)], "int32")
    expected, other = whole.prefill(np.array([tokens], "int32"), lengths, whole.init_cache(1, len(tokens)))
    np.testing.assert_allclose(output.logits, expected.logits, rtol=1e-4, atol=1e-4)
    for name, tensor in other.items():
        ours, theirs = (keras.ops.convert_to_numpy(each) for each in (cache[name], tensor))
        # Slots after the text are of padding.
        part = (0, slice(None), slice(0, len(tokens))) if name.endswith(("_key", "_value")) else (0,)
        np.testing.assert_allclose(ours[part], theirs[part], rtol=1e-4, atol=1e-4, err_msg=name)


def test_sizes():
    assert [sizes.cache_size(length) for length in (1, 8, 9, 40)] == [8, 8, 16, 64]
    assert [sizes.cache_size(length, 60, is_compiled=True) for length in (9, 33, 60)] == [32, 60, 60]
    assert [sizes.turn_size(count) for count in (1, 16, 17, 65, 257, 1025)] == [16, 16, 64, 256, 1024, 2048]
    assert [sizes.turn_size(count, 60) for count in (16, 17, 60)] == [16, 17, 60]
