"""Low-rank adapters: fine-tuning that trains, and stores, a small part of a model.

Keras has the adapters themselves (`Dense.enable_lora` and the like); here they are put into a whole model, saved alone, and
merged.
"""

import contextlib
import json
import pathlib
import re

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import AdapterError
from keras_transformer.utils.atomic_write import replacing_file

_PARTS = ("lora_kernel_a", "lora_kernel_b")


def add_lora(model, rank=8, alpha=None, *, layers=r"/(query|value)$", also=None):
    """Freezes a model and adds to each chosen layer `W + alpha / rank · A B`, of which A and B alone are trained.

    B begins at zero, so the model computes what it did. Compile it afterwards. Saved by `model.save`, it holds the sums;
    `export` writes the sums too.

    Args:
        model: `keras.Model`, built. It is changed in place.
        rank: int >= 1. Of `A B`.
        alpha: float, or None for `rank`.
        layers: regular expression, searched in the paths of layers: those that get an adapter. The default is queries and
            values of attention, as in the paper; `"attention|feedforward"` is all of a block.
        also: regular expression, or None: weights that are trained as they are, by path, such as a new head's.

    Returns:
        The model.

    Raises:
        AdapterError: no layer of that name can have an adapter, or one has one already; a rank below 1.

    Example:

    >>> from keras_transformer import models, tasks
    >>> backbone = models.BERT(models.Size(2, 16, 2, 32), vocabulary_size=50)
    >>> model = tasks.SequenceClassifier(backbone, num_classes=2, activation=None)
    >>> model = add_lora(model, rank=2, also="^logits")
    >>> len(model.trainable_weights)  # A and B of two projections in two blocks, and the head.
    10

    Reference: Hu et al., LoRA, arXiv 2106.09685, equation 3, section 4.2. A begins by He's uniform distribution, as in the
    published code. Of a kernel (D, N, H), A is (D, N, rank) and B (rank, H): Keras's way.
    """
    if not isinstance(rank, int) or rank < 1:
        raise AdapterError(f"rank must be a positive integer. Received: {rank!r}")
    chosen = [layer for layer in _all_layers(model) if hasattr(layer, "enable_lora") and re.search(layers, layer.path)]
    if not chosen:
        raise AdapterError(f"{model.name!r} has no layer with a path like {layers!r} that can have an adapter.")
    taken = next((layer for layer in chosen if layer.lora_enabled), None)
    if taken is not None:
        raise AdapterError(f"{taken.path!r} has an adapter already: merge_lora first.")
    for weight in model.weights:
        weight.trainable = bool(also and re.search(also, weight.path))
    for layer in chosen:
        layer.enable_lora(rank, lora_alpha=alpha)
    return model


def merge_lora(model):
    """Adds the adapters of a model to its kernels, and takes them out; in place. Compile it afterwards.

    Args:
        model: `keras.Model`.

    Returns:
        The model, with all its weights trainable again.

    Raises:
        AdapterError: it has no adapter.
    """
    for layer in _adapted(model):
        keras_private.kernel(layer).assign(_sum(layer))
        keras_private.remove_variables(layer, _PARTS)
        layer.lora_enabled, layer.lora_rank = False, None
    for weight in model.weights:
        weight.trainable = not weight.path.endswith("seed_generator_state")
    return model


@contextlib.contextmanager
def merged(model):
    """A model whose kernels hold their adapters for a while, as `export` needs it."""
    layers = _with_adapters(model)
    kept = [(layer, keras_private.kernel(layer).numpy(), layer.lora_rank) for layer in layers]
    try:
        for layer in layers:
            keras_private.kernel(layer).assign(_sum(layer))
            layer.lora_enabled, layer.lora_rank = False, None
        yield model
    finally:
        for layer, kernel, rank in kept:
            keras_private.kernel(layer).assign(kernel)
            layer.lora_enabled, layer.lora_rank = True, rank


