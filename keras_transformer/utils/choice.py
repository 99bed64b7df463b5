"""Values by name, with errors that suggest the nearest name. Importing this loads neither Keras nor a backend."""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from keras_transformer.utils.types import Path

_T = TypeVar("_T")
# The share of letters in common from which a name may be a misspelled one: a transposition in a name of four letters.
_NEAR = 0.75


def choice(name: str, choices: Mapping[str, _T], *, argument: str | None = None) -> _T:
    """Returns the value of a name in a dict.

    Args:
        name: str.
        choices: dict of name to value.
        argument: str. The name of the caller's argument, for the error message.

    Raises:
        ValueError: the name is unknown; the message suggests the nearest name and lists the valid ones.

    Example:

    >>> choice("bigbrid", {"bigbird": 1, "local": 2}, argument="attention")
    Traceback (most recent call last):
    ValueError: Unknown attention='bigbrid': did you mean 'bigbird'? Valid names: bigbird, local
    """
    if name in choices:
        return choices[name]
    received = f"Unknown {argument}={name!r}" if argument else f"Unknown name {name!r}"
    near = nearest(name, choices)
    advice = f": did you mean {near!r}?" if near else "."
    raise ValueError(f"{received}{advice} Valid names: {', '.join(sorted(choices))}")


def suggestion(name: object, valid: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'?"` with the nearest valid name, or "".

    Args:
        name: the wrong name.
        valid: the existing names.

    Example:

    >>> suggestion("tflit", ["saved_model", "tflite", "onnx"])
    "; did you mean 'tflite'?"
    """
    near = nearest(name, valid)
    return f"; did you mean {near!r}?" if near else ""


def nearest(name: object, valid: Iterable[str]) -> str | None:
    """Returns the valid name that ends with the wrong one, or is most similar, in upper or lower case; None if none is near.

    Example:

    >>> nearest("LAMA", ["bert", "llama"]), nearest("int4", ["int8", "weight_int4"])
    ('llama', 'weight_int4')
    """
    spelled = {str(each).lower(): each for each in valid}
    for lower, each in spelled.items():
        if lower.endswith(f"_{name}".lower()):
            return each
    found = difflib.get_close_matches(str(name).lower(), spelled, n=1, cutoff=_NEAR)
    return spelled[found[0]] if found else None


def nearest_path(path: Path) -> str:
    """Returns `"; did you mean 'x'?"` with the path of the most similar name in the folder of a missing file, or ""."""
    path = pathlib.Path(path)
    try:
        name = nearest(path.name, [each.name for each in path.parent.iterdir()])
    except OSError:
        return ""
    return f"; did you mean '{path.with_name(name)}'?" if name else ""
