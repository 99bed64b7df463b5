"""Tokenizers of Hugging Face against transformers (folders and what it makes of them by make_tokenizers.py)."""

import json
import pathlib
import pickle
import shutil
import threading

import numpy as np
import pytest

from keras_transformer.text import (
    EncodingError,
    GraphError,
    HuggingFaceTokenizer,
    InvalidTokenizerError,
    SpecialTokenError,
    TextError,
    from_huggingface,
    load_tokenizer,
)

DATA = pathlib.Path(__file__).parents[1] / "data" / "tokenizers"
FOLDERS = sorted(path.parent.name for path in DATA.glob("*/expected.json"))
PAIRS = [("the dog sat on the log", "It's new."), ("low", "the cat sat on the mat; the dog sat on the log")]
ROLES = {
    "bos": "start_id",
    "eos": "end_id",
    "unk": "unknown_id",
    "sep": "separator_id",
    "pad": "pad_id",
    "cls": "classification_id",
    "mask": "mask_id",
}
READ = {}


@pytest.fixture(params=FOLDERS)
def both(request):
    """A tokenizer and what transformers makes of texts."""
    name = request.param
    if name not in READ:
        READ[name] = from_huggingface(DATA / name), json.loads((DATA / name / "expected.json").read_text())
    return READ[name]


def test_every_family_is_there():
    families = "albert bert bloom camembert clip deberta_v2 gemma gpt2 llama modernbert qwen2 roberta t5 whisper"
    families += " xlm_roberta xlnet"
    assert {name.removesuffix("_old") for name in FOLDERS} == set(families.split())
    # All but those that have never been without a tokenizer.json.
    assert {f"{name}_old" for name in families.split()} - set(FOLDERS) == {"bloom_old", "modernbert_old"}
    for name in FOLDERS:
        assert (DATA / name / "tokenizer.json").exists() != name.endswith("_old")
        assert sum(path.stat().st_size for path in (DATA / name).iterdir()) < 40_000


def test_ids(both):
    tokenizer, expected = both
    template = tokenizer.template_options
    found = tokenizer.encode(expected["texts"], allow_special_tokens=True, **template)
    assert found == expected["ids"]
    # Names of special tokens in a text are text: to the unigram models of transformers not always.
    names = tokenizer.special_ids - {tokenizer.unknown_id}
    for text, ids in zip(expected["texts"], expected["plain"], strict=True):
        row = tokenizer.encode(text)
        assert row == tokenizer.encode_with_offsets(text)[0]
        assert names.isdisjoint(row)
        assert row == ids or not names.isdisjoint(ids)
    assert tokenizer.encode(expected["texts"], allow_special_tokens=True, max_length=5, **template) == expected["cut"]


def test_pairs(both):
    tokenizer, expected = both
    first, second = map(list, zip(*PAIRS, strict=True))
    assert list(map(list, zip(*tokenizer.encode_pair(first, second), strict=True))) == expected["pairs"]
    assert list(map(list, zip(*tokenizer.encode_pair(first, second, 8), strict=True))) == expected["cut_pairs"]
    assert list(tokenizer.encode_pair(*PAIRS[0])) == expected["pairs"][0]
    # Names of special tokens are text here too: only those of the template are there.
    special = tokenizer.special_ids - {tokenizer.unknown_id}
    named = tokenizer.encode_pair(" ".join(map(tokenizer.id_to_token, sorted(special))), "a")[0]
    assert [index for index in named if index in special] == [
        index for index in tokenizer.encode_pair("a", "a")[0] if index in special
    ]
    with pytest.raises(EncodingError, match="lone surrogate"):
        tokenizer.encode_pair("a", "\ud800")
    with pytest.raises(TextError, match="must both be str"):
        tokenizer.encode_pair("a", ["b"])


def test_decoded(both):
    tokenizer, expected = both
    rows = expected["ids"] + expected["drawn"]
    assert tokenizer.decode(rows) == expected["decoded"]
    assert tokenizer.decode(rows, skip_special_tokens=False) == expected["spelled"]
    assert tokenizer.decode(np.array(rows[0])) == expected["decoded"][0]


