"""Saving of a model's adapters in PEFT's format."""

from __future__ import annotations

import collections
import json
import pathlib

import keras
import numpy as np

from keras_transformer.checkpoints.checkpoint import checkpoint_of
from keras_transformer.checkpoints.errors import CheckpointError
from keras_transformer.checkpoints.files.folder import check_empty
from keras_transformer.checkpoints.peft.modules import Module, modules_of
from keras_transformer.checkpoints.peft.reading import CONFIG, PREFIX, WEIGHTS
from keras_transformer.utils.atomic_write import replacing_folder
from keras_transformer.utils.types import JsonObject, Path


def to_peft(model: keras.Model, folder: Path, *, like: Path | None = None, base_model: str | None = None) -> None:
    """Saves the adapters of a model as a PEFT folder, which `peft.PeftModel.from_pretrained(base, folder)` loads.

    The product of A and B is that of the model. Kernels that are one module in the checkpoint, such as GPT-2's queries,
    keys and values, become one adapter: of the same rank if they share A, as after `from_peft`, and of the sum of their
    ranks if not.

    Args:
        model: `keras.Model` of `from_huggingface` or `from_gguf`, with adapters of `add_lora` or `from_peft`.
        folder: str or path of a folder that does not exist or is empty.
        like: str or path of the checkpoint, for a model that was not read from one. Defaults to the model's own.
        base_model: str or None. The name or path of the checkpoint for the config. Default None.

    Raises:
        CheckpointError: the folder is not empty; the checkpoint of the model is not known; a weight is trained that is no
            adapter of a linear module of the checkpoint, such as a new head, which this format would lose.
        AdapterError: the model has no adapters.

    Example:

    >>> to_peft(add_lora(from_huggingface("HuggingFaceTB/SmolLM2-135M")), "adapter")  # doctest: +SKIP

    Reference: Hu et al., LoRA, arXiv 2106.09685; the format of PEFT 0.21.
    """
    from safetensors.numpy import save_file

    from keras_transformer.checkpoints.writing import checkpoint_like
    from keras_transformer.training.adapters import adapted_layers

    folder = pathlib.Path(folder)
    check_empty(folder)
    adapted = {id(layer): layer for layer in adapted_layers(model)}
    modules = modules_of(checkpoint_of(model) if like is None else checkpoint_like(like), model)
    _check_all_written(model, list(adapted.values()), modules)
    tensors: dict[str, np.ndarray] = {}
    scales: dict[str, float] = {}
    for name, module in modules.items():
        layers = [layer if id(layer) in adapted else None for layer in module.layers]
        if any(layer is not None for layer in layers):
            a, b, scales[name] = _joined(module, layers)
            tensors |= {f"{PREFIX}{name}.lora_A.weight": a, f"{PREFIX}{name}.lora_B.weight": b}
    ranks = {name: tensors[f"{PREFIX}{name}.lora_A.weight"].shape[0] for name in scales}
    config = _config(ranks, {name: scales[name] * ranks[name] for name in scales}, modules, base_model)
    config["task_type"] = "CAUSAL_LM" if type(model).__name__ == "LanguageModel" and not model.source_names else None
    with replacing_folder(folder.resolve()) as work:
        save_file(tensors, work / WEIGHTS, metadata={"format": "pt"})
        (work / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _joined(module: Module, layers: list[keras.layers.Layer]) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns A and B of a module, and their scale; layers of several scales have theirs in B."""
    scale = next(layer.lora_alpha / layer.lora_rank for layer in layers if layer is not None)
    factors: list[tuple[np.ndarray, np.ndarray] | None] = []
    for layer in layers:
        if layer is None:
            factors.append(None)
            continue
        a, b = (keras.ops.convert_to_numpy(each) for each in (layer.lora_kernel_a, layer.lora_kernel_b))
        own = layer.lora_alpha / layer.lora_rank
        factors.append((a, b if own == scale else b * np.float32(own / scale)))
    return *module.write(factors), scale


def _check_all_written(model: keras.Model, adapted: list[keras.layers.Layer], modules: dict[str, Module]) -> None:
    """Raises an error for trained weights that the folder would lack, before anything is written."""
    written = {id(layer): module for module in modules.values() for layer in module.layers}
    for layer in adapted:
        module = written.get(id(layer))
        if module is None:
            raise CheckpointError(f"{layer.path!r} has an adapter, but is no linear module of the checkpoint.")
        inputs = int(np.prod(layer.lora_kernel_a.shape[:-1]))
        if inputs != module.sizes[0]:
            raise CheckpointError(f"{layer.path!r} has an adapter with an A for each head, which PEFT does not have.")
    own = {id(each) for layer in adapted for each in (layer.lora_kernel_a, layer.lora_kernel_b)}
    others = [weight.path for weight in model.trainable_weights if id(weight) not in own]
    if others:
        raise CheckpointError(
            f"{others[0]!r} is trained without an adapter, and PEFT's format would lose it: use training.save_lora."
        )


def _config(
    ranks: dict[str, int], alphas: dict[str, float], modules: dict[str, Module], base_model: str | None
) -> JsonObject:
    rank, alpha = (collections.Counter(each.values()).most_common(1)[0][0] for each in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": base_model,
        "bias": "none",
        "fan_in_fan_out": not modules[next(iter(ranks))].transposed,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": _number(alpha),
        "lora_dropout": 0.0,
        "use_dora": False,
        "use_rslora": False,
        "modules_to_save": None,
        "target_modules": _targets(list(ranks), list(modules)),
        "rank_pattern": {name: each for name, each in ranks.items() if each != rank},
        "alpha_pattern": {name: _number(each) for name, each in alphas.items() if each != alpha},
    }


def _number(value: float) -> float:
    return int(value) if float(value).is_integer() else float(value)


def _targets(chosen: list[str], known: list[str]) -> list[str]:
    """Returns the last parts of names, such as "q_proj", if these select the chosen modules; else the whole names."""
    ends = {name.rpartition(".")[2] for name in chosen}
    selected = {name for name in known if name.rpartition(".")[2] in ends}
    return sorted(ends) if selected == set(chosen) else sorted(chosen)
