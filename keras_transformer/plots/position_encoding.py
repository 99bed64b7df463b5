"""Plots of position encodings: as a heat map, and by distance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_transformer.attention.arguments import positive
from keras_transformer.plots.figure import COLOR_MAP, FAINT, FIRST, curve_styles, new_figure, plain_axes
from keras_transformer.utils.serialization import clone

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Blue is negative, red positive, white zero; also distinguishable with color blindness.
_SIGNED = "RdBu_r"


def position_encoding(
    position: keras.layers.Layer, n: int = 64, *, width: int = 64, num_heads: int = 4, seed: int = 0
) -> Figure:
    """Plots a position encoding: a heat map, and similarities by distance.

    For an encoding that is added to the tokens, the map shows the encoding, positions by features, and the curve the cosine
    similarity of two positions, as the mean over all pairs at a distance. For one that acts in attention, the map shows the
    scores of the first head between tokens with equal vectors, so that only positions differ, and the curves the mean score
    of each head by distance, key minus query, or a single curve if the heads are equal.

    Args:
        position: an instance of `positions.EMBEDDING_POSITIONS` or `positions.ATTENTION_POSITIONS`. If it is built, its
            weights are used; otherwise it is copied.
        n: int >= 2. Number of positions. Default 64.
        width: int. Features D, or those of all heads together. Default 64.
        num_heads: int >= 1 that divides the width. Heads of an encoding in attention. Default 4.
        seed: int. Seed of the token vector.

    Returns:
        A `matplotlib.figure.Figure` with two axes, and a third for the scale.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: n below 2; a width that is not divisible by the heads.
    Example:

    >>> from keras_transformer.positions import Sinusoidal
    >>> figure = position_encoding(Sinusoidal(), n=32, width=16)
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['encoding', 'cosine by distance']

    Reference: figures of Wang and Chen, What Do Position Embeddings Learn?, arXiv 2010.04903.
    """
    if n < 2 or positive("width", width) % positive("num_heads", num_heads):
        raise ValueError(f"Expected n >= 2 and a width divisible by num_heads. Received: {n}, {width} and {num_heads}.")
    if not hasattr(position, "rotate"):
        return _draw_encoding(added(position, n, width))
    return _draw_scores(scores(position, n, num_heads, width // num_heads, seed))


def added(position: keras.layers.Layer, n: int, width: int) -> np.ndarray:
    """Returns the vectors that an embedding position adds to n tokens, float32 `(n, width)`."""
    position = position if position.built else clone(position)
    return keras.ops.convert_to_numpy(position(np.zeros((1, n, width), "float32")))[0]


def scores(position: keras.layers.Layer, n: int, num_heads: int, key_dim: int, seed: int = 0) -> np.ndarray:
    """Returns the scores of an attention position between n tokens with equal vectors, float32 `(num_heads, n, n)`.

    The vector has random signs and no preferred feature: its product with itself is that of a vector of ones.
    """
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], key_dim)
    tokens = np.broadcast_to(signs, (1, n, num_heads, key_dim)).astype("float32")
    if not position.built:
        position = clone(position)
        position.build(tokens.shape, tokens.shape)
    indices = keras.ops.arange(n, dtype="int32")
    heads = keras.ops.convert_to_tensor(tokens)
    query, key, _ = position.rotate_all(heads, heads, heads, indices, indices)
    products = keras.ops.einsum("btnh,bsnh->bnts", query, key) / key_dim**0.5
    # Some positions read the input of attention: here the vectors of all heads side by side.
    read = position.given(keras.ops.reshape(heads, (1, n, num_heads * key_dim)))
    bias = read.bias(query, indices, indices)
    return keras.ops.convert_to_numpy(products if bias is None else products + bias)[0]


def by_distance(matrix: np.ndarray, distances: Iterable[int]) -> np.ndarray:
    """Returns the means of diagonals of `(n, n)`: distance d has the entries `(i, i + d)`."""
    return np.array([np.diagonal(matrix, distance).mean() for distance in distances])


def _draw_encoding(table):
    n = len(table)
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    figure, heat, curve = _figure()
    largest = max(float(np.abs(table).max()), 1e-12)
    shown = heat.imshow(table, cmap=_SIGNED, vmin=-largest, vmax=largest, interpolation="nearest", aspect="auto")
    figure.colorbar(shown, ax=heat, shrink=0.8, label="value added to the token")
    heat.set(title="encoding", xlabel="feature", ylabel="position")
    distances = np.arange(n)
    curve.plot(distances, by_distance(unit @ unit.T, distances), color=FIRST, linewidth=1.8)
    curve.set(title="cosine by distance", xlabel="distance")
    return figure


def _draw_scores(tables):
    count, n, _ = tables.shape
    figure, heat, curve = _figure()
    shown = heat.imshow(tables[0], cmap=COLOR_MAP, interpolation="nearest")
    figure.colorbar(shown, ax=heat, shrink=0.8, label="score before the softmax")
    heat.set(title="scores, head 0", xlabel="key", ylabel="query")
    distances = np.arange(1 - n, n)
    heads_differ = not np.allclose(tables, tables[:1], atol=1e-5)
    if heads_differ:
        for head, (table, style) in enumerate(zip(tables, curve_styles(count), strict=True)):
            marks = {"markevery": (head, max(1, n // 6)), "markersize": 4}
            curve.plot(distances, by_distance(table, distances), label=f"head {head}", **marks, **style)
    else:
        curve.plot(distances, by_distance(tables[0], distances), color=FIRST, linewidth=1.8)
    curve.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    curve.set(title="scores by distance", xlabel="key minus query")
    if heads_differ:
        curve.legend(frameon=False, fontsize=8)
    return figure


def _figure():
    figure = new_figure(9.2, 3.6)
    heat, curve = figure.subplots(1, 2)
    plain_axes(curve)
    return figure, heat, curve
