"""Chat in every runtime: the answers of Keras, caches that go on, and `keras-transformer chat`."""

import io
import sys

import pytest
from variants import exhaustive_but

from keras_transformer import load_model
from keras_transformer.export import load
from keras_transformer.export.commands import main as cli
from keras_transformer.generation.chat import sizes
from keras_transformer.generation.chat.conversation_steps import ConversationSteps

BACKENDS = ("saved_model", "tflite", "onnx")
QUESTIONS = ["the cat sat", "and the dog?", "on the mat"]
CACHES = ("llama", "mistral", "rwkv", "yoco", "transformer_xl", "recurrent_memory")


@pytest.fixture(autouse=True)
def few_slots(monkeypatch):
    monkeypatch.setattr(sizes, "FEWEST_SLOTS", 8)


@pytest.fixture(scope="module")
def answers(language):
    conversation = load_model(language.bundle("talker").with_suffix(".keras")).conversation()
    return [conversation.send(each, max_new_tokens=7) for each in QUESTIONS]


@pytest.mark.parametrize("backend", BACKENDS)
def test_answers_are_those_of_keras(language, answers, backend):
    conversation = load(language.bundle("talker"), backend).conversation()
    assert [conversation.send(each, max_new_tokens=7) for each in QUESTIONS] == answers
    assert max(map(len, answers)) > 3


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", exhaustive_but(CACHES, "llama", "rwkv"))
def test_every_cache_goes_on(language, name, backend):
    model, tokens = load(language.bundle(name), backend), [5, 17, 3, 88, 41]
    steps = ConversationSteps(model.steps)
    for turn in range(3):
        found = model.with_steps(steps).generate(tokens, max_new_tokens=4)
        assert found == model.generate(tokens, max_new_tokens=4)
        tokens = [*tokens, *found, 9 + turn, 30, 7]
    assert steps.num_read < len(tokens) + 6


def test_command_answers_each_line(language, answers, capsys, monkeypatch):
    text = "\n\n".join(QUESTIONS).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert cli.main(["chat", str(language.bundle("talker")), "--max-new-tokens", "7"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "".join(f"{answer}\n" for answer in answers)
    assert captured.err == ""


def test_command_refuses_a_model_without_chat(language, capsys):
    bundle = language.bundle("gpt")
    assert cli.main(["chat", str(bundle), "--message", "Hello"]) == 1
    assert capsys.readouterr().err == (
        f"keras-transformer: error: '{bundle}' cannot chat: its tokenizer has no chat template; "
        f"keras-transformer generate {bundle} TEXT continues a text (keras-transformer explain exporterror)\n"
    )
