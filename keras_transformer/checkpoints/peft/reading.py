"""Loading of PEFT's adapters into models."""

from __future__ import annotations

import pathlib
import re

import keras
import numpy as np

from keras_transformer.checkpoints.checkpoint import Checkpoint, checkpoint_of
from keras_transformer.checkpoints.errors import (
    CorruptFileError,
    MissingFileError,
    MissingTensorError,
    TensorShapeError,
    TensorTypeError,
    UnexpectedTensorError,
)
from keras_transformer.checkpoints.peft.config import AdapterConfig
from keras_transformer.checkpoints.peft.modules import Module, modules_of
from keras_transformer.checkpoints.transfers import check_range
from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.types import Path

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
_NAME = re.compile(rf"(?:{re.escape(PREFIX)})?(?P<module>.+)\.lora_(?P<factor>[AB])\.weight")


def from_peft(model: keras.Model, folder: Path, *, like: Path | None = None) -> keras.Model:
    """Adds the adapters of a PEFT folder to a model that was read from its checkpoint, frozen as by `add_lora`.

    The product of A and B is PEFT's, times alpha / r, or alpha / √r with `use_rslora`; ranks and alphas may differ between
    modules. A module that joins several kernels, such as GPT-2's queries, keys and values, gives each the same A. The
    result trains further, merges, exports and is written by `to_peft`.

    Args:
        model: `keras.Model` of `from_huggingface` or `from_gguf`, without adapters. It is changed in place.
        folder: str or path of a folder with `adapter_config.json` and `adapter_model.safetensors`.
        like: str or path of the checkpoint, for a model that was not read from one. Defaults to the model's own.

    Returns:
        The model.

    Raises:
        MissingFileError: no such folder, or no such file in it.
        CorruptFileError: a file is not JSON or not safetensors.
        ConfigError: the adapter uses what is not supported, such as DoRA, biases or whole modules (`modules_to_save`): the
            message names it.
        UnexpectedTensorError: a tensor is no A or B of a linear module of the checkpoint.
        MissingTensorError, TensorShapeError: an A or B is missing, or has another shape than its module and rank require.
        TensorTypeError: an A or B has integers, or a value that is infinite in float32.
        AdapterError: the model has adapters.
        CheckpointError: the checkpoint of the model is not known. In each case the model is unchanged.

    Example:

    >>> model = from_peft(from_huggingface("HuggingFaceTB/SmolLM2-135M"), "adapter")  # doctest: +SKIP

    Reference: Hu et al., LoRA, arXiv 2106.09685; Kalajdzievski, arXiv 2312.03732 (`use_rslora`); the format of PEFT 0.21.
    """
    from keras_transformer.checkpoints.writing import checkpoint_like
    from keras_transformer.training.adapters import attach, check_not_adapted

    folder = pathlib.Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise MissingFileError(f"{folder} has no {name}.")
    config = AdapterConfig(read_json(folder / CONFIG, CorruptFileError, dict), str(folder / CONFIG))
    checkpoint = checkpoint_of(model) if like is None else checkpoint_like(like)
    source = str(folder / WEIGHTS)
    found = _factors(_tensors(folder / WEIGHTS), modules_of(checkpoint, model), checkpoint, source)
    adapters = []
    for name, (module, factors) in found.items():
        _check(name, module, factors, config, source)
        for factor, tensor in factors.items():
            _check_values(f"{PREFIX}{name}.lora_{factor}.weight", tensor, source)
        alpha = config.alpha(name)
        for layer, (a, b) in zip(module.layers, module.read(factors["A"], factors["B"]), strict=True):
            adapters.append((layer, alpha, a.astype("float32"), b.astype("float32")))
    check_not_adapted([layer for layer, *_ in adapters])
    attach(model, [(layer, a.shape[-1], alpha) for layer, alpha, a, _ in adapters])
    for layer, _, a, b in adapters:
        layer.lora_kernel_a.assign(a)
        layer.lora_kernel_b.assign(b)
    return model


def _tensors(path: pathlib.Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, ValueError) as error:
        raise CorruptFileError(f"{path} is not a safetensors file: {error}") from error


def _factors(
    tensors: dict[str, np.ndarray], modules: dict[str, Module], checkpoint: Checkpoint, source: str
) -> dict[str, tuple[Module, dict[str, np.ndarray]]]:
    """Returns the module and its A and B by the names in the file."""
    known = checkpoint.architecture.base_prefix
    prefixes = (known,) if isinstance(known, str) else known
    found: dict[str, tuple[Module, dict[str, np.ndarray]]] = {}
    for name, tensor in tensors.items():
        parts = _NAME.fullmatch(name)
        # A model with and one without a head differ in a prefix.
        names = [] if parts is None else _with_prefixes(parts["module"], prefixes)
        module = next((modules[each] for each in names if each in modules), None)
        if parts is None or module is None:
            raise UnexpectedTensorError(f"{source}: {name!r} is no A or B of a linear module of the checkpoint.")
        found.setdefault(parts["module"], (module, {}))[1][parts["factor"]] = tensor
    if not found:
        raise MissingTensorError(f"{source} has no tensors.")
    return found


def _with_prefixes(name: str, prefixes: tuple[str, ...]) -> list[str]:
    plain = next((name.removeprefix(each) for each in prefixes if each and name.startswith(each)), name)
    return [name, plain, *(prefix + plain for prefix in prefixes)]


def _check_values(name: str, tensor: np.ndarray, source: str) -> None:
    if not keras.backend.is_float_dtype(str(tensor.dtype)):
        raise TensorTypeError(f"{source}: {name!r} has the dtype {tensor.dtype}; adapters are floats.")
    check_range(name, tensor, "float32", source)


def _check(name: str, module: Module, factors: dict[str, np.ndarray], config: AdapterConfig, source: str) -> None:
    rank, (inputs, outputs) = config.rank(name), module.sizes
    for factor, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
        if factor not in factors:
            raise MissingTensorError(f"{source} lacks '{PREFIX}{name}.lora_{factor}.weight'.")
        if factors[factor].shape != shape:
            raise TensorShapeError(
                f"{source}: 'lora_{factor}' of {name!r} has shape {factors[factor].shape}; the checkpoint and rank "
                f"{rank} require {shape}."
            )
