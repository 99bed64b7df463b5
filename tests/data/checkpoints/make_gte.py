"""Makes the folders gte-* and new-*: python tests/data/checkpoints/make_gte.py (transformers 5.23, torch 2.13).

The code of `NewModel`, of which the first checkpoints are, is not a part of transformers. What it computes is written out in
`new_tokens` below; without scaled positions it is compared with transformers.
"""

import json
import pathlib
import shutil
import tempfile

import numpy as np
import torch
import transformers
from encoders import LOGITS, TOKENS, make
from safetensors.torch import load_file, save_file
from torch.nn import functional
from writing import HERE, build, ragged_tokens, run

CONFIG = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 20,
    "type_vocab_size": 3,
    "hidden_act": "silu",
    "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}
OUTPUTS = {
    "Model": TOKENS,
    "ForMaskedLM": LOGITS,
    "ForSequenceClassification": LOGITS,
    "ForTokenClassification": LOGITS,
}
# Settings of the first checkpoints.
NEW = {
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "layer_norm_type": "layer_norm",
    "pack_qkv": True,
    "position_embedding_type": "rope",
    "unpad_inputs": True,
    "use_memory_efficient_attention": True,
}
GRADIENTS = (
    "gte.embeddings.token_type_embeddings.weight",
    "gte.encoder.layer.0.attention.o_proj.weight",
    "gte.encoder.layer.0.attn_ln.bias",
    "gte.encoder.layer.1.mlp.down_proj.weight",
    "classifier.weight",
)


def rates(config):
    """Angle per position of each pair of features: NTK scaling with the factor of the first checkpoints."""
    width = config["hidden_size"] // config["num_attention_heads"]
    factor = (config["rope_scaling"] or {"factor": 1.0})["factor"]
    even = torch.arange(0, width, 2).float()
    return 1 / (config["rope_theta"] * factor) ** (even / width) / factor ** (2 / width)


