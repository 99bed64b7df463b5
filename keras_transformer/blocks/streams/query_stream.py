"""The query stream of XLNet."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class QueryStream(keras.layers.Layer):
    """Appends XLNet's query stream to the content stream and computes the attention mask of both.

    Every prediction target starts as the same learned vector. A content token attends to the tokens that its row of the
    permutation mask allows and to itself. A target attends to the tokens that are allowed at its position, and therefore
    not to the token that it predicts.

    Args:
        initializer: of the learned vector. Default: normal with standard deviation 0.02.

    Call arguments:
        tokens: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token.
        permutation_mask: boolean `(B, T, T)`, True = the first token may attend to the second.
        targets: boolean `(B, P, T)`: one-hot positions of the targets; a row of False is no target.
        segment_ids: int `(B, T)`, or None.

    Returns:
        dict of the arguments of an `EncoderBlock` around `TwoStreamAttention`: "inputs", float `(B, T + P, D)`;
        "padding_mask", "positions" and, if given, "segment_ids", `(B, T + P)`; "attention_mask", `(B, T + P, T)`.

    Example:

    >>> import numpy as np
    >>> tokens, real = np.zeros((1, 2, 4)), np.ones((1, 2), bool)
    >>> mask = np.array([[[0, 0], [1, 0]]], bool)  # The order is: first, second.
    >>> streams = QueryStream()(tokens, real, mask, np.array([[[0, 1]]], bool))
    >>> np.array(streams["attention_mask"]).astype(int).tolist(), np.array(streams["positions"]).tolist()
    ([[[1, 0], [1, 1], [1, 0]]], [[0, 1, 1]])

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.3.
    """

    def __init__(self, initializer: Initializer = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))

    def build(self, tokens_shape: Shape, *shapes: Shape, **more: object) -> None:
        self.mask_embedding = self.add_weight(
            name="mask_embedding", shape=(tokens_shape[-1],), initializer=self.initializer
        )

    def call(
        self,
        tokens: Tensor,
        padding_mask: Tensor | None,
        permutation_mask: Tensor,
        targets: Tensor,
        segment_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        (batch, length), count = ops.shape(tokens)[:2], ops.shape(targets)[1]
        embedding = ops.cast(self.mask_embedding, tokens.dtype)
        vectors = ops.broadcast_to(embedding, (batch, count, tokens.shape[-1]))
        padding_mask = ops.ones((batch, length), "bool") if padding_mask is None else padding_mask
        indices = ops.arange(length, dtype="int32")
        mapping = ops.cast(targets, "int32")

        def at_targets(x):
            """Values `(B | 1, T)` of tokens at the positions of the targets, `(B, P)`."""
            return ops.sum(mapping * ops.expand_dims(ops.cast(x, "int32"), 1), axis=2)

        itself = ops.equal(ops.expand_dims(indices, 0), ops.expand_dims(indices, 1))
        of_content = ops.logical_or(permutation_mask, ops.expand_dims(itself, 0))
        of_targets = ops.matmul(ops.cast(targets, "float32"), ops.cast(permutation_mask, "float32")) > 0.5
        positions = ops.broadcast_to(ops.expand_dims(indices, 0), (batch, length))
        streams = {
            "inputs": ops.concatenate([tokens, vectors], axis=1),
            "padding_mask": ops.concatenate([padding_mask, at_targets(padding_mask) > 0], axis=1),
            "attention_mask": ops.concatenate([of_content, of_targets], axis=1),
            "positions": ops.concatenate([positions, at_targets(positions)], axis=1),
        }
        if segment_ids is not None:
            streams["segment_ids"] = ops.concatenate([segment_ids, at_targets(segment_ids)], axis=1)
        return streams

    def compute_output_spec(
        self,
        tokens: Tensor,
        padding_mask: Tensor,
        permutation_mask: Tensor,
        targets: Tensor,
        segment_ids: Tensor | None = None,
    ) -> dict[str, keras.KerasTensor]:
        (batch, length, width), count = tokens.shape, targets.shape[1]
        total = None if None in (length, count) else length + count
        specs = {
            "inputs": keras.KerasTensor((batch, total, width), dtype=self.compute_dtype),
            "padding_mask": keras.KerasTensor((batch, total), dtype="bool"),
            "attention_mask": keras.KerasTensor((batch, total, length), dtype="bool"),
            "positions": keras.KerasTensor((batch, total), dtype="int32"),
        }
        if segment_ids is not None:
            specs["segment_ids"] = keras.KerasTensor((batch, total), dtype="int32")
        return specs

    def get_config(self) -> Config:
        return {**super().get_config(), "initializer": keras.initializers.serialize(self.initializer)}


@serializable
class TakeQueryStream(keras.layers.Layer):
    """Selects the query stream, `(B, P, D)`: the last P of T + P tokens.

    Call arguments:
        inputs: float `(B, T + P, D)`.
        targets: `(B, P, T)`.

    Example:

    >>> import numpy as np
    >>> TakeQueryStream()(np.array([[[1.0], [2.0], [3.0]]]), np.zeros((1, 1, 2), bool)).numpy().tolist()
    [[[3.0]]]
    """

    def call(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs[:, ops.shape(targets)[2] :]

    def compute_output_shape(self, inputs_shape: Shape, targets_shape: Shape) -> Shape:
        return (inputs_shape[0], targets_shape[1], inputs_shape[2])
