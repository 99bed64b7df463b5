"""A language model of a bundle whose cache lies in the blocks of a pool, as `generation.Engine` wants it."""

import numpy as np

from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.loop import pad


class PagedRuntimeSteps:
    """Reads new tokens of many sequences. Pools are numpy arrays, of which a step gathers the blocks of its rows.

    Args:
        steps: the model in its runtime, as `language_runtime` opens it.
        num_blocks: int >= 2. Block 0 is for padding.
        block_size: int >= 1. Tokens of a block.
        max_batch_size: int >= 1. Not limited by the runtime.
        chunk_size: int >= 1. The most tokens that a call of one row reads.
        quantize: bool. Not to be had here.

    Raises:
        GenerationError: a cache that does not keep all tokens, an encoder-decoder, or int8.
    """

    is_encoder_decoder = False

    def __init__(self, steps, num_blocks, block_size, max_batch_size, chunk_size=64, quantize=False):
        if steps.is_encoder_decoder:
            raise GenerationError("The cache of an encoder-decoder depends on its source: it is not paged.")
        if quantize:
            raise GenerationError("Blocks of int8 are for models of Keras: serve the .keras file.")
        self.runtime = steps
        self.vocabulary_size = steps.vocabulary_size
        room = (num_blocks - 1) * block_size
        self.max_length = room if steps.max_length is None else min(room, steps.max_length)
        self.chunk_size = min(chunk_size, self.max_length)
        self.block_size = block_size
        self._pools = {}
        for name, value in steps.init_cache(2, block_size).items():  # Two rows: one may have a fixed number of slots.
            shape = steps.as_numpy(value).shape
            if len(shape) != 4 or shape[2] != block_size:
                raise GenerationError(f"Blocks hold a cache of all tokens; {name!r} is a state of fixed size.")
            self._pools[name] = np.zeros((num_blocks, *shape[1:]), steps.as_numpy(value).dtype)

    def step(self, token_ids, tables, cache_index):
        """As `tasks.paged_steps.PagedSteps.step`."""
        # As many blocks as hold the longest: what stands behind the end of a row, causality hides.
        count, longest = len(token_ids[0]), max(cache_index) + len(token_ids[0])
        width = -(-longest // self.block_size)
        table = pad([row[:width] for row in tables])
        cache = self.runtime.make_cache({name: _gathered(pool, table) for name, pool in self._pools.items()})
        output, cache = self.runtime.decode_step(np.array(token_ids, "int32"), cache, np.array(cache_index, "int32"))
        slots = np.array(cache_index)[:, None] + np.arange(count)  # (B, T)
        rows = np.arange(len(tables))[:, None]
        blocks, offsets = table[rows, slots // self.block_size], slots % self.block_size
        for name, pool in self._pools.items():
            pool[blocks, :, offsets] = self.runtime.as_numpy(cache[name])[rows, :, slots]
        return output.logits[:, -1]

    def copy(self, pairs):
        """Copies blocks, for copy on write."""
        for source, target in pairs:
            for pool in self._pools.values():
                pool[target] = pool[source]

    def reset(self):
        """Nothing that a step leaves half done is ever read."""

    def warm_up(self):
        """Runs both shapes of a step once."""
        for count in {1, self.chunk_size}:
            blocks = -(-count // self.block_size)
            self.step([[0] * count], [[0] * blocks], [0])


def _gathered(pool, table):
    """The blocks `(N, K, block_size, W)` of each row, as a cache `(B, K, L, W)`."""
    blocks = pool[table].transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(blocks).reshape(len(table), pool.shape[1], -1, pool.shape[3])
