"""Settings of a checkpoint, with their types and ranges checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.utils.choice import suggestion
from keras_transformer.utils.types import JsonObject

_LARGEST = 2**31 - 1
_SHOWN = 80
# Of float32: the largest number, and the smallest one with all its bits.
_LARGEST_FLOAT, _SMALLEST_FLOAT = 3.4028234663852886e38, 1.1754943508222875e-38
# Ranges of numbers by the names of their settings.
_RANGES = (
    (re.compile(r"(^|_)eps(ilon)?$"), _SMALLEST_FLOAT, 1.0, "above 0, and at most 1"),
    (re.compile(r"drop(out|_path|$)|layerdrop"), 0.0, 1.0, "from 0 to 1"),
    (
        re.compile(r"(^|_)(theta|base|freq|factor|ratio|temperature|scaling)$"),
        _SMALLEST_FLOAT,
        _LARGEST_FLOAT,
        "above 0",
    ),
)
_MISSING: object = object()
_T = TypeVar("_T")

# transformers' names of activations, and those of Keras or this package.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class Config:
    """The content of a `config.json`.

    Args:
        values: dict.
        source: str. The name in errors, such as the path of the file.
        tensors: names of the tensors of the checkpoint, from which some settings are inferred; None if not known.

    Raises:
        ConfigError: by every method, if a setting is missing and has no default, has the wrong type, or is out of range.

    Example:

    >>> Config({"hidden_size": 768}).integer("hidden_size")
    768
    """

    def __init__(self, values: JsonObject, source: str = "config.json", tensors: Iterable[str] | None = None) -> None:
        self.values = values
        self.source = source
        self._tensors = None if tensors is None else frozenset(tensors)

    @property
    def tensors(self) -> frozenset[str]:
        """frozenset of the names of the tensors of the checkpoint; empty if they are not known."""
        return self._tensors or frozenset()

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str, default: object = None) -> Any:
        """Returns a setting unchecked; `default` if it is missing or null."""
        value = self.values.get(name)
        return default if value is None else value

    def integer(self, name: str, default: object = _MISSING, minimum: int = 1, maximum: int = _LARGEST) -> Any:
        """Returns an integer in a range."""
        value = self._required(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._error(name, value, "an integer")
        if not minimum <= value <= maximum:
            raise self._error(name, value, f"an integer from {minimum} to {maximum}")
        return value

    def tokens(self, name: str) -> int | tuple[int, ...] | None:
        """Returns a token id, or a tuple of several; None for none."""
        value = self.get(name)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= _LARGEST for each in ids):
            raise self._error(name, value, "a token id or a list of them")
        return (ids[0] if len(ids) == 1 else tuple(ids)) if ids else None

    def number(self, name: str, default: object = _MISSING) -> Any:
        """Returns a number of float32, as a float, in the range of a setting of this name: see `_RANGES`."""
        value = self._required(name, default)
        if value is default:
            return value
        if not _is_number(value):
            raise self._error(name, value, "a number")
        for pattern, minimum, maximum, expected in _RANGES:
            if pattern.search(name) and not minimum <= value <= maximum:
                raise self._error(name, value, expected)
        return float(value)

    def numbers(self, name: str) -> list[float]:
        """Returns a list of finite numbers, as floats."""
        value = self._required(name, _MISSING)
        if not isinstance(value, list) or not value or not all(map(_is_number, value)):
            raise self._error(name, value, "a list of numbers")
        return [float(each) for each in value]

    def flag(self, name: str, default: object = _MISSING) -> bool:
        """Returns a boolean."""
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise self._error(name, value, "true or false")
        return value

    def choice(self, name: str, choices: Mapping[str, _T], default: object = _MISSING) -> _T:
        """Returns the value of a setting in the dict `choices`; `default` is a key of it."""
        value = self._required(name, default)
        if not isinstance(value, str) or value not in choices:
            valid = ", ".join(map(repr, choices))
            raise self._error(name, value, f"one of {valid}{suggestion(value, choices)}")
        return choices[value]

    def activation(self, name: str = "hidden_act", default: str = "gelu") -> str:
        """Returns the name of an activation in Keras or `feedforward`."""
        return self.choice(name, ACTIVATIONS, default)

    def only(self, name: str, value: object, default: object = _MISSING) -> None:
        """Raises `ConfigError` for an unsupported variant: a setting that is neither `value` nor missing."""
        found = self.get(name, value if default is _MISSING else default)
        if found != value:
            raise ConfigError(
                f"{self.source}: {name!r} is {shown(found)}; only {shown(value)} is supported. Checkpoints of this variant "
                "cannot be loaded."
            )

    def section(self, name: str) -> Config:
        """Returns a nested `Config`, such as "text_config"."""
        value = self._required(name, _MISSING)
        if not isinstance(value, dict):
            raise self._error(name, value, "a section")
        return self.within(value, name)

    def within(self, values: JsonObject, name: str) -> Config:
        """Returns a `Config` of other values and the same tensors, which errors name as a section of this one."""
        return Config(values, f"{self.source}: {name}", self._tensors)

    def check_depth(self, name: str, depth: int) -> None:
        """Raises `ConfigError` for more layers than tensors, before a graph of them is built."""
        if self._tensors is not None and depth > len(self._tensors):
            raise ConfigError(
                f"{self.source}: {name!r} is {depth}, but the checkpoint has only {len(self._tensors)} tensors. Check that "
                "all its files are there."
            )

    @property
    def num_labels(self) -> int:
        """int: the number of classes of a head; transformers' default is 2."""
        labels = self.get("id2label")
        return len(labels) if isinstance(labels, dict) and labels else self.integer("num_labels", 2)

    @property
    def class_names(self) -> list[str]:
        """list of str: the names of the classes of a head; empty where they are transformers' LABEL_0 and so on."""
        labels = self.get("id2label")
        labels = labels if isinstance(labels, dict) else {}
        found = [labels.get(str(index)) for index in range(len(labels))]
        names = [each for each in found if isinstance(each, str)]
        is_named = len(names) == len(found) and any(each != f"LABEL_{index}" for index, each in enumerate(names))
        return names if is_named else []

    def _required(self, name: str, default: object) -> Any:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is _MISSING:
            raise ConfigError(
                f"{self.source} has no {name!r}, which this 'model_type' needs. Check that the file is complete."
            )
        return default

    def _error(self, name: str, value: object, expected: str) -> ConfigError:
        end = "" if expected.endswith("?") else "."
        return ConfigError(f"{self.source}: {name!r} is {shown(value)}; it must be {expected}{end}")


def _is_number(value: object) -> bool:
    """Whether a value is a number that is finite in float32."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST_FLOAT


def shown(value: object) -> str:
    """Returns a setting as it stands in the file, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
