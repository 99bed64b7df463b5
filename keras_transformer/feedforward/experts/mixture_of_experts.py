"""Mixture of experts."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.backend.devices.split_layers import mesh_that_splits_experts, on_devices_of_experts
from keras_transformer.feedforward.activations import Gating, get_activation
from keras_transformer.feedforward.experts.dispatch import (
    ExpertCounts,
    combine,
    dispatch_to_blocks,
    dispatch_to_buffers,
    gather,
)
from keras_transformer.feedforward.experts.router import TopKRouter
from keras_transformer.layers.dropout import Dropout
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Activation, Config, DType, Initializer, LayerOptions, Shape, Tensor


@serializable
class MixtureOfExperts(keras.layers.Layer):
    """Mixture of experts: `Σ_e g_e(x) · expert_e(x)` over the k experts that a router chooses for each token.

    An expert is a gated or a dense feed-forward. Tokens are sorted by expert into blocks, and experts are batched products
    over blocks: the cost of a token is that of k experts, plus a quarter for blocks that are not full, never that of all E.
    Time is `O(B · T · k · D · F)`; memory beyond the kernels `O(B · T · k · (D + F) + E · D · F)`.

    Args:
        intermediate_dim: int >= 1. F, the hidden width of each expert.
        router: `TopKRouter`, its config, or an int: the number of experts, with 2 per token. Defaults to 8.
        gated: bool. Whether experts are `(activation(x W_gate) * x W_hidden) W_output`, or
            `activation(x W_hidden) W_output`. Defaults to True.
        activation: "silu" (default), "relu", "gelu", "gelu_tanh", or any activation of Keras; of gated experts also a
            `Gating`, such as `ClampedSwiGLU()`.
        dropout: float in [0, 1). Dropout rate of the hidden layer.
        use_bias: bool. Defaults to False.
        kernel_initializer: initializer of the kernels, sampled for each expert separately.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, False for padding; None for the mask of Keras, if any. Padding is not dispatched, and
            its output is zeros. Blocks pass on their mask.

    Returns:
        `(B, T, D)`: zeros for a token that was dropped by all its experts; a block leaves it unchanged.

    Raises:
        ValueError: `intermediate_dim` below 1; an invalid `router`.

    Weights: "gate_kernel" and "hidden_kernel" `(E, D, F)`, "output_kernel" `(E, F, D)`, biases `(E, F)` and `(E, D)`, and
    "router/kernel" `(D, E)`, "router/bias" `(E,)`; "loads" `(E,)` and "dropped" `()`, int32 counters that are not trained.

    Losses: those of the router, with `add_loss`. Training logs: "PATH/load_0", ..., the assignments of each expert since the
    start of the epoch, and "PATH/dropped", the dropped assignments. They are counted only in training. On JAX they are
    logged only for whole epochs.

    Export: all three formats, including routing.

    Example:

    >>> import numpy as np
    >>> layer = MixtureOfExperts(16, router=TopKRouter(4, top_k=1))
    >>> tuple(layer(np.ones((1, 3, 8), "float32")).shape), tuple(layer.hidden_kernel.shape)
    ((1, 3, 8), (4, 8, 16))

    Reference: Fedus et al., Switch Transformers, arXiv 2101.03961, section 2 (`gated=False`, top-1); Jiang et al., Mixtral
    of Experts, arXiv 2401.04088, section 2.1 (gated, top-2). Blocks as in Gale et al., MegaBlocks, arXiv 2211.15841.
    """

    gate_kernel: keras.Variable | None
    gate_bias: keras.Variable | None

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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = positive("intermediate_dim", intermediate_dim)
        router = TopKRouter(router) if isinstance(router, int) else resolve(router, {}, TopKRouter, argument="router")
        self.router = clone(router, name="router")
        self.gated = gated
        self.activation = get_activation(activation, gated=gated)
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.supports_masking = True
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

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

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask
        routing = self.router(inputs, padding_mask=padding_mask, training=training)
        mesh = self._mesh(inputs, training)
        if mesh is not None:
            given = (self.router.num_experts, inputs, routing.experts, routing.weights, self._kernels())
            if training:
                self._count(routing, dropped=0)
            return on_devices_of_experts(self._mixed_by_blocks, mesh, *given)
        dispatch = self._dispatch(routing, padding_mask, training)
        if training:
            kept = ops.sum(ops.cast(dispatch.kept, "int32"))
            self._count(routing, dropped=ops.sum(routing.counts) - kept)
        return self._mixed(inputs, routing.weights, dispatch, self._kernels(), training)

    def _mesh(self, inputs, training):
        """The mesh that splits experts over devices, or None; buffers and dropout are not computed device by device."""
        if training and (self.router.capacity_factor is not None or self.dropout > 0):
            return None
        return mesh_that_splits_experts(self.router.num_experts, inputs.shape)

    def _mixed_by_blocks(self, inputs, experts, weights, kernels, num_experts):
        """The weighted sum of experts, without dropped tokens and dropout."""
        return self._mixed(inputs, weights, dispatch_to_blocks(experts, num_experts), kernels, training=False)

    def _mixed(self, inputs, weights, dispatch, kernels, training):
        """The weighted sum `(B, T, D)` of the experts of each token."""
        y = self._experts(
            gather(ops.reshape(inputs, (-1, inputs.shape[-1])), dispatch), dispatch.experts, kernels, training
        )
        weights = ops.cast(ops.reshape(weights, (-1, self.router.top_k)), y.dtype)
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

    def _kernels(self):
        """The kernels of all experts: name to tensor, or None."""
        names = (f"{part}_{kind}" for part in ("gate", "hidden", "output") for kind in ("kernel", "bias"))
        found = {name: getattr(self, name) for name in names}
        return {name: None if each is None else ops.convert_to_tensor(each) for name, each in found.items()}

    def _experts(self, x, experts, kernels, training):
        """Applies the expert of each group to its slots, `(G, S, D)`."""
        hidden = self._product(x, kernels, "hidden", experts)
        if self.gated:
            gate = self._product(x, kernels, "gate", experts)
            joint = isinstance(self.activation, Gating)
            hidden = self.activation(gate, hidden) if joint else self.activation(gate) * hidden
        else:
            hidden = self.activation(hidden)
        hidden = self._dropout_layer(hidden, training=training)
        return self._product(hidden, kernels, "output", experts)

    def _product(self, x, kernels, part, experts):
        kernel, bias = kernels[f"{part}_kernel"], kernels[f"{part}_bias"]
        kernel = ops.cast(kernel, x.dtype)
        y = ops.matmul(x, kernel if experts is None else ops.take(kernel, experts, axis=0))
        if bias is None:
            return y
        bias = ops.cast(bias, x.dtype)
        return y + ops.expand_dims(bias if experts is None else ops.take(bias, experts, axis=0), 1)

    def _count(self, routing, dropped):
        self.counts.update_state(routing.counts, dropped)

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
    """Initializer that samples each expert separately: in one kernel, fan-in would be E times too large."""

    def __init__(self, initializer: keras.Initializer) -> None:
        self.initializer = initializer

    def __call__(self, shape: Shape, dtype: DType = None) -> Tensor:
        return ops.stack([self._initializer_of(index)(shape[1:], dtype=dtype) for index in range(shape[0])])

    def _initializer_of(self, index):
        config = self.initializer.get_config()
        if isinstance(config.get("seed"), int):  # With one seed, all experts would be equal.
            config["seed"] += index
        return type(self.initializer).from_config(config)
