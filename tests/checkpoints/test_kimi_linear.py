"""Kimi Linear with the settings and the names of its published folders."""

import json
import pathlib
import shutil

import numpy as np
from safetensors.numpy import load_file, save_file

from checkpoint_cases import Expected, difference, predicted
from keras_transformer import checkpoints

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
NAME = "kimi_linear-CausalLM"


def test_the_settings_of_published_folders(tmp_path):
    folder = pathlib.Path(shutil.copytree(DATA / NAME, tmp_path / NAME))
    config = json.loads((folder / "config.json").read_text())
    width, heads, kernel = (config.pop(f"linear_{name}") for name in ("head_dim", "num_heads", "conv_kernel_dim"))
    del config["layer_types"]
    config["linear_attn_config"] = {
        "head_dim": width,
        "num_heads": heads,
        "short_conv_kernel_size": kernel,
        "kda_layers": [1, 3],
        "full_attn_layers": [2],
    }
    (folder / "config.json").write_text(json.dumps(config | {"mla_use_nope": True, "moe_layer_freq": 1}))
    tensors = load_file(folder / "model.safetensors")
    dense = {name: name.replace("block_sparse_moe", "mlp") for name in tensors if "layers.1.block_sparse_moe" in name}
    assert len(dense) == 3
    save_file(
        {dense.get(name, name): np.ascontiguousarray(x) for name, x in tensors.items()}, folder / "model.safetensors"
    )
    expected = Expected(DATA / NAME)
    model = checkpoints.from_huggingface(folder, verbose=0)
    assert difference(predicted(model, expected.inputs), expected.outputs, expected.inputs)[0] <= 1e-5
    checkpoints.to_huggingface(model, tmp_path / "again", verbose=0)
    assert sorted(load_file(tmp_path / "again" / "model.safetensors")) == sorted(
        load_file(folder / "model.safetensors")
    )
