"""Group-limited router of DeepSeek-V2 and DeepSeek-V3."""

from __future__ import annotations

from typing import Unpack

from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.feedforward.experts.router import Routing, TopKRouter
from keras_transformer.utils.serialization import choice, serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor

# The number of best experts whose scores are the score of a group.
_ACTIVATIONS = {"sigmoid": 2, "softmax": 1}
# Below every score with its correction.
_NEVER = -1e9


@serializable
class GroupLimitedRouter(TopKRouter):
    """Router to the k best experts in the best groups of experts, in float32 under every dtype policy.

    Experts form groups of consecutive ones. For each token the groups are ordered by the score of their best expert
    ("softmax", DeepSeek-V2) or by the sum of their two best ("sigmoid", DeepSeek-V3), and only experts of the first
    `top_groups` groups may be chosen. With groups on different devices, this limits the devices that a token is sent to.

    "sigmoid" scores each expert by itself, and has a correction: a number for each expert that is added to its score in all
    choices, but not in the weight. It replaces a loss: it is not trained by gradients, but grows in training by
    `bias_update_rate` for experts with fewer assignments than the mean, and falls for those with more.

    Args:
        num_experts: int >= 1. E.
        top_k: int in [1, E]. k. Defaults to 2.
        num_groups: int that divides E. Defaults to 1.
        top_groups: int in [1, `num_groups`], with at least k experts. Defaults to 1.
        activation: "sigmoid" (default) or "softmax": of the logits.
        scale: float > 0. Factor of the weights. Defaults to 1.
        normalize: bool. Whether the weights sum to `scale`. Defaults to True.
        bias_update_rate: float >= 0, for "sigmoid". Defaults to 0; DeepSeek-V3 used 0.001.
        load_balancing_weight: float >= 0. See `TopKRouter`; scores are divided by their sum. Defaults to 0.
        kernel_initializer: initializer of W.

    Call arguments and returns: as for `TopKRouter`.

    Raises:
        ValueError: values out of range; groups of one expert for "sigmoid"; fewer than k experts in `top_groups` groups.

    Weights: "kernel" `(D, E)`; for "sigmoid" also "correction_bias" `(E,)`, which has no gradient.

    Example:

    >>> import numpy as np
    >>> router = GroupLimitedRouter(6, top_k=2, num_groups=3, top_groups=1, scale=2.5)
    >>> routing = router(np.random.default_rng(0).normal(size=(1, 4, 8)).astype("float32"))
    >>> routing.weights.numpy().sum(axis=-1).round(4).tolist(), np.ptp(routing.experts.numpy() // 2, axis=-1).tolist()
    ([[2.5, 2.5, 2.5, 2.5]], [[0, 0, 0, 0]])

    Reference: DeepSeek-AI, DeepSeek-V2, arXiv 2405.04434, section 2.2.2; DeepSeek-V3, arXiv 2412.19437, section 2.1.2,
    equations 13 to 16. Deviation: the correction is updated after each call in training, with its assignments.
    """

    def __init__(
        self,
        num_experts: int,
        top_k: int = 2,
        num_groups: int = 1,
        top_groups: int = 1,
        activation: str = "sigmoid",
        scale: float = 1.0,
        normalize: bool = True,
        bias_update_rate: float = 0.0,
        load_balancing_weight: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            num_experts,
            top_k,
            load_balancing_weight=load_balancing_weight,
            kernel_initializer=kernel_initializer,
            normalize=normalize,
            **kwargs,
        )
        self._best = choice(activation, _ACTIVATIONS, argument="activation")
        self.num_groups = positive("num_groups", num_groups)
        self.top_groups = positive("top_groups", top_groups)
        self.activation = activation
        self.scale = scale
        self.bias_update_rate = bias_update_rate
        self._check()

    def _check(self) -> None:
        if self.num_experts % self.num_groups:
            raise ValueError(f"num_groups must divide num_experts={self.num_experts}. Received: {self.num_groups}")
        of_group = self.num_experts // self.num_groups
        if of_group < self._best:
            raise ValueError(f"Groups must have {self._best} experts or more. Received: groups of {of_group}")
        if not self.top_groups <= self.num_groups or self.top_groups * of_group < self.top_k:
            raise ValueError(
                f"top_groups must be at most num_groups={self.num_groups}, and have top_k={self.top_k} experts or more of "
                f"{of_group} in a group. Received: {self.top_groups}"
            )
        if self.scale <= 0 or self.bias_update_rate < 0:
            raise ValueError(
                "scale must be above 0, and bias_update_rate not below 0. Received: "
                f"scale={self.scale}, bias_update_rate={self.bias_update_rate}"
            )
        if self.bias_update_rate and self.activation == "softmax":
            raise ValueError("Only activation='sigmoid' has a correction. Received: bias_update_rate with 'softmax'")

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.correction_bias = None
        if self.activation == "sigmoid":
            options = {"shape": (self.num_experts,), "initializer": "zeros", "trainable": False}
            self.correction_bias = self.add_weight(name="correction_bias", **options)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Routing:
        routing = super().call(inputs, padding_mask=padding_mask, training=training)
        if training and self.bias_update_rate and self.correction_bias is not None:
            counts = ops.cast(routing.counts, "float32")
            change = self.bias_update_rate * ops.sign(ops.mean(counts) - counts)
            self.correction_bias.assign(self.correction_bias + change)
        return routing

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.activation == "softmax":
            scores = corrected = ops.softmax(logits, axis=-1)
        else:
            scores = ops.sigmoid(logits)
            corrected = ops.stop_gradient(scores + self.correction_bias)
        _, experts = ops.top_k(self._in_best_groups(corrected), self.top_k)
        chosen = ops.equal(ops.expand_dims(experts, -1), ops.arange(self.num_experts, dtype=experts.dtype))
        weights = ops.sum(ops.cast(chosen, scores.dtype) * ops.expand_dims(scores, 2), axis=-1)
        if self.normalize:
            weights = weights / ops.sum(weights, axis=-1, keepdims=True)
        return scores / ops.sum(scores, axis=-1, keepdims=True), weights * self.scale, experts

    def _in_best_groups(self, scores: Tensor) -> Tensor:
        """Returns the scores `(B, T, E)`, very low outside the best groups of each token."""
        if self.top_groups == self.num_groups:
            return scores
        shape = (-1, ops.shape(scores)[1], self.num_groups, self.num_experts // self.num_groups)
        grouped = ops.reshape(scores, shape)
        best = ops.top_k(grouped, self._best)[0]
        _, groups = ops.top_k(ops.sum(best, axis=-1), self.top_groups)  # (B, T, top_groups)
        indices = ops.arange(self.num_groups, dtype=groups.dtype)
        allowed = ops.any(ops.equal(ops.expand_dims(groups, -1), indices), axis=2)
        return ops.reshape(ops.where(ops.expand_dims(allowed, -1), grouped, _NEVER), (-1, shape[1], self.num_experts))

    def get_config(self) -> Config:
        inherited = super().get_config()
        for name in ("capacity_factor", "jitter", "z_weight", "seed", "use_bias"):
            del inherited[name]
        return {
            **inherited,
            "num_groups": self.num_groups,
            "top_groups": self.top_groups,
            "activation": self.activation,
            "scale": self.scale,
            "bias_update_rate": self.bias_update_rate,
        }
