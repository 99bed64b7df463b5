"""Heat maps of attention scores by layer and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.plots.figure import COLOR_MAP, displayable, new_figure, overlay_color_map, remove_axes
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Inches for the labels of layers and the scale of the color, and for titles.
_ASIDE, _ABOVE = 1.6, 0.5


def attention(
    maps: Mapping[str, ArrayLike],
    *,
    image: ArrayLike = None,
    grid: tuple[int, int] | None = None,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    example: int = 0,
) -> Figure:
    """Plots attention scores, over an image or as matrices of queries and keys, with a row per layer and a column per head.

    Over an image, a map has the attention of the class token to each patch or, without a class token, the mean over the
    patches' queries; orange is high, with a separate scale for each map. Matrices have queries as rows and keys as columns,
    and one scale for all. Layers and heads are counted from 0, as in the names of layers.

    Args:
        maps: dict of layer path to scores `(B, N, T, S)`, as returned by a model of `attention.attention_maps`.
        image: `(H, W, 1 or 3)`, 0 .. 255 or 0 .. 1, that the scores belong to; None for matrices.
        grid: pair of ints, rows and columns of patches; None if their ratio is 1 or that of the image.
        tokens: list of S strings, the keys of a matrix; None for no labels.
        query_tokens: list of T strings, with `tokens`; None for the same as those.
        example: int. Index in the batch. Default 0.

    Returns:
        A `matplotlib.figure.Figure` with one axes per layer and head, and one more for the scale of the color.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: no maps; scores of another rank; tokens or a grid that do not match the scores.

    Example:

    >>> from keras_transformer import models
    >>> from keras_transformer.attention import attention_maps
    >>> images = np.zeros((1, 8, 8, 3), "float32")
    >>> model = models.ViT(models.Size(2, 8, 2, 16), patch_size=4, image_size=8)
    >>> figure = attention(attention_maps(model)(images), image=images[0])
    >>> figure.savefig("attention.png")
    >>> len(figure.axes)
    5

    Reference: figures of Bahdanau et al., arXiv 1409.0473, and of Caron et al., arXiv 2104.14294.
    """
    scores = _scores(maps, example)
    if image is not None:
        figure, panels = _panels(scores, width=1.35, height=1.35)
        _draw_over_image(figure, panels, scores, displayable(image), grid)
        return figure
    if tokens is None and query_tokens is not None:
        raise ValueError("query_tokens need tokens, the labels of the keys.")
    query_tokens = tokens if query_tokens is None else query_tokens
    figure, panels = _panels(scores, width=_inches(tokens), height=_inches(query_tokens))
    _draw_matrices(figure, panels, scores)
    if tokens is not None:
        for (path, head), axes in panels.items():
            _label_ticks(axes, scores[path][head].shape, list(tokens), list(query_tokens or tokens))
    return figure


def _scores(maps, example):
    """Returns the scores `(N, T, S)` of one example by layer path."""
    if not maps:
        raise ValueError("There are no attention maps to plot.")
    scores = {}
    for path, batch in maps.items():
        batch = np.asarray(batch, "float32")
        if batch.ndim != 4:
            raise ValueError(f"Expected scores (B, N, T, S) of {path!r}. Received: {batch.shape}")
        if not -len(batch) <= example < len(batch):
            raise ValueError(f"There are {len(batch)} examples. Received: example={example}")
        scores[path] = batch[example]
    return scores


def _inches(names):
    """Returns the side of a matrix, with space for a line of text per label."""
    return max(1.9, 0.12 * (0 if names is None else len(names)))


def _panels(scores, width, height):
    """Returns a figure and, for each layer and head, its labeled axes of the given size in inches."""
    columns = max(len(heads) for heads in scores.values())
    figure = new_figure(_ASIDE + width * columns, _ABOVE + height * len(scores))
    panels = {}
    for row, (path, label) in enumerate(zip(scores, _short_names(list(scores)), strict=True)):
        for head in range(len(scores[path])):
            axes = figure.add_subplot(len(scores), columns, row * columns + head + 1)
            remove_axes(axes)
            if row == 0:
                axes.set_title(f"head {head}", fontsize=9)
            if head == 0:
                axes.set_ylabel(label, fontsize=9)
            panels[path, head] = axes
    return figure, panels


def _short_names(paths):
    """Returns the paths without the first and last parts that they all share, one part a line; the end of a single path."""
    parts = [path.split("/") for path in paths]
    if len(parts) == 1:
        parts = [parts[0][-2:]]
    for end in (0, -1):
        while len(parts) > 1 and min(map(len, parts)) > 1 and len({each[end] for each in parts}) == 1:
            for each in parts:
                del each[end]
    return ["\n".join(each).replace("_", " ") for each in parts]


def _draw_over_image(figure, panels, scores, image, grid):
    height, width = image.shape[:2]
    # Gray, and never white, so that all color is attention.
    gray = image if image.ndim == 2 else image @ np.array([0.299, 0.587, 0.114], "float32")
    who = ""
    for (path, head), axes in panels.items():
        heat, who = _over_patches(scores[path][head], grid, height / width)
        axes.imshow(gray, cmap="gray", vmin=0, vmax=1.25)
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        axes.imshow(heat, cmap=overlay_color_map(), vmin=0, interpolation="bicubic", extent=extent)
    _relative_scale(figure, panels, f"attention of {who}\nto each patch")


def _relative_scale(figure, panels, label):
    """Adds the scale of maps that each have their own largest value."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap

    # Over gray, as over the image.
    colors = overlay_color_map()(np.linspace(0, 1, 256))
    opaque = colors[:, 3:] * colors[:, :3] + (1 - colors[:, 3:]) * 0.5
    bar = figure.colorbar(ScalarMappable(cmap=ListedColormap(opaque)), ax=list(panels.values()), shrink=0.6, aspect=30)
    bar.set_ticks([0, 1], labels=["0", "largest\nof the map"], fontsize=8)
    bar.set_label(label, fontsize=9)


