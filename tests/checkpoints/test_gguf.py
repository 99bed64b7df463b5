"""GGUF files: models and tokenizers that llama.cpp's converter wrote, and files that are damaged on purpose."""

import json
import pathlib
import struct
import tracemalloc

import numpy as np
import pytest
from gguf_files import F32, LLAMA, Q4_0, Q4_1, Q8_0, entry, gguf_bytes, tensor_info, text

from keras_transformer import checkpoints
from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.checkpoints.gguf.tokenizer.tokenizer_files import tokenizer_files
from keras_transformer.text import InvalidTokenizerError, from_huggingface

pytest.importorskip("gguf")
DATA = pathlib.Path(__file__).parents[1] / "data"
# Share of the largest output. The norms of queries and keys in "gemma3" amplify rounding: in float64 its outputs differ
# by 4.6e-6 from ours in float32, and by 6.4e-6 from those of transformers.
TOLERANCES = {"gemma3": 2e-5}
MODELS = sorted(path.stem for path in (DATA / "gguf").glob("*.npz"))


def load(name):
    return checkpoints.from_gguf(DATA / "gguf" / f"{name}.gguf", verbose=0)


def arrays(name):
    with np.load(DATA / "gguf" / f"{name}.npz") as found:
        inputs = {key.removeprefix("input/"): found[key] for key in found if key.startswith("input/")}
        return inputs, found["output"]


def write(path, *parts, **options):
    path.write_bytes(gguf_bytes(*parts, **options))
    return path


# Models.


@pytest.mark.parametrize("name", MODELS)
def test_computes_what_transformers_computes(name):
    inputs, expected = arrays(name)
    outputs = np.asarray(load(name)(inputs, training=False))
    difference = np.abs(outputs - expected)
    if expected.ndim == 3:
        difference = difference[inputs.get("padding_mask", inputs.get("target_padding_mask"))]
    assert difference.max() <= TOLERANCES.get(name, 6e-6) * np.abs(expected).max()


def test_every_architecture_has_a_file():
    from keras_transformer.checkpoints.gguf.architectures import ARCHITECTURES

    files = (Container(DATA / "gguf" / f"{name}.gguf") for name in MODELS)
    assert {each.metadata["general.architecture"] for each in files} == set(ARCHITECTURES)


def test_is_saved_as_a_folder_of_transformers(tmp_path):
    model, (inputs, expected) = load("llama"), arrays("llama")
    checkpoints.to_huggingface(model, tmp_path / "folder", verbose=0)
    again = checkpoints.from_huggingface(tmp_path / "folder", verbose=0)
    outputs = np.asarray(again(inputs, training=False))
    assert np.abs(outputs - expected)[inputs["padding_mask"]].max() <= 6e-6 * np.abs(expected).max()
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_scaling"]["factor"]) == (0.003, 4.0)


def test_a_pooling_makes_vectors_of_texts():
    assert load("bert_mean").output_shape == (None, 32)
    assert load("bert").output_shape == (None, None, 32)


# Tokenizers.


def tokenizer_of(path, folder):
    container = Container(path)
    for name, content in tokenizer_files(Metadata(container.metadata, str(path))).items():
        (folder / name).write_bytes(content)
    return from_huggingface(folder)


def cases_of(name):
    return json.loads((DATA / "tokenizers" / name / "expected.json").read_text())


SOURCES = {"gpt2": "gpt2", "qwen2": "qwen2", "bert": "bert_old", "t5": "t5_old"}


@pytest.mark.parametrize(("name", "source"), SOURCES.items())
def test_tokens_are_those_of_transformers(name, source, tmp_path):
    tokenizer, cases = tokenizer_of(DATA / "gguf" / f"{name}.vocab.gguf", tmp_path), cases_of(source)
    options = {"allow_special_tokens": True, **tokenizer.template_options}
    assert [tokenizer.encode(each, **options) for each in cases["texts"]] == cases["ids"]


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_tokens_are_those_of_sentencepiece(name, tmp_path):
    import sentencepiece

    file = DATA / "tokenizers" / f"{name}_old" / "tokenizer.model"
    reference = sentencepiece.SentencePieceProcessor(model_file=str(file))
    tokenizer = tokenizer_of(DATA / "gguf" / f"{name}.vocab.gguf", tmp_path)
    # SentencePiece does not find the tokens of its own control pieces in a text.
    texts = [each for each in cases_of(f"{name}_old")["texts"] if "s>" not in each and "os>" not in each]
    assert len(texts) > 6
    for each in texts:
        assert tokenizer.encode(each) == reference.encode(each), each


