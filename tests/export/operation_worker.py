"""How far files of cases of operations are from what TensorFlow computes: `operation_worker.py OUT [OPERATION ...]`."""

import itertools
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import numpy as np
import tensorflow as tf
from operation_cases import CASES, FIRST
from operation_files import computed
from worker_cases import is_exhaustive

from keras_transformer.export.errors import ExportError


def difference(found, expected):
    """The largest difference, as a share of each value or of 1; NaN equals NaN."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    found, expected = found.astype("float64"), expected.astype("float64")
    is_same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        away = np.where(is_same, 0, np.abs(found - expected) / np.maximum(1, np.abs(expected)))
    return float(np.nan_to_num(away, nan=np.inf).max(initial=0))


def record(case, format, shapes):
    try:
        found = computed(case.function, case.arrays, format, shapes)
    except ExportError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # What the runtime says of a file that it does not take.
        return f"the runtime: {type(error).__name__}: {error}"
    expected = case.function(*map(tf.constant, case.arrays))
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    try:
        return max(difference(*pair) for pair in zip(found, [each.numpy() for each in expected], strict=True))
    except AssertionError as error:
        return f"shapes {error}"


def selected(operations):
    """The cases of some operations; else all of an exhaustive test, or the first of each operation."""
    if operations:
        return [key for key in CASES if key[0] in operations]
    return list(CASES) if is_exhaustive() else FIRST


def main(out, *operations):
    results = {}
    for operation, name in selected(operations):
        case = CASES[operation, name]
        shapes_of = {"dynamic": case.shapes}
        if operations or is_exhaustive():
            shapes_of["fixed"] = [array.shape for array in case.arrays]
        for format, kind in itertools.product(("tflite", "onnx"), shapes_of):
            results[f"{operation}|{name}|{format}|{kind}"] = record(case, format, shapes_of[kind])
    pathlib.Path(out).write_text(json.dumps(results))


main(*sys.argv[1:])
