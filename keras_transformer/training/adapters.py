"""Low-rank adapters (LoRA): adding them to a model, merging, saving and loading them.

The adapters themselves are those of the layers: of `Projection`, and Keras's of `Dense` and similar.
"""

from __future__ import annotations

import json
import pathlib
import re

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import AdapterError
from keras_transformer.utils.atomic_write import replacing_file
from keras_transformer.utils.types import ArrayLike, Path

_OF_KERNELS, _OF_TABLES = ("lora_kernel_a", "lora_kernel_b"), ("lora_embeddings_a", "lora_embeddings_b")
_ADAPTER_VARIABLES = _OF_KERNELS + _OF_TABLES


def add_lora(
    model: keras.Model,
    rank: int = 8,
    alpha: float | None = None,
    *,
    layers: str = r"/(query|value)$",
    also: str | None = None,
) -> keras.Model:
    """Freezes a model and adds low-rank adapters: each selected kernel becomes `W + alpha / rank · A B`, with A, B trained.

    B is zero at first, so the outputs do not change. Compile the model afterwards. `model.save` and `export` write the
    merged kernels.

    Args:
        model: `keras.Model`, built. It is changed in place.
        rank: int >= 1. Rank of `A B`. Default 8.
        alpha: float, or None for `rank`.
        layers: regular expression, searched in the paths of layers, that selects the layers to adapt. Default: queries and
            values of attention, as in the paper; `"attention|feedforward"` selects all layers of a block.
        also: regular expression, or None: paths of weights to train without an adapter, such as those of a new head.

    Returns:
        The model.

    Raises:
        AdapterError: no selected layer supports adapters, or one already has one; a rank below 1.

    Example:

    >>> from keras_transformer import models, tasks
    >>> backbone = models.BERT(models.Size(2, 16, 2, 32), vocabulary_size=50)
    >>> model = tasks.SequenceClassifier(backbone, num_classes=2, activation=None)
    >>> model = add_lora(model, rank=2, also="^logits")
    >>> len(model.trainable_weights)  # A and B of two projections in two blocks, and the head.
    10

    Reference: Hu et al., LoRA, arXiv 2106.09685, equation 3, section 4.2. A has He's uniform initialization, as in the
    published code. For a kernel (D, N, H) to N heads, A is (D, rank) and B (rank, N, H); Keras has an A for each head.
    """
    if not isinstance(rank, int) or rank < 1:
        raise AdapterError(f"rank must be a positive integer. Received: {rank!r}")
    chosen = [layer for layer in all_layers(model) if hasattr(layer, "enable_lora") and re.search(layers, layer.path)]
    if not chosen:
        raise AdapterError(f"{model.name!r} has no layer that supports adapters and whose path matches {layers!r}.")
    check_not_adapted(chosen)
    attach(model, [(layer, rank, alpha) for layer in chosen], also)
    return model


def check_not_adapted(layers: list[keras.layers.Layer]) -> None:
    """Raises `AdapterError` if one of the layers has an adapter."""
    adapted = next((layer for layer in layers if layer.lora_enabled), None)
    if adapted is not None:
        raise AdapterError(f"{adapted.path!r} already has an adapter: call merge_lora first.")


def attach(
    model: keras.Model, adapters: list[tuple[keras.layers.Layer, int, float | None]], also: str | None = None
) -> None:
    """Freezes a model and adds new adapters, a list of `(layer, rank, alpha)`; `also` is as of `add_lora`."""
    for weight in model.weights:
        weight.trainable = bool(re.search(also, weight.path)) if also else False
    for layer, rank, alpha in adapters:
        layer.enable_lora(rank, lora_alpha=alpha)


