"""Tokenizers of KerasHub become tokenizers of this package with the same ids, or are refused by name."""

import importlib
import pathlib

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer.text import (
    HuggingFaceTokenizer,
    InvalidTokenizerError,
    SentencePiece,
    from_keras_hub,
    load_tokenizer,
)

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="one process has KerasHub")
KINDS = {"GPT2Tokenizer": HuggingFaceTokenizer, "GemmaTokenizer": SentencePiece, "LlamaTokenizer": SentencePiece}
CHAT = "{% for each in messages %}<start_of_turn>{{ each.role }} {{ each.content }}<end_of_turn>{% endfor %}"
ALL = exhaustive_but(
    (
        *(
            "BloomTokenizer",
            "FalconTokenizer",
            "GPT2Tokenizer",
            "GPTNeoXTokenizer",
            "Gemma3Tokenizer",
            "Gemma4Tokenizer",
        ),
        *(
            "GemmaTokenizer",
            "GptOssTokenizer",
            "Llama3Tokenizer",
            "LlamaTokenizer",
            "MistralTokenizer",
            "MixtralTokenizer",
        ),
        *("OPTTokenizer", "Phi3Tokenizer", "Qwen3Tokenizer", "QwenTokenizer", "QwenMoeTokenizer", "SmolLM3Tokenizer"),
    ),
    *KINDS,
)


@pytest.fixture
def trained(monkeypatch):
    hub = pytest.importorskip("keras_hub")
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[3] / "benchmarks")
    return lambda name: importlib.import_module("keras_hub_tasks").trained(getattr(hub.tokenizers, name))


@pytest.mark.parametrize("name", ALL)
def test_ids_texts_and_special_tokens_are_those_of_keras_hub(trained, name, tmp_path):
    own = trained(name)
    found = from_keras_hub(own)
    assert isinstance(found, KINDS.get(name, type(found)))
    assert found.vocabulary_size == own.vocabulary_size()
    assert found.end_id == own.end_token_id
    random = np.random.default_rng(0)
    letters = [
        chr(code) for code in (*range(1, 0x250), *range(0x3040, 0x30FF), *range(0x1F600, 0x1F640), 0x200D, 0xFE0F)
    ]
    for length in (1, 2, 3, 5, 9, 17, 33) * 30:
        text = "".join(random.choice(letters, length))
        assert found.encode(text) == [int(each) for each in own(text)], repr(text)
    text = "A man with a dog, Zwölf Boxkämpfer 😀"
    assert found.decode(found.encode(text)) == own.detokenize(own(text))
    found.save(tmp_path / "tokenizer")
    assert load_tokenizer(tmp_path / "tokenizer").encode(text) == found.encode(text)


def test_chat_template_goes_with_it(trained, tmp_path):
    found = from_keras_hub(trained("GemmaTokenizer"), chat_template=CHAT)
    found.save(tmp_path / "tokenizer")
    loaded = load_tokenizer(tmp_path / "tokenizer")
    assert loaded.chat_template == CHAT
    assert loaded.fingerprint == found.fingerprint
    assert from_keras_hub(trained("GPT2Tokenizer"), chat_template=CHAT).chat_template == CHAT


def test_another_tokenizer_is_refused_by_its_class(trained):
    hub = pytest.importorskip("keras_hub")
    with pytest.raises(InvalidTokenizerError, match="ByteTokenizer of KerasHub has no vocabulary"):
        from_keras_hub(hub.tokenizers.ByteTokenizer())


def test_other_ids_are_refused_with_the_line(trained):
    own = trained("GPT2Tokenizer")

    class Lower(type(own)):
        def call(self, inputs, *args, **kwargs):
            return super().call(inputs.lower(), *args, **kwargs)

    with pytest.raises(InvalidTokenizerError, match="Lower of KerasHub encodes 'The quick"):
        from_keras_hub(Lower(own.vocabulary, own.merges))
