"""Folders of sentence-transformers: how the vectors of tokens become one vector."""

from __future__ import annotations

import pathlib
from typing import Any

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError, CorruptFileError, UnsafePathError
from keras_transformer.checkpoints.folder import Folder

_MODULES = "modules.json"
# Tensors of pretraining heads.
_UNUSED = (r"(^|\.)pooler\.", r"^cls\.", r"^lm_head\.", r"^vocab_")
# In the order in which vectors are concatenated.
_MODES = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_NAMES = {"cls": "first", "max": "max", "mean": "mean", "lasttoken": "last"}
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
    if names[:2] != ["Transformer", "Pooling"] or names[2:] not in ([], ["Normalize"]):
        raise ConfigError(
            f"{folder.path / _MODULES}: {', '.join(names)} are not supported; supported: Transformer, Pooling, Normalize."
        )
    if kinds[0][1]:
        raise ConfigError(f"{folder.path / _MODULES}: the transformer is in {kinds[0][1]!r}: pass that folder.")
    pooling = _pooling(folder, kinds[1][1])
    normalize = len(kinds) == 3
    return Head(
        lambda backbone, config: tasks.SentenceEmbedder(backbone, pooling=pooling, normalize=normalize), ignored=_UNUSED
    )


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
