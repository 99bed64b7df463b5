"""What every kind of tokenizer must do alike."""

import pickle

import numpy as np
import pytest

from keras_transformer.text import (
    TOKENIZERS,
    Bytes,
    Characters,
    EncodingError,
    SpecialTokenError,
    TextError,
    WordPiece,
    load_tokenizer,
)

SENTENCES = ["The cat sat.", "Männer  im Café", "你好 x", "low"]


def test_every_kind_is_tested(made):
    assert {made(name).kind for name in made.names} == set(TOKENIZERS)
    assert all(kind == cls.kind for kind, cls in TOKENIZERS.items())


def test_round_trip_is_exact(lossless, texts_of_all_kinds):
    assert lossless.lossless
    assert lossless.decode(lossless.encode(texts_of_all_kinds)) == texts_of_all_kinds


def test_lossy_kinds_say_so(made):
    for name in ("wordpiece", "wordpiece cased", "unigram", "bpe", "unigram without bytes", "characters"):
        tokenizer = made(name)
        assert not tokenizer.lossless
        assert tokenizer.decode(tokenizer.encode("  a\n\u0416 ")) != "  a\n\u0416 "


def test_offsets_tile_the_text(lossless, texts_of_all_kinds):
    for text in texts_of_all_kinds:
        ids, offsets = lossless.encode_with_offsets(text)
        assert ids == lossless.encode(text)
        position = 0
        for begin, stop in offsets:
            # A token goes on where the last one ended, or shares its characters.
            assert begin <= position <= stop
            assert stop > begin
            position = stop
        assert position == len(text)


def test_offsets_name_the_token(tokenizer):
    text = "The cat  sat: Nähe"
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    for index, (begin, stop) in zip(ids, offsets, strict=True):
        spelled = tokenizer.decode([index]).strip()
        if spelled and "\ufffd" not in spelled:
            assert text[begin:stop].strip().lower().replace("ä", "a") == spelled.lower().replace("ä", "a")


def test_batch_is_each_text_alone(tokenizer, texts_of_all_kinds):
    batch = texts_of_all_kinds[:40]
    ids, offsets = tokenizer.encode_with_offsets(batch)
    assert tokenizer.encode(batch) == ids
    for text, row, spans in zip(batch, ids, offsets, strict=True):
        assert tokenizer.encode(text) == row
        assert tokenizer.encode_with_offsets(text) == (row, spans)
    assert tokenizer.encode([]) == []


def test_ids_and_tokens_are_one_to_one(tokenizer):
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.vocabulary_size)]
    assert [tokenizer.token_to_id(token) for token in tokens] == list(range(tokenizer.vocabulary_size))
    assert tokenizer.token_to_id("no such token") is None
    for index in (-1, tokenizer.vocabulary_size, 1.5, "a"):
        with pytest.raises(TextError, match=f"0 to {tokenizer.vocabulary_size - 1}. Received: "):
            tokenizer.id_to_token(index)
        with pytest.raises(TextError):
            tokenizer.decode([index])


