"""Figures, colors and axes that the plots share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_transformer.utils.types import ArrayLike
from keras_transformer.version import install_command

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

# Perceptually uniform: equal steps of a value are equal steps of brightness.
COLOR_MAP = "magma"
FIRST, SECOND, ALARM = "#31688e", "#d8573c", "#c0392b"
# FAINT is for lines; QUIET for small text on white; BETWEEN for text on white or black.
FAINT, QUIET, BETWEEN = "#8a8a8a", "#5f5f5f", "#7f7f7f"
# Styles of the first and the last curve, or of training and validation, that differ without color too.
BEFORE = {"color": FIRST, "linestyle": "--", "linewidth": 1.6}
AFTER = {"color": SECOND, "linestyle": "-", "linewidth": 2.0}


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty `matplotlib.figure.Figure` of the given size in inches, with constrained layout.

    It is independent of pyplot: it needs no display and does not have to be closed.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"Plots need matplotlib: {install_command('plots')}") from error
    return Figure(figsize=(width, height), layout="constrained")


def overlay_color_map() -> LinearSegmentedColormap:
    """Returns a color map for overlays on gray images: from transparent to an opaque warm color."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("overlay", [(1.0, 0.6, 0.1, 0.0), (1.0, 0.6, 0.1, 0.95)])


def remove_axes(axes: Axes) -> None:
    """Removes ticks and frame."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def curve_styles(count: int) -> list[dict[str, Any]]:
    """Returns styles of `count` curves that differ without color too: dicts of matplotlib's arguments.

    Colors are those of viridis, from dark to light, so that they also differ in black and white.
    """
    from matplotlib import colormaps

    lines, markers = ("-", "--", "-.", ":"), ("o", "s", "^", "D", "v", "P", "X", "*")
    shades = [colormaps["viridis"](0.08 + 0.77 * index / max(count - 1, 1)) for index in range(count)]
    return [
        {
            "color": shade,
            "marker": markers[index % len(markers)],
            "linestyle": lines[index % len(lines)],
            "linewidth": 1.6,
        }
        for index, shade in enumerate(shades)
    ]


def plain_axes(axes: Axes) -> None:
    """Adds a faint grid, and removes the top and right spines."""
    axes.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def integer_ticks(axis: Axis) -> None:
    """Places ticks at integers only, also where the axis spans less than one."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def displayable(image: ArrayLike) -> np.ndarray:
    """Converts an image `(H, W, 1)` or `(H, W, 3)`, of 0 .. 255 or 0 .. 1, for `imshow`: 0 .. 1, gray without channels.

    Raises:
        ValueError: the image has another shape.
    """
    import numpy as np

    image = np.asarray(image)
    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(f"Expected an image (H, W, 1) or (H, W, 3). Received: {image.shape}")
    whole = np.issubdtype(image.dtype, np.integer) or image.max(initial=0) > 1
    pixels = np.clip(image.astype("float32") / (255 if whole else 1), 0, 1)
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels
