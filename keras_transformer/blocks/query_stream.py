"""The query stream of XLNet: targets, whose places are known and whose tokens are not."""

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable


@serializable
class QueryStream(keras.layers.Layer):
    """Sets the query stream behind the content stream, and says what attention has to know of the two.

    Every target begins as one and the same learned vector. A token of the content sees what the permutation allows, and
    itself; a target what the permutation allows at its place, hence not the token that it is to find.

    Args:
        initializer: of the vector. Default: normal with standard deviation 0.02.

    Call arguments:
        tokens: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token.
        permutation_mask: boolean `(B, T, T)`, True = the first token may see the second.
        targets: boolean `(B, P, T)`: the place of each target; a row of False is no target.
        segment_ids: int `(B, T)`, or None.

    Returns:
        dict: "inputs", float `(B, T + P, D)`; and of all of these "padding_mask", "positions" and, if given, "segment_ids",
        `(B, T + P)`, and "attention_mask", `(B, T + P, T)`: the arguments of an `EncoderBlock` around `TwoStreamAttention`.

    Example:

    >>> import numpy as np
    >>> tokens, real = np.zeros((1, 2, 4)), np.ones((1, 2), bool)
    >>> mask = np.array([[[0, 0], [1, 0]]], bool)  # The order is: first, second.
    >>> streams = QueryStream()(tokens, real, mask, np.array([[[0, 1]]], bool))
    >>> np.array(streams["attention_mask"]).astype(int).tolist(), np.array(streams["positions"]).tolist()
    ([[[1, 0], [1, 1], [1, 0]]], [[0, 1, 1]])

    Reference: Yang et al., XLNet, arXiv 1906.08237, section 2.3.
    """

    def __init__(self, initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))

    def build(self, tokens_shape, *shapes, **more):
        self.mask_embedding = self.add_weight(
            name="mask_embedding", shape=(tokens_shape[-1],), initializer=self.initializer
        )

    def call(self, tokens, padding_mask, permutation_mask, targets, segment_ids=None):
        (batch, length), count = ops.shape(tokens)[:2], ops.shape(targets)[1]
        embedding = ops.cast(self.mask_embedding, tokens.dtype)
        vectors = ops.broadcast_to(embedding, (batch, count, tokens.shape[-1]))
        places = ops.arange(length, dtype="int32")
        mapping = ops.cast(targets, "int32")

        def at_targets(x):
            """What is known of tokens, `(B | 1, T)`, at the place of each target, `(B, P)`."""
            return ops.sum(mapping * ops.expand_dims(ops.cast(x, "int32"), 1), axis=2)

        itself = ops.equal(ops.expand_dims(places, 0), ops.expand_dims(places, 1))
        of_content = ops.logical_or(permutation_mask, ops.expand_dims(itself, 0))
        of_targets = ops.matmul(ops.cast(targets, "float32"), ops.cast(permutation_mask, "float32")) > 0.5
        positions = ops.broadcast_to(ops.expand_dims(places, 0), (batch, length))
        streams = {
            "inputs": ops.concatenate([tokens, vectors], axis=1),
            "padding_mask": ops.concatenate([padding_mask, at_targets(padding_mask) > 0], axis=1),
            "attention_mask": ops.concatenate([of_content, of_targets], axis=1),
            "positions": ops.concatenate([positions, at_targets(positions)], axis=1),
        }
        if segment_ids is not None:
            streams["segment_ids"] = ops.concatenate([segment_ids, at_targets(segment_ids)], axis=1)
        return streams

    def compute_output_spec(self, tokens, padding_mask, permutation_mask, targets, segment_ids=None):
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

    def get_config(self):
        return {**super().get_config(), "initializer": keras.initializers.serialize(self.initializer)}


@serializable
class TakeQueryStream(keras.layers.Layer):
    """The last P of T + P tokens, `(B, P, D)`.

    Call arguments:
        inputs: float `(B, T + P, D)`.
        targets: `(B, P, T)`.

    Example:

    >>> import numpy as np
    >>> TakeQueryStream()(np.array([[[1.0], [2.0], [3.0]]]), np.zeros((1, 1, 2), bool)).numpy().tolist()
    [[[3.0]]]
    """

    def call(self, inputs, targets):
        return inputs[:, ops.shape(targets)[2] :]

    def compute_output_shape(self, inputs_shape, targets_shape):
        return (inputs_shape[0], targets_shape[1], inputs_shape[2])
