"""Scores of exported files by file size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.plots.figure import FAINT, QUIET, curve_styles, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FONT = 8  # Font size of the labels of points, in points.
_NEAR = 12  # Distance of a label above its point, in points; a line leads to those farther away.
_LEAST_RANGE = 0.1  # Least range of the scores, as a share of the largest: small differences look small.


def accuracy_by_size(
    rows: Iterable[Mapping[str, Any]], *, score: str = "score", size: str = "bytes", label: str = "score"
) -> Figure:
    """Plots the scores of files by their sizes: a point for each file, in the color and with the marker of its format.

    The vertical axis spans a tenth of the largest score at least, and the figure says where it begins.

    Args:
        rows: list of dicts, one per file: "format", "mode" (the label of the point) and the two columns below. The rows of
            `benchmarks/quantized_tasks.py --json FILE` are such dicts; a row with "float_score" and "of_float" (its fraction
            of the bytes of the float file) also adds the point of the float file.
        score: str. The column of the vertical axis. Default "score".
        size: str. The column of sizes in bytes. Default "bytes".
        label: str. The label of the vertical axis. Default "score".

    Returns:
        A `matplotlib.figure.Figure` with one axes.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: there are no rows, or a row does not have a required column.

    Example:

    >>> rows = [
    ...     {"format": "onnx", "mode": "float32", "score": 80.3, "bytes": 4_000_000},
    ...     {"format": "onnx", "mode": "int8", "score": 80.2, "bytes": 1_000_000},
    ... ]
    >>> accuracy_by_size(rows).axes[0].get_legend_handles_labels()[1]
    ['onnx']
    """
    groups = _groups(rows, score, size)
    figure = new_figure(6.4, 4.2)
    axes = figure.add_subplot()
    for (name, points), style in zip(groups.items(), curve_styles(len(groups)), strict=True):
        places = [(x / 1e6, y) for x, y, _ in sorted(points)]
        style["linestyle"] = "none"
        axes.plot(*zip(*places, strict=True), label=name, **style, markersize=6)
    axes.set(xscale="log", xlabel="size in MB, logarithmic", ylabel=label)
    axes.legend(frameon=False)
    axes.margins(x=0.35, y=0.15)  # Names of points stand beside them.
    _widen(axes, [y for points in groups.values() for _, y, _ in points])
    if axes.get_ylim()[0] > 0:
        axes.set_title(f"the vertical axis begins at {axes.get_ylim()[0]:.3g}", fontsize=_FONT, color=QUIET, loc="left")
    plain_axes(axes)
    _plain_ticks(axes.xaxis)
    _name_points(axes, groups)
    return figure


def _widen(axes, scores):
    """Gives the vertical axis its least range, around the scores."""
    least, middle = _LEAST_RANGE * max(map(abs, scores)), (min(scores) + max(scores)) / 2
    if max(scores) - min(scores) < least:
        axes.set_ylim(middle - 0.65 * least, middle + 0.65 * least)


def _groups(rows, score, size):
    """Returns the points of each format: a set of (bytes, score, mode)."""
    groups: dict[str, set] = {}
    for row in rows:
        missing = {"format", "mode", score, size} - set(row)
        if missing:
            raise ValueError(f"A row does not have {sorted(missing)}: {row}")
        points = groups.setdefault(row["format"], set())
        points.add((row[size], row[score], row["mode"]))
        if "float_score" in row and row.get("of_float"):
            # The fraction is rounded: two digits avoid several points for one float file.
            points.add((float(f"{row[size] / row['of_float']:.2g}"), row["float_score"], "float32"))
    if not groups:
        raise ValueError("There are no rows to plot.")
    return groups


def _name_points(axes, groups):
    """Labels each mode once, at its highest point, since the points of a mode are close to each other."""
    every = [point for points in groups.values() for point in points]
    highest, taken = {}, [_box(axes, (x, y), (0, 0), 1) for x, y, _ in every]
    for x, y, mode in every:
        if mode not in highest or y > highest[mode][1]:
            highest[mode] = (x, y)
    background = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.8}
    for mode, (x, y) in sorted(highest.items(), key=lambda each: each[1][::-1], reverse=True):
        boxes = {offset: _box(axes, (x, y), offset, len(mode)) for offset in _offsets(len(mode))}
        offset = min(
            boxes, key=lambda each: _outside(axes, boxes[each]) + sum(_overlap(boxes[each], other) for other in taken)
        )
        taken.append(boxes[offset])
        position = {"xytext": offset, "textcoords": "offset points", "ha": "center", "va": "center"}
        if abs(offset[1]) > _NEAR:
            position["arrowprops"] = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.6, "shrinkB": 4}
        axes.annotate(mode, (x / 1e6, y), **position, fontsize=_FONT, color=QUIET, bbox=background)


def _offsets(letters):
    """Returns candidate offsets of a label from its point, in points: above, right, left, below, then farther away."""
    aside = 6 + 0.3 * _FONT * letters
    near = [(0, _NEAR), (aside, 0), (-aside, 0), (0, -_NEAR)]
    far = [(side * aside, sign * up) for up in (12, 24, 36, 48) for sign in (1, -1) for side in (1, -1, 0)]
    return [*near, *far]


def _box(axes, point, offset, letters):
    """Returns left, bottom, right and top of a label in points; letters are 0.6 times as wide as high."""
    (x, y), (right, up) = point, offset
    x, y = axes.transData.transform((x / 1e6, y)) * 72 / axes.figure.dpi
    width, height = 0.3 * _FONT * letters, 0.5 * _FONT
    return x + right - width, y + up - height, x + right + width, y + up + height


def _overlap(box, other):
    """Returns the area of the intersection of two boxes."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return max(width, 0) * max(height, 0)


def _outside(axes, box):
    """Returns the area of a box that is not inside the axes."""
    corners = axes.transAxes.transform([(0, 0), (1, 1)]) * 72 / axes.figure.dpi
    return (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, corners.flatten())


def _plain_ticks(axis):
    """Sets ticks at 1, 2, 3, 5, 10 instead of powers of ten, of which a narrow range has one or none."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 3, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
