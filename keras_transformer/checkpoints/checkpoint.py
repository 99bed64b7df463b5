"""The record of the checkpoint that a model was read from."""

from __future__ import annotations

import pathlib

import keras
import numpy as np

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import CheckpointError
from keras_transformer.checkpoints.files.folder import Folder
from keras_transformer.checkpoints.mapping import Entry

_WEIGHT_SUFFIXES = (".safetensors", ".safetensors.index.json")
_LARGEST_FILE = 2**26
# The settings of the parts of a sentence-transformers model, such as "1_Pooling/config.json".
_MODULE_FILES = "[0-9]*_*/*.json"


class Checkpoint:
    """The checkpoint that a model was read from, which `to_huggingface` needs.

    Attributes:
        architecture: `Architecture`.
        config: `Config`.
        entries: the mapping: list of `mapping.Entry`.
        dtypes: dict of the name of a tensor to safetensors' name of its dtype.
        names: dict of the name of a tensor to its name in the file.
        files: dict of name to bytes: the config, the tokenizer and other files next to the weights.
        unused: dict of the name of a tensor that the model does not use to its array.
        gguf: path of the GGUF file that it was; None for a folder.
    """

    gguf: pathlib.Path | None = None

    def __init__(
        self,
        architecture: Architecture,
        config: Config,
        entries: list[Entry],
        dtypes: dict[str, str],
        names: dict[str, str],
        files: dict[str, bytes],
        unused: dict[str, np.ndarray],
    ) -> None:
        self.architecture = architecture
        self.config = config
        self.entries = entries
        self.dtypes = dtypes
        self.names = names
        self.files = files
        self.unused = unused

    @classmethod
    def of(cls, folder: Folder, architecture: Architecture, entries: list[Entry], unused: list[str]) -> Checkpoint:
        """Returns the checkpoint of a `Folder`; `unused` is a list of names of tensors."""
        files = {
            path.relative_to(folder.path).as_posix(): path.read_bytes()
            for path in sorted([*folder.path.iterdir(), *folder.path.glob(_MODULE_FILES)])
            if path.suffix in (".json", ".txt", ".model", ".jinja")
            and not path.name.endswith(_WEIGHT_SUFFIXES)
            and path.stat().st_size <= _LARGEST_FILE
        }
        dtypes = {name: info.dtype for name, info in folder.tensors.items()}
        names = {name: info.name for name, info in folder.tensors.items()}
        arrays = {name: folder.read(name) for name in unused}
        return cls(architecture, folder.config, entries, dtypes, names, files, arrays)


def checkpoint_of(model: keras.Model) -> Checkpoint:
    """Returns the `Checkpoint` of a model.

    Raises:
        CheckpointError: it has none.
    """
    found = getattr(model, "checkpoint", None)
    if not isinstance(found, Checkpoint):
        raise CheckpointError(
            f"{model.name!r} was not read by from_huggingface, so its config is not known: pass like=, a folder of "
            "the same architecture."
        )
    return found
