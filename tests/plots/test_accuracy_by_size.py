import numpy as np
import pytest

from keras_transformer import plots

ROWS = [
    {"format": "onnx", "mode": "weight_int4", "score": 80.2, "bytes": 500_000, "float_score": 80.3, "of_float": 0.125},
    {"format": "onnx", "mode": "int8", "score": 80.4, "bytes": 1_000_000, "float_score": 80.3, "of_float": 0.25},
    {"format": "tflite", "mode": "int8", "score": 80.1, "bytes": 1_100_000},
]


def test_points_run_from_the_smallest_file_to_the_float_file():
    (axes,) = plots.accuracy_by_size(ROWS, label="accuracy in %").axes
    onnx, tflite = axes.get_lines()
    np.testing.assert_allclose(onnx.get_xydata(), [[0.5, 80.2], [1.0, 80.4], [4.0, 80.3]])
    np.testing.assert_allclose(tflite.get_xydata(), [[1.1, 80.1]])
    assert [line.get_label() for line in (onnx, tflite)] == ["onnx", "tflite"]
    assert axes.get_ylabel() == "accuracy in %"
    # A mode is named once, at its highest point.
    names = {text.get_text(): text.xy for text in axes.texts}
    assert names == {"weight_int4": (0.5, 80.2), "int8": (1.0, 80.4), "float32": (4.0, 80.3)}


def test_names_of_points_that_lie_close_do_not_cover_one_another():
    rows = [
        {"format": "onnx", "mode": mode, "score": score, "bytes": size}
        for mode, score, size in [("dynamic", 91.0, 1.08e6), ("weight_int8", 91.1, 1.12e6), ("int8", 91.05, 1.1e6)]
    ]
    figure = plots.accuracy_by_size([*rows, {"format": "onnx", "mode": "float32", "score": 91.3, "bytes": 4e6}])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_formats_differ_without_their_colors():
    rows = [{"format": str(each), "mode": "int8", "score": each, "bytes": 10**6} for each in range(4)]
    lines = plots.accuracy_by_size(rows).axes[0].get_lines()
    assert len({line.get_marker() for line in lines}) == 4


def test_small_differences_look_small():
    """The axis spans a tenth of the largest score at least, and says where it begins."""
    rows = [{"format": "onnx", "mode": str(each), "score": 80 + each / 10, "bytes": 10**6} for each in range(4)]
    (axes,) = plots.accuracy_by_size(rows).axes
    low, high = axes.get_ylim()
    assert (low, high) == pytest.approx((80.15 - 0.65 * 8.03, 80.15 + 0.65 * 8.03))
    assert axes.get_title(loc="left") == "the vertical axis begins at 74.9"
    low, high = plots.accuracy_by_size([*rows, rows[0] | {"score": 60.0}]).axes[0].get_ylim()
    assert (low, high) == pytest.approx((60 - 0.15 * 20.3, 80.3 + 0.15 * 20.3))


def test_an_axis_from_zero_needs_no_note():
    rows = [{"format": "onnx", "mode": str(each), "score": each, "bytes": 10**6} for each in range(4)]
    assert plots.accuracy_by_size(rows).axes[0].get_title(loc="left") == ""


@pytest.mark.parametrize(
    "rows, message",
    [([], "no rows"), ([{"format": "onnx", "mode": "int8", "score": 1.0}], r"does not have \['bytes'\]")],
)
def test_refuses(rows, message):
    with pytest.raises(ValueError, match=message):
        plots.accuracy_by_size(rows)
