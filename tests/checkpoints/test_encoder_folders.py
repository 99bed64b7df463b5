"""Folders of encoders and of sentence-transformers: what is refused, and what is kept for the way back."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from checkpoint_cases import Expected
from keras_transformer import checkpoints
from keras_transformer.checkpoints import from_huggingface, to_huggingface

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"


@pytest.fixture
def copy(tmp_path):
    return lambda name: pathlib.Path(shutil.copytree(DATA / name, tmp_path / name))


def change(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def refusal(folder, kind):
    with pytest.raises(kind) as raised:
        from_huggingface(folder, verbose=0)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_decoder_of_berts_kind_is_refused(copy):
    folder = copy("bert-MaskedLM")
    change(folder / "config.json", architectures=["BertLMHeadModel"])
    assert "LMHeadModel" in refusal(folder, checkpoints.UnknownArchitectureError)
    change(folder / "config.json", architectures=["BertForMaskedLM"], is_decoder=True)
    assert "is_decoder" in refusal(folder, checkpoints.ConfigError)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("albert-Model", {"num_hidden_groups": 6}),
        ("deberta_v2-Model", {"attention_head_size": 8}),
        ("deberta_v2-Model", {"norm_rel_ebd": "batch_norm"}),
        ("deberta_v2-Model", {"pos_att_type": "c2p|p2p"}),
        ("deberta_v2-Model", {"pos_att_type": []}),
        ("deberta_v2-QuestionAnswering", {"pos_att_type": ["c2p"]}),
        ("deberta_v2-SequenceClassification", {"pooler_hidden_size": 8}),
        ("deberta_v2_published-MaskedLM", {"embedding_size": 12}),
        ("electra-MultipleChoice", {"summary_type": "mean"}),
        ("new-Model", {"layer_norm_type": "rms_norm"}),
        ("new-Model", {"logn_attention_scale": True}),
        ("new-Model", {"position_embedding_type": "absolute"}),
        ("new-Model", {"rope_scaling": {"type": "ntk", "factor": 3.0, "mixed_b": 0.6}}),
        ("new-Model", {"rope_scaling": {"type": "ntk", "factor": 0.5}}),
        ("new-Model", {"rope_scaling": {"type": "magic", "factor": 2.0}}),
        ("modernbert-Model", {"layer_types": ["full_attention"]}),
        ("modernbert-Model", {"layer_types": ["magic"] * 4}),
        ("modernbert-MaskedLM", {"decoder_bias": False}),
        ("modernbert-SequenceClassification", {"classifier_pooling": "max"}),
        ("roberta-Model", {"max_position_embeddings": 2}),
        ("roberta-MaskedLM", {"tie_word_embeddings": False}),
    ],
)
def test_a_variant_that_is_not_built(copy, name, changes):
    folder = copy(name)
    change(folder / "config.json", **changes)
    assert next(iter(changes)) in refusal(folder, checkpoints.ConfigError)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"position_buckets": 7}, "num_buckets must be even and at least 4. Received: 7"),
        ({"max_relative_positions": 2**30}, "max_distance must be in [5, 131072]"),
        ({"conv_kernel_size": 4}, "kernel_size must be odd"),
    ],
)
def test_what_deberta_refuses_before_memory_is_taken(copy, changes, message):
    folder = copy("deberta_v2-Model")
    change(folder / "config.json", **changes)
    assert message in refusal(folder, checkpoints.ConfigError)


def test_the_first_version_of_deberta_is_refused(copy):
    folder = copy("deberta_v2-Model")
    change(folder / "config.json", model_type="deberta")
    assert 'unknown model_type "deberta"' in refusal(folder, checkpoints.UnknownArchitectureError)


def test_deberta_as_version_3_is_published(copy, tmp_path):
    """Without "architectures" and "legacy", with a table of positions that is not used, and with two pretraining heads."""
    folder = copy("deberta_v2_published-MaskedLM")
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config = {name: value for name, value in config.items() if name not in ("architectures", "legacy")}
    file.write_text(json.dumps(config | {"position_biased_input": False}))
    before = load_file(folder / "model.safetensors") | {"mask_predictions.dense.bias": np.arange(3.0, dtype="float32")}
    save_file(before, folder / "model.safetensors")
    model = from_huggingface(folder, verbose=0)
    assert model.output_shape == (None, None, 16)
    assert "position_embedding" not in {layer.name for layer in model.layers}
    to_huggingface(model, tmp_path / "again", verbose=0)
    np.testing.assert_equal(load_file(tmp_path / "again" / "model.safetensors"), before)
    change(file, architectures=["DebertaV2ForMaskedLM"])
    assert from_huggingface(folder, verbose=0).output_shape == (None, None, 60)


def test_modernbert_as_configs_before_version_5_describe_it(copy):
    folder = copy("modernbert-Model")
    new = from_huggingface(folder, verbose=0)
    config = json.loads((folder / "config.json").read_text())
    for name in ("rope_parameters", "layer_types"):
        config.pop(name)
    (folder / "config.json").write_text(json.dumps(config))
    change(folder / "config.json", global_attn_every_n_layers=3, global_rope_theta=160.0, local_rope_theta=10.0)
    inputs = {"token_ids": np.arange(5, 25)[None].astype("int32"), "padding_mask": np.ones((1, 20), bool)}
    np.testing.assert_array_equal(from_huggingface(folder, verbose=0)(inputs), new(inputs))


def test_the_other_half_of_pretraining_is_kept_for_the_way_back(copy, tmp_path):
    folder = copy("bert-MaskedLM")
    more = {
        "bert.pooler.dense.weight": np.ones((16, 16), "float16"),
        "cls.seq_relationship.bias": np.arange(2.0, dtype="float32"),
        "bert.embeddings.position_ids": np.arange(20)[None],
    }
    before = load_file(folder / "model.safetensors") | more
    save_file(before, folder / "model.safetensors")
    to_huggingface(from_huggingface(folder, verbose=0), tmp_path / "again", verbose=0)
    after = load_file(tmp_path / "again" / "model.safetensors")
    assert sorted(after) == sorted(before)
    for name, array in before.items():
        assert (after[name].dtype, after[name].tobytes()) == (array.dtype, array.tobytes()), name


def test_norms_under_their_old_names(copy, tmp_path):
    folder = copy("bert-TokenClassification")
    wanted = from_huggingface(folder, verbose=0).get_weights()
    tensors = load_file(folder / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in tensors.items()
    }
    assert "bert.embeddings.LayerNorm.gamma" in old
    save_file(old, folder / "model.safetensors")
    model = from_huggingface(folder, verbose=0)
    for found, expected in zip(model.get_weights(), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    to_huggingface(model, tmp_path / "again", verbose=0)
    np.testing.assert_equal(load_file(tmp_path / "again" / "model.safetensors"), old)
    save_file(old | tensors, folder / "model.safetensors")
    assert "twice" in refusal(folder, checkpoints.CorruptFileError)


def test_the_files_of_sentence_transformers_come_back(tmp_path):
    folder = DATA / "sentence-bert"
    to_huggingface(from_huggingface(folder, verbose=0), tmp_path / "again", verbose=0)
    for name in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


def test_vectors_of_sentences_have_length_one():
    model = from_huggingface(DATA / "sentence-bert", verbose=0)
    ids = np.array([[7, 9, 11]], "int32")
    inputs = {"token_ids": ids, "padding_mask": ids > 0, "segment_ids": ids * 0}
    np.testing.assert_allclose(np.linalg.norm(model.predict(inputs, verbose=0), axis=-1), 1.0, atol=1e-6)
    assert from_huggingface(DATA / "sentence-bert", task="backbone", verbose=0).output_shape == (None, None, 16)


def modules_of(folder):
    return json.loads((folder / "modules.json").read_text())


def test_a_module_outside_of_the_folder(copy):
    folder = copy("sentence-bert")
    modules = modules_of(folder)
    modules[1]["path"] = "../1_Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert "../1_Pooling" in refusal(folder, checkpoints.UnsafePathError)


def test_a_module_that_is_not_built(copy):
    folder = copy("sentence-bert")
    modules = modules_of(folder)
    modules[2]["type"] = "sentence_transformers.models.LSTM"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert "LSTM" in refusal(folder, checkpoints.ConfigError)


@pytest.mark.parametrize("content", ['{"0": 1}', "[1, 2]", "[{}]"])
def test_modules_that_are_no_list_of_modules(copy, content):
    folder = copy("sentence-bert")
    (folder / "modules.json").write_text(content)
    assert "modules.json" in refusal(folder, checkpoints.CorruptFileError)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("sentence-bert", {"pooling_mode_weightedmean_tokens": True}),
        ("sentence-bert", {"include_prompt": False}),
        ("sentence-roberta", {"pooling_mode": "magic"}),
    ],
)
def test_a_pooling_that_is_not_built(copy, name, changes):
    folder = copy(name)
    change(folder / "1_Pooling" / "config.json", **changes)
    assert next(iter(changes)) in refusal(folder, checkpoints.ConfigError)


def test_a_pooling_without_settings(copy):
    folder = copy("sentence-bert")
    (folder / "1_Pooling" / "config.json").unlink()
    assert "1_Pooling" in refusal(folder, checkpoints.MissingFileError)


def test_nomic_bert_as_its_first_configs_describe_it(copy):
    folder = copy("nomic_bert-Model")
    new = from_huggingface(folder, verbose=0)
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config |= {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_inner": 20, "layer_norm_epsilon": config["layer_norm_eps"]}
    config |= {"rotary_emb_base": 100, "activation_function": "swiglu", "prenorm": False, "rotary_scaling_factor": None}
    old = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "layer_norm_eps")
    for name in (*old, "rope_parameters"):
        config.pop(name)
    file.write_text(json.dumps(config))
    inputs = {"token_ids": np.arange(5, 17)[None].astype("int32"), "padding_mask": np.ones((1, 12), bool)}
    inputs["segment_ids"] = inputs["token_ids"] % 2
    np.testing.assert_array_equal(from_huggingface(folder, verbose=0)(inputs), new(inputs))
    change(file, prenorm=True)
    assert "'prenorm' is true; only false is supported" in refusal(folder, checkpoints.ConfigError)


def test_gte_as_a_model_of_sentences(copy, tmp_path):
    """The first checkpoints have a classifier of tokens in the file, which sentences do not need."""
    folder = copy("new-Model")
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    entries = [{"path": path, "type": f"sentence_transformers.models.{name}"} for name, path in modules]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    model, expected = from_huggingface(folder, verbose=0), Expected(folder)
    tokens = expected.outputs["output"][:, 0]
    wanted = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    np.testing.assert_allclose(model.predict(expected.inputs, verbose=0), wanted, atol=1e-6)
    to_huggingface(model, tmp_path / "again", verbose=0)
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "again"))
    np.testing.assert_equal(after, before)


def test_queries_keys_and_values_that_are_not_packed(copy):
    folder = copy("new-MaskedLM")
    change(folder / "config.json", pack_qkv=True)
    assert "qkv_proj" in refusal(folder, checkpoints.MissingTensorError)