def _over_patches(scores, grid, ratio):
    """Returns the attention of `(T, S)` scores to each patch, `(rows, columns)`, and whose attention it is."""
    length = scores.shape[-1]
    rows, columns = grid or _grid(length, ratio) or _grid(length - 1, ratio) or (0, 0)
    if length == rows * columns:
        weights, who = scores.mean(axis=0), "all patches"
    elif length == rows * columns + 1:
        weights, who = scores[0, 1:], "the class token"
    else:
        expected = "a grid of patches" if grid is None else f"grid={tuple(grid)}"
        raise ValueError(f"{length} tokens do not match {expected}, with or without a class token: set grid.")
    return weights.reshape(rows, columns), who


def _grid(length, ratio):
    """Returns rows and columns in the given ratio with `length` patches, or None."""
    rows = round((length * ratio) ** 0.5)
    if rows < 1 or length % rows or abs(rows / (length // rows) - ratio) > 1e-3 * ratio:
        return None
    return rows, length // rows


def _draw_matrices(figure, panels, scores):
    highest = max(float(heads.max()) for heads in scores.values())
    options = {"cmap": COLOR_MAP, "vmin": 0, "vmax": highest, "interpolation": "nearest", "aspect": "auto"}
    images = [axes.imshow(scores[path][head], **options) for (path, head), axes in panels.items()]
    figure.colorbar(images[-1], ax=list(panels.values()), shrink=0.6, aspect=30, label="attention of query to key")
    figure.supxlabel("keys", fontsize=9)
    figure.supylabel("queries", fontsize=9)


def _label_ticks(axes, shape, tokens, query_tokens):
    if (len(query_tokens), len(tokens)) != shape:
        received = f"{len(query_tokens)} and {len(tokens)}"
        raise ValueError(f"Scores of {shape[0]} queries and {shape[1]} keys need as many labels. Received: {received}")
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
    # The maps of a row share the labels of their queries, on the left.
    if axes.get_subplotspec().is_first_col():
        axes.set_yticks(range(len(query_tokens)), query_tokens, fontsize=7)
    axes.tick_params(length=0)
