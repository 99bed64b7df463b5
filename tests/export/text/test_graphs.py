"""Tokenizers as graphs, against the tokenizers in Python, whose ids are those of Hugging Face."""

import base64
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tokenizers
from variants import exhaustive_but

from keras_transformer.export import InvalidModelError
from keras_transformer.export.bundle.tokenizers import text_rows
from keras_transformer.export.text.detokenize import DetokenizeGraph
from keras_transformer.export.text.files.probe_texts import PROBE_TEXTS
from keras_transformer.export.text.files.spec import padded_ids
from keras_transformer.export.text.graph import TokenizeGraph
from keras_transformer.export.text.normalization.charsmap import read_rules
from keras_transformer.export.text.normalization.composition import Composition
from keras_transformer.export.text.normalization.replacement import ClusterReplacement, Replacement
from keras_transformer.export.text.normalization.utf8 import repaired
from keras_transformer.text import (
    BytePair,
    Bytes,
    Characters,
    HuggingFaceTokenizer,
    SentencePiece,
    WordPiece,
    from_huggingface,
)
from keras_transformer.text.tokenizers.sentencepiece_model import read_charsmap

DATA = Path(__file__).parents[2] / "data" / "tokenizers"
WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", ",", "a", "##a", "e", "##e", "\u4f60"),
    *("##", "#", "the", "cat", "##s", "\u1715", "\u302e", "##\u302e", "##\u1715", "i", "\u03c3", "##\u03c3", "'", "s"),
    *("ss", "\u00df", "E"),
]
# Spaces, contractions, digits, line ends and combining marks, in any order.
PARTS = [
    *(
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "'s",
        "'LL",
        "'\u017f",
        "12",
        "345",
        "\u0663",
        "a",
        "Ab",
        "\u00e9",
        "e\u0301",
        ".",
    ),
    *("!?", "\u302e\u1715", "\u1715", "\u0345", "\u0301", "\u4f60", "\u3000", "<think>", "</think>", "<th"),
    *("<|endoftext|>", "\u2581", "\x00", "\U0001f600", "\u1112", "\u1161", "\u11ab", "\u2126", "\u0cc6", "\u0cc2"),
]
CORPUS = [
    "the cat sat on the mat, don't the cats sit? I'LL AbAbAb",
    "......!!!! 1111 345 345 12 na\u00efve \u00fcber \u4f60\u4f60 \u1112\u1161\u11ab",
    "a man in a blue shirt is standing on a ladder, cleaning a window",
] * 20
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def changed(name, **parts):
    """The tokenizer of a folder with other parts."""
    content = json.loads((DATA / name / "tokenizer.json").read_text())
    content["model"] |= parts.pop("model", {})
    return HuggingFaceTokenizer(json.dumps(content | parts))


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def llama3():
    """Words that are tokens are not merged, of which the merges would make "\u0120cat" only."""
    content = json.loads((DATA / "gpt2" / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    new = {token: len(vocabulary) + number for number, token in enumerate(["!?\u010a", "\u0120Ab", "345"])}
    model = {"vocab": vocabulary | new, "ignore_merges": True}
    return changed("gpt2", model=model, pre_tokenizer=sequence(split(LLAMA3), BYTE_LEVEL))


def thinking():
    """Added tokens that are found in texts."""
    content = json.loads((DATA / "gpt2" / "tokenizer.json").read_text())
    size = len(content["model"]["vocab"])
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    added = [{"id": size, "content": "<think>", **plain}, {"id": size + 1, "content": "</think>", **plain}]
    added += [{"id": size + 2, "content": "<think></think>", **plain}]
    words = split(LLAMA3.replace("{1,3}", ""))
    parts = {"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence(words, BYTE_LEVEL)}
    return changed("gpt2", added_tokens=content["added_tokens"] + added, **parts)


def prefixed():
    return changed("gpt2", pre_tokenizer={**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True})


def digits():
    apart = {"type": "Digits", "individual_digits": True}
    return changed("gpt2", pre_tokenizer=sequence(apart, {**BYTE_LEVEL, "use_regex": True}))


def prepending():
    """The older form of Llama 2: a space before every text."""
    parts = [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    ]
    return changed("llama", normalizer={"type": "Sequence", "normalizers": parts}, pre_tokenizer=None)


def unigram(**options):
    return SentencePiece.train(CORPUS, 340, **options)


def unrounded(**options):
    """A unigram model with the scores and the options of the library itself."""
    options = {"vocab_size": 130, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1} | options
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=writer, **options)
    return SentencePiece(writer.getvalue())


def nmt_nfkc():
    """The normalization of T5 and XLM-R, as a `tokenizer.json` has it."""
    return base64.b64encode(read_charsmap(unigram()._model)).decode()


METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
LOWERCASE_BLANKS = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "},
        {"type": "NFC"},
        {"type": "Strip", "strip_left": False, "strip_right": True},
    ],
}
MAKERS = {
    "wordpiece": lambda: WordPiece(WORDS),
    "wordpiece cased": lambda: WordPiece(WORDS, lowercase=False),
    "byte_pair": lambda: BytePair.train(["the cat sat on the mat, don't the cats sit? 345 345 345"] * 3, 300),
    "bytes": Bytes,
    "bert": lambda: from_huggingface(DATA / "bert"),
    "gpt2": lambda: from_huggingface(DATA / "gpt2"),
    "roberta": lambda: from_huggingface(DATA / "roberta"),
    "llama": lambda: from_huggingface(DATA / "llama"),
    "gemma": lambda: from_huggingface(DATA / "gemma"),
    "qwen2": lambda: from_huggingface(DATA / "qwen2"),
    "llama 3": llama3,
    "thinking": thinking,
    "prefixed": prefixed,
    "digits": digits,
    "prepending": prepending,
    "t5": lambda: from_huggingface(DATA / "t5"),
    "albert": lambda: from_huggingface(DATA / "albert"),
    "xlnet": lambda: from_huggingface(DATA / "xlnet"),
    "deberta": lambda: from_huggingface(DATA / "deberta_v2"),
    "deberta without punctuation": lambda: changed("deberta_v2", pre_tokenizer=METASPACE, normalizer=LOWERCASE_BLANKS),
    "t5 normalized": lambda: changed("t5", normalizer={"type": "Precompiled", "precompiled_charsmap": nmt_nfkc()}),
    "unigram": unigram,
    "unigram lossless": lambda: unigram(lossless=True),
    "unigram without bytes": lambda: unigram(byte_fallback=False, normalization="nmt_nfkc_cf"),
    "unigram unrounded": lambda: unrounded(user_defined_symbols=["<sep>", "\u00e9", "'LL", "a Ab", "(", "\ufb01"]),
    "bpe of sentencepiece": lambda: unigram(model_type="bpe"),
    "bpe lossless": lambda: unigram(model_type="bpe", lossless=True),
    "unigram identity": lambda: unrounded(
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        user_defined_symbols=["'s"],
    ),
}


