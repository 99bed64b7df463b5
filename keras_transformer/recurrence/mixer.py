"""Base class of mixers with a recurrent state."""

from __future__ import annotations

from keras import ops

from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.utils.types import Cache, Tensor


class Recurrence(TokenMixer):
    """Base class of causal mixers with a recurrent state of fixed size in place of keys and values.

    A subclass implements `scan`, and `init_cache`, which returns a state of zeros of one size for any length.

    Attributes:
        supports: causality and a cache. See `Mechanism`.
        cache_is_rewindable: False: a state cannot return to an earlier index.

    Call arguments: see `TokenMixer`. `use_causal_mask` is True by default, and cannot be False. With a cache, `query_mask`
        marks padding, which must be on the right; `cache_index` is the number of tokens that each row has read before.

    Returns:
        `(B, T, D)`, zeros at padding; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: an unsupported argument.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> class CumulativeSum(Recurrence):
    ...     def scan(self, x, mask, positions, cache):
    ...         sums = ops.cumsum(x, axis=1) + (0.0 if cache is None else cache["sum"])
    ...         return sums, {"sum": sums[:, -1:]}
    >>> CumulativeSum()(np.ones((1, 3, 1))).numpy().ravel().tolist()
    [1.0, 2.0, 3.0]
    """

    supports = frozenset({"causal", "cache"})

    def mix(self, inputs: MixerInputs) -> Tensor:
        return self._scan_tokens(inputs)[0]

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        return self._scan_tokens(inputs)

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        """Returns the output and the next state.

        Args:
            x: float `(B, T, D)`, zeros at padding.
            mask: float32 `(B, T)`, 0 for padding, or None for no padding. Padding must not change the output of other
                tokens. With a cache, the next state must be the state after the last token that is not padding.
            positions: int `(T,)` or `(1 | B, T)`.
            cache: dict as `init_cache` returns. None for an empty state; then the next state is not read.

        Arguments that only this mixer has follow by name.

        Returns:
            `(B, T, D)`, and a dict as `init_cache` returns.
        """
        raise NotImplementedError

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns the state before the first token: a dict of float32 zeros. Its size does not depend on `max_length`."""
        raise NotImplementedError

    def _scan_tokens(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        x, visibility = inputs.query, inputs.visibility
        mask, positions = visibility.query_mask, visibility.query_positions
        if mask is None:
            return self.scan(x, None, positions, inputs.cache, **inputs.extra)
        mask = ops.cast(mask, "float32")
        per_token = ops.cast(ops.expand_dims(mask, 2), x.dtype)
        # Masking the input also avoids a TFLite fault: it could overwrite a graph input that several layers read directly.
        output, state = self.scan(x * per_token, mask, positions, inputs.cache, **inputs.extra)
        return output * per_token, state

    def _width(self) -> int:
        """Returns D, which is known after `build`."""
        if not self.built:
            raise ValueError(
                f"The state of {self.name} ({type(self).__name__}) has the width of its tokens: build the layer first."
            )
        return self._built_width
