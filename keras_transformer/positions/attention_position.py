"""The contract of a position that plugs into attention."""

import keras


class AttentionPosition(keras.layers.Layer):
    """Base of positions that act inside attention; both methods do nothing until overridden.

    A position may turn the projected query and key (`rotate`), add a term to the scores (`bias`), or both.
    Positions are int32 of shape `(1 | B, T)` for queries and `(1 | B, S)` for keys. With a cache, `rotate` is given only the
    new keys, at their own positions, and cached keys stay as they were turned.
    """

    def rotate(self, query, key, query_positions, key_positions):
        """Returns the query `(B, T, N, H)` and the key `(B, S, K, H)`, turned by their positions."""
        return query, key

    def bias(self, query_positions, key_positions):
        """Returns a term `(1 | B, N, T, S)` to add to the scores, or None."""
        return None