def merge_lora(model: keras.Model) -> keras.Model:
    """Adds the adapters of a model to its kernels and removes them, in place. Compile the model afterwards.

    The sum of a layer that Keras quantized is quantized again, with scales of its own, as `model.save` does: it differs from
    what was trained by the steps of its integers. `export` keeps such adapters beside the integers.

    Args:
        model: `keras.Model`.

    Returns:
        The model, with all weights trainable.

    Raises:
        AdapterError: the model has no adapters.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")], name="model")
    >>> model = merge_lora(add_lora(model, rank=1, layers="dense"))
    >>> [weight.name for weight in model.weights]
    ['kernel', 'bias']
    """
    for layer in adapted_layers(model):
        if getattr(layer, "quantization_mode", None):
            store: dict[str, ArrayLike] = {}
            layer.save_own_variables(store)
            layer.load_own_variables(store)
        else:
            _weight(layer).assign(_merged_weight(layer))
        keras_private.remove_variables(layer, _names(layer))
        layer.lora_enabled, layer.lora_rank = False, None
    for weight in model.weights:
        weight.trainable = not weight.path.endswith("seed_generator_state")
    return model


def merged_values(model: keras.Model) -> dict[str, ArrayLike]:
    """Returns the values that the variables of a model would have after `merge_lora`. The model is not changed.

    Args:
        model: `keras.Model`, with or without adapters; those of layers that Keras quantized are not for this.

    Returns:
        dict: the path of each variable, without those of the adapters, to its value, an array.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")], name="model")
    >>> model = add_lora(model, rank=1, layers="dense")
    >>> {path: value.shape for path, value in merged_values(model).items()}
    {'model/dense/kernel': (4, 2), 'model/dense/bias': (2,)}
    """
    values = {weight.path: weight for weight in model.weights if weight.name not in _ADAPTER_VARIABLES}
    values |= {_weight(layer).path: _merged_weight(layer) for layer in with_adapters(model)}
    return {path: keras.ops.convert_to_numpy(value) for path, value in values.items()}


def save_lora(model: keras.Model, path: Path) -> None:
    """Writes the trained weights of a model with adapters to a safetensors file.

    Args:
        model: `keras.Model` of `add_lora`.
        path: str or path. An existing file is replaced.

    Raises:
        AdapterError: the model has no adapters.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")], name="model")
    >>> save_lora(add_lora(model, rank=1, layers="dense"), "lora.safetensors")
    """
    from safetensors.numpy import save_file

    adapters = {layer.path: [layer.lora_rank, layer.lora_alpha] for layer in adapted_layers(model)}
    path = pathlib.Path(path)
    tensors = {weight.path: np.ascontiguousarray(weight.numpy()) for weight in model.trainable_weights}
    with replacing_file(path) as partial:
        save_file(tensors, partial, metadata={"lora": json.dumps({"adapters": adapters})})


def load_lora(model: keras.Model, path: Path) -> keras.Model:
    """Adds the adapters of a file to a model, and loads the other weights that were trained with them.

    Args:
        model: `keras.Model` without adapters, of the architecture that was saved. It is changed in place, and its trainable
            weights are those of the saved model.
        path: str or path. A file of `save_lora`.

    Returns:
        The model.

    Raises:
        AdapterError: no such file, not a file of `save_lora`, or one of another model. The model is then unchanged.

    Example:

    >>> def build():
    ...     return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")], name="model")
    >>> save_lora(add_lora(build(), rank=1, layers="dense"), "lora.safetensors")
    >>> [weight.name for weight in load_lora(build(), "lora.safetensors").trainable_weights]
    ['lora_kernel_a', 'lora_kernel_b']
    """
    adapters, tensors = _read(pathlib.Path(path))
    by_path = {layer.path: layer for layer in all_layers(model)}
    for name in adapters:
        if not hasattr(by_path.get(name), "enable_lora"):
            raise AdapterError(f"'{path}' has an adapter for {name!r}, which {model.name!r} does not have.")
    check_not_adapted([by_path[name] for name in adapters])
    others = [name for name in tensors if not name.endswith(_ADAPTER_VARIABLES)]
    shapes = {weight.path: tuple(weight.shape) for weight in model.weights}
    for name, (rank, alpha) in adapters.items():
        layer = by_path[name]
        parts = [f"{name}/{part}" for part in _names(layer)]
        if missing := [part for part in parts if part not in tensors]:
            raise AdapterError(f"'{path}' lacks {missing[0]!r}.")
        adapters[name] = rank, alpha = _with_one_a(layer, tensors, rank, alpha)
        a, b = (tensors[part].shape for part in parts)
        shapes |= dict(zip(parts, (a, b), strict=True))
        whole = layer.embeddings if _is_table(layer) else layer.kernel
        if (*a[:-1], *b[1:]) != tuple(whole.shape) or a[-1] != rank or b[0] != rank:
            raise AdapterError(f"'{path}' has an adapter of another shape than {name!r} of {model.name!r} needs.")
    for name in tensors:
        if shapes.get(name) != tensors[name].shape:
            raise AdapterError(
                f"'{path}' has {name!r} of shape {tensors[name].shape}, which {model.name!r} does not have."
            )
    also = "^(" + "|".join(map(re.escape, others)) + ")$" if others else None
    attach(model, [(by_path[name], *each) for name, each in adapters.items()], also)
    weights = {weight.path: weight for weight in model.weights}
    for name, tensor in tensors.items():
        weights[name].assign(tensor)
    return model