def test_prompt_of_whisper_is_not_decoded():
    tokenizer = from_huggingface(DATA / "whisper")
    prompt, start = (tokenizer.token_to_id(f"<|{name}|>") for name in ("startofprev", "startoftranscript"))
    before, heard = tokenizer.encode("the cat"), tokenizer.encode("sat")
    assert tokenizer.decode([prompt, *before, start, *heard]) == "sat"
    assert tokenizer.decode([prompt, *before]) == ""
    assert tokenizer.decode([*before, *heard]) == "the catsat"


def test_streamed(both):
    tokenizer, expected = both
    fresh = np.random.default_rng(0).integers(0, expected["size"], (20, 30)).tolist()
    for row in expected["ids"] + expected["drawn"] + fresh:
        for skip in (True, False):
            stream = tokenizer.stream(skip)
            pieces = [stream.push(index) for index in row]
            assert "".join([*pieces, stream.finish()]) == tokenizer.decode(row, skip)


def test_text_comes_as_it_is_ready():
    tokenizer = from_huggingface(DATA / "llama")
    ids = tokenizer.encode("the cat sat")
    stream = tokenizer.stream()
    pieces = [stream.push(index) for index in ids]
    assert pieces[-1] != ""
    assert "".join(pieces) == "the cat sat"


def test_vocabulary(both):
    tokenizer, expected = both
    assert tokenizer.vocabulary_size == expected["size"]
    assert {name: getattr(tokenizer, role) for name, role in ROLES.items()} == expected["roles"]
    assert sorted(tokenizer.special_ids) == expected["special"]
    for index in (0, expected["size"] - 1):
        assert tokenizer.token_to_id(tokenizer.id_to_token(index)) == index
    for index in (-1, expected["size"]):
        with pytest.raises(TextError, match=f"0 to {expected['size'] - 1}"):
            tokenizer.decode([index])


def test_padded(both):
    tokenizer, expected = both
    if "padded" not in expected:
        with pytest.raises(SpecialTokenError, match="has no pad token"):
            tokenizer(["a"])
        return
    batch = tokenizer(expected["texts"][:3], return_offsets=True, **tokenizer.template_options)
    assert batch["token_ids"].tolist() == expected["padded"][0]
    assert batch["padding_mask"].astype(int).tolist() == expected["padded"][1]
    assert not batch["offsets"][~batch["padding_mask"]].any()
    text = expected["texts"][0]
    begin, stop = batch["offsets"][0][batch["padding_mask"][0]].max(axis=0)
    assert text[begin:stop].strip()
    assert stop == len(text)


def test_saved_and_loaded(both, tmp_path):
    tokenizer, expected = both
    tokenizer.save(tmp_path / "tokenizer")
    loaded = load_tokenizer(tmp_path / "tokenizer")
    assert type(loaded) is HuggingFaceTokenizer
    for other in (loaded, pickle.loads(pickle.dumps(tokenizer))):
        assert other.fingerprint == tokenizer.fingerprint
        assert other.config() == tokenizer.config()
        template = other.template_options
        assert other.encode(expected["texts"], allow_special_tokens=True, **template) == expected["ids"]
        assert other.decode(expected["drawn"]) == tokenizer.decode(expected["drawn"])


