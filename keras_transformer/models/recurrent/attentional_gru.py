"""GRU with attention to a source, the decoder of Bahdanau."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.attention import capture
from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.masks import masked_bias
from keras_transformer.attention.scoring.additive import Additive
from keras_transformer.blocks.decoders.encoder_attention import has_encoder_cache
from keras_transformer.layers.projection import token_projection
from keras_transformer.models.recurrent.bidirectional_gru import width_config
from keras_transformer.recurrence.gru_step import gru_step, recurrent_kernels, stack_kernels
from keras_transformer.recurrence.sequential import sequential_scan
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, DType, Initializer, Outputs, Shape, Tensor


@serializable
class AttentionalGRU(CachedLayer):
    """GRU decoder with additive attention to a source at each step.

    `c_t = Σ_s α_ts h_s` with `α_t = softmax_s(vᵀ tanh(W_a s_{t-1} + U_a h_s))`; then `s_t` as in `BidirectionalGRU`, of
    `W x_t + C c_t`; and the output is a maxout of pairs of `U_o s_{t-1} + V_o x_t + C_o c_t`. The initial state is
    `tanh(W_s h←_1)`, with the last state of the backward encoder. Memory grows with `T · S · A` in training and with
    `S · A` otherwise, time with `T · S · A` plus the products of each step.

    Args:
        units: int >= 1. Width of the state n.
        alignment_dim: int >= 1. A, the width of the hidden layer of the scores.
        readout_dim: int >= 1. Width of the output l.
        kernel_initializer: initializer of all kernels except the recurrent ones.
        recurrent_initializer: initializer of the recurrent kernels.

    Call arguments:
        inputs: float `(B, T, D)`: embeddings of the previous tokens; `x_t` belongs to the token before token t.
        encoder_output: float `(B, S, E)`, with the backward states in the second half of the channels; None with a cache
            that contains the result of `memory_cache`.
        padding_mask: boolean `(B, T)`, False for padding, which leaves the state unchanged; None for no padding.
        encoder_padding_mask: boolean `(B, S)`, False for masked source tokens; None for no mask.
        cache: dict from `init_cache`, merged with the result of `memory_cache`; or None.
        cache_index: int32 `()` or `(B,)`: number of tokens that each row has read before.

    Returns:
        `(B, T, l)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: a width below 1.

    The cache is "state" `(B, n)`, float32, of fixed size. `attention.attention_maps` returns the alignment α.

    Example:

    >>> import numpy as np
    >>> layer = AttentionalGRU(units=4, alignment_dim=5, readout_dim=3)
    >>> tuple(layer(np.ones((2, 6, 3)), np.ones((2, 7, 8))).shape)
    (2, 6, 3)

    Reference: Bahdanau et al., arXiv 1409.0473, section 3.1 and appendices A.1.2 and A.2.2; biases as in `BidirectionalGRU`.
    """

    cache_is_rewindable = False
    records_attention_scores = True

    def __init__(
        self,
        units: int,
        alignment_dim: int,
        readout_dim: int,
        kernel_initializer: Initializer = "glorot_uniform",
        recurrent_initializer: Initializer = "orthogonal",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.units = positive("units", units)
        self.alignment_dim = positive("alignment_dim", alignment_dim)
        self.readout_dim = positive("readout_dim", readout_dim)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        initializer = self.kernel_initializer.clone()
        self.scoring = Additive(alignment_dim, initializer, dtype=self.dtype_policy, name="scoring")

    def build(self, inputs_shape: Shape, encoder_output_shape: Shape) -> None:
        batch, length, width = inputs_shape
        memory = encoder_output_shape[-1]
        self.scoring.build((batch, length, 1, self.units), (batch, encoder_output_shape[1], 1, memory))
        self.input_dense = token_projection(self, "input", 3 * self.units)
        self.input_dense.build(inputs_shape)
        self.recurrent_kernels = recurrent_kernels(self, "state")
        self.context_kernel = self._kernel("context_kernel", memory, 3 * self.units)
        self.first_state_kernel = self._kernel("first_state_kernel", memory - memory // 2, self.units)
        self.first_state_bias = self.add_weight(name="first_state_bias", shape=(self.units,), initializer="zeros")
        self.readout_dense = token_projection(self, "readout", 2 * self.readout_dim)
        self.readout_dense.build((batch, length, self.units + width + memory))

    def _kernel(self, name, *shape):
        return self.add_weight(name=name, shape=shape, initializer=self.kernel_initializer.clone())

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        arrays = cache if cache is not None and has_encoder_cache(cache) else self.memory_cache(encoder_output)
        memory = [ops.cast(arrays[name], self.compute_dtype) for name in ("cross_key", "cross_value")]
        state = self._first_state(memory[1])
        if cache is not None:
            begins = ops.equal(ops.reshape(ops.convert_to_tensor(cache_index), (-1, 1)), 0)
            state = ops.where(begins, state, ops.cast(cache["state"], "float32"))
        states, contexts, state = self._write(inputs, state, memory, (padding_mask, encoder_padding_mask), training)
        if capture.is_captured(self):
            capture.record(self, self._align(states, memory[0], encoder_padding_mask))
        output = self.readout_dense(ops.concatenate([states, inputs, contexts], axis=-1))
        output = ops.max(ops.reshape(output, (-1, ops.shape(inputs)[1], self.readout_dim, 2)), axis=-1)
        return output if cache is None else (output, {**cache, "state": state})

    def _write(self, x, state, memory, masks, training):
        """The states before each token `(B, T, n)`, the contexts `(B, T, E)`, and the last state `(B, n)`."""
        gate_kernel, candidate_kernel = stack_kernels(self.recurrent_kernels)
        context_kernel, (keys, values), (mask, memory_mask) = self.context_kernel, memory, masks
        units, width = self.units, self.units + values.shape[3]
        inputs = ops.transpose(self.input_dense(x), (1, 0, 2))
        # The first item has the shape of the output.
        steps: tuple[Tensor, ...] = (ops.zeros((*ops.shape(inputs)[:2], width), inputs.dtype), inputs)
        if mask is not None:
            steps += (ops.expand_dims(ops.cast(ops.transpose(mask), "float32"), 2),)

        def step(index, carry, _, token, *mask):
            before = ops.cast(carry[0], token.dtype)
            weights = self._align(ops.expand_dims(before, 1), keys, memory_mask)
            context = ops.reshape(ops.matmul(weights, values), (-1, values.shape[3]))
            token = token + ops.matmul(context, context_kernel)
            kernels = (gate_kernel, candidate_kernel)
            state = gru_step(carry[0], token[:, :units], token[:, units:], kernels, *mask)
            return (state,), ops.concatenate([before, context], axis=1)

        (state,), outputs = sequential_scan(step, (state,), steps, training)
        outputs = ops.transpose(outputs, (1, 0, 2))
        return outputs[..., :units], outputs[..., units:], state

    def _align(self, states, keys, mask):
        """`(B, 1, T, S)`: attention weights of each state `(B, T, n)` over the source; zeros if all is masked."""
        scores = self.scoring.score(ops.expand_dims(states, 2), keys)
        if mask is None:
            return ops.cast(ops.softmax(ops.cast(scores, "float32")), scores.dtype)
        mask = ops.expand_dims(mask, (1, 2))
        weights = ops.softmax(ops.cast(scores, "float32") + masked_bias(mask, None))
        return ops.cast(weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), "float32"), scores.dtype)

    def _first_state(self, values):
        """The initial state, float32 `(B, n)`."""
        read_backwards = values[:, 0, 0, values.shape[3] // 2 :]
        return ops.cast(
            ops.tanh(ops.matmul(read_backwards, self.first_state_kernel) + self.first_state_bias), "float32"
        )

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: DType = None) -> Cache:
        """Returns the initial state, float32, of fixed size for any `max_length`."""
        return {"state": ops.zeros((batch_size, self.units), dtype="float32")}

    def memory_cache(self, encoder_output: Tensor | None) -> Cache:
        """Returns the projected source: "cross_key" `(B, 1, S, A)`, `U_a h`, and "cross_value" `(B, 1, S, E)`, h."""
        keys = self.scoring.hidden_keys(ops.expand_dims(encoder_output, 2))
        return {"cross_key": keys, "cross_value": ops.expand_dims(encoder_output, 1)}

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        *args: object,
        cache: Cache | None = None,
        **options: object,
    ) -> Outputs:
        return self._output_spec((*inputs.shape[:2], self.readout_dim), cache)

    def get_config(self) -> Config:
        return {**super().get_config(), **width_config(self, "units", "alignment_dim", "readout_dim")}
