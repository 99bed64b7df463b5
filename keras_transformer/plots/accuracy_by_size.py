"""What a smaller file costs."""

from itertools import pairwise

from keras_transformer.plots.figure import QUIET, distinct, new_figure, plain_axes

_FONT = 8  # Of the names of points, in typographic points.
_STEPS = 20  # Between two points of a curve that names are to keep clear of.


def accuracy_by_size(rows, *, score: str = "score", size: str = "bytes", label: str = "score"):
    """Draws the scores of files against their sizes: one curve for each format, from its smallest file to its largest.

    Args:
        rows: list of dicts, one for each file: "format", "mode" (what stands beside the point) and the two below. Such are
            the rows that `benchmarks/quantized_tasks.py --json FILE` writes; a row with "float_score" and "of_float" (its
            share of the bytes of the float file) also gives the point of the float file.
        score: str. The column on the vertical axis.
        size: str. The column of bytes.
        label: str. What the vertical axis is called.

    Returns:
        A `matplotlib.figure.Figure` with one axes.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: there are no rows, or one lacks a column.

    Example:

    >>> rows = [
    ...     {"format": "onnx", "mode": "float32", "score": 80.3, "bytes": 4_000_000},
    ...     {"format": "onnx", "mode": "int8", "score": 80.2, "bytes": 1_000_000},
    ... ]
    >>> accuracy_by_size(rows).axes[0].get_legend_handles_labels()[1]
    ['onnx']
    """
    curves = _curves(rows, score, size)
    figure = new_figure(6.4, 4.2)
    axes = figure.add_subplot()
    for (name, points), style in zip(curves.items(), distinct(len(curves)), strict=True):
        points = sorted(points)
        axes.plot(*zip(*[(x / 1e6, y) for x, y, _ in points], strict=True), label=name, **style, markersize=6)
    axes.set(xscale="log", xlabel="size in MB", ylabel=label)
    axes.legend(frameon=False)
    axes.margins(0.15)
    plain_axes(axes)
    _plain_ticks(axes.xaxis)
    _name_points(axes, curves)
    return figure


def _curves(rows, score, size):
    """Format to its points: a set of (bytes, score, mode)."""
    curves = {}
    for row in rows:
        missing = {"format", "mode", score, size} - set(row)
        if missing:
            raise ValueError(f"A row lacks {sorted(missing)}: {row}")
        points = curves.setdefault(row["format"], set())
        points.add((row[size], row[score], row["mode"]))
        if "float_score" in row and row.get("of_float"):
            # Its bytes come back from a rounded share: two digits of them are enough for one point, and not for several.
            points.add((float(f"{row[size] / row['of_float']:.2g}"), row["float_score"], "float32"))
    if not curves:
        raise ValueError("There are no rows to draw.")
    return curves


def _name_points(axes, curves):
    """A mode is named once, at its highest point: formats of one mode lie close to one another."""
    highest, taken = {}, [_box(axes, *place, 0, 0, 1) for points in curves.values() for place in _along(points)]
    for x, y, mode in (point for points in curves.values() for point in points):
        if mode not in highest or y > highest[mode][1]:
            highest[mode] = (x, y)
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.8}
    for mode, (x, y) in sorted(highest.items(), key=lambda each: each[1][::-1], reverse=True):
        boxes = {place: _box(axes, x, y, *place, len(mode)) for place in _places(len(mode))}
        place = min(boxes, key=lambda each: sum(_overlap(boxes[each], other) for other in taken))
        taken.append(boxes[place])
        beside = {"xytext": place, "textcoords": "offset points", "ha": "center", "va": "center"}
        axes.annotate(mode, (x / 1e6, y), **beside, fontsize=_FONT, color=QUIET, bbox=paper)


def _along(points):
    """Places on a curve, its points among them; sizes are on a logarithmic scale."""
    ordered = sorted(points)
    for (x, y, _), (next_x, next_y, _) in pairwise([*ordered, ordered[-1]]):
        for share in (step / _STEPS for step in range(_STEPS)):
            yield x * (next_x / x) ** share, y + share * (next_y - y)


def _places(letters):
    """Where a name may stand, in typographic points from what it names: above, right, left, below."""
    aside = 6 + 0.3 * _FONT * letters
    return [(0, 12), (aside, 0), (-aside, 0), (0, -12)]


def _box(axes, x, y, right, up, letters):
    """Left, bottom, right and top of a name in typographic points; a letter is six tenths of its height."""
    x, y = axes.transData.transform((x / 1e6, y)) * 72 / axes.figure.dpi
    width, height = 0.3 * _FONT * letters, 0.5 * _FONT
    return x + right - width, y + up - height, x + right + width, y + up + height


def _overlap(box, other):
    """The area that two boxes share."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return max(width, 0) * max(height, 0)


def _plain_ticks(axis):
    """1, 2, 5, 10 rather than powers of ten, of which a narrow range shows one or none."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
