"""Models to plan for, from a config or a name, without memory for their weights."""

from __future__ import annotations

import inspect
import pathlib
from typing import Any

import keras

from keras_transformer import models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.planning.names import check_config, read_config
from keras_transformer.utils.types import Path

_VOCABULARY = 32000
# Families whose head has weights of its own, with the beginnings of the names of those sizes; the others tie it.
_UNTIED = {
    "llama": ("2-", "3-"),
    "mistral": ("",),
    "mixtral": ("",),
    "qwen2": ("7B", "72B"),
    "qwen2_5_vl": ("7B", "72B"),
    "qwen3": ("8B", "14B", "32B"),
    "rwkv": ("",),
    "rwkv7": ("",),
}


def build(config: Path, dtype: str | None = None) -> keras.Model:
    """Returns a model whose weights have shapes but no values.

    Args:
        config: str or path: a `config.json` of Hugging Face or its folder; or "model:size", a name in `models.MODELS` and
            one of its sizes, such as "llama:3-8B".
        dtype: str. The name of a dtype policy. Defaults to Keras's current one.

    Returns:
        `keras.Model`: with the head of the config; from a name, the `tasks.LanguageModel` of the published checkpoint if the
        model can be one, else a model without a head. A model of no published vocabulary has one of 32,000.

    Raises:
        PlanningError: `config` is neither a file nor the name of a model with one of its sizes.
        CheckpointError: a config that cannot be built.

    Example:

    >>> build("gpt2:small").count_params(), build("llama:3.2-1B").count_params()
    (124439808, 1235814400)
    """
    check_config(config)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype or before)
    try:
        with unallocated():
            path = pathlib.Path(config)
            if path.exists():
                return _from_config(path)
            return _from_name(str(config))
    finally:
        keras.config.set_dtype_policy(before)


def _from_config(path: pathlib.Path) -> keras.Model:
    from keras_transformer.checkpoints.architecture import head_of
    from keras_transformer.checkpoints.config import Config
    from keras_transformer.checkpoints.families import find_architecture

    path, values = read_config(path)
    config = Config(values, str(path))
    architecture = find_architecture(config)
    return architecture.find_head(head_of(config), config.source).build(architecture.backbone(config), config)


def _from_name(name: str) -> keras.Model:
    family, _, size = name.partition(":")
    function: Any = models.MODELS[family]
    parameters = inspect.signature(function).parameters
    options = {
        name: _VOCABULARY
        for name, parameter in parameters.items()
        if name.endswith("vocabulary_size") and parameter.default is parameter.empty
    }
    backbone = function(size, **options)
    if not any(hasattr(layer, "init_cache") for layer in backbone.layers):
        return backbone  # Without the trial below, which takes seconds.
    try:
        models.Stepwise(backbone)
    except (ValueError, AttributeError):
        return backbone
    return tasks.LanguageModel(backbone, tie_embeddings=not size.startswith(_UNTIED.get(family, ())))
