"""Channel mixing of RWKV."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.rwkv.time_mixing import check_layer_index
from keras_transformer.recurrence.rwkv.token_shift import TokenShift
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, Initializer, Shape, Tensor


@serializable
class ChannelMixing(Recurrence):
    """Channel mixing of RWKV: `σ(r_t) · (relu(k_t)² W_v)`, with projections r and k of the token mixed with the previous
    one.

    A feed-forward for a `DecoderBlock` that reads the previous token, which is its cache.

    Args:
        intermediate_dim: int >= 1. Width of k.
        layer_index: int >= 0. Index of the layer in its stack. It determines the initial mixes.
        num_layers: int > `layer_index`. The number of layers of the stack.
        kernel_initializer: initializer of the projections.
        use_receptance: bool. Whether there is a gate `σ(r_t)`; RWKV-7 has none. Defaults to True.

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "token" `(B, D)`, float32.

    Raises:
        ValueError: `intermediate_dim` below 1; `layer_index` not below `num_layers`.

    Example:

    >>> import numpy as np
    >>> layer = ChannelMixing(16)
    >>> tuple(layer(np.ones((1, 3, 8), "float32")).shape)
    (1, 3, 8)

    Reference: Peng et al., RWKV, arXiv 2305.13048, section 3 (channel mixing of RWKV-4); Peng et al., RWKV-7, arXiv
    2503.14456, section 4.3 (without receptance). Mixes start as in the authors' code.
    """

    def __init__(
        self,
        intermediate_dim: int,
        layer_index: int = 0,
        num_layers: int = 1,
        kernel_initializer: Initializer = "glorot_uniform",
        use_receptance: bool = True,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.use_receptance = use_receptance
        self.intermediate_dim = positive("intermediate_dim", intermediate_dim)
        check_layer_index(layer_index, num_layers)
        self.layer_index = layer_index
        self.num_layers = num_layers
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._built_width = width = query_shape[-1]
        left, channel = 1 - self.layer_index / self.num_layers, np.arange(width) / width
        # Without a receptance, as in RWKV-7, a mix is the share of the previous token.
        mixes = (
            {"key": channel**left, "receptance": channel**left}
            if self.use_receptance
            else {"key": 1 - channel**left**4}
        )
        self.token_shift = TokenShift(mixes, not self.use_receptance, dtype=self.dtype_policy, name="token_shift")
        self.token_shift.build(query_shape)
        sizes = {"key": (width, self.intermediate_dim), "output": (self.intermediate_dim, width)}
        sizes |= {"receptance": (width, width)} if self.use_receptance else {}
        for name in ("key", "receptance", "output"):
            if name in sizes:
                dense = token_projection(self, name, sizes[name][1], use_bias=False)
                dense.build((*query_shape[:2], sizes[name][0]))
                setattr(self, f"{name}_dense", dense)

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        before = None if cache is None else cache["token"]
        (for_key, *for_receptance), token = self.token_shift(x, mask=mask, before=before)
        output = self.output_dense(ops.square(ops.relu(self.key_dense(for_key))))
        if self.use_receptance:
            output = ops.sigmoid(self.receptance_dense(for_receptance[0])) * output
        return output, {"token": token}

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns zeros for the token before the first."""
        return {"token": ops.zeros((batch_size, self._width()), dtype="float32")}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "layer_index": self.layer_index,
            "num_layers": self.num_layers,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "use_receptance": self.use_receptance,
        }
