"""Tokenizer files that would hang, fill the memory, or end the process: refused when they are loaded, before any text."""

import base64
import json
import struct
import time

import pytest

from keras_transformer.text import (
    BytePair,
    HuggingFaceTokenizer,
    InvalidTokenizerError,
    SentencePiece,
    TextError,
    TokenizerLibraryError,
    from_huggingface,
    load_tokenizer,
)
from keras_transformer.text.charsmap import check_charsmap
from keras_transformer.text.hugging_face import formats
from keras_transformer.text.hugging_face.regular_expressions import fewest_characters
from keras_transformer.text.tokenizers.sentencepiece_model import read_charsmap


@pytest.fixture(scope="module")
def content():
    return json.loads(BytePair.train(["the cat sat on the mat"], 270)._files()["tokenizer.json"].decode())


def replace(pattern, text, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": text}


def sequence(name, *parts):
    return {"type": "Sequence", name: list(parts)}


def charsmap(data):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def template(*texts, name="single"):
    pieces = [{"Sequence": {"id": text, "type_id": 0}} for text in texts]
    whole = {"single": [{"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}}
    return {"type": "TemplateProcessing", **whole, name: pieces}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}
NESTED = {"type": "NFC"}
for _ in range(100):
    NESTED = sequence("normalizers", NESTED)

ATTACKS = {
    "24 normalizers that double": (
        {"normalizer": sequence("normalizers", *[replace("a", "aa")] * 24)},
        r"normalizer and pre_tokenizer may make a text 3\.36e\+07 times longer",
    ),
    "expressions that match nothing": (
        {"normalizer": sequence("normalizers", *[replace("(?=a)", "a", "Regex")] * 24)},
        "times longer",
    ),
    "24 levels of bytes": (
        {"pre_tokenizer": sequence("pretokenizers", *[BYTES] * 24)},
        "times longer",
    ),
    "decoders that double": ({"decoder": sequence("decoders", *[replace("a", "aa")] * 24)}, "The decoder may make"),
    "a prefix of 20 MB": ({"normalizer": {"type": "Prepend", "prepend": "a" * 20_000_000}}, "has 20000000 characters"),
    "a word prefix of 20 MB": (
        {"model": {"type": "WordPiece", "vocab": {"a": 0}, "continuing_subword_prefix": "#" * 20_000_000}},
        "'continuing_subword_prefix' has 20000000 characters",
    ),
    "words without end": (
        {"model": {"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10**9}},
        "'max_input_chars_per_word' is 1e",
    ),
    "exponential time": (
        {"pre_tokenizer": {**SPLIT, "pattern": {"Regex": "(a+)+$"}}},
        "repeats a group with repetitions",
    ),
    "an ambiguous choice": (
        {"normalizer": replace("(?:a|a)*b", "", "Regex")},
        "repeats a group with repetitions or alternatives",
    ),
    "deep nesting": ({"normalizer": NESTED}, "is too deep"),
    "many parts": ({"normalizer": sequence("normalizers", *[{"type": "NFC"}] * 1000)}, "more than 64 parts"),
    "an unknown part": ({"pre_tokenizer": {"type": "Shell"}}, "unknown type 'Shell'"),
    "a text twice": ({"post_processor": template("A", "A")}, "contains a text twice"),
    "a text twice in pairs": ({"post_processor": template("A", "B", "A", name="pair")}, "contains a text twice"),
    "a short map": ({"normalizer": charsmap(b"\xff\xff\xff\x7f")}, "character map is invalid"),
    "an empty trie": ({"normalizer": charsmap(bytes(4))}, "character map is invalid"),
    "no base64": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "@"}}, "character map is invalid"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_is_refused_when_it_is_loaded(name, content, tmp_path):
    changes, message = ATTACKS[name]
    text = json.dumps({**content, **changes})
    (tmp_path / "tokenizer.json").write_text(text)
    start = time.monotonic()
    for load in (lambda: HuggingFaceTokenizer(text), lambda: from_huggingface(tmp_path)):
        with pytest.raises(InvalidTokenizerError, match=message) as raised:
            load()
        assert len(str(raised.value)) < 500
    if "model" not in changes and "pre_tokenizer" not in changes:
        with pytest.raises(InvalidTokenizerError, match=message):
            BytePair(text)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    "pattern, expected",
    [
        (r"\s+(?!\S)|\s+", 1),
        (r" ?[^(\s|[.,!?])]+", 1),
        (r"(?i:'s|'t|'re)?x{3,}", 3),
        (r"(\d{3})+(?=\b)", 3),
        (r"[^\r\n\p{L}\p{N}]?\p{L}*", 0),
        ("a{2}|b", 1),
        ("{a}", 3),
        ("(?<name>a)(?#comment+)b", 2),
        (r"[]a]\]", 2),
        ("(?=a)", 0),
        ("", 0),
    ],
)
def test_the_fewest_characters_of_an_expression(pattern, expected):
    assert fewest_characters(pattern) == expected


@pytest.mark.parametrize(
    "pattern", ["(a*)*", "(?:a?b){2,}", "((a+))+", "(?>x|y)*", r"(a)\1", "a++*", "(", "[a", "a)", "(" * 99, "a" * 5000]
)
def test_an_expression_that_is_refused(pattern):
    with pytest.raises(InvalidTokenizerError, match="regular expression"):
        fewest_characters(pattern)


@pytest.fixture(scope="module")
def model():
    return SentencePiece.train(["the cat sat on the mat"] * 9, 300, normalization="nmt_nfkc")._model


def test_the_map_of_unicode_is_accepted_and_every_offset_is_checked(model, content):
    data = read_charsmap(model)
    assert check_charsmap(data) == 18
    size = struct.unpack_from("<I", data)[0]
    outside = bytearray(data)
    struct.pack_into("<I", outside, 4, 0x7FFFFFFF)  # The root.
    values = [at for at in range(4, 4 + size, 4) if data[at + 3] & 0x80]
    changed = bytearray(data)
    for damaged in (outside, data[:-1], data[: 4 + size], data[:4] + data[1028:]):
        with pytest.raises(InvalidTokenizerError, match="character map is invalid"):
            HuggingFaceTokenizer(json.dumps({**content, "normalizer": charsmap(bytes(damaged))}))
    for at in values:
        struct.pack_into("<I", changed, at, 0xFFFFFFFF)
    with pytest.raises(InvalidTokenizerError, match="a replacement is outside"):
        check_charsmap(bytes(changed))


def test_a_sentencepiece_model_with_a_short_map_is_refused(model):
    # A second specification of the normalizer, whose map replaces the first.
    hostile = model + b"\x1a\x06\x12\x04" + b"\xff\xff\xff\x7f"
    with pytest.raises(InvalidTokenizerError, match="character map is invalid"):
        SentencePiece(hostile)


def test_a_sentencepiece_model_with_an_endless_piece_is_refused(model, tmp_path):
    # Its merges would be all ways to split the piece.
    piece = b"a" * 1_000_000
    (tmp_path / "tokenizer.model").write_bytes(model + b"\x0a\xc4\x84\x3d\x0a\xc0\x84\x3d" + piece)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InvalidTokenizerError, match="longer than 1000"):
        from_huggingface(tmp_path)


class PanicException(BaseException):
    """As the panics of libraries in Rust, whose class cannot be imported."""


def test_a_panic_is_a_typed_error(content, monkeypatch):
    tokenizer = HuggingFaceTokenizer(json.dumps(content))

    class Panics:
        def __getattr__(self, name):
            raise PanicException("index out of bounds")

    monkeypatch.setattr(tokenizer, "_tokenizer", Panics())
    monkeypatch.setattr(tokenizer._decoder, "_tokenizer", Panics())
    for call in (
        lambda: tokenizer.encode("a"),
        lambda: tokenizer.encode(["a", "b"]),
        lambda: tokenizer.encode_with_offsets("a"),
        lambda: tokenizer.encode_pair("a", "b"),
        lambda: tokenizer.decode([5]),
    ):
        with pytest.raises(TokenizerLibraryError, match="tokenizers library failed: index out of bounds"):
            call()


def test_other_errors_pass():
    for error in (KeyboardInterrupt, SystemExit, MemoryError, ZeroDivisionError):
        with pytest.raises(error), formats.library_calls():
            raise error


def test_a_text_that_the_library_cannot_encode_is_a_typed_error(content):
    words = {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "[UNK]", "max_input_chars_per_word": 100}
    words["continuing_subword_prefix"] = "##"
    tokenizer = HuggingFaceTokenizer(json.dumps({**content, "model": words, "added_tokens": []}))
    with pytest.raises(TokenizerLibraryError, match="UNK"):
        tokenizer.encode("b")


def test_a_config_that_is_nested_without_end_is_refused(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)
    with pytest.raises(TextError, match="is not JSON"):
        load_tokenizer(tmp_path)
