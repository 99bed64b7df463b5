"""Operations whose pattern of access to memory reaches less than the bandwidth, where a device does not fuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf

_KINDS = {
    "transposed": ("Transpose",),
    "pieces": ("ConcatV2", "Pack", "Slice", "Split", "SplitV", "StridedSlice", "StridedSliceGrad", "Tile", "SelectV2"),
    "scattered": ("UnsortedSegmentSum", "ScatterNd", "TensorScatterAdd", "TensorScatterUpdate"),
    "losses": ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"),
    "random": ("StatelessRandomUniformV2", "StatelessRandomUniformFullIntV2", "StatelessRandomNormalV2"),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
_SUMS = frozenset(["Sum", "Mean"])


class Access(NamedTuple):
    """Fractions of the bandwidth that kinds of operations reach.

    Attributes:
        transposed: transpositions.
        columns: sums over all but the last axis, as of the gradients of biases.
        pieces: slices, concatenations, repetitions and selections.
        scattered: sums by index, as of the gradient of an embedding.
        losses: cross-entropies, of their logits and their gradient.
        random: random numbers.

    Example:

    >>> Access(transposed=0.5).columns
    1.0
    """

    transposed: float = 1.0
    columns: float = 1.0
    pieces: float = 1.0
    scattered: float = 1.0
    losses: float = 1.0
    random: float = 1.0

    def fraction(self, node: tf.Operation) -> float:
        """Returns the fraction of the bandwidth that a node of a graph reaches."""
        kind = _KIND_OF.get(node.type)
        if node.type == "BiasAddGrad" or (node.type in _SUMS and _sums_columns(node)):
            kind = "columns"
        return 1.0 if kind is None else getattr(self, kind)


def _sums_columns(node: tf.Operation) -> bool:
    """Whether a sum leaves the last axis."""
    import tensorflow as tf  # Devices are described without it.

    axes, rank = tf.get_static_value(node.inputs[1]), node.inputs[0].shape.rank
    return (
        axes is not None
        and rank is not None
        and rank > 1
        and (rank - 1) not in {int(axis) % rank for axis in axes.flat}
    )
