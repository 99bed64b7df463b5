"""PEFT's adapters in and out: the logits of PEFT, every tensor, and what is refused before anything changes."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformer import tasks, training
from keras_transformer.checkpoints import CheckpointError, ConfigError, from_huggingface, from_peft, to_peft

DATA = pathlib.Path(__file__).parents[1] / "data"
BASES = {
    "llama": "llama-CausalLM",
    "llama-patterns": "llama-CausalLM",
    "gpt2": "gpt2-LMHeadModel",
    "gpt_neox": "gpt_neox-CausalLM",
}


def base(name):
    return from_huggingface(DATA / "checkpoints" / BASES[name], verbose=0)


def logits(model):
    tokens = np.load(DATA / "adapters" / "llama" / "expected.npz")["token_ids"].astype("int32")
    inputs = {"token_ids": tokens, "padding_mask": np.ones(tokens.shape, bool)}
    return keras.ops.convert_to_numpy(model(inputs))


def product(tensors, config):
    """Dict of the name of a module to its scaled product B A."""
    products = {}
    for name in [each for each in tensors if each.endswith("lora_A.weight")]:
        module = name.removesuffix(".lora_A.weight")
        a, b = tensors[name], tensors[f"{module}.lora_B.weight"]
        short = module.removeprefix("base_model.model.")
        alpha = config["alpha_pattern"].get(short, config["lora_alpha"])
        products[short] = b @ a * (alpha / a.shape[0])
    return products


def changed(folder, **settings):
    """Changes settings of an adapter's config."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


@pytest.fixture
def copied(tmp_path):
    """Function that copies the adapter of a name to change it."""
    return lambda name="llama": pathlib.Path(shutil.copytree(DATA / "adapters" / name, tmp_path / name))


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_a_model_with_an_adapter_has_the_logits_of_peft(name):
    model = base(name)
    expected = np.load(DATA / "adapters" / name / "expected.npz")["logits"]
    assert np.abs(logits(model) - expected).max() > 0.01
    assert from_peft(model, DATA / "adapters" / name) is model
    np.testing.assert_allclose(logits(model), expected, atol=2e-5)
    assert {weight.name for weight in model.trainable_weights} == {"lora_kernel_a", "lora_kernel_b"}
    training.merge_lora(model)
    np.testing.assert_allclose(logits(model), expected, atol=2e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox"])
def test_what_was_read_is_written_back_bit_for_bit(name, tmp_path):
    to_peft(from_peft(base(name), DATA / "adapters" / name), tmp_path / "again", base_model="somewhere")
    before, after = (
        load_file(folder / "adapter_model.safetensors") for folder in (DATA / "adapters" / name, tmp_path / "again")
    )
    np.testing.assert_equal(after, before)
    theirs, ours = (
        json.loads((folder / "adapter_config.json").read_text())
        for folder in (DATA / "adapters" / name, tmp_path / "again")
    )
    assert ours.pop("base_model_name_or_path") == "somewhere"
    for key in ("r", "lora_alpha", "fan_in_fan_out", "task_type", "peft_type", "bias"):
        assert ours[key] == theirs[key], key
    assert sorted(ours["target_modules"]) == sorted(theirs["target_modules"])


def test_ranks_and_scales_of_modules_are_written(tmp_path):
    """PEFT scales by alpha / √r there; the same products come back scaled by alpha / r."""
    to_peft(from_peft(base("llama-patterns"), DATA / "adapters" / "llama-patterns"), tmp_path / "again")
    config = json.loads((tmp_path / "again" / "adapter_config.json").read_text())
    layer = "model.layers.1"
    assert config["rank_pattern"] == {f"{layer}.self_attn.q_proj": 3}
    assert sorted(config["target_modules"]) == [
        f"{layer}.mlp.down_proj",
        f"{layer}.self_attn.o_proj",
        f"{layer}.self_attn.q_proj",
    ]
    written = product(load_file(tmp_path / "again" / "adapter_model.safetensors"), config)
    tensors = load_file(DATA / "adapters" / "llama-patterns" / "adapter_model.safetensors")
    for short, alpha, rank in (("self_attn.q_proj", 6, 3), ("self_attn.o_proj", 5, 2), ("mlp.down_proj", 6, 2)):
        prefix = f"base_model.model.{layer}.{short}"
        expected = tensors[f"{prefix}.lora_B.weight"] @ tensors[f"{prefix}.lora_A.weight"] * alpha / np.sqrt(rank)
        np.testing.assert_allclose(written[f"{layer}.{short}"], expected, rtol=1e-5, atol=1e-7)
    again = from_peft(base("llama"), tmp_path / "again")
    np.testing.assert_allclose(
        logits(again), np.load(DATA / "adapters" / "llama-patterns" / "expected.npz")["logits"], atol=2e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "gpt_neox"])
