"""Multi-head subspace self-attention (MSSA), with one projection for queries, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras_transformer.attention import capture
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import ALL_CAPABILITIES
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


@serializable
class SubspaceAttention(SoftmaxBasedMechanism):
    """Multi-head subspace self-attention (MSSA), `softmax(Z_k Z_kᵀ / √H) Z_k` with `Z_k = X U_k` in head k.

    The projections onto a subspace are queries, keys and values. Each head moves its tokens a step towards the subspaces
    spanned by U, which lowers their coding rate. `MultiHeadAttention` has one projection instead of three: U is its query
    projection. The layer of CRATE is
    `MultiHeadAttention(N, H, mechanism="subspace", use_bias=False, use_output_bias=True)`. Memory and time grow with T².

    Args:
        scoring: "scaled_dot" (default), another name in `SCORINGS`, or an instance.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.

    Call arguments: see `Mechanism`. Causal and bidirectional self-attention, any mask, all positions (rotary positions
    rotate queries and keys, but not values), scores. The cache keeps all keys and values.

    Returns:
        The context `(B, T, N, H)`, or `(context, scores)`; with a cache, `(that, next_cache)`.

    Raises:
        ValueError: values and queries with different numbers or widths of heads; other keys than queries.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> layer = MultiHeadAttention(2, 4, mechanism="subspace", use_bias=False, use_output_bias=True)
    >>> x = np.ones((1, 3, 8), "float32")
    >>> tuple(layer(x, x).shape), [tuple(weight.shape) for weight in layer.weights]
    ((1, 3, 8), [(8, 2, 4), (2, 4, 8), (8,)])

    Reference: Yu et al., White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129, section 2.3. The
    output projection is learned, as in the experiments of the paper, and not U again.
    """

    supports = ALL_CAPABILITIES - {"cross"}
    shares_key = True
    shares_value = True

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        if tuple(value_shape[2:]) != tuple(query_shape[2:]):
            raise ValueError(
                "SubspaceAttention uses its queries as values, so the numbers and widths of their heads must be equal. "
                f"Received: values with {value_shape[2]} heads of width {value_shape[3]}, queries with {query_shape[2]} "
                f"heads of width {query_shape[3]}."
            )
        self.softmax.build(query_shape, key_shape, value_shape)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        if capture.is_captured(self):  # `training.coding_rates` reads the tokens in the subspaces.
            capture.record(self, value)
        options = {"return_attention_scores": return_attention_scores, "training": training}
        return self.softmax(query, key, value, visibility=visibility, position=position, **options)
