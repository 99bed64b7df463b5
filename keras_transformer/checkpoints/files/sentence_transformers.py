"""Folders of sentence-transformers: how the vectors of tokens become one vector."""

from __future__ import annotations

import pathlib
from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError, CorruptFileError, UnsafePathError
from keras_transformer.checkpoints.files.folder import Folder
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.utils.types import JsonObject

_MODULES = "modules.json"
# Tensors of other heads.
_UNUSED = (r"(^|\.)pooler\.", r"^classifier\.", r"^cls\.", r"^lm_head\.", r"^vocab_")
# In the order in which vectors are concatenated.
_MODES = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_NAMES = {"cls": "first", "max": "max", "mean": "mean", "lasttoken": "last"}
# The names of torch's classes.
_ACTIVATIONS = {
    "GELU": "gelu",
    "Identity": "linear",
    "ReLU": "relu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
}
_UNSUPPORTED = ("pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens")


def sentence_head(folder: Folder) -> Head | None:
    """Returns the `Head` that pools and normalizes, or None if this is not a folder of sentence-transformers.

    Args:
        folder: `Folder`.

    Raises:
        CorruptFileError: there is no list of modules.
        ConfigError: a module or a pooling is not supported.
        UnsafePathError: a module is outside of the folder.
    """
    if not (folder.path / _MODULES).is_file():
        return None
    kinds = [_kind(module, folder) for module in folder.json(_MODULES, list)]
    names = [name for name, _ in kinds]
    num_dense = names[2:].count("Dense")
    if names[:2] != ["Transformer", "Pooling"] or names[2 + num_dense :] not in ([], ["Normalize"]):
        raise ConfigError(
            f"{folder.path / _MODULES}: the modules {', '.join(names)} are not supported; supported are Transformer, "
            "Pooling, then any number of Dense, then Normalize or nothing."
        )
    if kinds[0][1]:
        raise ConfigError(f"{folder.path / _MODULES}: the transformer is in {kinds[0][1]!r}: pass that folder.")
    pooling = _pooling(folder, kinds[1][1])
    normalize = names[-1] == "Normalize"
    settings = [_dense_settings(folder, path) for _, path in kinds[2 : 2 + num_dense]]

    def build(backbone: keras.Model, config: Config) -> keras.Model:
        dense = [keras.layers.Dense(**each, name=_name(index)) for index, each in enumerate(settings)]
        return tasks.SentenceEmbedder(backbone, pooling=pooling, normalize=normalize, dense=dense)

    def entries(config: Config, prefix: str) -> list[Entry]:
        paths = [path for _, path in kinds[2 : 2 + num_dense]]
        return [
            entry
            for index, path in enumerate(paths)
            for entry in linear(f"{path}/linear", _name(index), bias=settings[index]["use_bias"])
        ]

    return Head(build, entries, ignored=_UNUSED)


def _name(index: int) -> str:
    return f"dense_{index}"


def _dense_settings(folder: Folder, path: str) -> JsonObject:
    """Returns the arguments of the `keras.layers.Dense` of a module, whose tensors are added to the folder's."""
    name = f"{path}/config.json"
    config = Config(folder.json(name), str(folder.path / name))
    for side in ("module_input_name", "module_output_name"):
        config.only(side, "sentence_embedding")
    kind = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    activation = Config({"activation_function": kind}, config.source).choice("activation_function", _ACTIVATIONS)
    folder.add_tensors(path)
    # In float32 under every dtype policy, as the poolings.
    return {
        "units": config.integer("out_features"),
        "activation": activation,
        "use_bias": config.flag("bias", True),
        "dtype": "float32",
    }


def _kind(module: Any, folder: Folder) -> tuple[str, str]:
    """Returns the name of a module's class, and its folder."""
    module = module if isinstance(module, dict) else {}
    kind, path = module.get("type"), module.get("path")
    if not isinstance(kind, str) or not isinstance(path, str):
        raise CorruptFileError(f"{folder.path / _MODULES} has no list of modules.")
    if path and (pathlib.PurePath(path).name != path or path in (".", "..") or "\\" in path):
        raise UnsafePathError(f"{folder.path / _MODULES} names {path!r}, which is not a folder inside the folder.")
    return kind.rpartition(".")[2], path


def _pooling(folder: Folder, path: str) -> list[str]:
    """Returns the names of poolings."""
    name = f"{path}/config.json"
    return poolings(Config(folder.json(name), str(folder.path / name)))


def poolings(config: Config) -> list[str]:
    """Returns the names of the poolings of a module's config: "first", "max", "mean" or "last".

    Raises:
        ConfigError: one is not supported.
    """
    config.only("include_prompt", True)
    if "pooling_mode" in config:
        mode = config.get("pooling_mode")
        modes = mode if isinstance(mode, list) and mode else [mode]
        return [Config({"pooling_mode": mode}, config.source).choice("pooling_mode", _NAMES) for mode in modes]
    for mode in _UNSUPPORTED:
        config.only(mode, False)
    return [pooling for mode, pooling in _MODES.items() if config.flag(mode, False)] or ["mean"]