def test_roles_and_template_are_those_of_the_file(tmp_path):
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": ["a", "b", "ab", "<|begin|>", "<|end|>", "<tool>", "[PAD6]"],
        "tokenizer.ggml.token_type": [1, 1, 1, 3, 3, 4, 5],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.ggml.eos_token_id": 4,
        "tokenizer.chat_template": "{{ messages }}",
    }
    tokenizer = tokenizer_of(write(tmp_path / "a.gguf", metadata), tmp_path)
    assert tokenizer.encode("ab<tool>a<|end|>", allow_special_tokens=True) == [2, 5, 0, 4]
    # Llama 3 begins texts where the file does not say so.
    assert tokenizer.encode("ab", **tokenizer.template_options) == [3, 2]
    assert tokenizer.vocabulary_size == 6
    assert tokenizer.decode([3, 2, 5, 4], skip_special_tokens=True) == "ab<tool>"
    assert (tmp_path / "chat_template.jinja").read_text() == "{{ messages }}"


# Blocks.


def test_blocks_are_scaled_integers(tmp_path):
    random = np.random.default_rng(0)
    nibbles, bytes_ = random.integers(0, 16, (2, 32)), random.integers(-128, 128, 32)
    scales, minimum = np.array([0.37, -0.011, 2.5], "float16"), np.float16(-1.75)

    def packed(values):  # The first half of a block is in the low bits.
        return (values[:16] | values[16:] << 4).astype("uint8").tobytes()

    data = [
        scales[0].tobytes() + packed(nibbles[0]),
        scales[1].tobytes() + minimum.tobytes() + packed(nibbles[1]),
        scales[2].tobytes() + bytes_.astype("int8").tobytes(),
    ]
    padded = [each + bytes(-len(each) % 32) for each in data]
    starts = np.cumsum([0, *map(len, padded)])
    kinds = {"four": Q4_0, "minimum": Q4_1, "eight": Q8_0}
    infos = [tensor_info(name, (32,), kind, start) for (name, kind), start in zip(kinds.items(), starts, strict=False)]
    container = Container(write(tmp_path / "a.gguf", {}, infos, b"".join(padded)))
    expected = {
        "four": scales[0].astype("float32") * (nibbles[0] - 8),
        "minimum": scales[1].astype("float32") * nibbles[1] + np.float32(minimum),
        "eight": scales[2].astype("float32") * bytes_,
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(container.read(name), values.astype("float32"))


# Settings.


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"general.architecture": "rwkv9"}, checkpoints.UnknownArchitectureError, "no architecture 'rwkv9'"),
        ({"llama.expert_count": 8}, checkpoints.ConfigError, "mixture of experts"),
        ({"split.count": 3}, checkpoints.ConfigError, "one of several files"),
        ({"llama.rope.scaling.type": "longrope"}, checkpoints.ConfigError, "'longrope' is not supported"),
        ({"llama.block_count": "two"}, checkpoints.ConfigError, "'llama.block_count' is \"two\", of the wrong type"),
        (
            {"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": ["a"]},
            InvalidTokenizerError,
            "no tokenizer 'rwkv'",
        ),
        (
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.tokens": ["a"],
                "tokenizer.ggml.merges": ["a a"],
                "tokenizer.ggml.pre": "elbonian",
            },
            InvalidTokenizerError,
            "no pre-tokenizer 'elbonian'",
        ),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1]},
            InvalidTokenizerError,
            "2 tokens and 1 types",
        ),
    ],
)
def test_settings_that_cannot_be_followed_are_refused(changes, error, message, tmp_path):
    infos = [tensor_info("token_embd.weight", (32, 8), F32, 0)]
    path = write(tmp_path / "a.gguf", LLAMA | changes, infos, bytes(1024))
    with pytest.raises(error, match=message):
        checkpoints.from_gguf(path, verbose=0)


def test_factors_of_another_scaling_are_refused(tmp_path):
    infos = [tensor_info("token_embd.weight", (32, 8), F32, 0), tensor_info("rope_freqs.weight", (8,), F32, 1024)]
    factors = np.linspace(1, 4, 8, dtype="float32").tobytes()
    path = write(tmp_path / "a.gguf", LLAMA, infos, bytes(1024) + factors)
    with pytest.raises(checkpoints.ConfigError, match="'rope_freqs.weight' are not the factors of Llama 3"):
        checkpoints.from_gguf(path, verbose=0)


# Damaged files.