def test_sides_and_templates_are_options():
    content = (DATA / "modernbert" / "tokenizer.json").read_text()
    right = HuggingFaceTokenizer(content)
    left = HuggingFaceTokenizer(content, padding_side="left", truncation_side="left")
    assert right.fingerprint != left.fingerprint
    ids = right.encode("the dog sat on the log")
    # What the file itself would cut and fill at is not heard.
    assert len(ids) > 5
    opening, closing = right.classification_id, right.separator_id
    assert right.encode("the dog sat on the log", start=True, end=True, max_length=4) == [opening, *ids[:2], closing]
    assert left.encode("the dog sat on the log", start=True, end=True, max_length=4) == [opening, *ids[-2:], closing]
    assert left.encode("the dog sat on the log", max_length=3) == ids[-3:]
    assert left(["the", "the dog"])["padding_mask"][0, 0] == False  # noqa: E712
    with pytest.raises(TextError, match='padding_side must be "left" or "right"'):
        HuggingFaceTokenizer(content, padding_side="both")
    with pytest.raises(TextError, match="max_length must be an int, at least 1 and the number of special tokens"):
        right.encode("a", start=True, end=True, max_length=1)
    with pytest.raises(GraphError, match="use map_dataset"):
        right.graph()
    # Several tokens before a text, none behind it, and roles in the place of a template.
    whisper, llama, gpt2 = (from_huggingface(DATA / name) for name in ("whisper", "llama", "gpt2"))
    names = [whisper.id_to_token(index) for index in whisper.encode("", **whisper.template_options)]
    assert names == ["<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>"]
    assert whisper.encode_with_offsets("a", start=True)[1] == [(0, 0), (0, 0), (0, 1)]
    assert llama.template_options == {"start": True, "end": False}
    assert llama.encode("", start=True, end=True) == [llama.start_id, llama.end_id]
    assert gpt2.template_options == {"start": False, "end": False}
    assert gpt2.encode("", start=True) == [gpt2.start_id]


def test_threads_do_not_disturb_each_other():
    tokenizer, expected = from_huggingface(DATA / "bert"), json.loads((DATA / "bert" / "expected.json").read_text())
    template, wrong = tokenizer.template_options, []
    plain = from_huggingface(DATA / "bert").encode(expected["texts"])
    assert plain != expected["ids"]

    def work(allow):
        wanted = expected["ids"] if allow else plain
        options = {"allow_special_tokens": True, **template} if allow else {}
        for _ in range(30):
            wrong.extend(each for each in [tokenizer.encode(expected["texts"], **options)] if each != wanted)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def copied(name, tmp_path, **changes):
    """A copy of a folder; each change is a function of the JSON object of a file."""
    folder = tmp_path / name
    shutil.copytree(DATA / name, folder)
    for file, change in changes.items():
        path = folder / f"{file}.json"
        content = json.loads(path.read_text()) if path.exists() else {}
        change(content)
        path.write_text(json.dumps(content))
    return folder


def test_small_files_decide(tmp_path):
    def config(**values):
        return lambda content: content.update(values)

    # Lower case, or not, as the config says.
    folder = copied("bert", tmp_path / "a", tokenizer_config=config(do_lower_case=False))
    assert from_huggingface(folder).encode("Dog") != from_huggingface(DATA / "bert").encode("Dog")
    assert from_huggingface(folder).encode("dog") == from_huggingface(DATA / "bert").encode("dog")
    # Start and end tokens.
    folder = copied("llama", tmp_path / "b", tokenizer_config=config(add_bos_token=False, add_eos_token=True))
    assert from_huggingface(folder).template_options == {"start": False, "end": True}
    # A token that the vocabulary lacks stands behind all others.
    folder = copied("gpt2", tmp_path / "c", tokenizer_config=config(pad_token="[PAD]"))
    tokenizer = from_huggingface(folder)
    assert tokenizer.pad_id == tokenizer.vocabulary_size - 1 == from_huggingface(DATA / "gpt2").vocabulary_size
    assert tokenizer.decode(tokenizer.encode("the dog", end=True) + [tokenizer.pad_id]) == "the dog"
    # The class of the model where that of the tokenizer is not said.
    folder = copied("roberta_old", tmp_path / "d")
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(InvalidTokenizerError, match="no tokenizer_class or model_type that is known"):
        from_huggingface(folder)
    (folder / "config.json").write_text('{"model_type": "longformer"}')
    assert from_huggingface(folder).encode("the dog") == from_huggingface(DATA / "roberta").encode("the dog")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InvalidTokenizerError, match="family llama, which does not use vocab.json"):
        from_huggingface(folder)
    (folder / "added_tokens.json").write_text('{"<extra>": 330}')
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    assert from_huggingface(folder).token_to_id("<extra>") == 330


