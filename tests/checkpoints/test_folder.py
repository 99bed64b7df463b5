"""Folders that are wrong or hostile: one clear error, before memory is taken."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformer import checkpoints, tasks
from keras_transformer.checkpoints import from_huggingface, to_huggingface

SOURCE = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "bert-SequenceClassification"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    return pathlib.Path(shutil.copytree(SOURCE, tmp_path / "checkpoint"))


@pytest.fixture
def sharded(folder, tmp_path):
    model = from_huggingface(folder, verbose=0)
    to_huggingface(model, tmp_path / "sharded", max_shard_bytes=8000, verbose=0)
    return tmp_path / "sharded"


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def change_tensors(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def change_index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def refusal(folder, kind):
    with pytest.raises(kind) as raised:
        from_huggingface(folder, verbose=0)
    assert isinstance(raised.value, checkpoints.CheckpointError)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_shards_are_read_as_one_file(sharded, folder):
    assert len(list(sharded.glob("*.safetensors"))) == 3
    weights = [
        model.get_weights() for model in (from_huggingface(sharded, verbose=0), from_huggingface(folder, verbose=0))
    ]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_folder_that_is_not_there(tmp_path):
    assert "nowhere" in refusal(tmp_path / "nowhere", checkpoints.MissingFileError)


def test_no_weights_but_a_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pytorch_model.bin" in refusal(folder, checkpoints.MissingFileError)


def test_a_missing_shard(sharded):
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    assert shard.name in refusal(sharded, checkpoints.MissingFileError)


def test_a_shard_outside_of_the_folder(sharded):
    name = "classifier.bias"
    change_index(sharded, lambda places: places.update({name: "../" + places[name]}))
    assert "../model-" in refusal(sharded, checkpoints.UnsafePathError)


def test_a_tensor_that_its_shard_has_not(sharded):
    change_index(sharded, lambda places: places.update({"nothing.weight": places["classifier.bias"]}))
    assert "nothing.weight" in refusal(sharded, checkpoints.MissingTensorError)


def test_a_missing_tensor(folder):
    change_tensors(folder, lambda tensors: tensors.pop("classifier.bias"))
    assert "classifier.bias" in refusal(folder, checkpoints.MissingTensorError)


def test_an_extra_tensor(folder):
    change_tensors(folder, lambda tensors: tensors.update({"bert.extra": np.zeros(2, "float32")}))
    assert "bert.extra" in refusal(folder, checkpoints.UnexpectedTensorError)


def test_a_tensor_of_another_shape(folder):
    name = "bert.encoder.layer.1.output.dense.weight"
    change_tensors(folder, lambda tensors: tensors.update({name: np.ascontiguousarray(tensors[name].T)}))
    message = refusal(folder, checkpoints.TensorShapeError)
    assert name in message
    assert "(24, 16)" in message
    assert "(16, 24)" in message


@pytest.mark.parametrize("value", [-1, 0, -1e-12, float("nan"), float("inf"), 1e-300, 2, 1e300, 10**400])
def test_an_epsilon_out_of_range(folder, value):
    change_config(folder, layer_norm_eps=value)
    message = refusal(folder, checkpoints.ConfigError)
    assert "config.json: 'layer_norm_eps' is " in message


def test_a_list_that_is_a_number(tmp_path):
    folder = pathlib.Path(shutil.copytree(SOURCE.parent / "wav2vec2-CTC", tmp_path / "checkpoint"))
    change_config(folder, conv_dim=7)
    assert "config.json: TypeError: " in refusal(folder, checkpoints.ConfigError)


def test_integers_in_place_of_floats(folder):
    name = "classifier.bias"
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].astype("int32")}))
    message = refusal(folder, checkpoints.TensorTypeError)
    assert message == f"{folder}: {name!r} has the dtype I32; supported for it: F64, F32, F16, BF16."


def test_values_that_would_become_infinite(folder):
    name = "bert.encoder.layer.1.output.dense.bias"

    def change(tensors):
        tensors[name] = tensors[name].astype("float64")
        tensors[name][1] = -1e300

    change_tensors(folder, change)
    assert f"{name!r} has the value -1e+300 at (1,), which is infinite in float32" in refusal(
        folder, checkpoints.TensorTypeError
    )
    change_tensors(folder, lambda tensors: tensors.update({name: tensors[name].clip(-1e5, 1e5).astype("float32")}))
    from_huggingface(folder, verbose=0)
    with pytest.raises(checkpoints.TensorTypeError, match="value -100000 at .* infinite in float16"):
        from_huggingface(folder, dtype="float16", verbose=0)


@pytest.mark.parametrize("keep", [4, 100, -3])
def test_truncated_safetensors(folder, keep):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:keep])
    assert "model.safetensors" in refusal(folder, checkpoints.CorruptFileError)


def test_a_truncated_config(folder):
    (folder / "config.json").write_text('{"model_type": "be')
    assert "config.json" in refusal(folder, checkpoints.CorruptFileError)


def test_an_unknown_architecture(folder):
    change_config(folder, model_type="blender")
    message = refusal(folder, checkpoints.UnknownArchitectureError)
    assert "blender" in message
    assert "bert" in message


def test_an_unknown_head(folder):
    change_config(folder, architectures=["BertForNothing"])
    message = refusal(folder, checkpoints.UnknownArchitectureError)
    assert "Nothing" in message
    assert "TokenClassification" in message


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": 10**12},
        {"num_hidden_layers": 10**8},
        {"hidden_size": -4},
        {"hidden_size": "wide"},
        {"layer_norm_eps": float("inf")},
        {"hidden_act": "magic"},
        {"position_embedding_type": "relative_key"},
    ],
)
def test_an_absurd_setting(folder, changes):
    change_config(folder, **changes)
    assert next(iter(changes)) in refusal(folder, checkpoints.ConfigError)


def test_settings_that_do_not_go_together(folder):
    change_config(folder, num_attention_heads=3)
    assert "num_heads must divide hidden_dim" in refusal(folder, checkpoints.ConfigError)


def test_generation_ends_as_generation_config_says(tmp_path):
    folder = pathlib.Path(shutil.copytree(SOURCE.with_name("llama-CausalLM"), tmp_path / "checkpoint"))
    assert from_huggingface(folder, verbose=0).end_id == 3
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    assert from_huggingface(folder, verbose=0).end_id == (7, 9)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, -9]}))
    assert "'eos_token_id' is [7, -9]; it must be" in refusal(folder, checkpoints.ConfigError)


def test_a_size_that_fits_in_no_memory_is_refused_by_its_tensors(folder):
    change_config(folder, vocab_size=2 * 10**9)  # 128 GB
    assert "word_embeddings" in refusal(folder, checkpoints.TensorShapeError)


def test_models_built_after_a_refusal_have_weights(folder):
    change_config(folder, vocab_size=2 * 10**9)
    refusal(folder, checkpoints.TensorShapeError)
    assert np.isfinite(from_huggingface(SOURCE, verbose=0).get_weights()[0]).all()


@pytest.mark.slow
def test_large_tensors_are_taken_over_and_train_alike(monkeypatch):
    keras.utils.set_random_seed(0)
    small = from_huggingface(SOURCE, verbose=0)
    monkeypatch.setattr("keras_transformer.backend.devices.unallocated._LARGE", 0)
    keras.utils.set_random_seed(0)
    large = from_huggingface(SOURCE, verbose=0)
    np.testing.assert_equal(large.get_weights(), small.get_weights())
    tokens = np.arange(24).reshape(4, 6) + 5
    inputs = {"token_ids": tokens, "padding_mask": tokens > 0, "segment_ids": 0 * tokens}
    for model in (small, large):
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(inputs, np.ones((4, 3)), epochs=2, shuffle=False, verbose=0)
    for one, other in zip(small.get_weights(), large.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_another_head_begins_anew():
    model = from_huggingface(SOURCE, task=lambda backbone: tasks.Tagger(backbone, num_tags=5), verbose=0)
    whole = from_huggingface(SOURCE, verbose=0)
    assert model.output_shape == (None, None, 5)
    by_path = {weight.path: weight.numpy() for weight in whole.weights}
    for weight in model.weights:
        if not weight.path.startswith("logits"):
            np.testing.assert_array_equal(weight.numpy(), by_path[weight.path])
    assert model.get_layer("logits").kernel.numpy().std() > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_dtypes(dtype):
    model = from_huggingface(SOURCE, dtype=dtype, verbose=0)
    assert model.get_layer("token_embedding").variable_dtype == dtype.replace("mixed_bfloat16", "float32")
    assert model.get_layer("token_embedding").compute_dtype == "bfloat16"


def test_a_bfloat16_checkpoint_comes_back_as_it_was(folder, tmp_path):
    import ml_dtypes

    change_tensors(folder, lambda t: t.update({name: a.astype(ml_dtypes.bfloat16) for name, a in t.items()}))
    to_huggingface(from_huggingface(folder, verbose=0), tmp_path / "again", verbose=0)
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "again"))
    assert {name: (a.dtype, a.tobytes()) for name, a in before.items()} == {
        name: (a.dtype, a.tobytes()) for name, a in after.items()
    }


def test_a_model_that_was_saved_by_keras_is_written_like_its_origin(tmp_path):
    from keras_transformer import load_model

    from_huggingface(SOURCE, verbose=0).save(tmp_path / "model.keras")
    model = load_model(tmp_path / "model.keras")
    with pytest.raises(checkpoints.CheckpointError, match="like="):
        to_huggingface(model, tmp_path / "again", verbose=0)
    to_huggingface(model, tmp_path / "again", like=SOURCE, verbose=0)
    before, after = (load_file(path / "model.safetensors") for path in (SOURCE, tmp_path / "again"))
    np.testing.assert_equal(after, before)


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(checkpoints.CheckpointError, match="is not empty"):
        to_huggingface(from_huggingface(SOURCE, verbose=0), tmp_path, verbose=0)


def test_a_model_is_sampled_as_generation_config_says(tmp_path):
    """It stays with the model, in its own file and in what a bundle says of it."""
    folder = pathlib.Path(shutil.copytree(SOURCE.with_name("llama-CausalLM"), tmp_path / "checkpoint"))
    config = {"do_sample": True, "temperature": 0.6, "top_p": 0.9}
    (folder / "generation_config.json").write_text(json.dumps(config))
    model = from_huggingface(folder, verbose=0)
    assert (model.sampling.temperature, model.sampling.top_p) == (0.6, 0.9)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.generation_spec.to_dict()["sampling"]["top_p"] == 0.9
