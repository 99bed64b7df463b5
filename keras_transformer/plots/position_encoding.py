"""What a position tells a model: as a table, and by distance."""

import keras
import numpy as np

from keras_transformer.attention.arguments import positive
from keras_transformer.plots.figure import COLOUR_MAP, FAINT, FIRST, distinct, new_figure, plain_axes
from keras_transformer.utils.serialization import clone

# Blue is negative, red positive, white zero; the two ends differ in brightness for no one, and in hue for everyone.
_SIGNED = "RdBu_r"


def position_encoding(position, n: int = 64, *, width: int = 64, num_heads: int = 4, seed: int = 0):
    """Draws a position encoding: a heat map, and dot products by distance.

    Of one that is added to the tokens, the map shows what is added, places by features, and the curve how alike the
    vectors of two places are: their cosine, the mean over all pairs at a distance. Of one that acts in attention, the map
    shows the scores of the first head between tokens that are all the same vector, so that places alone make the
    difference, and the curves the mean score by distance, key minus query, of each head, or one where heads are alike.

    Args:
        position: of `positions.EMBEDDING_POSITIONS` or `positions.ATTENTION_POSITIONS`, an instance. One that has been
            built is drawn with its weights; another is copied, and begins anew.
        n: int >= 2. Places.
        width: int. Features D, or of all heads together.
        num_heads: int >= 1 that divides the width. Heads of a position that acts in attention.
        seed: int. Of the token that stands everywhere.

    Returns:
        A `matplotlib.figure.Figure` with two axes, and a third for the scale.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: n below 2; a width that the heads do not divide.

    Example:

    >>> from keras_transformer.positions import Sinusoidal
    >>> figure = position_encoding(Sinusoidal(), n=32, width=16)
    >>> [axes.get_title() for axes in figure.axes[:2]]
    ['what is added', 'cosine by distance']

    Reference: the figures of Wang and Chen, What Do Position Embeddings Learn?, arXiv 2010.04903.
    """
    if n < 2 or positive("width", width) % positive("num_heads", num_heads):
        raise ValueError(f"Expected n >= 2 and heads that divide the width. Received: {n}, {num_heads} and {width}.")
    if not hasattr(position, "rotate"):
        return _draw_added(added(position, n, width))
    return _draw_scores(scores(position, n, num_heads, width // num_heads, seed))


def added(position, n: int, width: int):
    """What an embedding position adds at each place: float32 `(n, width)`."""
    position = position if position.built else clone(position)
    return keras.ops.convert_to_numpy(position(np.zeros((1, n, width), "float32")))[0]


def scores(position, n: int, num_heads: int, key_dim: int, seed: int = 0):
    """The scores between n tokens that are one vector, by an attention position: float32 `(num_heads, n, n)`.

    The vector is one of those whose product with itself is that of ones, at random angles: no feature counts for more.
    """
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], key_dim)
    tokens = np.broadcast_to(signs, (1, n, num_heads, key_dim)).astype("float32")
    if not position.built:
        position = clone(position)
        position.build(tokens.shape, tokens.shape)
    places = keras.ops.arange(n, dtype="int32")
    query, key = position.rotate(
        keras.ops.convert_to_tensor(tokens), keras.ops.convert_to_tensor(tokens), places, places
    )
    products = keras.ops.einsum("btnh,bsnh->bnts", query, key) / key_dim**0.5
    bias = position.bias(query, places, places)
    return keras.ops.convert_to_numpy(products if bias is None else products + bias)[0]


def by_distance(table, distances):
    """The mean of each diagonal of `(n, n)`: at a distance d stand the entries `(i, i + d)`."""
    return np.array([np.diagonal(table, distance).mean() for distance in distances])


def _draw_added(table):
    n = len(table)
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    figure, heat, curve = _figure()
    largest = max(float(np.abs(table).max()), 1e-12)
    shown = heat.imshow(table, cmap=_SIGNED, vmin=-largest, vmax=largest, interpolation="nearest", aspect="auto")
    figure.colorbar(shown, ax=heat, shrink=0.8)
    heat.set(title="what is added", xlabel="feature", ylabel="place")
    distances = np.arange(n)
    curve.plot(distances, by_distance(unit @ unit.T, distances), color=FIRST, linewidth=1.8)
    curve.set(title="cosine by distance", xlabel="distance")
    return figure


def _draw_scores(tables):
    count, n, _ = tables.shape
    figure, heat, curve = _figure()
    shown = heat.imshow(tables[0], cmap=COLOUR_MAP, interpolation="nearest")
    figure.colorbar(shown, ax=heat, shrink=0.8)
    heat.set(title="scores, head 1", xlabel="key", ylabel="query")
    distances = np.arange(1 - n, n)
    heads_differ = not np.allclose(tables, tables[:1], atol=1e-5)
    if heads_differ:
        for head, (table, style) in enumerate(zip(tables, distinct(count), strict=True)):
            marks = {"markevery": (head, max(1, n // 6)), "markersize": 4}
            curve.plot(distances, by_distance(table, distances), label=f"head {head + 1}", **marks, **style)
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
