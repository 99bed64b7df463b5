"""Base class of the architectures of GGUF files: how their names and settings follow from those of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.gguf.layouts import Same
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject

Shapes = Mapping[str, tuple[int, ...]]
Arrays = Mapping[str, np.ndarray]

_BLOCK = re.compile(r"(?<=\.)\d+(?=\.)")
_SUFFIX = re.compile(r"\.(?:weight|bias)$")


class Place(NamedTuple):
    """Where a tensor of a GGUF file is in a checkpoint of transformers: its name there, and how it differs."""

    name: str
    layout: Any = Same()


class GgufArchitecture:
    """One architecture: one file, and one line in `ARCHITECTURES`.

    Attributes:
        name: ggml's name of the architecture.
        model_types: transformers' names of it: the one of files that are read, and others that are written in the same way.
        head: name of the class in transformers, with its head.
        settings: dict of transformers' name of a setting to the key in the metadata, of those that are integers.
        numbers: the same of those that are floats.
        prefix: of the names of tensors in the class `head`, before those of the backbone.
        extra: names of tensors that files have and transformers computes.
        dropped: regular expression of tensors that transformers has and files have no place for; None for none.
        places: dict of the name of a tensor in the file to its `Place`; without ".weight" or ".bias", and with "{}" for the
            number of the block.
    """

    name = ""
    model_types: tuple[str, ...] = ()
    prefix = ""
    extra: tuple[str, ...] = ()
    dropped: str | None = None
    head = ""
    settings: Mapping[str, str] = {}
    numbers: Mapping[str, str] = {}
    places: Mapping[str, Place] = {}

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        """The config of transformers.

        Args:
            metadata: `Metadata`.
            tensors: dict of the name of each tensor in the file to its shape.
            extra: dict of name to array: those of `extra` that the file has.

        Raises:
            ConfigError: a setting is missing, or selects a variant that is not supported.
        """
        values: JsonObject = {"model_type": self.model_types[0], "architectures": [self.head]}
        values |= {name: metadata.integer(key) for name, key in self.settings.items() if key in metadata}
        values |= {name: metadata.number(key) for name, key in self.numbers.items() if key in metadata}
        return values

    def metadata(self, config: Config) -> JsonObject:
        """The settings of a config of transformers by key: the inverse of `config`.

        Raises:
            ConfigError: a setting is of a variant that files have no key for.
        """
        found: JsonObject = {key: config.integer(name) for name, key in self.settings.items() if name in config}
        found |= {key: config.number(name) for name, key in self.numbers.items() if name in config}
        return {key.replace("{arch}", self.name): value for key, value in found.items()}

    def extra_tensors(self, config: Config) -> dict[str, np.ndarray]:
        """The tensors of `extra` by name."""
        return {}

    def stored_place(self, name: str, config: Config) -> Place | None:
        """The inverse of `place`: the name in the file of a tensor of transformers, and its layout; None if it has none."""
        suffix = found.group() if (found := _SUFFIX.search(name)) else ""
        block = found.group() if (found := _BLOCK.search(name)) else ""
        for stem in self.places:
            stored = stem.replace("{}", block) + suffix
            place = self.place(stored, config)
            if place.name == name:
                return Place(stored, place.layout)
        return None

    def place(self, name: str, config: Config) -> Place:
        """The `Place` of a tensor; an unknown one keeps its name, which no model has."""
        suffix = found.group() if (found := _SUFFIX.search(name)) else ""
        stem = name.removesuffix(suffix)
        block = found.group() if (found := _BLOCK.search(f"{stem}.")) else ""
        place = self.places.get(_BLOCK.sub("{}", f"{stem}.", count=1).removesuffix("."))
        if place is None:
            return Place(name)
        return Place(place.name.replace("{}", block) + suffix, self.layout(place, suffix, config))

    def layout(self, place: Place, suffix: str, config: Config) -> Same:
        """The layout of one tensor."""
        return place.layout