HUGE = 2**62
INFO = tensor_info("a", (32,), F32, 0)
DAMAGED = {
    "empty": (b"", "does not begin"),
    "another format": (b"PK" + bytes(100), "does not begin"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
    "version 1": (gguf_bytes({}, version=1), "version is 1"),
    "too many tensors": (gguf_bytes({}, counts=(HUGE, 0)), f"{HUGE} tensors"),
    "too many entries": (gguf_bytes({}, counts=(0, HUGE)), f"{HUGE} entries"),
    "long key": (gguf_bytes({}, counts=(0, 1))[:24] + struct.pack("<Q", HUGE) + bytes(64), "ends .* before"),
    "long array": (
        gguf_bytes({}, counts=(0, 1))[:24] + text("k") + struct.pack("<IIQ", 9, 4, HUGE) + bytes(64),
        f"{HUGE} numbers",
    ),
    "long list": (
        gguf_bytes({}, counts=(0, 1))[:24] + text("k") + struct.pack("<IIQ", 9, 8, HUGE) + bytes(64),
        f"{HUGE} items",
    ),
    "deep arrays": (
        gguf_bytes({}, counts=(0, 1))[:24]
        + text("k")
        + struct.pack("<I", 9)
        + struct.pack("<IQ", 9, 1) * 50
        + bytes(64),
        "nested too deeply",
    ),
    "unknown type": (gguf_bytes({}, counts=(0, 1))[:24] + text("k") + struct.pack("<I", 77) + bytes(64), "type 77"),
    "a key twice": (gguf_bytes({}, counts=(0, 2))[:24] + entry("k", 1) * 2 + bytes(64), "'k' twice"),
    "a tensor twice": (gguf_bytes({}, [INFO, INFO], bytes(256)), "tensor 'a' twice"),
    "many axes": (gguf_bytes({}, [text("a") + struct.pack("<I", 2**31) + bytes(64)]), "2147483648 axes"),
    "huge axes": (gguf_bytes({}, [tensor_info("a", (HUGE, HUGE), F32, 0)], bytes(64)), "overlap others or the end"),
    "no numbers": (gguf_bytes({}, [tensor_info("a", (0,), F32, 0)]), "rows of 0 numbers"),
    "part of a block": (gguf_bytes({}, [tensor_info("a", (33,), Q4_0, 0)], bytes(64)), "33 numbers, in blocks of 32"),
    "unknown blocks": (gguf_bytes({}, [tensor_info("a", (32,), 999, 0)], bytes(128)), "unknown type 999"),
    "beyond the end": (gguf_bytes({}, [tensor_info("a", (32,), F32, 32)], bytes(128)), "overlap others or the end"),
    "shared bytes": (
        gguf_bytes({}, [INFO, tensor_info("b", (32,), F32, 64)], bytes(256)),
        "tensor 'b' overlap others",
    ),
    "alignment": (gguf_bytes({"general.alignment": 3}, [INFO], bytes(256)), "general.alignment is '3'"),
    "not UTF-8": (gguf_bytes({}, counts=(0, 1))[:24] + struct.pack("<Q", 2) + b"\xff\xfe" + bytes(64), "not UTF-8"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_before_memory_is_taken(name, tmp_path):
    content, message = DAMAGED[name]
    (tmp_path / "a.gguf").write_bytes(content)
    Container(DATA / "gguf" / "bert.vocab.gguf")  # What is imported for the first time is not counted.
    tracemalloc.start()
    try:
        with pytest.raises(checkpoints.CorruptFileError, match=message):
            Container(tmp_path / "a.gguf")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_every_truncation_and_every_changed_byte_is_refused_or_read(tmp_path):
    content = (DATA / "gguf" / "gpt2.gguf").read_bytes()
    start = min(each.start for each in Container(DATA / "gguf" / "gpt2.gguf").tensors.values())
    random, path = np.random.default_rng(0), tmp_path / "a.gguf"
    refused = 0
    for length in range(0, start, 7):
        path.write_bytes(content[:length])
        with pytest.raises(checkpoints.CorruptFileError):
            Container(path)
    for position in random.integers(0, start, 400):
        path.write_bytes(
            content[:position] + bytes([content[position] ^ random.integers(1, 256)]) + content[position + 1 :]
        )
        try:
            Container(path)
        except checkpoints.CorruptFileError:
            refused += 1
    assert refused > 100


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(checkpoints.MissingFileError, match="none.gguf"):
        checkpoints.from_gguf(tmp_path / "none.gguf")
