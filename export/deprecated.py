"""Calls as they were written before `ExportOptions` and the classes of the modes: they work, and warn, for one release."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from keras_transformer.export.errors import ExportError, QuantizationError, suggestion
from keras_transformer.export.options import ExportOptions
from keras_transformer.export.quantization.options import CLASSES, GGUF, KEPT, LEARNED, Quantization
from keras_transformer.export.short_repr import short_value

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MOVED = tuple(field.name for field in dataclasses.fields(ExportOptions))
# The options of `Quantization`, in their order, with their defaults.
_FORMER: dict[str, Any] = {"calibration": None, "keep_float": (), "block_size": 32, "tolerance": None, "file": None}
_FORMER |= {"ranges": "mse", "activation_bits": 8, "weights": None}


def takes_former_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Lets `export` take the arguments that are in `ExportOptions` now.

    Raises:
        ExportError: `options` are given too.
    """

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given: dict[str, Any] = dict(kwargs)
        moved = {name: given.pop(name) for name in _MOVED if name in given}
        if moved:
            if "options" in given:
                raise ExportError(f"pass {', '.join(moved)} in options: options=ExportOptions({_listed(moved)})")
            given["options"] = ExportOptions(**moved)
            _warn(f"{', '.join(f'{name}=' for name in moved)} of export", _export_call(args, dict(given)), 3)
        return function(*args, **given)  # type: ignore[arg-type]

    return called


def quantization(mode: str, *args: Any, **kwargs: Any) -> Quantization:
    """`Quantization(mode, ...)`: an instance of the class of the mode.

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
    cls = CLASSES.get(mode)
    if cls is None:
        raise QuantizationError(
            f"unknown quantization {mode!r}; valid: {', '.join(CLASSES)}{suggestion(mode, CLASSES)}"
        )
    if mode == LEARNED and not {"file", "weights"}.isdisjoint(given):
        given["source"] = given["weights"] if "weights" in given else given["file"]
    # Others had no effect.
    options = {field.name: given[field.name] for field in dataclasses.fields(cls) if field.name in given}
    made = cls(**options)
    _warn(f"Quantization({mode!r}, ...)" if given else f"Quantization({mode!r})", repr(made), 4)
    return made


def _check(mode: str, given: dict[str, Any]) -> None:
    """Refuses options that a mode never took."""
    if "file" in given and mode not in KEPT:
        raise QuantizationError(f"file is for the modes {GGUF!r} and {LEARNED!r}, not {mode!r}")
    if "weights" in given and (mode != LEARNED or "file" in given):
        raise QuantizationError(f"weights are for the mode {LEARNED!r} without a file")
    if "activation_bits" in given and mode != "int8_static":
        raise QuantizationError(
            f"activation_bits must be 8, or 16 in 'int8_static'. Received: {given['activation_bits']!r}"
        )


def _export_call(args: tuple[Any, ...], given: dict[str, Any]) -> str:
    """A call of `export` as it is written now."""
    options = given.pop("options")
    words = ["model", *map(short_value, args[1:])]
    words += [f"{name}={short_value(value)}" for name, value in given.items() if name != "model"]
    return f"export({', '.join(words)}, options={options!r})"


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={short_value(value)}" for name, value in values.items())


def _warn(former: str, call: str, level: int) -> None:
    warnings.warn(f"{former} goes with the next release: write {call}", DeprecationWarning, stacklevel=level)
