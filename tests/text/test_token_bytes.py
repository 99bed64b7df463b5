"""The bytes of tokens: those of a text are the text, for every kind of tokenizer."""

import json

import pytest
import tokenizers

from keras_transformer.text import (
    BytePair,
    Bytes,
    Characters,
    HuggingFaceTokenizer,
    SentencePiece,
    TextError,
    WordPiece,
)
from keras_transformer.text.hugging_face.token_bytes import token_bytes

TEXT = 'The cat "sat" {on: 12} naïve  żółć 😀 ok'
NATIVE = {
    "bytes": lambda: Bytes(),
    "characters": lambda: Characters(sorted(set(TEXT))),
    "fallback": lambda: Characters("abc", byte_fallback=True),
    "byte_pair": lambda: BytePair.train([TEXT] * 3, 320),
    "unigram": lambda: SentencePiece.train([TEXT] * 30, 330, lossless=True),
}


def bytes_of(model, decoder):
    """The bytes of the tokens of a `tokenizer.json` with an added token at the end."""
    size = len(model["vocab"])
    added = [{"id": size, "content": "<|a\u2581b|>", "special": True, **dict.fromkeys(_FLAGS, False)}]
    content = {"version": "1.0", "added_tokens": added, "model": model, "decoder": decoder}
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    *found, last = token_bytes(content, tokenizer, size + 1)
    assert last == "<|a\u2581b|>".encode()
    return found


_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


def bpe(*tokens, **options):
    return {"type": "BPE", "vocab": {token: index for index, token in enumerate(tokens)}, "merges": [], **options}


@pytest.mark.parametrize("kind", NATIVE)
def test_bytes_of_the_tokens_of_a_text_are_the_text(kind):
    tokenizer = NATIVE[kind]()
    table = tokenizer.token_bytes()
    assert len(table) == tokenizer.vocabulary_size
    assert b"".join(table[index] for index in tokenizer.encode(TEXT)).decode() == TEXT
    assert table[tokenizer.end_id] == b"</s>"


def test_byte_level_tokens_of_hugging_face():
    source = BytePair.train([TEXT] * 3, 320)
    tokenizer = HuggingFaceTokenizer(source._files()["tokenizer.json"].decode(), source.special_tokens)
    assert tokenizer.token_bytes() == source.token_bytes()
    # A token of a part of a character has no text of its own.
    assert b"\xc5" in tokenizer.token_bytes()


def test_the_first_space_is_part_of_a_token():
    tokenizer = SentencePiece.train([TEXT] * 30, 330)
    ids = tokenizer.encode("The cat")
    assert b"".join(tokenizer.token_bytes()[index] for index in ids) == b" The cat"
    words = WordPiece(["[UNK]", "the", "cat", "##s"], special_tokens={"unknown": "[UNK]"})
    assert words.token_bytes()[1:] == [b" the", b" cat", b"s"]


REPLACE = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
BYTES = {"type": "ByteFallback"}


@pytest.mark.parametrize(
    "model, decoder, expected",
    [
        (
            bpe("\u2581a", "b", "<0xC5>", "<0xZZ>"),
            {"type": "Sequence", "decoders": [REPLACE, BYTES, {"type": "Fuse"}]},
            [b" a", b"b", b"\xc5", b"<0xZZ>"],
        ),
        (
            bpe("\u2581a", "<0xC5>"),
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
            [b" a", b"<0xC5>"],
        ),
        (
            bpe("cat", "##s"),
            {"type": "WordPiece", "prefix": "##", "cleanup": False},
            [b" cat", b"s"],
        ),
        (bpe("ca", "t</w>"), {"type": "BPEDecoder", "suffix": "</w>"}, [b"ca", b"t "]),
        (
            bpe("\u0120ca", "t</w>", end_of_word_suffix="</w>"),
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            [b" ca", b"t "],
        ),
    ],
    ids=["fallback", "metaspace", "wordpiece", "bpe", "clip"],
)
def test_decoders(model, decoder, expected):
    assert bytes_of(model, decoder) == expected


def test_an_unknown_decoder_is_named():
    with pytest.raises(TextError, match="CTC"):
        bytes_of(bpe("a"), {"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": True})
