"""The metadata of a GGUF file, with the types of values checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformer.checkpoints.config import shown
from keras_transformer.checkpoints.errors import ConfigError


class Metadata:
    """Access to the metadata, by keys that may begin with the name of the architecture.

    Args:
        values: dict of key to value, as in `Container`.
        source: name of the file in errors.

    Raises:
        ConfigError: by every method, if a value has another type, or is missing and there is no default.

    Example:

    >>> Metadata({"general.architecture": "llama", "llama.block_count": 2}).integer("{arch}.block_count")
    2
    """

    def __init__(self, values: Mapping[str, object], source: str = "model.gguf") -> None:
        self.values, self.source = values, source
        self.architecture = self.text("general.architecture")

    def key(self, name: str) -> str:
        """The key in the file: `"{arch}"` stands for the architecture."""
        return name.replace("{arch}", self.architecture) if "{arch}" in name else name

    def __contains__(self, name: str) -> bool:
        return self.key(name) in self.values

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        return self._checked(name, default, str)

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer. Some are stored as one for each block: these must be equal."""
        value = self.values.get(self.key(name))
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all() and value.dtype.kind in "iu":
            return int(value[0])
        return self._checked(name, default, int)

    def number(self, name: str, default: float | None = None) -> float:
        """A number."""
        return float(self._checked(name, default, (int, float)))

    def flag(self, name: str, default: bool | None = None) -> bool:
        """A boolean."""
        return self._checked(name, default, bool)

    def texts(self, name: str, default: list[str] | None = None) -> list[str]:
        """A list of strings."""
        found = self._checked(name, default, list)
        if not all(isinstance(each, str) for each in found):
            raise ConfigError(f"{self.source}: {self.key(name)!r} is not a list of strings.")
        return found

    def numbers(self, name: str, default: np.ndarray | None = None) -> np.ndarray:
        """An array of numbers."""
        return self._checked(name, default, np.ndarray)

    def _checked(self, name: str, default: object, kind: type | tuple[type, ...]) -> Any:
        value = self.values.get(self.key(name), default)
        if value is None:
            raise ConfigError(f"{self.source} has no {self.key(name)!r}.")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"{self.source}: {self.key(name)!r} is {shown(value)}, of the wrong type.")
        return value