@pytest.fixture(scope="module")
def made():
    known = {}

    def make(name):
        if name not in known:
            known[name] = MAKERS[name]()
        return known[name]

    return make


@pytest.fixture(scope="module")
def texts():
    generator = random.Random(3)
    mixed = ["".join(generator.choices(PARTS, k=generator.randrange(1, 25))) for _ in range(120)]
    return [*PROBE_TEXTS[:60], *mixed, "a" * 100, "a" * 101, "a 345 b!?\nx Ab y <think>z</think>"]


def encoded(graph, texts):
    tensors = {name: tf.constant(array) for name, array in text_rows(texts).items()}
    outputs = {name: np.asarray(value) for name, value in graph(tensors).items()}
    return outputs["token_ids"], outputs["padding_mask"]


@pytest.mark.parametrize(
    "name",
    exhaustive_but(
        MAKERS,
        "wordpiece",
        "bytes",
        "gpt2",
        "llama",
        "deberta",
        "t5 normalized",
        "unigram unrounded",
        "bpe of sentencepiece",
    ),
)
def test_ids_are_those_of_the_tokenizer(made, texts, name):
    tokenizer = made(name)
    ids, mask = encoded(TokenizeGraph(tokenizer, {}), texts)
    expected = tokenizer.encode(texts)
    found = [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]
    assert [pair for pair in zip(texts, found, expected, strict=True) if pair[1] != pair[2]] == []
    assert len({index for row in expected for index in row}) > 10


LONG = ["\U0001f600" * 7000 + " the cats", "......" * 900 + "1111" * 900, "the cat sat. " * 400 + "<sep>" * 9, "a"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", exhaustive_but(["unigram", "unigram unrounded"], "unigram unrounded"))
def test_sums_of_scores_are_those_of_the_library(made, name):
    """Of texts so long that sums are rounded, and that the library starts them again, at 1e5."""
    tokenizer = made(name)
    ids, mask = encoded(tf.function(TokenizeGraph(tokenizer, {})), LONG)
    assert [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)] == tokenizer.encode(LONG)


