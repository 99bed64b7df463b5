"""WordPiece against BERT's algorithm, written down here from its definition."""

import unicodedata

import pytest

from keras_transformer.text import InvalidTokenizerError, SpecialTokenError, TextError, WordPiece

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "un",
    "##aff",
    "##able",
    "a",
    "##b",
    "你",
    ",",
    "cafe",
    "Cafe",
]


def reference_words(text, lowercase):
    """BERT's basic tokenization, one character at a time."""
    if lowercase:
        decomposed = unicodedata.normalize("NFD", text)
        text = "".join(c.lower() for c in decomposed if unicodedata.category(c) != "Mn")
    spaced = ""
    for character in text:
        category = unicodedata.category(character)
        code = ord(character)
        if character in " \t\n\r" or category == "Zs":
            spaced += " "
        elif code in (0, 0xFFFD) or category in ("Cc", "Cf"):
            continue
        elif 0x4E00 <= code <= 0x9FFF or category[0] == "P" or (code < 128 and not character.isalnum()):
            spaced += f" {character} "
        else:
            spaced += character
    return spaced.split()


def reference_pieces(word, vocabulary):
    """The longest piece that fits, again and again; [UNK] if none does, or for more than 100 characters."""
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        fits = [stop for stop in range(len(word), start, -1) if prefix + word[start:stop] in vocabulary]
        if not fits or len(word) > 100:
            return ["[UNK]"]
        pieces.append(prefix + word[start : fits[0]])
        start = fits[0]
    return pieces


@pytest.mark.parametrize("name", ["wordpiece", "wordpiece cased"])
def test_is_berts_algorithm(made, name):
    tokenizer = made(name)
    texts = [
        "The quick, BROWN fox's cat-like 'naïve' Ångström!!",
        "Straße\tStraßen\u00a0Zwei\u3000Café \u200b\u00adlow\x00er\x1fest",
        "我们 你好abc你low。newest…",
        "ÉÈ\u0301e\u0301 İI ΣΑΣ ﬁ ½ ２ $5 <a|b> ~^`=+ ©®",
        "",
        " \n ",
        "a" * 100,
        "a" * 101,
    ]
    for text in texts:
        expected = []
        for word in reference_words(text, tokenizer.lowercase):
            expected += reference_pieces(word, set(tokenizer.vocabulary))
        assert [tokenizer.id_to_token(index) for index in tokenizer.encode(text)] == expected


def test_hand_computed():
    tokenizer = WordPiece(VOCABULARY)
    assert tokenizer.encode("Unaffable, CAFÉ") == [5, 6, 7, 11, 12]
    assert tokenizer.encode("你a你ab x") == [10, 8, 10, 8, 9, 1]
    assert tokenizer.encode_with_offsets("  ÜNAFF, é你") == (
        [5, 6, 11, 1, 10],
        [(2, 4), (4, 7), (7, 8), (9, 10), (10, 11)],
    )
    assert WordPiece(VOCABULARY, lowercase=False).encode("Cafe cafe CAFE café") == [13, 12, 1, 1]
    assert tokenizer.decode([2, 5, 6, 7, 11, 8, 9, 3, 0]) == "unaffable , ab"
    assert tokenizer.decode([2, 5, 3], skip_special_tokens=False) == "[CLS] un [SEP]"


def test_trained_on_frequent_pairs():
    tokenizer = WordPiece.train(["hugging hugs hug " * 5], 40, special_tokens={"unknown": "[UNK]", "mask": "<m>"})
    assert tokenizer.special_tokens == {"unknown": "[UNK]", "mask": "<m>"}
    assert (tokenizer.unknown_id, tokenizer.mask_id, tokenizer.pad_id) == (0, 1, None)
    assert [tokenizer.id_to_token(index) for index in tokenizer.encode("Hug hugs")][0] == "hug"
    assert tokenizer.vocabulary_size <= 40
    # More characters than the vocabulary holds: the most frequent are kept.
    small = WordPiece.train(["aaaa bbb cc d"], 9, min_frequency=1)
    assert small.vocabulary_size == 9
    assert small.unknown_id not in small.encode("a b")
    assert small.encode("d") == [small.unknown_id]


def test_vocabulary_file(tmp_path):
    path = tmp_path / "vocab.txt"
    # Line ends of Windows, and a token that str.splitlines would break.
    path.write_bytes("[PAD]\r\n[UNK]\r\n[unused1]\r\na\u2028\r\na\r\n".encode())
    tokenizer = WordPiece.from_file(path)
    assert tokenizer.vocabulary == ["[PAD]", "[UNK]", "[unused1]", "a\u2028", "a"]
    assert tokenizer.special_tokens == {"pad": "[PAD]", "unknown": "[UNK]"}
    assert tokenizer.encode("a") == [4]
    tokenizer.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "vocab.txt").read_text(encoding="utf-8") == "[PAD]\n[UNK]\n[unused1]\na\u2028\na\n"


def test_errors(tmp_path):
    with pytest.raises(InvalidTokenizerError, match="contains 'a' twice"):
        WordPiece(["[UNK]", "a", "b", "a"])
    with pytest.raises(InvalidTokenizerError, match="needs an unknown token"):
        WordPiece(["a", "b"])
    with pytest.raises(SpecialTokenError, match=r"'\[X\]' is not in the vocabulary"):
        WordPiece(["[UNK]", "a"], special_tokens={"unknown": "[UNK]", "pad": "[X]"})
    with pytest.raises(SpecialTokenError, match="'pad' is a word that may occur"):
        WordPiece(["[UNK]", "pad"], special_tokens={"unknown": "[UNK]", "pad": "pad"})
    with pytest.raises(TextError, match="vocabulary_size must be an int of at least 7"):
        WordPiece.train(["a"], 5)
    with pytest.raises(SpecialTokenError, match="WordPiece needs an unknown token"):
        WordPiece.train(["a"], 50, special_tokens={"pad": "[PAD]"})
    (tmp_path / "bad.txt").write_bytes(b"[UNK]\n\xff\n")
    with pytest.raises(InvalidTokenizerError, match=r"bad.txt' is not UTF-8: byte 6"):
        WordPiece.from_file(tmp_path / "bad.txt")
    with pytest.raises(InvalidTokenizerError, match="nowhere.txt' cannot be read: No such file"):
        WordPiece.from_file(tmp_path / "nowhere.txt")
