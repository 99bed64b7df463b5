"""Whether a GGUF file describes the model that it is written from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.checkpoints.checkpoint import Checkpoint
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.families import find_architecture
from keras_transformer.checkpoints.gguf.architecture import Arrays, GgufArchitecture, Shapes
from keras_transformer.checkpoints.gguf.metadata import Metadata

# What is not needed to compute the outputs, or is a name.
_IGNORED = ("dropout", "dtype", "max_sequence_length", "seed", "build_config", "trainable", "module", "registered_name")
_NAMES = ("name", "rate")  # The rate of dropout.


def check_same(
    checkpoint: Checkpoint,
    architecture: GgufArchitecture,
    metadata: Mapping[str, object],
    shapes: Shapes,
    extra: Arrays,
) -> None:
    """Reads the settings that will be written, and compares the layers that follow from them with those of the checkpoint.

    Args:
        checkpoint: `Checkpoint` of the model.
        architecture: `GgufArchitecture`.
        metadata: the metadata of the file.
        shapes: dict of the name of each tensor in the file to its shape.
        extra: further tensors by name.

    Raises:
        ConfigError: they differ.
    """
    found = Metadata(metadata, "the GGUF file")
    values = architecture.config(found, shapes, extra)
    with unallocated():
        config = Config(values, "the GGUF file", checkpoint.config.tensors)
        read = find_architecture(config).backbone(config).get_config()
        own = checkpoint.architecture.backbone(checkpoint.config).get_config()
    for path, theirs, ours in _differences(read, own, ""):
        raise ConfigError(
            f"{checkpoint.config.source}: a GGUF file of {architecture.name!r} cannot say that {path} is {str(ours)[:80]}: "
            f"llama.cpp would take {str(theirs)[:80]}."
        )


def _differences(read: object, own: object, path: str) -> Iterator[tuple[str, object, object]]:
    """Yields the path and the two values of each difference between two configs."""
    if isinstance(read, dict) and isinstance(own, dict):
        for key in sorted(read.keys() | own.keys()):
            if key not in _NAMES and not any(part in key for part in _IGNORED):
                yield from _differences(read.get(key), own.get(key), f"{path}.{key}" if path else key)
    elif isinstance(read, (list, tuple)) and isinstance(own, (list, tuple)) and len(read) == len(own):
        for index, pair in enumerate(zip(read, own, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif isinstance(read, float) and isinstance(own, float):
        if not np.isclose(read, own, rtol=1e-6):  # Files have float32.
            yield path, read, own
    elif read != own:
        yield path, read, own
