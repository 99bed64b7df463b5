"""Attention patterns of mechanisms, measured by probing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer.plots.figure import BETWEEN, COLOR_MAP, new_figure, remove_axes
from keras_transformer.utils.serialization import clone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 6


def attention_pattern(
    mechanisms: Any,
    n: int = 64,
    *,
    causal: bool | None = None,
    num_heads: int = 1,
    key_dim: int = 16,
    seed: int = 0,
    columns: int = _COLUMNS,
) -> Figure:
    """Plots the attention weights of n queries to n keys.

    Rows are queries, columns keys; black is zero and bright is high, with a separate scale for each row. Tokens are random.
    A mechanism gets the identity matrix as values, so that its context is its matrix of weights, however it computes them.
    A layer with projections is probed by changing one token at a time: the plot shows how much each output changes. Text
    and frames are gray and the background transparent, for light and dark pages.

    Args:
        mechanisms: a `Mechanism` or a mixer, or a dict of title to such, plotted side by side. Each is copied, with new
            weights if it has any.
        n: int >= 1. Number of tokens. Default 64.
        causal: bool, or None for bidirectional if supported, else causal.
        num_heads: int >= 1. Heads of a mechanism, rounded up to what it allows; the plot shows their maximum. Default 1.
        key_dim: int >= 1. Width of a head, and half that of the tokens of a mixer. Default 16.
        seed: int. Seed of the tokens.
        columns: int >= 1. Panels per row of the figure. Default 6.

    Returns:
        A `matplotlib.figure.Figure` with one axes per mechanism, and one more for the scale of the color.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: nothing to plot; n below 1; a direction that a mechanism does not support.

    Example:

    >>> from keras_transformer.attention import LocalAttention
    >>> figure = attention_pattern({"causal window": LocalAttention(window=8)}, n=32, causal=True)
    >>> [axes.get_title() for axes in figure.axes[:-1]]
    ['causal window']
    """
    if not isinstance(mechanisms, dict):
        mechanisms = {_title(mechanisms): mechanisms}
    if not mechanisms or n < 1:
        raise ValueError(f"There is nothing to plot: {len(mechanisms)} mechanisms, n={n}.")
    options: dict[str, Any] = {"causal": causal, "num_heads": num_heads, "key_dim": key_dim, "seed": seed}
    weights = {title: attention_weights(each, n, **options) for title, each in mechanisms.items()}
    return draw_patterns(weights, columns)


def attention_weights(
    mechanism: keras.layers.Layer,
    n: int,
    causal: bool | None = None,
    num_heads: int = 1,
    key_dim: int = 16,
    seed: int = 0,
) -> np.ndarray:
    """Returns the attention of each query to each key, float32 `(n, n)`. Arguments as in `attention_pattern`."""
    from keras_transformer.attention import Mechanism, MultiHeadAttention

    if causal is None:
        causal = "bidirectional" not in mechanism.supports
    generator = np.random.default_rng(seed)
    if isinstance(mechanism, Mechanism) and mechanism.shares_value:
        # Its values are its queries, so they cannot be one-hot: it is probed inside an attention layer.
        mechanism = MultiHeadAttention(num_heads, key_dim, mechanism=mechanism)
    if isinstance(mechanism, Mechanism):
        num_heads = -(-num_heads // mechanism.head_multiple) * mechanism.head_multiple
        return _weights(
            clone(mechanism), generator.normal(size=(2, 1, n, num_heads, key_dim)).astype("float32"), causal
        )
    return _influence(clone(mechanism), generator.normal(size=(2, n, 2 * key_dim)).astype("float32"), causal)


def draw_patterns(weights: Mapping[str, np.ndarray], columns: int = _COLUMNS) -> Figure:
    """Plots matrices of weights side by side; see `attention_pattern`.

    Args:
        weights: dict of title to `(n, n)`.
        columns: int >= 1. Panels per row. Default 6.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    from matplotlib.colors import PowerNorm

    columns = min(columns, len(weights))
    rows = -(-len(weights) // columns)
    figure = new_figure(1.9 * columns + 1.4, 2.15 * rows + 0.2)
    figure.patch.set_alpha(0)
    shown = None
    for index, (title, matrix) in enumerate(weights.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        remove_axes(axes)
        axes.set_title(title, fontsize=9, color=BETWEEN)
        axes.spines[:].set(visible=True, color=BETWEEN, linewidth=0.6)
        # Square root scale, to distinguish small weights from zero.
        shown = axes.imshow(_by_row(matrix), cmap=COLOR_MAP, norm=PowerNorm(0.5, 0, 1), interpolation="nearest")
    figure.supxlabel("keys", fontsize=9, color=BETWEEN)
    figure.supylabel("queries", fontsize=9, color=BETWEEN)
    _add_scale(figure, shown)
    return figure


def _add_scale(figure, shown):
    """Adds the scale of the color, in a gray for light and dark pages."""
    bar = figure.colorbar(shown, ax=figure.axes, shrink=min(0.8, 4 / figure.get_figheight()), aspect=25)
    bar.set_ticks([0, 0.25, 1], labels=["0", "¼", "largest\nof the row"], fontsize=8, color=BETWEEN)
    bar.set_label("attention", fontsize=9, color=BETWEEN)
    bar.ax.tick_params(color=BETWEEN)
    bar.outline.set_edgecolor(BETWEEN)


def _title(mechanism):
    return type(mechanism).__name__


def _weights(mechanism, tokens, causal):
    """Returns the context of one-hot values, as the maximum over heads, `(n, n)`."""
    from keras_transformer.attention import Visibility

    _, _, n, heads, _ = tokens.shape
    query, key = (tokens[0], tokens[0]) if mechanism.shares_key else tokens
    value = np.repeat(np.eye(n, dtype="float32").reshape(1, n, 1, n), heads, axis=2)
    slots = keras.ops.arange(n, dtype="int32")
    context = mechanism(query, key, value, visibility=Visibility.from_slots(slots, slots, causal=causal))
    return np.abs(keras.ops.convert_to_numpy(context))[0].max(axis=1)


def _influence(layer, tokens, causal):
    """Returns the change of output i if token j changes, `(n, n)`."""
    before, other = tokens
    n = len(before)
    changed = np.repeat(before[None], n, axis=0)
    changed[np.arange(n), np.arange(n)] = other
    x = np.concatenate([before[None], changed])  # (1 + n, n, D)
    output = keras.ops.convert_to_numpy(layer(x, x, use_causal_mask=causal))
    moved = np.linalg.norm(output[1:] - output[:1], axis=-1).T
    # An output changes most with its own token, the query: limited to the second largest, so that others are visible.
    apart = moved - np.diag(np.diag(moved))
    np.fill_diagonal(moved, np.minimum(np.diag(moved), np.where(apart.max(axis=1) > 0, apart.max(axis=1), np.inf)))
    # Changes at the level of rounding errors are zeros.
    return np.where(moved > 1e-5 * np.abs(output).max(), moved, 0).astype("float32")


def _by_row(matrix):
    """Divides each row by its largest entry; rows of zeros stay zero."""
    largest = matrix.max(axis=1, keepdims=True)
    return matrix / np.where(largest > 0, largest, 1)