def rotated(x, angles):
    """Queries or keys `(B, N, T, H)` turned: each feature with the one half a head away."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def new_tokens(config, tensors, token_ids, mask, segment_ids=None):
    """The last hidden state of a checkpoint of `NewModel`, whose tensors have no prefix."""
    width, heads, epsilon = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    activation = getattr(functional, config["hidden_act"])

    def norm(x, name):
        return functional.layer_norm(x, (width,), tensors[f"{name}.weight"], tensors[f"{name}.bias"], epsilon)

    def linear(x, name):
        return functional.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))

    x = tensors["embeddings.word_embeddings.weight"][token_ids]
    if config["type_vocab_size"]:
        segment_ids = torch.zeros_like(token_ids) if segment_ids is None else segment_ids
        x = x + tensors["embeddings.token_type_embeddings.weight"][segment_ids]
    x = norm(x, "embeddings.LayerNorm")
    angles = torch.arange(token_ids.shape[1]).float()[:, None] * rates(config)
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        if config["pack_qkv"]:
            parts = linear(x, f"{layer}.attention.qkv_proj").split(width, dim=-1)
        else:
            parts = [linear(x, f"{layer}.attention.{letter}_proj") for letter in "qkv"]
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        scores = rotated(query, angles) @ rotated(key, angles).mT / (width // heads) ** 0.5
        weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(dim=-1)
        context = (weights @ value).transpose(1, 2).flatten(2)
        x = norm(x + linear(context, f"{layer}.attention.o_proj"), f"{layer}.attn_ln")
        hidden, gate = linear(x, f"{layer}.mlp.up_gate_proj").chunk(2, dim=-1)
        x = norm(x + linear(hidden * activation(gate), f"{layer}.mlp.down_proj"), f"{layer}.mlp_ln")
    return x


def new_checkpoint(name, config, head=None, **settings):
    """Writes a folder of the first checkpoints; `head` is a function of tokens and tensors to outputs and more tensors."""
    model = build(transformers.GteModel, config)
    values = config.to_dict() | NEW | {"rope_scaling": None, "rope_theta": 30.0} | settings | {"model_type": "new"}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder) / "model.safetensors")
    token_ids, mask = ragged_tokens(config.vocab_size)
    theirs = [torch.tensor(token_ids).long(), torch.tensor(mask)]
    known = values | {"rope_scaling": None, "rope_theta": 100.0, "pack_qkv": True}
    wanted = run(model, input_ids=token_ids, attention_mask=mask).last_hidden_state
    np.testing.assert_allclose(new_tokens(known, tensors, *theirs)[mask], wanted[mask], atol=2e-6)
    if not values["pack_qkv"]:
        tensors = unpacked(tensors)
    tokens = new_tokens(values, tensors, *theirs)
    outputs, more = ({"output": tokens}, {}) if head is None else head(tokens, tensors)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save_file(
        {f"new.{key}": value for key, value in tensors.items()} | more, folder / "model.safetensors", {"format": "pt"}
    )
    del values["rope_parameters"], values["transformers_version"]
    (folder / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
    inputs = {"input/token_ids": token_ids, "input/padding_mask": mask}
    if config.type_vocab_size > 1:
        inputs["input/segment_ids"] = np.zeros_like(token_ids)
    np.savez_compressed(folder / "expected.npz", **inputs, **{f"output/{key}": each for key, each in outputs.items()})
    print(name)


def unpacked(tensors):
    """Queries, keys and values in tensors of their own."""
    found = {}
    for name, tensor in tensors.items():
        parts = zip("qkv", tensor.chunk(3), strict=True) if "qkv_proj" in name else [("qkv", tensor)]
        found |= {name.replace("qkv_proj", f"{letter}_proj"): part.clone() for letter, part in parts}
    return found


def masked_language_head(tokens, tensors):
    """The head of masked language modeling, with the tied embedding twice in the file."""
    random = torch.Generator().manual_seed(3)
    table = tensors["embeddings.word_embeddings.weight"]
    vocabulary_size, width = table.shape
    shapes = {"dense.weight": (width, width), "dense.bias": (width,), "norm.weight": (width,), "norm.bias": (width,)}
    shapes["decoder.bias"] = (vocabulary_size,)
    head = {name: 0.5 * torch.randn(shape, generator=random) for name, shape in shapes.items()}
    hidden = functional.silu(functional.linear(tokens, head["dense.weight"], head["dense.bias"]))
    hidden = functional.layer_norm(hidden, (width,), head["norm.weight"], head["norm.bias"], 3e-3)
    logits = functional.linear(hidden, table, head["decoder.bias"])
    return {"logits": logits}, {f"lm_head.{name}": each for name, each in head.items()} | {
        "lm_head.decoder.weight": table.clone()
    }


def with_classifier(tokens, tensors):
    """A classifier of tokens that the config does not name first."""
    more = {"classifier.weight": torch.ones(1, tokens.shape[-1]), "classifier.bias": torch.zeros(1)}
    return {"output": tokens}, more


def gte():
    for ending, outputs in OUTPUTS.items():
        config = transformers.GteConfig(**CONFIG)
        names = GRADIENTS if ending == "ForTokenClassification" else ()
        make(
            f"gte-{ending.removeprefix('For')}",
            f"Gte{ending}",
            config,
            outputs,
            segments=True,
            gradients_of=in_memory(names),
        )


def in_memory(names):
    """The names in the file of parameters, each with that in memory."""
    changes = (
        ("encoder.layer", "layers"),
        ("attention.o_proj", "self_attn.o_proj"),
        ("attn_ln", "post_attention_layernorm"),
    )
    found = {}
    for name in names:
        inside = name
        for theirs, ours in changes:
            inside = inside.replace(theirs, ours)
        found[name] = inside
    return found


def new():
    # transformers computes its name for the file, whose settings are those of the first checkpoints.
    values = {**CONFIG, "hidden_act": "relu", "type_vocab_size": 0}
    new_checkpoint(
        "new-Model",
        transformers.GteConfig(**values),
        with_classifier,
        architectures=["NewModel", "NewForTokenClassification"],
        rope_scaling={"type": "ntk", "factor": 3.0},
    )
    new_checkpoint(
        "new-MaskedLM",
        transformers.GteConfig(**CONFIG),
        masked_language_head,
        architectures=["NewForMaskedLM"],
        pack_qkv=False,
    )


if __name__ == "__main__":
    gte()
    new()
