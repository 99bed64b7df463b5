"""A stack of reversible blocks that keeps no activations for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.prefixes import add_prefix, select_prefix
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.batch_statistics import refuse_batch_statistics
from keras_transformer.blocks.reversible.reversible_steps import run_reversibly
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, LayerLike, Outputs, Shape, Tensor


@serializable
class ReversibleStack(CachedLayer):
    """Stack of reversible blocks on two streams, which both start as the input and are concatenated at the end.

    Training keeps only the last outputs for the backward pass, which recomputes the inputs of each block from its outputs,
    `x_2 = y_2 - g(y_1)`, `x_1 = y_1 - f(x_2)`, from the last block to the first. Activation memory does not grow with the
    number of blocks, and a step takes about a third longer. On JAX's CPU backend, which reorders these steps, it still
    grows, by about a quarter of the memory without recomputation.

    Args:
        blocks: list of distinct `ReversibleBlock`, or their configs.
        reversible: bool. False keeps the activations, as in any other stack. Default True.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any. With a cache it covers
            the new tokens, which are padded on the right.
        positions: int `(T,)` or `(B, T)`; see `MultiHeadAttention`.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        `(B, T, 2 D)`, both streams; with a cache, `(output, cache)`.

    Raises:
        ValueError: no blocks; layers that add losses or update batch statistics, as mixtures of experts and batch norms do.

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
    2001.04451, section 3. Recomputed inputs, and therefore gradients, are exact up to rounding.
    """

    def __init__(self, blocks: Sequence[LayerLike], reversible: bool = True, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.blocks = [resolve(block, {}, keras.layers.Layer, argument="block") for block in blocks]
        self.reversible = reversible
        if not self.blocks or len({id(block) for block in self.blocks}) < len(self.blocks):
            raise ValueError(f"{self.name} needs at least one block, and all blocks must be distinct.")
        refuse_batch_statistics(self, "and would update them twice")

    def build(self, inputs_shape: Shape) -> None:
        for block in self.blocks:
            build_once(block, inputs_shape, inputs_shape)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        options = {"padding_mask": padding_mask, "positions": positions}
        if cache is not None:
            return self._extend(inputs, options, cache, cache_index)
        if training and self.reversible:
            return run_reversibly(self, inputs, **options)
        streams = (inputs, inputs)
        for block in self.blocks:
            streams = block(*streams, **options, training=training)
        return ops.concatenate(streams, axis=-1)

    def _extend(self, x, options, cache, cache_index):
        (first, second), following = (x, x), dict(cache)
        for index, block in enumerate(self.blocks):
            start = f"block_{index}_"
            mixed, own = block.extend(second, select_prefix(cache, start), cache_index, **options)
            following |= add_prefix(start, own)
            first = first + mixed
            second = second + block.feed(first)
        return ops.concatenate([first, second], axis=-1), following

    @property
    def cache_is_rewindable(self) -> bool:
        """Whether decoding can continue from an earlier `cache_index` of the same cache."""
        return all(getattr(block.mixer, "cache_is_rewindable", True) for block in self.blocks)

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the empty caches of all mixers for `max_length` tokens."""
        return {
            f"block_{index}_{name}": tensor
            for index, block in enumerate(self.blocks)
            for name, tensor in block.mixer.init_cache(batch_size, max_length, dtype).items()
        }

    def compute_output_spec(
        self, inputs: Tensor, *args: object, cache: Cache | None = None, **options: object
    ) -> Outputs:
        return self._output_spec((*inputs.shape[:2], 2 * inputs.shape[2]), cache)

    def get_config(self) -> Config:
        blocks = [serialize(block) for block in self.blocks]
        return {**super().get_config(), "blocks": blocks, "reversible": self.reversible}