def test_special_tokens_come_first_and_have_their_roles(made):
    word, plain, without = made("wordpiece"), made("unigram"), made("byte_pair")
    roles = ("pad_id", "unknown_id", "classification_id", "start_id", "end_id", "separator_id", "mask_id")
    assert [getattr(word, role) for role in roles] == [0, 1, 2, None, None, 3, 4]
    assert [getattr(plain, role) for role in roles] == [0, 1, None, 2, 3, None, 4]
    assert [getattr(without, role) for role in roles] == [0, None, None, 1, 2, None, 3]
    assert [word.id_to_token(index) for index in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_name_of_a_special_token_is_text(tokenizer):
    names = [tokenizer.id_to_token(index) for index in sorted(tokenizer.special_ids)]
    text = "a" + "b ".join(names) + "c"
    assert not (tokenizer.special_ids - {tokenizer.unknown_id}) & set(tokenizer.encode(text))


def test_special_tokens_in_text_when_asked(tokenizer):
    mask = tokenizer.id_to_token(tokenizer.mask_id)
    ids = tokenizer.encode(f"the {mask} sat{mask}", allow_special_tokens=True)
    assert ids.count(tokenizer.mask_id) == 2
    assert ids[-1] == tokenizer.mask_id
    first = tokenizer.encode("the ")
    assert ids[: len(first)] == first
    assert tokenizer.encode("the sat", allow_special_tokens=True) == tokenizer.encode("the sat")


def test_start_end_and_truncation(tokenizer):
    ids = tokenizer.encode("the cat sat")
    framed = tokenizer.encode("the cat sat", start=True, end=True)
    opening, closing = tokenizer.opening_id(), tokenizer.closing_id()
    assert framed == [opening, *ids, closing]
    assert opening != closing
    assert tokenizer.encode("the cat sat", start=True, end=True, max_length=4) == [opening, *ids[:2], closing]
    assert tokenizer.encode("the cat sat", end=True, max_length=1) == [closing]
    assert tokenizer.encode("the cat sat", max_length=3) == ids[:3]
    assert tokenizer.encode(["the cat sat", ""], max_length=3, end=True) == [[*ids[:2], closing], [closing]]
    with pytest.raises(TextError, match="max_length"):
        tokenizer.encode("the", start=True, end=True, max_length=1)
    with pytest.raises(TextError, match="max_length"):
        tokenizer.encode("the", max_length=0)


def test_decode_takes_arrays_and_skips_special_tokens(tokenizer):
    batch = tokenizer(SENTENCES, start=True, end=True)
    expected = [tokenizer.decode(tokenizer.encode(text)) for text in SENTENCES]
    assert tokenizer.decode(batch["token_ids"]) == expected
    assert tokenizer.decode(list(batch["token_ids"])) == expected
    assert tokenizer.decode(batch["token_ids"][3]) == expected[3]
    spelled = tokenizer.decode(batch["token_ids"][3], skip_special_tokens=False)
    for index in (tokenizer.opening_id(), tokenizer.closing_id(), tokenizer.pad_id):
        assert tokenizer.id_to_token(index) in spelled
    assert tokenizer.decode([]) == ""
    with pytest.raises(TextError, match="Expected token ids"):
        tokenizer.decode(3)


def test_call_pads(tokenizer):
    rows, offsets = tokenizer.encode_with_offsets(SENTENCES, start=True, max_length=9)
    batch = tokenizer(SENTENCES, start=True, max_length=9, padding=12, return_offsets=True)
    assert {key: value.dtype for key, value in batch.items()} == {
        "token_ids": np.int32,
        "padding_mask": np.bool_,
        "offsets": np.int32,
    }
    for row, spans, ids, mask, found in zip(rows, offsets, *batch.values(), strict=True):
        rest = 12 - len(row)
        assert ids.tolist() == row + [tokenizer.pad_id] * rest
        assert mask.tolist() == [True] * len(row) + [False] * rest
        assert found.tolist() == [list(span) for span in spans] + [[0, 0]] * rest
    longest = max(map(len, tokenizer.encode(SENTENCES)))
    assert tokenizer(SENTENCES)["token_ids"].shape == (4, longest)
    with pytest.raises(TextError, match=r"Text \d has \d+ tokens, more than padding=2"):
        tokenizer(SENTENCES, padding=2)
    with pytest.raises(TextError, match='"longest" or a positive int'):
        tokenizer(SENTENCES, padding="max")


def test_words(tokenizer):
    sentences = [["The", "cat", "sat", "."], ["Männer", "你好"], ["low"], []]
    rows, indices = tokenizer.encode_words(sentences)
    for words, row, places in zip(sentences, rows, indices, strict=True):
        assert row == tokenizer.encode(" ".join(words))
        assert len(places) == len(row)
        assert sorted(set(places) - {-1}) == list(range(len(words)))
        # The tokens of each word spell it.
        for number, word in enumerate(words):
            part = [index for index, place in zip(row, places, strict=True) if place == number]
            if tokenizer.unknown_id not in part:
                spelled = tokenizer.decode(part).strip().replace(" ", "").lower()
                assert spelled.replace("ä", "a") == word.lower().replace("ä", "a")
    assert tokenizer.encode_words(sentences[0]) == (rows[0], indices[0])
    with pytest.raises(TextError, match="A word must be str"):
        tokenizer.encode_words([["a", 1]])


def test_saved_and_loaded(tokenizer, tmp_path, texts_of_all_kinds):
    tokenizer.save(tmp_path / "a" / "tokenizer")
    loaded = load_tokenizer(tmp_path / "a" / "tokenizer")
    for other in (loaded, pickle.loads(pickle.dumps(tokenizer))):
        assert type(other) is type(tokenizer)
        assert other.encode(texts_of_all_kinds) == tokenizer.encode(texts_of_all_kinds)
        assert other.special_tokens == tokenizer.special_tokens
        assert list(other.special_tokens) == list(tokenizer.special_tokens)
        assert other.fingerprint == tokenizer.fingerprint


def test_fingerprints_differ(made):
    assert len({made(name).fingerprint for name in made.names}) == len(made.names)
    # The same vocabulary, one option or one role changed.
    words = ["[PAD]", "[UNK]", "a"]
    prints = {WordPiece(words).fingerprint, WordPiece(words, lowercase=False).fingerprint}
    prints.add(WordPiece(words, special_tokens={"unknown": "[UNK]"}).fingerprint)
    assert len(prints) == 3
    assert WordPiece(words).fingerprint == WordPiece(words).fingerprint


def test_text_that_is_none(tokenizer):
    for text in (5, b"bytes", None, ["a", 5], [b"a"]):
        with pytest.raises(TextError, match="Expected a"):
            tokenizer.encode(text)
    with pytest.raises(EncodingError, match=r"Character 2 of a text is the lone surrogate U\+D800"):
        tokenizer.encode(["fine", "ab\ud800"])
    with pytest.raises(EncodingError):
        tokenizer.encode_with_offsets("ab\ud800")


def test_missing_special_tokens():
    tokenizer = Bytes(special_tokens={})
    assert tokenizer.vocabulary_size == 256
    for options in ({"start": True}, {"end": True}):
        with pytest.raises(SpecialTokenError, match="has no"):
            tokenizer.encode("a", **options)
    with pytest.raises(SpecialTokenError, match="no pad token"):
        tokenizer(["a"])
    with pytest.raises(SpecialTokenError, match="Unknown role 'padding'. Valid roles: pad, unknown"):
        Bytes(special_tokens={"padding": "<pad>"})
    with pytest.raises(SpecialTokenError, match="'<s>' is a duplicate"):
        Bytes(special_tokens={"start": "<s>", "end": "<s>"})
    with pytest.raises(SpecialTokenError, match="non-empty str"):
        Characters("ab", special_tokens={"unknown": ""})


def test_additional_special_tokens(made):
    tokenizer = Bytes(special_tokens={"end": "</s>", "additional": ["<user>", "<system>"]})
    assert tokenizer.encode("<user>a</s>", allow_special_tokens=True) == [1, 3 + ord("a"), 0]
    assert tokenizer.decode([1, 3 + ord("a"), 0, 2]) == "a"
    assert tokenizer.decode([1, 3 + ord("a"), 2], skip_special_tokens=False) == "<user>a<system>"
