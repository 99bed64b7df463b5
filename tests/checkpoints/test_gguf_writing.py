"""GGUF files that are written: equal to those of llama.cpp's converter, or refused."""

import json
import pathlib
import types

import numpy as np
import pytest
from gguf_files import F32, LLAMA, gguf_bytes, tensor_info

from checkpoint_cases import FOLDERS
from keras_transformer import checkpoints
from keras_transformer.checkpoints.gguf.container import Container
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.checkpoints.gguf.tokenizer.tokenizer_files import tokenizer_files
from keras_transformer.checkpoints.gguf.tokenizer.tokenizer_metadata import tokenizer_metadata
from keras_transformer.text import InvalidTokenizerError, from_huggingface

gguf = pytest.importorskip("gguf")
DATA = pathlib.Path(__file__).parents[1] / "data"
MODELS = sorted(path.stem for path in (DATA / "gguf").glob("*.npz"))
# Keys that say nothing about the model.
IGNORED = ("general.", "GGUF.")


def load(name):
    return checkpoints.from_gguf(DATA / "gguf" / f"{name}.gguf", verbose=0)


def folder_of(name):
    return next(folder for folder in FOLDERS if folder.name == name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name != "llama_linear"])
def test_tensors_and_settings_are_those_of_llama_cpp(name, tmp_path):
    checkpoints.to_gguf(load(name), tmp_path / "again.gguf", verbose=0)
    theirs, ours = Container(DATA / "gguf" / f"{name}.gguf"), Container(tmp_path / "again.gguf")
    assert theirs.tensors.keys() == ours.tensors.keys()
    for each, tensor in theirs.tensors.items():
        assert (ours.tensors[each].kind, ours.tensors[each].shape) == (tensor.kind, tensor.shape), each
        if each == "rope_freqs.weight":  # Computed in float32 by theirs.
            np.testing.assert_allclose(ours.read(each), theirs.read(each), rtol=1e-6)
        else:
            np.testing.assert_array_equal(ours.blocks(each), theirs.blocks(each))
    for key, value in theirs.metadata.items():
        if not key.startswith(IGNORED):
            assert ours.metadata[key] == value, key


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"])
def test_matrices_are_quantized_and_outer_ones_less(kind, tmp_path):
    model = load("qwen2")
    checkpoints.to_gguf(model, tmp_path / "a.gguf", quantize=kind, verbose=0)
    original, written = Container(DATA / "gguf" / "qwen2.gguf"), Container(tmp_path / "a.gguf")
    outer = "Q8_0" if kind[:2] in ("Q4", "Q5") else kind
    for name, tensor in original.tensors.items():
        expected = "F32" if len(tensor.shape) == 1 else outer if name.startswith(("token_embd", "output.")) else kind
        assert written.tensors[name].kind == expected, name
        blocks = gguf.quants.quantize(np.array(original.read(name)), gguf.GGMLQuantizationType[expected])
        assert written.blocks(name).tobytes() == blocks.tobytes(), name
    again = checkpoints.from_gguf(tmp_path / "a.gguf", verbose=0)
    weights = zip(model.variables, again.variables, strict=True)
    bits = {"F16": 11, "BF16": 8, "Q8": 8, "Q5": 5, "Q4": 4}[kind[:2] if kind[0] == "Q" else kind]
    assert all(np.abs(np.asarray(one) - np.asarray(two)).max() < 1.6 * 2.0**-bits for one, two in weights)


