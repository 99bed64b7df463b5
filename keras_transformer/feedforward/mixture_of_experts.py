"""The mixture of experts: many feed-forwards, of which each token uses a few."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.feedforward.dispatch import combine, dispatch_to_blocks, dispatch_to_buffers, gather
from keras_transformer.feedforward.expert_counts import ExpertCounts
from keras_transformer.feedforward.router import TopKRouter
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Activation, Config, Initializer, Shape, Tensor


@serializable
class MixtureOfExperts(keras.layers.Layer):
    """`Σ_e g_e(x) · expert_e(x)`, over the k experts that a router chooses for each token.

    An expert is a `GatedFeedForward` or a `DenseFeedForward`. Tokens are sorted by expert into blocks, and experts are
    batched products over blocks: a token costs k experts, and a quarter of one for blocks that are not full, never all E.
    Time is `O(B · T · k · D · F)`; memory beyond the kernels `O(B · T · k · (D + F) + E · D · F)`.

    Args:
        intermediate_dim: int >= 1. F, the hidden width of each expert.
        router: `TopKRouter`, its config, or an int: so many experts, 2 for each token. Default 8.
        gated: bool. Whether experts are `(activation(x W_gate) * x W_hidden) W_output`, or
            `activation(x W_hidden) W_output`. Default True.
        activation: "silu" (default), "relu", "gelu", "gelu_tanh", or anything Keras knows.
        dropout: float in [0, 1). Of the hidden layer.
        use_bias: bool. Default False.
        kernel_initializer: of the experts, drawn for each by itself.
        seed: int or None. Of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any. Padding goes to no
            expert, takes nobody's place, and becomes zeros. Blocks hand theirs on.

    Returns:
        `(B, T, D)`: zeros for a token that all its experts dropped, so that in a block it keeps its residual alone.

    Raises:
        ValueError: `intermediate_dim` below 1, or a `router` that is none.

    Weights: "gate_kernel" and "hidden_kernel" `(E, D, F)`, "output_kernel" `(E, F, D)`, biases `(E, F)` and `(E, D)`, and
    "router/kernel" `(D, E)`; "loads" `(E,)` and "dropped" `()`, int32, which count and are not trained.

    Losses: the router's come through `add_loss`. Logs of training: "PATH/load_0", ..., the tokens that chose each expert
    since the epoch began, and "PATH/dropped", those that found it full. Nothing is counted outside of training.
    On JAX the entries are those of whole epochs.

    Export: all three formats, with the routing of the model.

    Example:

    >>> import numpy as np
    >>> layer = MixtureOfExperts(16, router=TopKRouter(4, top_k=1))
    >>> tuple(layer(np.ones((1, 3, 8), "float32")).shape), tuple(layer.hidden_kernel.shape)
    ((1, 3, 8), (4, 8, 16))

    Reference: Fedus et al., Switch Transformers, arXiv 2101.03961, section 2 (`gated=False`, top-1); Jiang et al., Mixtral
    of Experts, arXiv 2401.04088, section 2.1 (gated, top-2). Blocks as in Gale et al., MegaBlocks, arXiv 2211.15841.
    """

    def __init__(
        self,
        intermediate_dim: int,
        router: int | Config | TopKRouter = 8,
        gated: bool = True,
        activation: Activation = "silu",
        dropout: float = 0.0,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = positive("intermediate_dim", intermediate_dim)
        router = TopKRouter(router) if isinstance(router, int) else resolve(router, {}, TopKRouter, argument="router")
        self.router = clone(router, name="router")
        self.gated = gated
        self.activation = get_activation(activation)
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.supports_masking = True
        self._dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        width, hidden = input_shape[-1], self.intermediate_dim
        self.router.build(input_shape)
        self.gate_kernel, self.gate_bias = self._dense("gate", width, hidden) if self.gated else (None, None)
        self.hidden_kernel, self.hidden_bias = self._dense("hidden", width, hidden)
        self.output_kernel, self.output_bias = self._dense("output", hidden, width)
        loads, dropped = (self._counter("loads", (self.router.num_experts,)), self._counter("dropped", ()))
        self.counts = ExpertCounts(loads, dropped, name=self.path or self.name)

    def _counter(self, name, shape):
        options = {"dtype": "int32", "trainable": False, "aggregation": "only_first_replica"}
        return self.add_weight(name=name, shape=shape, initializer="zeros", **options)

    def _dense(self, name, rows, columns):
        count, bias = self.router.num_experts, None
        initializer = _PerExpertInitializer(self.kernel_initializer)
        kernel = self.add_weight(name=f"{name}_kernel", shape=(count, rows, columns), initializer=initializer)
        if self.use_bias:
            bias = self.add_weight(name=f"{name}_bias", shape=(count, columns), initializer="zeros")
        return kernel, bias

    def call(self, inputs: Tensor, padding_mask: Tensor = None, training: bool | None = None) -> Tensor:
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask
        routing = self.router(inputs, padding_mask=padding_mask, training=training)
        dispatch = self._dispatch(routing, padding_mask, training)
        if training:
            self._count(routing, dispatch)
        x = ops.reshape(inputs, (-1, inputs.shape[-1]))
        y = self._experts(gather(x, dispatch), dispatch.experts, training)
        weights = ops.cast(ops.reshape(routing.weights, (-1, self.router.top_k)), y.dtype)
        return ops.reshape(combine(y, weights, dispatch), (-1, *ops.shape(inputs)[1:]))

    def _dispatch(self, routing, padding_mask, training):
        router = self.router
        if router.capacity_factor is None or not training:
            return dispatch_to_blocks(routing.experts, router.num_experts)
        batch, length = ops.shape(routing.experts)[:2]
        if padding_mask is None:
            lengths = ops.zeros((batch,), "int32") + length
        else:
            lengths = ops.sum(ops.cast(padding_mask, "int32"), axis=1)
        return dispatch_to_buffers(routing.experts, router.num_experts, lengths, router.capacity_factor)

    def _experts(self, x, experts, training):
        """The expert of each group on its slots, `(G, S, D)`."""
        hidden = self._product(x, self.hidden_kernel, self.hidden_bias, experts)
        if self.gated:
            hidden = self.activation(self._product(x, self.gate_kernel, self.gate_bias, experts)) * hidden
        else:
            hidden = self.activation(hidden)
        hidden = self._dropout_layer(hidden, training=training)
        return self._product(hidden, self.output_kernel, self.output_bias, experts)

    def _product(self, x, kernel, bias, experts):
        kernel = ops.cast(kernel, x.dtype)
        y = ops.matmul(x, kernel if experts is None else ops.take(kernel, experts, axis=0))
        if bias is None:
            return y
        bias = ops.cast(bias, x.dtype)
        return y + ops.expand_dims(bias if experts is None else ops.take(bias, experts, axis=0), 1)

    def _count(self, routing, dispatch):
        kept = ops.sum(ops.cast(dispatch.kept, "int32"))
        self.counts.update_state(routing.counts, ops.sum(routing.counts) - kept)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "router": serialize(self.router),
            "gated": self.gated,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }


class _PerExpertInitializer:
    """Draws the kernel of each expert as if it stood alone: of one drawn whole, the width would be taken for E times it."""

    def __init__(self, initializer):
        self.initializer = initializer

    def __call__(self, shape, dtype=None):
        return ops.stack([self._initializer_of(index)(shape[1:], dtype=dtype) for index in range(shape[0])])

    def _initializer_of(self, index):
        config = self.initializer.get_config()
        if isinstance(config.get("seed"), int):  # One seed for all would make all experts one.
            config["seed"] += index
        return type(self.initializer).from_config(config)
