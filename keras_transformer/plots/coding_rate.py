"""Coding rate and sparsity of the blocks of CRATE."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from keras_transformer.plots.figure import AFTER, BEFORE, FAINT, integer_ticks, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS = {"coding_rate": "coding rate in nats", "sparsity": "fraction of nonzero entries"}


def coding_rate(rates: object) -> Figure:
    """Plots coding rate and sparsity by block, of one model or of the epochs of its training.

    Args:
        rates: the dict of `training.coding_rates`; or the history of `model.fit` with `training.CodingRate`, or its dict of
            lists, of which the first and the last epoch are highlighted and the others gray.

    Returns:
        A `matplotlib.figure.Figure` with one axes for the coding rate and one for the sparsity.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `rates` has no coding rates.

    Example:

    >>> figure = coding_rate({"coding_rate_0": 3.0, "coding_rate_1": 2.0, "sparsity_0": 0.5, "sparsity_1": 0.25})
    >>> figure.savefig("coding_rate.png")
    >>> len(figure.axes)
    2

    Reference: Yu et al., White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, section 3.1.
    """
    rates = getattr(rates, "history", rates)
    figure = new_figure(9.2, 3.4)
    for axes, (name, title) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
        curves = _curves(rates, name)
        for epoch, curve in enumerate(curves):
            _draw(axes, curve, epoch, len(curves))
        if len(curves) > 1:
            axes.legend(frameon=False)
        axes.set(title=title, xlabel="block", ylim=(0, 1.06 * max(map(max, curves))))
        integer_ticks(axes.xaxis)
        axes.margins(x=0.02)
        plain_axes(axes)
    return figure


def _curves(rates, name):
    """Returns the values of the blocks, in order, for each epoch."""
    found = {int(match[1]): value for key, value in rates.items() if (match := re.fullmatch(rf"{name}_(\d+)", key))}
    if not found:
        raise ValueError(f"There is no {name}_0 among {sorted(rates)[:8]}: see training.CodingRate.")
    blocks = [found[index] if isinstance(found[index], (list, tuple)) else [found[index]] for index in sorted(found)]
    return list(zip(*blocks, strict=True))


def _draw(axes, curve, epoch, count):
    if 0 < epoch < count - 1:
        axes.plot(curve, color=FAINT, linewidth=0.8, alpha=0.4)
        return
    style = {"marker": "s", **AFTER, "zorder": 3} if epoch == count - 1 else {"marker": "o", **BEFORE, "zorder": 2}
    axes.plot(curve, markersize=4, label=f"epoch {epoch + 1}", **style)