def _read(path):
    """Returns a dict of the path of a layer to `(rank, alpha)`, and one of the path of a weight to its array."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise AdapterError(f"No such file: '{path}'")
    try:
        with safe_open(path, "numpy") as file:
            metadata = json.loads((file.metadata() or {})["lora"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if "adapters" not in metadata:  # Files of version 1 have one rank for all.
            metadata = {"adapters": dict.fromkeys(metadata["layers"], (metadata["rank"], metadata["alpha"]))}
        adapters = {name: (int(rank), float(alpha)) for name, (rank, alpha) in metadata["adapters"].items()}
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise AdapterError(f"'{path}' holds no adapters of save_lora.") from error
    return adapters, tensors


def _with_one_a(layer, tensors, rank, alpha):
    """Replaces Keras's adapter of heads, of files of version 1, by one of the same product; returns its rank and alpha.

    Keras has A `(D, N, rank)` and B `(rank, H)`, where `Projection` has `(D, N · rank)` and `(N · rank, N, H)`.
    """
    a, b = (tensors[f"{layer.path}/{part}"] for part in _names(layer))
    if a.ndim != 3 or b.ndim != 2 or (*a.shape[:-1], b.shape[-1]) != tuple(layer.kernel.shape):
        return rank, alpha
    if len(layer.equation.partition(",")[0]) - 2 == a.ndim - 1:  # Heads that are inputs have one A in Keras, too.
        return rank, alpha
    heads = a.shape[1]
    blocks = np.einsum("nm,rh->nrmh", np.eye(heads, dtype=b.dtype), b)
    tensors[f"{layer.path}/lora_kernel_a"] = a.reshape(a.shape[0], heads * rank)
    tensors[f"{layer.path}/lora_kernel_b"] = blocks.reshape(heads * rank, heads, b.shape[1])
    return heads * rank, heads * alpha


def _is_table(layer):
    return isinstance(layer, keras.layers.Embedding)


def _names(layer):
    """Returns the names of A and B."""
    return _OF_TABLES if _is_table(layer) else _OF_KERNELS


def adapter_variables(layer: keras.layers.Layer) -> tuple[keras.Variable, keras.Variable]:
    """Returns A and B of a layer with an adapter."""
    a, b = (getattr(layer, name) for name in _names(layer))
    return a, b


def _weight(layer):
    """Returns the variable that the adapter is added to."""
    return keras_private.embeddings(layer) if _is_table(layer) else keras_private.kernel(layer)


def _merged_weight(layer):
    """Returns the kernel, or the table, with the adapter added, in its own dtype."""
    if hasattr(layer, "merged_weight"):  # Quantization-aware: the adapter was trained beside the rounded kernel.
        return layer.merged_weight()
    store = {}
    layer.save_own_variables(store)
    return store["0"]


def adapted_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers with adapters; raises `AdapterError` if there are none."""
    layers = with_adapters(model)
    if not layers:
        raise AdapterError(f"{model.name!r} has no adapters: see add_lora.")
    return layers


def with_adapters(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers with adapters."""
    return [layer for layer in all_layers(model) if getattr(layer, "lora_enabled", False)]


def all_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns all built layers within a model."""
    return [layer for layer in keras_private.flatten_layers(model, include_self=False) if layer.built]
