"""A stack of reversible blocks, which keeps no activations."""

import keras
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.prefixes import part, prefixed
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.batch_statistics import refuse_batch_statistics
from keras_transformer.blocks.reversible.reversible_steps import run_reversibly
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize


@serializable
class ReversibleStack(CachedLayer):
    """Reversible blocks over two streams, which begin as the same tokens, and end side by side.

    In training only the last outputs are kept for the backward pass. It computes the inputs of each block from its outputs,
    `x_2 = y_2 - g(y_1)`, `x_1 = y_1 - f(x_2)`, from the last block to the first, and the gradients along with them: memory
    for activations does not grow with the number of blocks, and a step takes about a third longer. On JAX's CPU backend,
    which orders these steps otherwise, it still grows, by about a quarter of what is kept without.

    Args:
        blocks: list of `ReversibleBlock`, or their configs; all different.
        reversible: bool. False: activations are kept, as in any other stack. Default True.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any. With a cache it is
            over the new tokens, padded on the right.
        positions: int `(T,)` or `(B, T)`; see `MultiHeadAttention`.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the slot of each row's first new token.

    Returns:
        `(B, T, 2 D)`, both streams; with a cache, `(that, cache)`.

    Raises:
        ValueError: no blocks; parts that add losses, as a mixture of experts does, or count over the batch.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.blocks import ReversibleBlock
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = ReversibleBlock(MultiHeadAttention(2, 4), DenseFeedForward(16))
    >>> tuple(ReversibleStack([block])(np.ones((1, 3, 8))).shape)
    (1, 3, 16)

    Reference: Gomez et al., The Reversible Residual Network, arXiv 1707.04585, algorithm 1; Kitaev et al., Reformer, arXiv
    2001.04451, section 3. Inputs come back up to rounding, and with them the gradients.
    """

    def __init__(self, blocks, reversible=True, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.blocks = [resolve(block, {}, keras.layers.Layer, argument="block") for block in blocks]
        self.reversible = reversible
        if not self.blocks or len({id(block) for block in self.blocks}) < len(self.blocks):
            raise ValueError(f"{self.name} takes one block or more, all different.")
        refuse_batch_statistics(self, "and would count twice")

    def build(self, inputs_shape):
        for block in self.blocks:
            build_once(block, inputs_shape, inputs_shape)

    def call(self, inputs, padding_mask=None, positions=None, cache=None, cache_index=None, training=None):
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        known = {"padding_mask": padding_mask, "positions": positions}
        if cache is not None:
            return self._extend(inputs, known, cache, cache_index)
        if training and self.reversible:
            return run_reversibly(self, inputs, **known)
        streams = (inputs, inputs)
        for block in self.blocks:
            streams = block(*streams, **known, training=training)
        return ops.concatenate(streams, axis=-1)

    def _extend(self, x, known, cache, cache_index):
        (first, second), following = (x, x), dict(cache)
        for index, block in enumerate(self.blocks):
            start = f"block_{index}_"
            mixed, own = block.extend(second, part(cache, start), cache_index, **known)
            following |= prefixed(start, own)
            first = first + mixed
            second = second + block.feed(first)
        return ops.concatenate([first, second], axis=-1), following

    @property
    def cache_is_rewindable(self):
        """Whether a cache can go back."""
        return all(getattr(block.mixer, "cache_is_rewindable", True) for block in self.blocks)

    def init_cache(self, batch_size, max_length, dtype=None):
        """Empty caches of all mixers, for `max_length` tokens."""
        return {
            f"block_{index}_{name}": tensor
            for index, block in enumerate(self.blocks)
            for name, tensor in block.mixer.init_cache(batch_size, max_length, dtype).items()
        }

    def compute_output_spec(self, inputs, *args, cache=None, **options):
        return self._output_spec((*inputs.shape[:2], 2 * inputs.shape[2]), cache)

    def get_config(self):
        blocks = [serialize(block) for block in self.blocks]
        return {**super().get_config(), "blocks": blocks, "reversible": self.reversible}
