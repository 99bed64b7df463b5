"""What `operator_conformance.py` finds in results, and the page that it writes of them."""

import pathlib
import sys

import keras
import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="it compares TensorFlow's files")
if keras.backend.backend() == "tensorflow":
    import conformance_cases
    import operator_conformance

    SUM = next(each for each in conformance_cases.FUNCTIONS if each.operation == "AddV2" and not each.name)
    SHIFT = next(each for each in conformance_cases.FUNCTIONS if each.operation == "LeftShift")


def test_a_pair_is_of_the_more_unusual_region_of_its_numbers():
    (x, y), names = operator_conformance.operands(SUM, "float32")
    found = {(float(a), float(b)): name for a, b, name in zip(x, y, names, strict=True)}
    assert found[1.0, 2.5] == "ordinary"
    assert found[1.0, -2.5] == found[-2.5, 1.0] == "negative"
    assert found[float(np.float32(1e-30)), -2.5] == "tiny"
    assert found[np.inf, -2.5] == "infinity"
    (_, steps), _ = operator_conformance.operands(SHIFT, "int8")
    assert set(steps.tolist()) == {0, 1, 2, 3, 7}


def test_a_wrong_result_is_told_with_its_region():
    expected = operator_conformance.expected_of(SUM, "float32")
    (x, y), names = operator_conformance.operands(SUM, "float32")
    assert operator_conformance.differences(SUM, "float32", expected, expected) == []
    rounded = np.where(np.abs(expected) < 1e30, expected * np.float64(1 + 1e-6), expected)
    assert operator_conformance.differences(SUM, "float32", rounded, expected) == []

    wrong = np.where((x == 3) & (y == 1), np.float32(4.001), np.where(np.isnan(expected), 0, expected))
    found = {each["region"]: each for each in operator_conformance.differences(SUM, "float32", wrong, expected)}
    assert set(found) == {"ordinary", "infinity", "NaN", "denormal"}  # Infinities of both signs have no sum.
    assert found["ordinary"]["operands"] == ["3", "1"]
    assert found["NaN"]["expected"] == "nan"
    assert found["NaN"]["share"] == 1


def test_the_page_has_a_row_for_each_operation_format_and_region():
    key = {"operation": "Maximum", "name": "", "kind": "fixed", "dtype": "float32"}
    nan = {"region": "NaN", "operands": ["nan", "0.3"], "expected": "nan", "found": "0.3", "share": 0.5}
    tiny = {**nan, "region": "denormal"}
    text = operator_conformance.page(
        [key | {"format": "tflite", "differences": [nan, tiny]}, key | {"format": "onnx", "differences": []}]
    )
    (row,) = [line for line in text.splitlines() if line.startswith("| Maximum")]
    assert row.startswith("| Maximum | TFLite | float32 | NaN | nan, 0.3 | nan | 0.3 | report |")
    assert "where a function jumps at 0: Maximum." in text
    assert "1 functions of one type" in text
