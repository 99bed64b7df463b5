"""SentencePiece against its own library, and its models as files."""

import pytest
import sentencepiece

from keras_transformer.text import EmptyTextError, InvalidTokenizerError, SentencePiece, TextError
from keras_transformer.text.tokenizers.sentencepiece_model import read_model_type, with_exact_scores

NAMES = ["unigram", "unigram lossless", "unigram without bytes", "bpe", "bpe lossless"]


def pieces(tokenizer):
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._files()["sentencepiece.model"])
    return [(library.id_to_piece(index), library.get_score(index)) for index in range(library.vocab_size())]


@pytest.mark.parametrize("name", NAMES)
def test_is_the_library(made, name, texts_of_all_kinds):
    tokenizer = made(name)
    library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._files()["sentencepiece.model"])
    for text in texts_of_all_kinds:
        if "\u2581" in text:
            continue
        ids = library.encode(text)
        assert tokenizer.encode(text) == ids
        # The library spells the unknown token as a mark; here it is a special token and left out.
        known = [index for index in ids if index != tokenizer.unknown_id]
        if len(known) == len(ids):
            assert tokenizer.decode(ids) == library.decode(ids)


def test_space_mark_in_text(made):
    tokenizer = made("unigram lossless")
    ids, offsets = tokenizer.encode_with_offsets("a\u2581b \u2581")
    names = [tokenizer.id_to_token(index) for index in ids]
    mark = ["<0xE2>", "<0x96>", "<0x81>"]
    assert names[1:4] == mark
    assert names[-3:] == mark
    assert offsets[1:4] == [(1, 2)] * 3
    assert offsets[-3:] == [(4, 5)] * 3
    assert tokenizer.decode(ids) == "a\u2581b \u2581"


def test_bytes_of_a_character_share_its_offset(made):
    ids, offsets = made("bpe").encode_with_offsets("the 😀é")
    byte_offsets = [
        span for index, span in zip(ids, offsets, strict=True) if made("bpe").id_to_token(index)[:3] == "<0x"
    ]
    assert byte_offsets[:4] == [(4, 5)] * 4


def test_kinds_of_model(made):
    assert [made(name).model_type for name in NAMES] == ["unigram", "unigram", "unigram", "bpe", "bpe"]
    assert [made(name).byte_fallback for name in NAMES] == [True, True, False, True, True]


def test_unknown_without_bytes(made):
    tokenizer = made("unigram without bytes")
    ids = tokenizer.encode("the \u0416 cat")
    assert ids.count(tokenizer.unknown_id) == 1
    assert tokenizer.decode(ids) == "the  cat"


def test_scores_are_exact(made):
    scores = [score for _, score in pieces(made("unigram"))]
    assert all(score * 256 == round(score * 256) for score in scores)
    assert len(set(scores)) > 30


def test_rounding_changes_scores_alone():
    # A model with two pieces ("a", -1.0019) and ("b", -2.5), and a trainer of kind 2, written by hand.
    model = bytes.fromhex("0a080a016115 423e80bf 0a080a016215 000020c0 1202 1802".replace(" ", ""))
    rounded = bytes.fromhex("0a080a016115 008080bf 0a080a016215 000020c0 1202 1802".replace(" ", ""))
    assert with_exact_scores(model) == rounded.replace(bytes.fromhex("008080bf"), bytes.fromhex("000080bf"))
    assert read_model_type(model) == "bpe"
    assert read_model_type(model[:-4]) == "unigram"
    with pytest.raises(InvalidTokenizerError, match="truncated file"):
        read_model_type(model[:-1])


def test_training_is_deterministic(made):
    one, two = made("unigram"), SentencePiece.train(iter(made.corpus), 420)
    assert one.fingerprint == two.fingerprint
    # The model file notes the number of threads; the pieces and their scores do not depend on it.
    three = SentencePiece.train(made.corpus, 420, num_threads=1)
    assert pieces(one) == pieces(three)
    assert pieces(one) != pieces(made("bpe"))


def test_special_tokens_and_roles(tmp_path):
    roles = {"unknown": "[UNK]", "classification": "[CLS]", "separator": "[SEP]", "mask": "[MASK]"}
    tokenizer = SentencePiece.train(["the cat sat"] * 5, 290, special_tokens=roles)
    assert tokenizer.special_tokens == roles
    assert [tokenizer.id_to_token(index) for index in range(4)] == list(roles.values())
    ids = tokenizer.encode("the", start=True, end=True)
    assert (ids[0], ids[-1]) == (1, 2)
    (tmp_path / "m.model").write_bytes(tokenizer._files()["sentencepiece.model"])
    # A model file names its own.
    assert SentencePiece.from_file(tmp_path / "m.model").special_tokens == roles
    assert SentencePiece.from_file(tmp_path / "m.model").fingerprint == tokenizer.fingerprint


def test_small_corpus_gives_fewer_pieces():
    assert SentencePiece.train(["aab abb"], 5000).vocabulary_size < 300
    assert SentencePiece.train(["aab abb"], 5000, model_type="bpe").vocabulary_size < 300


def test_errors(tmp_path):
    with pytest.raises(TextError, match="Unknown model_type 'word'. Valid: unigram, bpe"):
        SentencePiece.train(["a"], 300, model_type="word")
    with pytest.raises(TextError, match="at least 262"):
        SentencePiece.train(["a"], 100)
    with pytest.raises(TextError, match="training failed: Vocabulary size is smaller than required_chars"):
        SentencePiece.train(["abcdefghijk"], 263)
    with pytest.raises(TextError, match="training failed: .*no_such_rule"):
        SentencePiece.train(["abc"], 300, normalization="no_such_rule")
    with pytest.raises(TextError, match="SentencePiece needs an unknown token"):
        SentencePiece.train(["a"], 300, special_tokens={"pad": "<pad>"})
    with pytest.raises(EmptyTextError):
        SentencePiece.train([""], 300)
    (tmp_path / "bad.model").write_bytes(b"no model")
    with pytest.raises(InvalidTokenizerError, match="Not a SentencePiece model"):
        SentencePiece.from_file(tmp_path / "bad.model")