def test_adapters_of_queries_and_values_are_one_of_the_fused_module(name, tmp_path):
    """Each has an A of its own: the module has the sum of the ranks, and nothing for the keys."""
    model = training.add_lora(base(name), rank=2, alpha=5)
    random = np.random.default_rng(1)
    for weight in model.trainable_weights:
        weight.assign(random.normal(size=weight.shape) * 0.3)
    to_peft(model, tmp_path / "adapter")
    shapes = [each.shape for each in load_file(tmp_path / "adapter" / "adapter_model.safetensors").values()]
    assert {min(shape) for shape in shapes} == {4}
    again = from_peft(base(name), tmp_path / "adapter")
    np.testing.assert_allclose(logits(again), logits(model), atol=2e-5)
    assert np.abs(logits(model) - logits(base(name))).max() > 0.01


def refused(folder, error, match, model=None):
    model = base("llama") if model is None else model
    before = [weight.path for weight in model.trainable_weights]
    with pytest.raises(error, match=match):
        from_peft(model, folder)
    assert [weight.path for weight in model.trainable_weights] == before


def test_unsupported_features_are_named_before_anything_changes(copied):
    refused(DATA / "adapters" / "dora", ConfigError, "use_dora=True")
    folder = copied()
    for settings, match in (
        ({"bias": "all"}, "bias='all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"a_later_feature": 1}, "a_later_feature"),
        ({"peft_type": "IA3"}, "'IA3'"),
        ({"r": 0}, "'r' must be a positive number"),
        ({"lora_alpha": 1e300}, "'lora_alpha' must be a positive number up to"),
        ({"rank_pattern": {"(": 3}}, "not a regular expression"),
        # It takes exponential time.
        ({"rank_pattern": {"(.+)+,": 3}}, "'rank_pattern': the pattern .* is too complex"),
        ({"alpha_pattern": {".*.*.*.*,": 3}}, "'alpha_pattern': the pattern .* is too complex"),
    ):
        path = folder / "adapter_config.json"
        before = path.read_text()
        refused(changed(folder, **settings), ConfigError, match)
        path.write_text(before)


def test_tensors_that_do_not_fit_are_named_before_anything_changes(copied):
    folder = copied()
    path = folder / "adapter_model.safetensors"
    tensors, key = load_file(path), "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    for changes, match in (
        ({f"{key}A.weight": np.zeros((3, 24), "float32")}, r"q_proj' has shape \(3, 24\).*\(2, 24\)"),
        ({f"{key}A.weight": np.zeros((2, 24), "int32")}, "q_proj.lora_A.weight' has the dtype int32"),
        ({f"{key}A.weight": np.full((2, 24), 1e300)}, r"value 1e\+300 at .* infinite in float32"),
        ({f"{key}magnitude_vector": np.zeros(24, "float32")}, "lora_magnitude_vector"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": np.zeros((2, 60), "float32")}, "embed_tokens"),
        ({f"{key}A.weight".replace("layers.0", "layers.7"): np.zeros((2, 24), "float32")}, "layers.7"),
    ):
        save_file(tensors | changes, path)
        refused(folder, CheckpointError, match)
    save_file({name: each for name, each in tensors.items() if name != f"{key}B.weight"}, path)
    refused(folder, CheckpointError, "lacks.*q_proj.lora_B")
    path.write_bytes(b"no tensors")
    refused(folder, CheckpointError, "not a safetensors file")
    path.unlink()
    refused(folder, CheckpointError, "has no adapter_model.safetensors")


def test_models_that_cannot_have_or_write_an_adapter(tmp_path):
    refused(
        DATA / "adapters" / "llama", training.AdapterError, "already has an adapter", training.add_lora(base("llama"))
    )
    with pytest.raises(training.AdapterError, match="no adapters"):
        to_peft(base("llama"), tmp_path / "none")
    with pytest.raises(CheckpointError, match="final_norm/scale' is trained without an adapter"):
        to_peft(training.add_lora(base("llama"), also="final_norm"), tmp_path / "more")
    with pytest.raises(CheckpointError, match="not read by from_huggingface"):
        to_peft(training.add_lora(tasks.LanguageModel(base("llama").backbone)), tmp_path / "unknown")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(CheckpointError, match="not empty"):
        to_peft(training.add_lora(base("llama")), tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]


def test_the_real_peft_loads_what_is_written(tmp_path):
    peft, torch = pytest.importorskip("peft"), pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = training.add_lora(base("llama"), rank=3, alpha=5, layers="attention|feedforward")
    random = np.random.default_rng(2)
    for weight in model.trainable_weights:
        weight.assign(random.normal(size=weight.shape) * 0.3)
    to_peft(model, tmp_path / "adapter")
    folder = DATA / "checkpoints" / BASES["llama"]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()
    tokens = np.load(DATA / "adapters" / "llama" / "expected.npz")["token_ids"]
    with torch.no_grad():
        np.testing.assert_allclose(theirs(torch.tensor(tokens)).logits.numpy(), logits(model), atol=2e-5)
