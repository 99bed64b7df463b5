"""Modes of quantization as they were written before each was a class: they work, and warn, until 2.0."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import QuantizationError
from keras_transformer.utils.choice import suggestion
from keras_transformer.utils.deprecation import warn_deprecated

_GGUF, _LEARNED = "gguf", "learned"
# The options that `Quantization` had, in their order, with their defaults.
_FORMER: dict[str, object] = {"calibration": None, "keep_float": (), "block_size": 32, "tolerance": None, "file": None}
_FORMER |= {"ranges": "mse", "activation_bits": 8, "weights": None}


class FormerCall(type):
    """Lets a class whose subclasses are modes be called with the name of one: `Quantization("int8")`."""

    if not TYPE_CHECKING:

        def __call__(cls, *args: object, **kwargs: object) -> Any:
            modes = {each.mode: each for each in cls.__subclasses__()}
            return _instance(modes, *args, **kwargs) if modes else super().__call__(*args, **kwargs)


def _instance(classes: Mapping[str, type], mode: str, *args: object, **kwargs: object) -> Any:
    """An instance of the class of the mode.

    Raises:
        QuantizationError: see the classes; or the mode has no such option.
        TypeError: no mode has it.
    """
    given = {**dict(zip(_FORMER, args, strict=False)), **kwargs}
    unknown = sorted(given.keys() - _FORMER.keys())
    if unknown:
        raise TypeError(f"Quantization takes mode, {', '.join(_FORMER)}. Received: {', '.join(unknown)}")
    given = {name: value for name, value in given.items() if value is not _FORMER[name] and value != _FORMER[name]}
    _check(mode, given)
    cls = classes.get(mode)
    if cls is None:
        raise QuantizationError(
            f"unknown quantization {mode!r}; valid: {', '.join(classes)}{suggestion(mode, classes)}"
        )
    if mode == _LEARNED and not {"file", "weights"}.isdisjoint(given):
        given["source"] = given["weights"] if "weights" in given else given["file"]
    # Others had no effect.
    options = {field.name: given[field.name] for field in dataclasses.fields(cls) if field.name in given}
    made = cls(**options)
    warn_deprecated(f"Quantization({mode!r}, ...)" if given else f"Quantization({mode!r})", repr(made), 3)
    return made


def _check(mode: str, given: dict[str, object]) -> None:
    """Refuses options that a mode never took."""
    if "file" in given and mode not in (_GGUF, _LEARNED):
        raise QuantizationError(f"file is for the modes {_GGUF!r} and {_LEARNED!r}, not {mode!r}")
    if "weights" in given and (mode != _LEARNED or "file" in given):
        raise QuantizationError(f"weights are for the mode {_LEARNED!r} without a file")
    if "activation_bits" in given and mode != "int8_static":
        raise QuantizationError(
            f"activation_bits must be 8, or 16 in 'int8_static'. Received: {given['activation_bits']!r}"
        )
