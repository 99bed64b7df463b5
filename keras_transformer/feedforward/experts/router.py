"""Top-k router of a mixture of experts."""

from __future__ import annotations

from typing import NamedTuple, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


class Routing(NamedTuple):
    """Experts and weights of each token.

    Attributes:
        weights: float32 `(B, T, k)`: the weight of each chosen expert.
        experts: int32 `(B, T, k)`: the chosen experts, best first; `num_experts` for padding.
        counts: int32 `(E,)`: the number of assignments of each expert.
    """

    weights: Tensor
    experts: Tensor
    counts: Tensor


@serializable
class TopKRouter(keras.layers.Layer):
    """Router to the k most probable experts of `softmax(x W + b)`, in float32 under every dtype policy.

    With one expert per token, its weight is its probability (Switch). With more, the weights of the chosen experts are by
    default normalized to sum to 1, as by a softmax over their logits alone (Mixtral, gpt-oss). Padding is not routed, and
    has no influence on the losses.

    Args:
        num_experts: int >= 1. E.
        top_k: int in [1, E]. k. Defaults to 2.
        capacity_factor: float > 0, or None for no limit (the default). In training an expert takes the first
            `ceil(capacity_factor · k · length / E)` assignments of each row. The others are dropped and counted. In
            inference none is dropped, so that the output of a token does not depend on its row or on decoding steps.
        jitter: float in [0, 1). In training, inputs are multiplied by noise, uniform in [1 - jitter, 1 + jitter].
        load_balancing_weight: float >= 0. Weight of the loss `E · Σ_e f_e P_e`, where f_e is the share of assignments of
            expert e and P_e its mean probability. It is 1 for a uniform load. Defaults to 0.01.
        z_weight: float >= 0. Weight of the loss `mean(logsumexp(x W + b)²)`, which keeps logits small. Defaults to 0.
        kernel_initializer: initializer of W.
        seed: int or None. Seed of the jitter.
        normalize: bool. Whether the weights of several chosen experts sum to 1; otherwise they are their probabilities
            (Qwen2-MoE). Defaults to True.
        use_bias: bool. Whether there is a bias b. Defaults to False.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, False for padding, or None.

    Returns:
        `Routing`.

    Raises:
        ValueError: values out of range.

    Example:

    >>> import numpy as np
    >>> router = TopKRouter(4, top_k=1, capacity_factor=1.25, jitter=0.01)
    >>> tuple(router(np.ones((1, 3, 8), "float32")).experts.shape)
    (1, 3, 1)

    Reference: Fedus et al., Switch Transformers, arXiv 2101.03961, sections 2.1 and 2.2 (capacity, jitter, load balancing);
    Zoph et al., ST-MoE, arXiv 2202.08906, equation 5 (z-loss); Jiang et al., Mixtral of Experts, arXiv 2401.04088, section
    2.1. Capacity is counted per row, in the order of tokens and then of choices, so that other rows and later tokens have no
    influence.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int = 2,
        capacity_factor: float | None = None,
        jitter: float = 0.0,
        load_balancing_weight: float = 0.01,
        z_weight: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        normalize: bool = True,
        use_bias: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_experts = positive("num_experts", num_experts)
        self.top_k = positive("top_k", top_k)
        if top_k > num_experts:
            raise ValueError(f"top_k must not be above num_experts={num_experts}. Received: {top_k}")
        if capacity_factor is not None and capacity_factor <= 0:
            raise ValueError(f"capacity_factor must be above 0, or None. Received: {capacity_factor}")
        if not 0 <= jitter < 1:
            raise ValueError(f"jitter must be in [0, 1). Received: {jitter}")
        for name, weight in (("load_balancing_weight", load_balancing_weight), ("z_weight", z_weight)):
            if weight < 0:
                raise ValueError(f"{name} must not be negative. Received: {weight}")
        self.capacity_factor = capacity_factor
        self.jitter = jitter
        self.load_balancing_weight = load_balancing_weight
        self.z_weight = z_weight
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.normalize = normalize
        self.use_bias = use_bias
        self._seeds = keras.random.SeedGenerator(seed) if jitter else None

    def build(self, input_shape: Shape) -> None:
        shape = (input_shape[-1], self.num_experts)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer.clone())
        self.bias = self.add_weight(name="bias", shape=shape[1:], initializer="zeros") if self.use_bias else None

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Routing:
        if self.jitter and training:
            noise = (1 - self.jitter, 1 + self.jitter)
            inputs = inputs * keras.random.uniform(ops.shape(inputs), *noise, dtype="float32", seed=self._seeds)
        width = inputs.shape[-1]
        logits = ops.matmul(ops.reshape(inputs, (-1, width)), self.kernel)
        logits = logits if self.bias is None else logits + self.bias
        logits = ops.reshape(logits, (-1, ops.shape(inputs)[1], self.num_experts))
        probabilities, weights, experts = self.choose(logits)
        experts = ops.cast(experts, "int32")
        if padding_mask is not None:
            experts = ops.where(ops.expand_dims(padding_mask, -1), experts, self.num_experts + ops.zeros_like(experts))
        choices = ops.equal(ops.expand_dims(experts, -1), ops.arange(self.num_experts, dtype="int32"))
        counts = ops.sum(ops.cast(choices, "int32"), axis=(0, 1, 2))
        self._add_losses(logits, probabilities, counts, padding_mask)
        return Routing(weights, experts, counts)

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns probabilities `(B, T, E)`, and weights and experts `(B, T, k)`, of float32 logits `(B, T, E)`."""
        probabilities = ops.softmax(logits, axis=-1)
        weights, experts = ops.top_k(probabilities, self.top_k)
        if self.top_k > 1 and self.normalize:
            weights = weights / ops.sum(weights, axis=-1, keepdims=True)
        return probabilities, weights, experts

    def _add_losses(self, logits, probabilities, counts, mask):
        if self.load_balancing_weight:
            counts = ops.cast(counts, "float32")
            shares = counts / ops.maximum(ops.sum(counts), 1)
            balance = self.num_experts * ops.sum(shares * _mean(probabilities, mask))
            self.add_loss(self.load_balancing_weight * balance)
        if self.z_weight:
            squares = ops.square(ops.logsumexp(logits, axis=-1, keepdims=True))
            self.add_loss(self.z_weight * ops.sum(_mean(squares, mask)))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "top_k": self.top_k,
            "capacity_factor": self.capacity_factor,
            "jitter": self.jitter,
            "load_balancing_weight": self.load_balancing_weight,
            "z_weight": self.z_weight,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
            "normalize": self.normalize,
            "use_bias": self.use_bias,
        }


def _mean(x, mask):
    """Returns the mean of `(B, T, C)` over tokens that are not padding, `(C,)`."""
    if mask is None:
        return ops.mean(x, axis=(0, 1))
    mask = ops.cast(ops.expand_dims(mask, -1), x.dtype)
    return ops.sum(x * mask, axis=(0, 1)) / ops.maximum(ops.sum(mask), 1)
