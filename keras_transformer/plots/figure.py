"""What every picture has in common."""

from keras_transformer.version import install_command

# Perceptually uniform: equal steps of a value look like equal steps of brightness.
COLOUR_MAP = "magma"
FIRST, SECOND, ALARM = "#31688e", "#d8573c", "#c0392b"
# FAINT is for lines; QUIET for small words on white; BETWEEN for words that stand on white or on black.
FAINT, QUIET, BETWEEN = "#8a8a8a", "#5f5f5f", "#7f7f7f"
# Of the first and the last, or of training and validation: told apart without their colors.
BEFORE = {"color": FIRST, "linestyle": "--", "linewidth": 1.6}
AFTER = {"color": SECOND, "linestyle": "-", "linewidth": 2.0}


def new_figure(width: int, height: int):
    """An empty `matplotlib.figure.Figure` of so many inches, laid out so that nothing overlaps.

    It belongs to no window, so that a server without a display can draw it, and nothing has to be closed.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"Pictures need matplotlib: {install_command('plots')}") from error
    return Figure(figsize=(width, height), layout="constrained")


def veil():
    """A color map to lay over a gray picture: from nothing to a warm color that covers it."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("veil", [(1.0, 0.6, 0.1, 0.0), (1.0, 0.6, 0.1, 0.95)])


def bare(axes):
    """Takes ticks and frame off."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def distinct(count: int):
    """Styles of `count` curves that are told apart without their colors: dicts of matplotlib's arguments.

    Colors are those of viridis, from dark to light, so that they differ in print too.
    """
    from matplotlib import colormaps

    lines, markers = ("-", "--", "-.", ":"), ("o", "s", "^", "D", "v", "P", "X", "*")
    shades = [colormaps["viridis"](0.08 + 0.77 * place / max(count - 1, 1)) for place in range(count)]
    return [
        {
            "color": shade,
            "marker": markers[place % len(markers)],
            "linestyle": lines[place % len(lines)],
            "linewidth": 1.6,
        }
        for place, shade in enumerate(shades)
    ]


def plain_axes(axes):
    """A faint grid, and no frame where nothing is written."""
    axes.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def as_picture(image):
    """An image `(H, W, 1)` or `(H, W, 3)`, of 0 .. 255 or of 0 .. 1, as `imshow` takes it: 0 .. 1, gray without channels.

    Raises:
        ValueError: the image has another shape.
    """
    import numpy as np

    image = np.asarray(image)
    if image.ndim != 3 or image.shape[-1] not in (1, 3):
        raise ValueError(f"Expected an image (H, W, 1) or (H, W, 3). Received: {image.shape}")
    whole = np.issubdtype(image.dtype, np.integer) or image.max(initial=0) > 1
    picture = np.clip(image.astype("float32") / (255 if whole else 1), 0, 1)
    return picture[..., 0] if picture.shape[-1] == 1 else picture