def test_spaces_and_marks_of_unigram_models():
    """A mark in a text is a space, but is removed only at the end of a text."""
    tokenizer = unrounded(normalization_rule_name="identity")
    texts = ["a", " a ", "a\u2581", "a \u2581", "\u2581a", "a  a", "a \u2581a", "", "  ", "\u2581"]
    rows = dict(zip(texts, tokenizer.encode(texts), strict=True))
    assert rows["a"] == rows[" a "] == rows["a\u2581"] == rows["a \u2581"] != rows["\u2581a"]
    assert rows["a  a"] != rows["a \u2581a"]
    assert rows[""] == rows["  "] == rows["\u2581"] == []
    ids, mask = encoded(TokenizeGraph(tokenizer, {}), texts)
    assert [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)] == list(rows.values())


def texts_of_rules(rules):
    """Texts of rules and of their starts, in which several rules apply, with other marks, prefixes and line ends."""
    generator = random.Random(6)
    later = [
        *sorted({character for _, character in rules.edges}),
        *("\u0301", "\u200d", "\u0903", "\r\n", "\u0600") * 8,
    ]
    starts = [*generator.choices(sorted(rules.first), k=400), *"aeo\u0627\u1112" * 20]
    parts = [
        generator.choice(starts) + "".join(generator.choices(later, k=generator.randrange(4))) for _ in range(9000)
    ]
    return ["".join(generator.choices(parts, k=generator.randrange(1, 6))) for _ in range(2000)]


def replaced(replace, texts):
    codes = tf.constant([ord(each) for text in texts for each in text])
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    found, item = (np.asarray(each) for each in replace(codes, tf.constant(np.diff(rows, prepend=-1) > 0)))
    made = [""] * len(texts)
    for row, code in zip(rows[item], found, strict=True):
        made[row] += chr(code)
    return made


def test_normalization_is_that_of_sentencepiece():
    tokenizer = unrounded(normalization_rule_name="nmt_nfkc", add_dummy_prefix=False, remove_extra_whitespaces=False)
    rules = read_rules(read_charsmap(tokenizer._model))
    texts, replace = texts_of_rules(rules), Replacement(rules)
    found = replaced(lambda codes, first: replace(codes, first, tf.zeros_like(first)), texts)
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._model)
    expected = [library.normalize(text) for text in texts]
    assert [pair for pair in zip(found, expected, strict=True) if pair[0].replace(" ", "\u2581") != pair[1]] == []
    assert sum(one != two for one, two in zip(texts, expected, strict=True)) > 1500


def test_normalization_of_clusters_is_that_of_tokenizers():
    charsmap = read_charsmap(unigram()._model)
    rules = read_rules(charsmap)
    texts = texts_of_rules(rules)
    normalize = tokenizers.normalizers.Precompiled(charsmap).normalize_str
    expected = [normalize(text) for text in texts]
    found = replaced(ClusterReplacement(rules), texts)
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []
    # They would be other texts without clusters.
    replace = Replacement(rules)
    assert replaced(lambda codes, first: replace(codes, first, tf.zeros_like(first)), texts) != expected


def test_whole_words_and_added_tokens_are_in_the_texts(made, texts):
    """The cases above would pass without them if no text had any."""
    own = made("llama 3"), ["!?\u010a", "\u0120Ab", "345"]
    added = made("thinking"), ["<think>", "</think>"]
    for tokenizer, tokens in (own, added):
        found = {index for row in tokenizer.encode(texts) for index in row}
        assert found.issuperset(tokenizer.token_to_id(token) for token in tokens)


@pytest.mark.parametrize("options", [{"start": True, "end": True}, {"max_length": 4}, {"start": True, "max_length": 3}])
@pytest.mark.parametrize("name", ["bert", "gemma"])
def test_template_truncation_and_padding(made, name, options):
    tokenizer = made(name)  # That of Gemma pads on the left.
    assert tokenizer.padding_side == {"bert": "right", "gemma": "left"}[name]
    options = {key: value for key, value in options.items() if key != "end" or name == "bert"}
    texts = ["a", "", "the cats and the dogs", "a a"]
    ids, mask = encoded(TokenizeGraph(tokenizer, options), texts)
    expected = tokenizer(texts, **options)
    np.testing.assert_array_equal(ids, expected["token_ids"])
    np.testing.assert_array_equal(mask, expected["padding_mask"])


def test_truncation_on_the_left(made):
    llama = made("llama")
    content = json.dumps(llama.content)
    tokenizer = HuggingFaceTokenizer(content, llama.special_tokens, truncation_side="left")
    ids, mask = encoded(TokenizeGraph(tokenizer, {"max_length": 3}), ["the cats and the dogs"])
    assert ids[0][mask[0]].tolist() == tokenizer.encode("the cats and the dogs")[-3:]


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "albert"])  # Its texts are cleaned up.
def test_texts_are_those_of_the_tokenizer(made, name):
    tokenizer, random_ids = made(name), np.random.default_rng(1)
    lengths = random_ids.integers(0, 30, 60)
    rows = [random_ids.integers(0, tokenizer.vocabulary_size, length).tolist() for length in lengths]
    arrays = {key: tf.constant(value) for key, value in padded_ids(rows, tokenizer).items()}
    found = {key: np.asarray(value) for key, value in DetokenizeGraph(tokenizer)(arrays).items()}
    texts = [row[:size].tobytes() for row, size in zip(found["bytes"], found["lengths"], strict=True)]
    assert texts == [tokenizer.decode(row).encode() for row in rows]


def test_composition_is_that_of_the_library():
    """Of marks in any order, Hangul, vowel signs that are no marks, and characters that stay decomposed."""
    codes = [
        *(
            0x41,
            0x65,
            0x301,
            0x302,
            0x323,
            0x327,
            0x308,
            0x345,
            0x344,
            0x3B1,
            0x313,
            0xE9,
            0x1E69,
            0x1112,
            0x1161,
            0x11AB,
        ),
        *(
            0xD55C,
            0xD558,
            0xCC6,
            0xCC2,
            0xCD5,
            0x9C7,
            0x9BE,
            0x9D7,
            0x1B35,
            0x1B05,
            0x958,
            0x2126,
            0xFB1D,
            0x2ADC,
            0x1D15E,
        ),
    ]
    generator = random.Random(5)
    texts = ["".join(map(chr, generator.choices(codes, k=generator.randrange(1, 9)))) for _ in range(3000)]
    values = tf.constant([ord(each) for text in texts for each in text])
    rows = tf.constant(np.repeat(np.arange(len(texts), dtype="int32"), [len(text) for text in texts]))
    first = tf.concat([[True], rows[1:] != rows[:-1]], 0)
    found, rows, _, first = Composition()(values, rows, tf.fill(tf.shape(values), -1), first)
    assert np.asarray(first).sum() == len(texts)
    parts = np.split(np.asarray(found), np.flatnonzero(np.asarray(first))[1:])
    normalize = tokenizers.normalizers.NFC().normalize_str
    wrong = [pair for pair in zip(texts, parts, strict=True) if "".join(map(chr, pair[1])) != normalize(pair[0])]
    assert wrong == []


def test_bytes_that_are_no_utf8_are_replaced_as_python_does():
    generator = random.Random(4)
    choices = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c1 c2 df e0 e2 ed ef f0 f1 f4 f5 ff")
    contents = [bytes(generator.choices(choices, k=generator.randrange(1, 12))) for _ in range(2000)]
    values = np.frombuffer(b"".join(contents), "uint8").astype("int32")
    units = np.repeat(np.arange(len(contents), dtype="int32"), [len(each) for each in contents])
    found, items = (np.asarray(each) for each in repaired(tf.constant(values), tf.constant(units)))
    texts = [bytes(found[units[items] == number].astype("uint8").tolist()) for number in range(len(contents))]
    assert texts == [each.decode("utf-8", "replace").encode() for each in contents]


@pytest.mark.parametrize(
    "tokenizer, message",
    [
        (lambda: changed("gpt2", normalizer={"type": "NFKC"}), "the normalizers NFKC"),
        (lambda: from_huggingface(DATA / "bloom"), "the pre-tokenizer Split with the pattern"),
        (lambda: from_huggingface(DATA / "clip"), "end_of_word_suffix='</w>'"),
        (lambda: changed("t5", normalizer={"type": "NFKD"}), "Unigram with the normalizers NFKD"),
        (
            lambda: changed("t5", pre_tokenizer={"type": "WhitespaceSplit"}),
            "Unigram with the pre-tokenizers Whitespace",
        ),
        (
            lambda: changed("deberta_v2", normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
            "Unigram with the normalizers Strip",
        ),
        (lambda: changed("t5", model={"byte_fallback": True}), "Unigram of a tokenizer.json with byte fallback"),
        (lambda: Characters.train(["abc"]), "the kind 'characters'"),
        (lambda: unrounded(model_type="char"), "a SentencePiece model of the type char"),
        (
            lambda: unrounded(model_type="bpe", user_defined_symbols=["<sep>"]),
            "the user-defined or unused piece '<sep>'",
        ),
        (lambda: unrounded(treat_whitespace_as_suffix=True), "spaces after words"),
        (
            lambda: changed("gpt2", pre_tokenizer=sequence(split(LLAMA3, "MergedWithNext"), BYTE_LEVEL)),
            "the pre-tokenizer Split",
        ),
    ],
)
def test_other_tokenizers_are_refused_by_the_part_that_is_missing(tokenizer, message):
    with pytest.raises(InvalidModelError, match=message.replace("(", r"\(")):
        TokenizeGraph(tokenizer(), {})