def merged_values(model):
    """Returns the values that the variables of a model would have after `merge_lora`. The model is not changed.

    Args:
        model: `keras.Model`, with or without adapters.

    Returns:
        dict: the path of each variable, without those of the adapters, to its value, an array.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="dense")])
    >>> model = add_lora(model, rank=1, layers="dense")
    >>> {path: value.shape for path, value in merged_values(model).items()}
    {'dense/kernel': (4, 2), 'dense/bias': (2,)}
    """
    values = {weight.path: weight for weight in model.weights if weight.name not in _PARTS}
    values |= {keras_private.kernel(layer).path: _sum(layer) for layer in _with_adapters(model)}
    return {path: keras.ops.convert_to_numpy(value) for path, value in values.items()}


def save_lora(model, path):
    """Writes the trained weights of a model with adapters, and these alone, to a safetensors file.

    Args:
        model: `keras.Model` of `add_lora`.
        path: str or path. An old file is replaced.

    Raises:
        AdapterError: it has no adapter.
    """
    from safetensors.numpy import save_file

    layers = _adapted(model)
    path = pathlib.Path(path)
    metadata = {"rank": layers[0].lora_rank, "alpha": layers[0].lora_alpha, "layers": [layer.path for layer in layers]}
    tensors = {weight.path: np.ascontiguousarray(weight.numpy()) for weight in model.trainable_weights}
    with replacing_file(path) as partial:
        save_file(tensors, partial, metadata={"lora": json.dumps(metadata)})


def load_lora(model, path):
    """Gives a model the adapters of a file, and the other weights that were trained with them.

    Args:
        model: `keras.Model` without adapters, of the architecture that `save_lora` was called with. It is changed in place,
            and trains on as that one would.
        path: str or path.

    Returns:
        The model.

    Raises:
        AdapterError: no such file, none that `save_lora` has written, or one for another model; nothing is changed.
    """
    metadata, tensors = _read(pathlib.Path(path))
    by_path = {layer.path: layer for layer in _all_layers(model)}
    weights = {weight.path: weight for weight in model.weights}
    for name in metadata["layers"]:
        if not hasattr(by_path.get(name), "enable_lora"):
            raise AdapterError(f"'{path}' has an adapter for {name!r}, which {model.name!r} lacks.")
    for name, tensor in tensors.items():
        if not name.endswith(_PARTS) and (name not in weights or tuple(weights[name].shape) != tensor.shape):
            raise AdapterError(f"'{path}' has {name!r} of shape {tensor.shape}, which {model.name!r} lacks.")
    exactly = "^(" + "|".join(map(re.escape, metadata["layers"])) + ")$"
    others = "^(" + "|".join(re.escape(name) for name in tensors if not name.endswith(_PARTS)) + ")$"
    add_lora(model, metadata["rank"], metadata["alpha"], layers=exactly, also=others)
    weights = {weight.path: weight for weight in model.weights}
    for name, tensor in tensors.items():
        weights[name].assign(tensor)
    return model


def _read(path):
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise AdapterError(f"No such file: '{path}'")
    try:
        with safe_open(path, "numpy") as file:
            metadata = json.loads((file.metadata() or {})["lora"])
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except (SafetensorError, KeyError, ValueError) as error:
        raise AdapterError(f"'{path}' holds no adapters that save_lora has written.") from error


def _sum(layer):
    """The kernel with the adapter added, in the dtype of the kernel."""
    store = {}
    layer.save_own_variables(store)
    return store["0"]


def _adapted(model):
    layers = _with_adapters(model)
    if not layers:
        raise AdapterError(f"{model.name!r} has no adapters: see add_lora.")
    return layers


def _with_adapters(model):
    return [layer for layer in _all_layers(model) if getattr(layer, "lora_enabled", False)]


def _all_layers(model):
    return [layer for layer in keras_private.flatten_layers(model, include_self=False) if layer.built]