def change_of(*path, value):
    """A function that puts a value into a nested object."""

    def change(content):
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "name, change, match",
    [
        ("bert", change_of("model", value=None), "no model"),
        ("bert", change_of("model", "vocab", value=5), "has no 'vocab'"),
        ("bert", change_of("model", "vocab", "the", value=-1), "the token 'the' has the id -1"),
        ("bert", change_of("model", "vocab", "the", value=10**9), "largest id 1000000000 for 184 tokens"),
        ("bert", change_of("model", "type", value="Guess"), "tokenizer.json' contains no valid tokenizer"),
        ("bert", change_of("normalizer", value={"type": "Magic"}), "a part of the unknown type .Magic."),
        ("bert", change_of("added_tokens", value=7), "'added_tokens' is not a list"),
        ("bert", change_of("added_tokens", 0, "id", value="x"), "invalid added token"),
        ("bert", change_of("added_tokens", 0, "id", value=400), r"'\[PAD\]' has the id 400 .* but 0 when loaded"),
        (
            "bert",
            change_of("post_processor", "special_tokens", "[SEP]", "ids", value=[900]),
            r"has the id 900 for '\[SEP\]', which is not in the vocabulary",
        ),
        ("roberta", change_of("post_processor", "cls", value=["<s>", 9999]), "has the id 9999 for '<s>'"),
        ("gpt2", change_of("model", "merges", value=[["no", "such"]]), "contains no valid tokenizer"),
        ("t5", change_of("model", "unk_id", value=10**6), "contains no valid tokenizer"),
    ],
)
def test_damaged_tokenizer_json(name, change, match, tmp_path):
    folder = copied(name, tmp_path, tokenizer=change)
    with pytest.raises(InvalidTokenizerError, match=match) as error:
        from_huggingface(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name, file, content, match",
    [
        ("bert", "tokenizer.json", b'{"model": {"type": "Word', "Not a tokenizer.json"),
        ("bert", "tokenizer.json", b"[" * 100_000, "Not a tokenizer.json"),
        ("bert", "tokenizer.json", b"[]", "no model"),
        ("bert", "tokenizer.json", b"\xff", "is not UTF-8: byte 0"),
        ("bert", "tokenizer_config.json", b"{", "tokenizer_config.json' is not JSON"),
        ("bert", "tokenizer_config.json", b"[]", "tokenizer_config.json' is not a JSON object"),
        ("bert", "tokenizer_config.json", b'{"padding_side": "up"}', "padding_side must be 'left' or 'right'"),
        ("bert", "added_tokens.json", b'{"<new>": "x"}', "added_tokens.json has an invalid id for '<new>': 'x'"),
        ("bert", "added_tokens.json", b'{"<new>": 5000}', "'<new>' has the id 5000 in one file, 184 in another"),
        ("bert", "added_tokens.json", b'{"the": 0}', "'the' has the id 0 in one file, "),
        ("bert_old", "vocab.txt", b"a\n\xff\n", "is not UTF-8: byte 2"),
        ("roberta_old", "vocab.json", b'{"a": ', "vocab.json' is not JSON"),
        ("roberta_old", "vocab.json", b'{"a": "b"}', "is not an object of token to id: the token 'a' has the id 'b'"),
        ("roberta_old", "vocab.json", b'{"a": 2147483600}', "largest id 2147483600 for 1 tokens"),
        ("roberta_old", "vocab.json", b'{"a": 18446744073709551616}', "largest id 18446744073709551616 for 1 tokens"),
        ("roberta_old", "vocab.json", b"{}", "is empty"),
        ("roberta_old", "merges.txt", b"a b\nc\n", "not a list of merges: line 2 is 'c'"),
        ("roberta_old", "merges.txt", b"no such\n", "merges.txt' contains no valid tokenizer"),
        ("t5_old", "spiece.model", b"", "Not a SentencePiece model: no pieces"),
        ("t5_old", "spiece.model", b"no model", "Not a SentencePiece model"),
        ("llama_old", "tokenizer.model", b"\x0a\xff\xff\xff\xff\x0f", "Not a SentencePiece model: truncated file"),
        (
            "t5_old",
            "tokenizer_config.json",
            b'{"tokenizer_class": "T5Tokenizer", "extra_ids": -1}',
            "extra_ids must be",
        ),
    ],
)
def test_damaged_files(name, file, content, match, tmp_path):
    folder = copied(name, tmp_path)
    (folder / file).write_bytes(content)
    with pytest.raises(InvalidTokenizerError, match=match) as error:
        from_huggingface(folder)
    assert "\n" not in str(error.value)


