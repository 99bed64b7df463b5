"""The pooling of a model of embeddings: the files of sentence-transformers, and the key of a GGUF file."""

from __future__ import annotations

import json

from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.files.sentence_transformers import poolings
from keras_transformer.checkpoints.gguf.metadata import Metadata

MODULES = "modules.json"
_KEY = "{arch}.pooling_type"
# By number: the names of sentence-transformers, and those of this package.
_MODES = {1: "mean", 2: "cls", 3: "lasttoken"}
_NUMBERS = {"mean": 1, "first": 2, "last": 3}
_NONE = 0


def pooling_files(metadata: Metadata) -> dict[str, bytes]:
    """The files of a folder by name; none for a file without a pooling.

    Vectors are not normalized: the file does not say whether they should be.

    Raises:
        ConfigError: the pooling is not supported.
    """
    kind = metadata.integer(_KEY, _NONE)
    if kind == _NONE:
        return {}
    if kind not in _MODES:
        raise ConfigError(f"{metadata.source}: {metadata.key(_KEY)!r} is {kind}; supported: {sorted(_MODES)}.")
    names = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{name}"} for path, name in names.items()]
    files = {MODULES: modules, "1_Pooling/config.json": {"pooling_mode": _MODES[kind]}}
    return {name: json.dumps(content).encode() for name, content in files.items()}


def pooling_metadata(checkpoint: Checkpoint, name: str) -> dict[str, int]:
    """The entry of an architecture; none for a checkpoint without a pooling.

    Raises:
        ConfigError: a GGUF file has no number for the pooling.
    """
    if MODULES not in checkpoint.files:
        return {}
    modules = json.loads(checkpoint.files[MODULES])
    path = next((each["path"] for each in modules if each["type"].endswith("Pooling")), "")
    config = Config(json.loads(checkpoint.files.get(f"{path}/config.json", b"{}")), checkpoint.config.source)
    chosen = "+".join(poolings(config))
    if chosen not in _NUMBERS:
        raise ConfigError(f"{checkpoint.config.source}: GGUF files have no number for the pooling {chosen!r}.")
    return {f"{name}.pooling_type": _NUMBERS[chosen]}
