"""Conversations: each turn reads only what is new, and has the cache and the answers of a new beginning."""

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import models, tasks
from keras_transformer.generation import ChatTemplateError, GenerationError, MissingTokenizerError
from keras_transformer.generation.chat import sizes
from keras_transformer.generation.chat.conversation_steps import ConversationSteps
from keras_transformer.text import BytePair, HuggingFaceTokenizer

TEMPLATE = (
    "{% for each in messages %}{{ each.role }}: {{ each.content | trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=24)
QUESTIONS = [
    "the cat sat",
    "  and the dog?",
    "on the mat, and then on the cat and on the dog and on the mat",
    "cat",
    "the",
]
BACKBONES = {
    "decoder": lambda size: models.Decoder(SIZE, size, position="rotary", norm="rms_norm"),
    "window": lambda size: models.Mistral(SIZE, size, window=7, num_key_value_heads=1),
    "rwkv": lambda size: models.RWKV(SIZE, size),
}


@pytest.fixture(scope="module")
def tokenizer():
    source = BytePair.train(["the cat sat on the mat and the dog sat on the cat"], 290)
    content = source._files()["tokenizer.json"].decode()
    return HuggingFaceTokenizer(content, source.special_tokens, chat_template=TEMPLATE)


@pytest.fixture(scope="module", params=exhaustive_but(BACKBONES, "decoder"))
def model(request, tokenizer):
    keras.utils.set_random_seed(0)
    backbone = BACKBONES[request.param](tokenizer.vocabulary_size)
    model, random = (
        tasks.LanguageModel(backbone, tokenizer=tokenizer, end_id=tokenizer.end_id),
        np.random.default_rng(0),
    )
    for weight in model.weights:
        scale = 0.7 if len(weight.shape) > 1 else 0.1
        weight.assign(np.asarray(weight) * (len(weight.shape) < 2) + random.normal(0, scale, weight.shape))
    return model


@pytest.fixture(autouse=True)
def few_slots(monkeypatch):
    """Caches that are too small for the second turn."""
    monkeypatch.setattr(sizes, "FEWEST_SLOTS", 8)


def test_answers_are_those_of_a_new_beginning(model):
    conversation, messages = (
        model.conversation([{"role": "system", "content": "sat"}]),
        [{"role": "system", "content": "sat"}],
    )
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        expected = model.chat(messages, max_new_tokens=9)
        assert conversation.send(question, max_new_tokens=9) == expected
        messages.append({"role": "assistant", "content": expected})
    assert conversation.messages == messages


def test_a_turn_reads_only_what_is_new(model, tokenizer):
    steps = ConversationSteps(model.generator().steps)
    generator, tokens = model.generator().with_steps(steps), tokenizer.encode("the cat sat on the mat")
    for question in QUESTIONS:
        before = steps.num_read, len(steps.tokens)
        answer = generator.generate(tokens, max_new_tokens=5)
        expected = model.generate(tokens, max_new_tokens=5)
        assert answer == expected
        is_ended = len(answer) < 5
        # The last token is chosen, and not read: the next turn reads it.
        assert steps.num_read - before[0] == len(tokens) - before[1] + len(answer) - (not is_ended)
        tokens = [*tokens, *answer, *tokenizer.encode(question)]


def test_the_cache_is_that_of_a_new_beginning(model, tokenizer):
    steps, tokens = ConversationSteps(model.generator().steps), []
    for question in QUESTIONS:
        tokens += tokenizer.encode(question)
        cache = steps.init_cache(1, len(tokens) + 4)
        output, cache = steps.prefill(np.array([tokens], "int32"), [len(tokens)], cache)
    whole = model.generator().steps
    expected, other = whole.prefill(
        np.array([tokens], "int32"), np.array([len(tokens)], "int32"), whole.init_cache(1, len(tokens) + 4)
    )
    np.testing.assert_allclose(output.logits, expected.logits[:, -1:], rtol=1e-4, atol=1e-4)
    for name, tensor in other.items():
        ours, theirs = (keras.ops.convert_to_numpy(each).astype("float64") for each in (cache[name], tensor))
        # Slots after the text are empty, or of padding.
        part = (0, slice(None), slice(0, len(tokens))) if name.endswith(("_key", "_value")) else (0,)
        np.testing.assert_allclose(ours[part], theirs[part], rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.exhaustive
def test_a_changed_message_is_read_again(model):
    conversation = model.conversation()
    conversation.send("the cat sat on the mat", max_new_tokens=4)
    conversation.send("and the dog?", max_new_tokens=4)
    conversation.messages = [{"role": "user", "content": "the cat and the dog"}, conversation.messages[1]]
    messages = [*conversation.messages, {"role": "user", "content": "sat on"}]
    assert conversation.send("sat on", max_new_tokens=6) == model.chat(messages, max_new_tokens=6)


def test_a_stream_that_is_closed_keeps_what_it_has_shown(model):
    conversation = model.conversation()
    stream = conversation.stream("the cat sat", max_new_tokens=12)
    piece = next(stream)
    stream.close()
    assert conversation.messages[1:] == [{"role": "assistant", "content": piece}]


def test_a_failed_turn_leaves_the_messages(model):
    conversation = model.conversation()
    with pytest.raises(GenerationError, match="max_new_tokens"):
        conversation.send("the cat", max_new_tokens=0)
    with pytest.raises(GenerationError, match="one prompt|one sequence|results only"):
        conversation.send("the cat", sampler="beam")
    assert conversation.messages == []


def test_what_is_missing_is_named(model, tokenizer):
    plain = tasks.LanguageModel(BACKBONES["decoder"](tokenizer.vocabulary_size))
    with pytest.raises(MissingTokenizerError, match="chat template"):
        plain.chat("Hello")
    content = tokenizer._files()["tokenizer.json"].decode()
    plain = tasks.LanguageModel(
        BACKBONES["decoder"](tokenizer.vocabulary_size), tokenizer=HuggingFaceTokenizer(content)
    )
    with pytest.raises(ChatTemplateError, match="no chat template"):
        plain.conversation()


def test_the_names_of_special_tokens_are_these_tokens(model, tokenizer):
    assert model.generator().chat_prompt("the cat</s>").count(tokenizer.end_id) == 2


def test_a_saved_tokenizer_keeps_its_template(tokenizer, tmp_path):
    from keras_transformer.text import load_tokenizer

    tokenizer.save(tmp_path / "tokenizer")
    assert load_tokenizer(tmp_path / "tokenizer").chat_template == TEMPLATE
