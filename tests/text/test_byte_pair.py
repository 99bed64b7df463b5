"""Byte-level byte-pair encoding: merges by hand, and files of Hugging Face's format."""

import json

import pytest
import tokenizers

from keras_transformer.text import BytePair, InvalidTokenizerError, TextError, load_tokenizer
from keras_transformer.text.tokenizers.byte_pair import byte_alphabet


def gpt2_like(**changes):
    """A tokenizer.json laid out as GPT-2's, with the merges "l o", "lo w", "Ġ low"."""
    vocabulary = {character: index for index, character in enumerate(sorted(byte_alphabet()))}
    for token in ("lo", "low", "Ġlow", "<|endoftext|>"):
        vocabulary[token] = len(vocabulary)
    end = {"id": 259, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [{**end, "normalized": True, "special": True}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["l o", "lo w", "Ġ low"]},
        **changes,
    }


def write(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_alphabet_is_the_librarys():
    assert set(byte_alphabet()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))
    # "Ġ" and "Ċ" are how GPT-2's files spell a space and a line end.
    assert [byte_alphabet()[character] for character in "Ġ Ċ!~".replace(" ", "")] == [32, 10, 33, 126]


def test_merges_by_hand():
    # Pairs by frequency: "ab" 3, then "abc" ("ab" + "c") 2.
    tokenizer = BytePair.train(["ab", "abc", "abc"], 262, special_tokens={})
    tokens = [tokenizer.id_to_token(index) for index in range(256, tokenizer.vocabulary_size)]
    assert tokens[:2] == ["ab", "abc"]
    assert [tokenizer.id_to_token(index) for index in tokenizer.encode("abca")] == ["abc", "a"]


def test_separate_spaces_give_a_word_the_same_tokens_everywhere(tmp_path):
    corpus = ["os.walk walk.os", "the walk"] * 3
    tokenizer = BytePair.train(corpus, 300, separate_spaces=True)
    walk = tokenizer.encode("walk")
    assert [tokenizer.id_to_token(index) for index in walk] == ["walk"]
    assert tokenizer.encode("os.walk") == [*tokenizer.encode("os."), *walk]
    space = tokenizer.encode(" ")
    assert tokenizer.encode("walk  walk") == [*walk, *space, *space, *walk]
    joined = BytePair.train(corpus, 300)
    assert [joined.id_to_token(index) for index in joined.encode(" walk")] == ["Ġwalk"]
    tokenizer.save(tmp_path / "saved")
    again, text = load_tokenizer(tmp_path / "saved"), "  the os.walk\n walk é "
    assert again.encode(text) == tokenizer.encode(text)
    assert again.decode(again.encode(text)) == text
    assert again.lossless


def test_reads_gpt2s_format(tmp_path):
    tokenizer = BytePair.from_file(write(tmp_path / "tokenizer.json", gpt2_like()))
    assert tokenizer.special_tokens == {"start": "<|endoftext|>", "end": "<|endoftext|>"}
    assert (tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id, tokenizer.vocabulary_size) == (259, 259, None, 260)
    # Neither the file's truncation nor its post-processor touches the ids.
    names = [tokenizer.id_to_token(index) for index in tokenizer.encode("low low lo")]
    assert names == ["low", "Ġlow", "Ġ", "lo"]
    assert tokenizer.encode_with_offsets("low low")[1] == [(0, 3), (3, 7)]
    assert tokenizer.lossless
    text = "<|endoftext|>low"
    assert 259 not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text, allow_special_tokens=True) == [259, 257]


def test_writes_what_the_library_reads(made, tmp_path, texts_of_all_kinds):
    tokenizer = made("byte_pair")
    tokenizer.save(tmp_path / "saved")
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    for text in texts_of_all_kinds[20:60]:
        if "<s>" not in text:
            assert library.encode(text).ids == tokenizer.encode(text)
            assert library.decode(library.encode(text).ids) == text


def test_file_kept_as_it_is(tmp_path):
    path = write(tmp_path / "tokenizer.json", gpt2_like())
    BytePair.from_file(path, {"end": "<|endoftext|>"}).save(tmp_path / "saved")
    assert (tmp_path / "saved" / "tokenizer.json").read_bytes() == path.read_bytes()
    assert load_tokenizer(tmp_path / "saved").special_tokens == {"end": "<|endoftext|>"}


def test_lossless_is_read_from_the_file(tmp_path):
    level = gpt2_like()["pre_tokenizer"]
    changes = [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {**level, "add_prefix_space": True}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{**level, "add_prefix_space": True}]}},
    ]
    for number, change in enumerate(changes):
        path = write(tmp_path / f"{number}.json", gpt2_like(**change))
        tokenizer = BytePair.from_file(path)
        assert not tokenizer.lossless
        assert tokenizer.decode(tokenizer.encode("e\u0301")) != "e\u0301"


def test_errors(tmp_path):
    with pytest.raises(TextError, match="at least 260"):
        BytePair.train(["a"], 259)
    unfit = {
        "a": "no JSON",
        "b": json.dumps({"model": {"type": "BPE", "merges": []}}),
        "c": json.dumps(gpt2_like(model={"type": "WordPiece", "vocab": {}})),
        "d": json.dumps(gpt2_like(pre_tokenizer={"type": "Whitespace"})),
        "e": json.dumps(gpt2_like(pre_tokenizer=None)),
        "f": json.dumps([1]),
        "g": json.dumps(gpt2_like(model={"type": "BPE", "vocab": {"a": 0}, "merges": ["b c"]})),
    }
    for name, content in unfit.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidTokenizerError, match=f"{name}': .*tokenizer.json"):
            BytePair.from_file(tmp_path / name)
    with pytest.raises(InvalidTokenizerError, match="cannot be read"):
        BytePair.from_file(tmp_path / "nowhere")
