"""Who attends to whom: found by asking a mechanism, not by reading it."""

import keras
import numpy as np

from keras_transformer.plots.figure import BETWEEN, COLOUR_MAP, bare, new_figure
from keras_transformer.utils.serialization import clone

_COLUMNS = 6


def attention_pattern(
    mechanisms,
    n: int = 64,
    *,
    causal: bool | None = None,
    num_heads: int = 1,
    key_dim: int = 16,
    seed: int = 0,
    columns=_COLUMNS,
):
    """Draws which of n keys each of n queries attends to, and how much.

    Rows are queries, columns keys; black is none at all, and bright is much, each row on a scale of its own. The weights
    are those of random tokens. A mechanism is given the identity as values, so that its context is its matrix of
    weights, however it comes by it. A layer with projections of its own is given each token changed in turn: what is
    drawn is how much every output moves. Text and frames are gray, the ground transparent: for light pages and dark
    ones.

    Args:
        mechanisms: a `Mechanism` or a mixer, or a dict of title to such, drawn side by side. Each is copied, so its
            weights, if it has any, begin anew.
        n: int >= 1. Tokens.
        causal: bool, or None for two-sided where that is defined, and causal elsewhere.
        num_heads: int >= 1. Heads of a mechanism; what any of them sees is drawn.
        key_dim: int >= 1. Width of a head, and of the tokens of a mixer.
        seed: int. Of the random tokens.
        columns: int >= 1. Panels in a row of the figure.

    Returns:
        A `matplotlib.figure.Figure` with one axes per mechanism.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: nothing to draw; n below 1; a direction that a mechanism does not honor.

    Example:

    >>> from keras_transformer.attention import LocalAttention
    >>> figure = attention_pattern({"causal window": LocalAttention(window=8)}, n=32, causal=True)
    >>> [axes.get_title() for axes in figure.axes]
    ['causal window']
    """
    if not isinstance(mechanisms, dict):
        mechanisms = {_title(mechanisms): mechanisms}
    if not mechanisms or n < 1:
        raise ValueError(f"There is nothing to draw: {len(mechanisms)} mechanisms, n={n}.")
    options = {"causal": causal, "num_heads": num_heads, "key_dim": key_dim, "seed": seed}
    weights = {title: attention_weights(each, n, **options) for title, each in mechanisms.items()}
    return draw_patterns(weights, columns)


def attention_weights(
    mechanism, n: int, causal: bool | None = None, num_heads: int = 1, key_dim: int = 16, seed: int = 0
):
    """How much each query attends to each key: float32 `(n, n)`; arguments as `attention_pattern` takes them."""
    from keras_transformer.attention import Mechanism, MultiHeadAttention

    if causal is None:
        causal = "bidirectional" not in mechanism.supports
    generator = np.random.default_rng(seed)
    if isinstance(mechanism, Mechanism) and mechanism.shares_value:
        # Its values are its queries, so they cannot be one-hot: it is probed with projections around it.
        mechanism = MultiHeadAttention(num_heads, key_dim, mechanism=mechanism)
    if isinstance(mechanism, Mechanism):
        return _weights(
            clone(mechanism), generator.normal(size=(2, 1, n, num_heads, key_dim)).astype("float32"), causal
        )
    return _influence(clone(mechanism), generator.normal(size=(2, n, 2 * key_dim)).astype("float32"), causal)


def draw_patterns(weights, columns=_COLUMNS):
    """A figure of matrices of weights side by side; see `attention_pattern`.

    Args:
        weights: dict of title to `(n, n)`.
        columns: int >= 1. Panels in a row.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    from matplotlib.colors import PowerNorm

    columns = min(columns, len(weights))
    rows = -(-len(weights) // columns)
    figure = new_figure(1.9 * columns, 2.15 * rows)
    figure.patch.set_alpha(0)
    for place, (title, matrix) in enumerate(weights.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        bare(axes)
        axes.set_title(title, fontsize=9, color=BETWEEN)
        axes.spines[:].set(visible=True, color=BETWEEN, linewidth=0.6)
        # The root of a weight, so that what is seen a little is told from what is not seen.
        axes.imshow(_by_row(matrix), cmap=COLOUR_MAP, norm=PowerNorm(0.5, 0, 1), interpolation="nearest")
    return figure


def _title(mechanism):
    return type(mechanism).__name__


def _weights(mechanism, tokens, causal):
    """The context of one-hot values: what any head sees, `(n, n)`."""
    from keras_transformer.attention import Visibility

    _, _, n, heads, _ = tokens.shape
    query, key = (tokens[0], tokens[0]) if mechanism.shares_key else tokens
    value = np.repeat(np.eye(n, dtype="float32").reshape(1, n, 1, n), heads, axis=2)
    slots = keras.ops.arange(n, dtype="int32")
    context = mechanism(query, key, value, visibility=Visibility.from_slots(slots, slots, causal=causal))
    return np.abs(keras.ops.convert_to_numpy(context))[0].max(axis=1)


def _influence(layer, tokens, causal):
    """How far output i moves when token j is changed, `(n, n)`."""
    before, other = tokens
    n = len(before)
    changed = np.repeat(before[None], n, axis=0)
    changed[np.arange(n), np.arange(n)] = other
    x = np.concatenate([before[None], changed])  # (1 + n, n, D)
    output = keras.ops.convert_to_numpy(layer(x, x, use_causal_mask=causal))
    moved = np.linalg.norm(output[1:] - output[:1], axis=-1).T
    # An output moves the most with its own token, its query: as bright as its next, lest it outshine all.
    apart = moved - np.diag(np.diag(moved))
    np.fill_diagonal(moved, np.minimum(np.diag(moved), np.where(apart.max(axis=1) > 0, apart.max(axis=1), np.inf)))
    # Rounding is not sight.
    return np.where(moved > 1e-5 * np.abs(output).max(), moved, 0).astype("float32")


def _by_row(matrix):
    """Each row by its largest entry; a row of zeros stays so."""
    largest = matrix.max(axis=1, keepdims=True)
    return matrix / np.where(largest > 0, largest, 1)
