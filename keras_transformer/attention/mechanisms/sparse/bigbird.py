"""BigBird attention: window, global and random blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.attention.partition.bands import block_count
from keras_transformer.attention.partition.block_layout import BlockLayout, join_blocks
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


# Random numbers are drawn once, for this many blocks; longer sequences reuse them.
_DRAWN_BLOCKS = 2048
_DRAWN_BITS = 15


@serializable
class BigBirdAttention(SoftmaxBasedMechanism):
    """BigBird attention: block-sparse softmax attention to a window of blocks, global blocks and random blocks.

    A block of queries attends to the blocks fewer than `⌈num_window_blocks / 2⌉` blocks away, the first and last blocks of
    the sequence, and `num_random_blocks` others; the first and last blocks attend to everything. Time and memory grow with
    `T · block_size · (window + global + random blocks)`; there is no fallback to full attention. If the pattern covers all
    blocks of a short sequence, the result is full attention. Each block counts once. The result equals that of masked dense
    attention, for any length.

    Args:
        block_size: int >= 1. Tokens of a block.
        num_window_blocks: int >= 1, odd. The blocks of the window, the query's own in the middle.
        num_random_blocks: int >= 0. Random blocks for each block of queries, outside its window and the global blocks.
        num_first_blocks: int >= 0. Global blocks at the start.
        num_last_blocks: int >= 0. Global blocks at the end: of the tokens of each row, if padding is masked.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        seed: int or None. Seed of the dropout.
        random_seed: int. Seed of the random blocks, which are constant. Use a different one for each layer.
        as_transformers: bool. Whether to compute what `BigBirdModel` of transformers computes: sequences of up to
            `num_window_blocks + num_first_blocks + num_last_blocks + 2 num_random_blocks` blocks have full attention; in
            longer ones, outside of training, the first block takes the place of every random block, and counts as often;
            the last blocks are those of the array, padding included, so that padding has an influence. Default False.

    Call arguments: see `Mechanism`. Bidirectional self-attention, all positions.

    Returns:
        The context `(B, T, N, H_value)`; with a cache, `(context, next_cache)`.

    Raises:
        ValueError: a size out of range; a call with causality, a cache, scores, an `attention_mask` or other keys than
            queries.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import SoftmaxAttention
    >>> x = np.random.default_rng(0).normal(size=(1, 40, 2, 4)).astype("float32")
    >>> output = BigBirdAttention(block_size=2, num_random_blocks=1)(x, x, x)
    >>> full = SoftmaxAttention()(x, x, x)
    >>> np.isclose(output, full, atol=1e-5).all(axis=(0, 2, 3)).nonzero()[0].tolist()  # The global tokens.
    [0, 1, 38, 39]

    Reference: Zaheer et al., BigBird, arXiv 2007.14062, section 2 and appendix D: the ITC variant, whose global tokens are
    tokens of the sequence. Deviation: heads share the random blocks, and each is drawn from a separate range of the
    remaining blocks, so that padding has no influence; except with `as_transformers`.
    """

    supports = frozenset({"bidirectional", "bias", "query", "values"})

    def __init__(
        self,
        block_size: int = 64,
        num_window_blocks: int = 3,
        num_random_blocks: int = 3,
        num_first_blocks: int = 1,
        num_last_blocks: int = 1,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        random_seed: int = 0,
        as_transformers: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        self.block_size = positive("block_size", block_size)
        self.num_window_blocks = positive("num_window_blocks", num_window_blocks)
        if num_window_blocks % 2 == 0:
            raise ValueError(f"num_window_blocks must be odd. Received: {num_window_blocks}")
        for name, count in (
            ("num_random_blocks", num_random_blocks),
            ("num_first_blocks", num_first_blocks),
            ("num_last_blocks", num_last_blocks),
        ):
            if not isinstance(count, int) or count < 0:
                raise ValueError(f"{name} must be an integer >= 0. Received: {count}")
        self.num_random_blocks = num_random_blocks
        self.num_first_blocks = num_first_blocks
        self.num_last_blocks = num_last_blocks
        self.random_seed = random_seed
        self.as_transformers = as_transformers
        size = (_DRAWN_BLOCKS, num_random_blocks)
        self._drawn = np.random.default_rng(random_seed).integers(0, 1 << _DRAWN_BITS, size).astype("int32")

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
        options = {"position": position, "training": training}
        length, heads = ops.shape(query)[1], (query.shape[2], value.shape[3])
        count = block_count(length, self.block_size)
        present = self._present(None if self.as_transformers else visibility.key_mask, count)
        make_table = self._table_as_transformers if self.as_transformers and not training else self.table
        table = BlockLayout(self.block_size, None, *make_table(count, present))
        context = table.attend(self.softmax, query, key, value, visibility, **options)
        if self.num_first_blocks + self.num_last_blocks:
            rows = self._global_blocks(count, present)
            global_context = self._attend_to_all(rows, query, key, value, visibility, options)
            context = self._with_global(context, global_context, present)
        return join_blocks(context, length, heads)

    def _attend_to_all(
        self,
        rows: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        options: Mapping[str, object],
    ):
        """Returns the context `(B, R, width)` of the global blocks, which attend to all keys."""
        table = BlockLayout(self.block_size, rows, None, None)
        shape = (ops.shape(query)[0], ops.shape(rows)[1] * self.block_size)
        queries = ops.reshape(table.queries(query), (*shape, *query.shape[2:]))
        positions = visibility.query_positions
        positions = ops.expand_dims(positions, 0) if len(positions.shape) == 1 else positions
        positions = ops.broadcast_to(positions, ops.shape(query)[:2])
        mask = visibility.query_mask
        seen = Visibility(
            query_mask=None if mask is None else ops.reshape(table.queries(mask), shape),
            key_mask=visibility.key_mask,
            query_positions=ops.reshape(table.queries(positions), shape),
            key_positions=visibility.key_positions,
        )
        context = self.softmax(queries, key, value, visibility=seen, **options)
        width = self.block_size * query.shape[2] * value.shape[3]
        return ops.reshape(context, (-1, ops.shape(rows)[1], width))

    def _with_global(self, context: Tensor, global_context, present: Tensor):
        """The blocks `(B, n, width)` with the global ones replaced by `global_context`, `(B, R, width)`."""
        batch, count, width = ops.shape(context)[0], ops.shape(context)[1], context.shape[2]
        query_blocks = ops.reshape(ops.arange(count, dtype="int32"), (1, -1))
        from_end = query_blocks - present + self.num_last_blocks  # (1 | B, n)
        is_first = query_blocks < self.num_first_blocks
        is_last = ops.logical_and(from_end >= 0, query_blocks < present)
        is_global = ops.logical_or(is_first, is_last)
        # A gather, not a scatter: a block of a short sequence may be global twice, but its gradient must count once.
        last = self.num_first_blocks + ops.maximum(ops.minimum(from_end, self.num_last_blocks - 1), 0)
        index = ops.where(is_global, ops.where(is_first, query_blocks + last * 0, last), 0)
        first = ops.reshape(ops.arange(batch, dtype="int32"), (-1, 1)) * ops.shape(global_context)[1]
        rows = ops.take(ops.reshape(global_context, (-1, width)), ops.reshape(first + index, (-1,)), axis=0)
        return ops.where(ops.expand_dims(is_global, 2), ops.reshape(rows, (-1, count, width)), context)

    def table(self, count: int | Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """The blocks of keys that each block of queries attends to.

        Args:
            count: the number of blocks n.
            present: int32 `(1 | B, 1)`: how many of them hold tokens.

        Returns:
            The blocks `(1 | B, n, degree)`, int32, and which entries count, boolean of the same shape.
        """
        query_blocks = ops.reshape(ops.arange(count, dtype="int32"), (1, -1, 1))
        present = ops.expand_dims(present, 2)  # (1 | B, 1, 1)
        columns, valid = self._window_and_global(query_blocks, present)
        if self.num_random_blocks:
            start, end = self._inner(present)
            found, exists = self._random(query_blocks, start, end, self.num_window_blocks // 2)
            columns.append(found)
            valid.append(exists)
        columns = ops.concatenate(columns, axis=2)
        return ops.maximum(columns, 0), ops.concatenate(valid, axis=2)

    def _table_as_transformers(self, count: int | Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """As `table`: all blocks of short sequences; the first block in place of the random ones of longer sequences."""
        num_random = self.num_random_blocks
        most = self.num_window_blocks + self.num_first_blocks + self.num_last_blocks + 2 * num_random
        query_blocks = ops.reshape(ops.arange(count, dtype="int32"), (1, -1, 1))
        present = ops.expand_dims(present, 2)
        columns, valid = self._window_and_global(query_blocks, present)
        if num_random:
            # As many columns as a short sequence needs; those beyond the random ones are invalid.
            columns.append(query_blocks * 0 + _count(0, 2 * num_random, (1, 1, -1)) * 0)
            valid.append(query_blocks * 0 + _count(0, 2 * num_random, (1, 1, -1)) < num_random)
        columns, valid = ops.maximum(ops.concatenate(columns, axis=2), 0), ops.concatenate(valid, axis=2)
        everything = query_blocks * 0 + _count(0, most, (1, 1, -1))
        is_short = present <= most
        return ops.where(is_short, everything, columns), ops.where(is_short, everything < present, valid)

    def _window_and_global(self, query_blocks: Tensor, present: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the columns of window and global blocks, and which entries count: a list of each."""
        reach = self.num_window_blocks // 2
        window = query_blocks + present * 0 + _count(-reach, reach + 1, (1, 1, -1))
        start, end = self._inner(present)
        is_near = ops.logical_and(window >= start, window < end)
        columns, valid = [window], [is_near]
        if self.num_first_blocks + self.num_last_blocks:
            blocks = ops.expand_dims(self._global_block_entries(ops.squeeze(present, 2)), 1)
            is_global = ops.logical_and(blocks >= 0, self._is_first_of_equals(blocks, present))
            columns.append(blocks + query_blocks * 0)
            valid.append(ops.logical_and(is_global, query_blocks >= 0))
        return columns, valid

    def _inner(self, present: Tensor):
        """Returns the first block that is not global, and the end of these blocks."""
        start = ops.minimum(present, self.num_first_blocks)
        return start, ops.maximum(present - self.num_last_blocks, start)

    def _global_block_entries(self, present: Tensor):
        """`(1 | B, R)`: the global blocks; entries without a block are negative or repeat another."""
        blocks = []
        if self.num_first_blocks:
            blocks.append(_count(0, self.num_first_blocks, (1, -1)) + present * 0)
        if self.num_last_blocks:
            blocks.append(_count(-self.num_last_blocks, 0, (1, -1)) + present)
        return ops.concatenate(blocks, axis=1)

    def _is_first_of_equals(self, blocks: Tensor, present: Tensor):
        """Returns which global blocks are valid and not in an earlier entry."""
        is_of_first = np.arange(self.num_first_blocks + self.num_last_blocks) < self.num_first_blocks
        is_of_first = ops.convert_to_tensor(is_of_first.reshape(1, 1, -1))
        return ops.logical_and(blocks < present, ops.logical_or(is_of_first, blocks >= self.num_first_blocks))

    def _global_blocks(self, count: int | Tensor, present: Tensor):
        """`(1 | B, R)`: the global blocks; some are repeated if there are too few."""
        blocks = self._global_block_entries(present)
        return ops.minimum(ops.maximum(blocks, 0), ops.minimum(present - 1, count - 1))

    def _random(self, query_blocks: Tensor, start, end, reach):
        """Blocks between `start` and `end` outside the window: one from each of `num_random_blocks` equal ranges."""
        low, high = ops.maximum(query_blocks - reach, start), ops.minimum(query_blocks + reach, end - 1)
        near = ops.maximum(high - low + 1, 0)
        others = end - start - near  # (1 | B, n, 1)
        index = _count(0, self.num_random_blocks, (1, 1, -1))
        first = others * index // self.num_random_blocks
        size = others * (index + 1) // self.num_random_blocks - first
        drawn = ops.take(ops.convert_to_tensor(self._drawn), ops.reshape(query_blocks, (-1,)) % _DRAWN_BLOCKS, axis=0)
        offset = first + ops.expand_dims(drawn, 0) * size // (1 << _DRAWN_BITS)
        found = start + offset
        passes_window = ops.logical_and(found >= low, near > 0)
        return found + ops.where(passes_window, near, 0), size > 0

    def _present(self, key_mask: Tensor | None, count: int | Tensor):
        """`(1 | B, 1)`: the number of blocks up to the last token of each row, at least one."""
        if key_mask is None:
            return ops.reshape(ops.cast(ops.convert_to_tensor(count), "int32"), (1, 1))
        blocks = ops.arange(1, ops.shape(key_mask)[1] + 1, dtype="int32")
        last = ops.max(ops.cast(key_mask, "int32") * ops.expand_dims(blocks, 0), axis=1, keepdims=True)
        return ops.maximum(block_count(last, self.block_size), 1)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "block_size": self.block_size,
            "num_window_blocks": self.num_window_blocks,
            "num_random_blocks": self.num_random_blocks,
            "num_first_blocks": self.num_first_blocks,
            "num_last_blocks": self.num_last_blocks,
            "random_seed": self.random_seed,
            "as_transformers": self.as_transformers,
        }


def _count(start, end, shape: Shape):
    return ops.convert_to_tensor(np.arange(start, end, dtype="int32").reshape(shape))
