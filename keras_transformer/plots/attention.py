"""Heat maps of attention: a row for each layer, a column for each head."""

import numpy as np

from keras_transformer.plots.figure import COLOUR_MAP, as_picture, bare, new_figure, veil
from keras_transformer.utils.types import Tensor


def attention(
    maps: Tensor, *, image=None, grid=None, tokens: Tensor | None = None, query_tokens=None, example: int = 0
):
    """Draws attention scores: over an image, or as tables of queries and keys.

    Over an image, every map shows how much the class token attends to each patch, or, in a model without one, what the
    patches attend to on average; orange is much, each map on its own scale. As tables, rows are queries, columns are
    keys, and all maps share one scale.

    Args:
        maps: dict of layer path to scores `(B, N, T, S)`, as a model of `attention.attention_maps` returns.
        image: `(H, W, 1 or 3)`, 0 .. 255 or 0 .. 1, what the scores belong to; None for tables.
        grid: pair of ints, rows and columns of patches; None where they are as many of each, or in the ratio of the image.
        tokens: list of S strings, the keys of a table; None for no names.
        query_tokens: list of T strings, with `tokens`; None for the same as those.
        example: int. Which one of the batch.

    Returns:
        A `matplotlib.figure.Figure` with one axes per layer and head; tables have one more, for the scale.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: no maps; scores of another rank; names or a grid that do not fit the scores.

    Example:

    ```python
    scores = attention_maps(model)(images)
    plots.attention(scores, image=images[0]).savefig("attention.png")
    ```

    Reference: the figures of Bahdanau et al., arXiv 1409.0473, and of Caron et al., arXiv 2104.14294.
    """
    scores = _scores(maps, example)
    if image is not None:
        figure, panels = _panels(scores, width=1.35, height=1.35)
        _draw_over_image(panels, scores, as_picture(image), grid)
        return figure
    if tokens is None and query_tokens is not None:
        raise ValueError("query_tokens need tokens, the names of the keys.")
    query_tokens = tokens if query_tokens is None else query_tokens
    figure, panels = _panels(scores, width=_inches(tokens), height=_inches(query_tokens))
    _draw_tables(figure, panels, scores)
    if tokens is not None:
        for (path, head), axes in panels.items():
            _name_ticks(axes, scores[path][head].shape, list(tokens), list(query_tokens))
    return figure


def _scores(maps, example):
    """Layer path to the scores `(N, T, S)` of one example."""
    if not maps:
        raise ValueError("There are no attention maps to draw.")
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
    """The side of a table, with room for a line of text per name."""
    return max(1.9, 0.12 * (0 if names is None else len(names)))


def _panels(scores, width, height):
    """A figure and, for each layer and head, its labeled axes of so many inches."""
    columns = max(len(heads) for heads in scores.values())
    figure = new_figure(0.6 + width * columns, 0.5 + height * len(scores))
    panels = {}
    for row, (path, label) in enumerate(zip(scores, _short_names(list(scores)), strict=True)):
        for head in range(len(scores[path])):
            axes = figure.add_subplot(len(scores), columns, row * columns + head + 1)
            bare(axes)
            if row == 0:
                axes.set_title(f"head {head + 1}", fontsize=9)
            if head == 0:
                axes.set_ylabel(label, fontsize=9)
            panels[path, head] = axes
    return figure, panels


def _short_names(paths):
    """The paths without the first and last parts that all of them share."""
    parts = [path.split("/") for path in paths]
    for end in (0, -1):
        while min(map(len, parts)) > 1 and len({each[end] for each in parts}) == 1:
            for each in parts:
                del each[end]
    return ["/".join(each).replace("_", " ") for each in parts]


def _draw_over_image(panels, scores, picture, grid):
    height, width = picture.shape[:2]
    # Gray, and never quite white, so that color speaks of attention alone.
    gray = picture if picture.ndim == 2 else picture @ np.array([0.299, 0.587, 0.114], "float32")
    for (path, head), axes in panels.items():
        heat = _over_patches(scores[path][head], grid, height / width)
        axes.imshow(gray, cmap="gray", vmin=0, vmax=1.25)
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        axes.imshow(heat, cmap=veil(), vmin=0, interpolation="bicubic", extent=extent)


def _over_patches(scores, grid, ratio):
    """What `(T, S)` scores give to each patch: of the class token where there is one, else on average; `(rows, columns)`."""
    length = scores.shape[-1]
    rows, columns = grid or _grid(length, ratio) or _grid(length - 1, ratio) or (0, 0)
    if length == rows * columns:
        weights = scores.mean(axis=0)
    elif length == rows * columns + 1:
        weights = scores[0, 1:]
    else:
        expected = "a grid of patches" if grid is None else f"grid={tuple(grid)}"
        raise ValueError(f"{length} tokens do not fit {expected}, with or without a class token: give the right grid.")
    return weights.reshape(rows, columns)


def _grid(length, ratio):
    """Rows and columns in the given ratio that hold `length` patches, or None."""
    rows = round((length * ratio) ** 0.5)
    if rows < 1 or length % rows or abs(rows / (length // rows) - ratio) > 1e-3 * ratio:
        return None
    return rows, length // rows


def _draw_tables(figure, panels, scores):
    highest = max(float(heads.max()) for heads in scores.values())
    for (path, head), axes in panels.items():
        table = scores[path][head]
        shown = axes.imshow(table, cmap=COLOUR_MAP, vmin=0, vmax=highest, interpolation="nearest", aspect="auto")
    figure.colorbar(shown, ax=list(panels.values()), shrink=0.6, aspect=30, label="attention")


def _name_ticks(axes, shape, tokens, query_tokens):
    if (len(query_tokens), len(tokens)) != shape:
        received = f"{len(query_tokens)} and {len(tokens)}"
        raise ValueError(f"Scores of {shape[0]} queries and {shape[1]} keys need as many names. Received: {received}")
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
    # Every map of a row has the same queries: one list of names, on the left, serves them all.
    if axes.get_subplotspec().is_first_col():
        axes.set_yticks(range(len(query_tokens)), query_tokens, fontsize=7)
    axes.tick_params(length=0)
