"""What each weight costs in accuracy: the figures of `keras-transformer sensitivity` by weight."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.export.errors import ExportError
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import JsonObject, Path


class Gains(NamedTuple):
    """What leaving single weights in float gains over quantizing all of them.

    Args:
        measure: "score" or "agreement".
        mode: the quantization.
        all_quantized: the measure with all weights quantized.
        by_weight: the gain by path of the weight.
    """

    measure: str
    mode: str
    all_quantized: float
    by_weight: dict[str, float]


def read_gains(path: Path) -> Gains:
    """Reads the file that `keras-transformer sensitivity --json` writes.

    Raises:
        ExportError: it is another file.
    """
    try:
        record = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        return gains_of(record["rows"], str(record["quantize"]))
    except OSError as error:
        raise ExportError(f"'{path}' cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        message = f"'{path}' was not written by keras-transformer sensitivity --json: {one_line(error)}"
        raise ExportError(message) from error


def gains_of(rows: Sequence[JsonObject], mode: str) -> Gains:
    """The gains of the rows of `sensitivity`, as dicts.

    Args:
        rows: the first has no weight, and all of them quantized.
        mode: name of the quantization.

    Example:

    >>> rows = [{"weight": "", "score": 0.5, "agreement": None}, {"weight": "a/kernel", "score": 0.75, "agreement": None}]
    >>> gains_of(rows, "int8").by_weight
    {'a/kernel': 0.25}
    """
    measure = "agreement" if rows[0]["score"] is None else "score"
    before = float(rows[0][measure])
    return Gains(measure, mode, before, {str(row["weight"]): float(row[measure]) - before for row in rows[1:]})