def test_rows_of_no_whole_blocks_become_halves(tmp_path):
    # Rows of 16 numbers, but for those of 32 that lead out of the feed-forward network.
    block = {"attn_q": (16, 16), "attn_k": (16, 16), "attn_v": (16, 16), "attn_output": (16, 16), "attn_norm": (16,)}
    block |= {"ffn_gate": (16, 32), "ffn_up": (16, 32), "ffn_down": (32, 16), "ffn_norm": (16,)}
    sizes = {"token_embd": (16, 8), "output_norm": (16,)} | {f"blk.0.{name}": each for name, each in block.items()}
    starts = np.cumsum([0, *(4 * np.prod(each) for each in sizes.values())])
    infos = [
        tensor_info(f"{name}.weight", each, F32, start)
        for (name, each), start in zip(sizes.items(), starts, strict=False)
    ]
    values = np.random.default_rng(0).normal(size=starts[-1] // 4).astype("float32")
    metadata = LLAMA | {"llama.embedding_length": 16}
    (tmp_path / "a.gguf").write_bytes(gguf_bytes(metadata, infos, values.tobytes()))
    model = checkpoints.from_gguf(tmp_path / "a.gguf", verbose=0)
    checkpoints.to_gguf(model, tmp_path / "b.gguf", quantize="Q8_0", verbose=0)
    kinds = {name.removesuffix(".weight"): each.kind for name, each in Container(tmp_path / "b.gguf").tensors.items()}
    assert kinds.pop("blk.0.ffn_down") == "Q8_0"
    assert kinds == {name: "F16" if len(sizes[name]) == 2 else "F32" for name in kinds}


def test_a_refused_model_leaves_nothing_behind(tmp_path):
    model = checkpoints.from_huggingface(folder_of("gemma2-CausalLM"), verbose=0, task="backbone")
    model.checkpoint.config.values |= {"hidden_activation": "gelu_pytorch_tanh"}
    with pytest.raises(checkpoints.ConfigError):  # Other settings of it are not Gemma 2's.
        checkpoints.to_gguf(model, tmp_path / "a.gguf", quantize="Q8_0", verbose=0)
    assert list(tmp_path.iterdir()) == []


# Tokenizers.


@pytest.mark.parametrize("name", ["llama", "gemma", "t5", "gpt2", "qwen2", "bert"])
def test_tokenizers_are_written_as_they_were_read(name, tmp_path):
    first = Container(DATA / "gguf" / f"{name}.vocab.gguf").metadata
    for file, content in tokenizer_files(Metadata(first)).items():
        (tmp_path / file).write_bytes(content)
    tokenizer = from_huggingface(tmp_path)
    rows = len(first["tokenizer.ggml.tokens"])
    config = checkpoints.Config({"vocab_size": rows})
    checkpoint = types.SimpleNamespace(config=config, files={"chat_template.jinja": b"{{ messages }}"})
    again = tokenizer_metadata(types.SimpleNamespace(tokenizer=tokenizer), checkpoint)
    for key in ("model", "merges"):
        assert again.get(f"tokenizer.ggml.{key}") == first.get(f"tokenizer.ggml.{key}"), key
    # transformers adds tokens that SentencePiece's model does not have, such as the sentinels of T5.
    pairs = zip(again["tokenizer.ggml.tokens"], first["tokenizer.ggml.tokens"], strict=True)
    assert all(ours == theirs or theirs.startswith("[PAD") for ours, theirs in pairs)
    assert again["tokenizer.chat_template"] == "{{ messages }}"
    folder = tmp_path / "again"
    folder.mkdir()
    arrays = {key: np.array(again[key]) for key in again if key.endswith(("token_type", "scores"))}
    charsmap = again.get("tokenizer.ggml.precompiled_charsmap")
    arrays |= {} if charsmap is None else {"tokenizer.ggml.precompiled_charsmap": np.frombuffer(charsmap, "uint8")}
    architecture = {"general.architecture": first["general.architecture"]}
    for file, content in tokenizer_files(Metadata({**again, **arrays, **architecture})).items():
        (folder / file).write_bytes(content)
    read = from_huggingface(folder)
    source = name if name in ("gpt2", "qwen2") else f"{name}_old"
    texts = json.loads((DATA / "tokenizers" / source / "expected.json").read_text())["texts"]
    for text in texts:
        options = {"allow_special_tokens": True, **tokenizer.template_options}
        assert read.encode(text, **options) == tokenizer.encode(text, **options), text


def test_an_unknown_way_of_splitting_is_refused(tmp_path):
    tokenizer = from_huggingface(DATA / "tokenizers" / "whisper")
    config = checkpoints.Config({"vocab_size": tokenizer.vocabulary_size})
    content = tokenizer.content
    content["pre_tokenizer"]["add_prefix_space"] = True
    other = type(tokenizer)(json.dumps(content), tokenizer.special_tokens)
    checkpoint = types.SimpleNamespace(config=config, files={})
    with pytest.raises(InvalidTokenizerError, match="no name for the pre-tokenizer"):
        tokenizer_metadata(types.SimpleNamespace(tokenizer=other), checkpoint)


# Refusals.


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("bloom-CausalLM", checkpoints.UnknownArchitectureError, "'bloom' is not written as a GGUF file"),
        ("qwen2-SequenceClassification", checkpoints.UnexpectedTensorError, "no place for the tensor 'score"),
        ("mistral-CausalLM", checkpoints.ConfigError, "activation is gelu: llama.cpp would take silu"),
        ("llama_dynamic-CausalLM", checkpoints.ConfigError, "no key for a rope scaling of the type 'dynamic'"),
    ],
)
def test_what_a_file_cannot_say_is_refused(name, error, message, tmp_path):
    model = checkpoints.from_huggingface(folder_of(name), verbose=0)
    with pytest.raises(error, match=message):
        checkpoints.to_gguf(model, tmp_path / "a.gguf", verbose=0)
    assert list(tmp_path.iterdir()) == []


def test_arguments_are_checked_first(tmp_path):
    model = load("gpt2")
    with pytest.raises(ValueError, match="quantize must be None or one of F32.*Q4_K_M.*'Q3_K'"):
        checkpoints.to_gguf(model, tmp_path / "a.gguf", quantize="Q3_K")
    del model.checkpoint
    with pytest.raises(checkpoints.CheckpointError, match="was not read by from_huggingface"):
        checkpoints.to_gguf(model, tmp_path / "a.gguf")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_a_folder_of_transformers_becomes_a_file(name, tmp_path):
    checkpoints.to_huggingface(load(name), tmp_path / "folder", verbose=0)
    model = checkpoints.from_huggingface(tmp_path / "folder", verbose=0)
    checkpoints.to_gguf(model, tmp_path / "a.gguf", verbose=0)
    theirs, ours = Container(DATA / "gguf" / f"{name}.gguf"), Container(tmp_path / "a.gguf")
    for each in theirs.tensors:
        np.testing.assert_array_equal(ours.blocks(each), theirs.blocks(each), each)
