"""The tokenizers inside TensorFlow graphs, against those outside."""

import pytest
import tensorflow as tf

from keras_transformer.text import Bytes, GraphError, SpecialTokenError, TextError

NAMES = [
    "wordpiece",
    "wordpiece cased",
    "unigram",
    "unigram lossless",
    "unigram without bytes",
    "bpe",
    "bpe lossless",
    "characters",
    "characters lossless",
    "bytes",
]
# Where normalization, spaces, long words and repeated pieces could tell two implementations apart.
TEXTS = [
    "",
    " ",
    "The quick, BROWN fox's cat-like 'naïve' Ångström!!",
    "Straße\tStraßen\u00a0Zwei\u3000Café \u200b\u00adlow\x00er\x1fest\nthe\r\nmat",
    "我们 你好abc你low。newest… ＡＢ，",
    "ÉÈ\u0301e\u0301 İI ΣΑΣ ὈΔΥΣΣΕΎΣ ﬁ ½ ２ $5 <a|b> ~^`=+ ©® ǅ ſ",
    "  the   cat  \u2581 \u2581\u2581the  ",
    "<s> [SEP] <unk> [MASK]</s>",
    "😀👩\u200d💻 \U0010ffff \ue000 \ufffd \ufeff",
    "1111111 ------ aaaaaaa ......",
    "a" * 100,
    "a" * 101,
    "low " + "é" * 99 + "ä, " + "é" * 101 + "! lowest",
    "的" * 150 + "low" * 40 + "的",
]


@pytest.fixture(params=NAMES)
def pair(request, made):
    tokenizer = made(request.param)
    return tokenizer, tokenizer.graph()


def test_ids_are_equal(pair, texts_of_all_kinds):
    tokenizer, graph = pair
    assert graph(TEXTS).to_list() == tokenizer.encode(TEXTS)
    if tokenizer.kind != "wordpiece":
        # Random characters of all Unicode; WordPiece's two libraries know different versions of it.
        assert graph(texts_of_all_kinds).to_list() == tokenizer.encode(texts_of_all_kinds)


def test_start_end_and_truncation(pair):
    tokenizer, graph = pair
    for options in ({"start": True}, {"end": True}, {"start": True, "end": True, "max_length": 4}, {"max_length": 3}):
        assert graph(TEXTS, **options).to_list() == tokenizer.encode(TEXTS, **options)
    with pytest.raises(TextError, match="max_length"):
        graph(TEXTS, start=True, end=True, max_length=1)


def test_texts_are_equal(pair):
    tokenizer, graph = pair
    rows = tokenizer.encode(TEXTS, start=True, end=True)
    texts = graph.detokenize(tf.ragged.constant(rows, dtype=tf.int32))
    assert [text.decode() for text in texts.numpy()] == tokenizer.decode(rows)
    padded = tokenizer(TEXTS[:4])["token_ids"]
    assert [text.decode() for text in graph.detokenize(padded).numpy()] == tokenizer.decode(padded)


def test_half_characters():
    tokenizer = Bytes()
    rows = [tokenizer.encode("a😀")[:3], tokenizer.encode("é")[1:]]
    assert tokenizer.decode(rows) == ["a\ufffd", "\ufffd"]
    assert [text.decode() for text in tokenizer.graph().detokenize(tf.ragged.constant(rows)).numpy()] == [
        "a\ufffd",
        "\ufffd",
    ]


@pytest.mark.parametrize("name", ["wordpiece", "unigram without bytes", "bpe lossless", "characters"])
def test_inside_a_saved_model(made, name, tmp_path):
    tokenizer = made(name)
    graph = tokenizer.graph()

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.graph = graph

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def encode(self, texts):
            ids = self.graph(texts, start=True, end=True)
            return {"token_ids": ids.to_tensor(tokenizer.pad_id), "lengths": ids.row_lengths()}

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
        def decode(self, token_ids):
            return self.graph.detokenize(token_ids)

    tf.saved_model.save(Module(), str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    output = loaded.encode(tf.constant(TEXTS))
    rows = tokenizer.encode(TEXTS, start=True, end=True)
    assert output["lengths"].numpy().tolist() == [len(row) for row in rows]
    assert output["token_ids"].numpy().tolist() == tokenizer(TEXTS, start=True, end=True)["token_ids"].tolist()
    assert [text.decode() for text in loaded.decode(output["token_ids"]).numpy()] == tokenizer.decode(rows)


def test_byte_pair_says_that_it_cannot(made):
    with pytest.raises(GraphError, match="BytePair cannot run in a TensorFlow graph: use map_dataset"):
        made("byte_pair").graph()


def test_missing_special_token():
    with pytest.raises(SpecialTokenError, match="has no start"):
        Bytes(special_tokens={}).graph()(["a"], start=True)
