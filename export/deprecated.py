"""Calls of `export` as they were written before `ExportOptions`: they work, and warn, until 2.0."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from keras_transformer.export.data.short_repr import short_value
from keras_transformer.export.errors import ExportError
from keras_transformer.export.options import ExportOptions
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.deprecation import warn_deprecated

_P = ParamSpec("_P")
_R = TypeVar("_R")
_MOVED = tuple(field.name for field in dataclasses.fields(ExportOptions))


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
                raise ExportError(
                    f"{', '.join(moved)} of export and options were given", Remedy.OPTIONS, options=_listed(moved)
                )
            given["options"] = ExportOptions(**moved)
            former = f"{', '.join(f'{name}=' for name in moved)} of export"
            warn_deprecated(former, _export_call(args, dict(given)))
        return function(*args, **given)  # type: ignore[arg-type]

    return called


def _export_call(args: tuple[object, ...], given: dict[str, object]) -> str:
    """A call of `export` as it is written now."""
    options = given.pop("options")
    words = ["model", *map(short_value, args[1:])]
    words += [f"{name}={short_value(value)}" for name, value in given.items() if name != "model"]
    return f"export({', '.join(words)}, options={options!r})"


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={short_value(value)}" for name, value in values.items())