def test_truncated_sentencepiece_models(tmp_path):
    folder = copied("t5_old", tmp_path)
    data = (folder / "spiece.model").read_bytes()
    for length in range(1, len(data), 97):
        (folder / "spiece.model").write_bytes(data[:length])
        # Cut between two pieces it is whole, but too short for its template.
        try:
            tokenizer = from_huggingface(folder)
        except InvalidTokenizerError:
            continue
        assert tokenizer.vocabulary_size < json.loads((DATA / "t5_old" / "expected.json").read_text())["size"] or (
            length > len(data) - 400
        )


def test_missing_files(tmp_path):
    with pytest.raises(InvalidTokenizerError, match="is not a folder"):
        from_huggingface(tmp_path / "nowhere")
    with pytest.raises(InvalidTokenizerError, match=r"contains no tokenizer: no tokenizer.json, vocab.txt"):
        from_huggingface(tmp_path)
    with pytest.raises(InvalidTokenizerError, match="cannot be read: No such file"):
        HuggingFaceTokenizer.from_file(tmp_path / "tokenizer.json")
    tokenizer = HuggingFaceTokenizer.from_file(DATA / "bert" / "tokenizer.json")
    assert tokenizer.encode("the dog") == from_huggingface(DATA / "bert").encode("the dog")
    folder = copied("whisper_old", tmp_path)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "WhisperTokenizer"}')
    with pytest.raises(InvalidTokenizerError, match=r"the template needs '<\|startoftranscript\|>'"):
        from_huggingface(folder)


@pytest.mark.parametrize("change", [None, "cased"])
def test_berts_kind_runs_in_the_graph(change, tmp_path, texts_of_all_kinds):
    pytest.importorskip("tensorflow_text")
    folder = DATA / "bert"
    if change == "cased":
        folder = copied("bert", tmp_path, tokenizer_config=change_of("do_lower_case", value=False))
    tokenizer = from_huggingface(folder)
    graph = tokenizer.graph()
    expected = json.loads((DATA / "bert" / "expected.json").read_text())
    texts = [*expected["texts"], *(text for text in texts_of_all_kinds if "\x00" not in text)]
    # But for the characters that one of the two libraries is too old for.
    texts = [text for text in texts if max(map(ord, text), default=0) < 0x3000]
    for options in ({}, tokenizer.template_options, {"end": True, "max_length": 4}):
        assert graph(texts, **options).to_list() == tokenizer.encode(texts, **options)
    with pytest.raises(GraphError, match="cannot decode in a TensorFlow graph"):
        graph.detokenize([[1]])


@pytest.mark.parametrize(
    "change",
    [
        change_of("normalizer", "handle_chinese_chars", value=False),
        change_of("normalizer", "strip_accents", value=False),
        change_of("model", "max_input_chars_per_word", value=50),
        change_of("pre_tokenizer", "type", value="Whitespace"),
    ],
)
def test_what_differs_from_bert_stays_outside(change, tmp_path):
    def without(content):
        content.pop("strip_accents", None)
        content.pop("tokenize_chinese_chars", None)

    folder = copied("bert", tmp_path, tokenizer=change, tokenizer_config=without)
    with pytest.raises(GraphError, match="use map_dataset"):
        from_huggingface(folder).graph()


def test_the_tokenizer_of_siglip_leaves_out_case_and_punctuation(tmp_path):
    folder = copied("t5_old", tmp_path / "siglip")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer"}')
    found, plain = from_huggingface(folder), from_huggingface(DATA / "t5_old")
    expected = list(plain.encode("a photo of 2 cats"))
    assert len(set(expected)) > 3
    assert list(found.encode(" A photo (of)\n2  CATS! ")) == expected
    assert list(found.encode("a photo of 2 cats", end=True)) == [*expected, plain.end_id]
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "SiglipTokenizer", "do_lower_case": false}')
    assert list(from_huggingface(folder).encode("A photo")) == list(plain.encode("A photo"))
