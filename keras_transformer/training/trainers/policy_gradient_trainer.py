"""Policy gradient for a language model, with a penalty for leaving a reference model."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_transformer.blocks.traced_once import TracedOnce
from keras_transformer.tasks import LanguageModel
from keras_transformer.training.losses.cross_entropy import split_ignored
from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import Shape, Tensor


class PolicyGradientTrainer(TracedOnce, keras.Model):
    """Trains a language model on texts that the reference model has sampled, by their advantages.

    For each labeled token with the advantage A of its row, probabilities p of the model and q of the reference, and
    `ratio = p(token) / q(token)`:

        loss_t = -min(ratio A, clip(ratio, 1 - c, 1 + c) A) + k sum_v p(v) log(p(v) / q(v))

    The loss is the mean over the labeled tokens of a batch. The reference is both the policy that sampled, as in the first
    round of PPO, and what the penalty holds the model to: the model of behavior cloning.

    Args:
        language_model: `tasks.LanguageModel` of a decoder, which is trained.
        reference: `tasks.LanguageModel` with the same vocabulary, which is not trained; at first, a copy.
        clip: float > 0. `c`. Default 0.2.
        kl_weight: float >= 0. `k`. Default 0.1.
        ignore_id: int. Label of tokens that are not counted. Default -100.
        name: str.

    Call arguments:
        inputs: dict of "token_ids" int32 `(B, T)`, "padding_mask" bool `(B, T)` and "advantages" float32 `(B,)`.

    Returns:
        Logits, float32 `(B, T, V)`.

    Raises:
        ValueError: an encoder-decoder, another vocabulary, or an argument out of range.

    Compile it with an optimizer and without a loss. `fit` reports "loss", and "kl", the mean divergence of a token.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models, tasks
    >>> model, reference = (tasks.LanguageModel(models.Llama(models.Size(1, 8, 2, 16), 10)) for _ in range(2))
    >>> reference.set_weights(model.get_weights())
    >>> trainer = PolicyGradientTrainer(model, reference)
    >>> trainer.compile("adam")
    >>> inputs = {"token_ids": np.array([[1, 2]]), "padding_mask": np.ones((1, 2), bool), "advantages": np.array([1.5])}
    >>> trainer.evaluate(inputs, np.array([[-100, 3]]), verbose=0, return_dict=True)["loss"]  # The ratio is 1.
    -1.5

    Reference: Schulman et al., Proximal Policy Optimization Algorithms, arXiv 1707.06347, equation 7; Nakano et al.,
        WebGPT, arXiv 2112.09332, section 3.2, whose reward has a penalty of the divergence at each token. Here the
        penalty is the exact divergence, a term of the loss, and advantages are given instead of estimated by a value
        function.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        reference: LanguageModel,
        *,
        clip: float = 0.2,
        kl_weight: float = 0.1,
        ignore_id: int = IGNORE_ID,
        name: str = "policy_gradient_trainer",
    ) -> None:
        super().__init__(name=name)
        if language_model.is_encoder_decoder or reference.is_encoder_decoder:
            raise ValueError("A policy is a decoder. Received: an encoder-decoder.")
        if language_model.vocabulary_size != reference.vocabulary_size:
            raise ValueError(
                f"The reference has {reference.vocabulary_size} tokens. Expected: {language_model.vocabulary_size}"
            )
        if clip <= 0 or kl_weight < 0:
            raise ValueError(f"clip must be above 0 and kl_weight at least 0. Received: {clip}, {kl_weight}")
        self.language_model, self.reference = language_model, reference
        self.clip, self.kl_weight, self.ignore_id = clip, kl_weight, ignore_id
        reference.trainable = False
        self._kl = keras.metrics.Mean(name="kl")

    def build(self, input_shape: Shape) -> None:
        """Does nothing: the parts are built."""

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        return self.language_model(_text(inputs), training=training)

    def compute_loss(
        self,
        x: Any = None,
        y: Tensor | None = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the mean over the labeled tokens of the loss above, plus the losses of layers, such as routers."""
        del sample_weight, training
        labels, counted = split_ignored(y, self.ignore_id)
        ours = ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1)
        theirs = ops.stop_gradient(ops.log_softmax(self.reference(_text(x), training=False), axis=-1))
        index = ops.expand_dims(labels, -1)
        ratio = ops.exp(ops.squeeze(ops.take_along_axis(ours - theirs, index, axis=-1), -1))
        advantages = ops.expand_dims(ops.cast(x["advantages"], "float32"), -1)
        clipped = ops.clip(ratio, 1 - self.clip, 1 + self.clip)
        gain = ops.minimum(ratio * advantages, clipped * advantages)
        divergence = ops.sum(ops.exp(ours) * (ours - theirs), axis=-1)
        weights = ops.cast(counted, "float32")
        tokens = ops.maximum(ops.sum(weights), 1.0)
        mean_divergence = ops.sum(weights * divergence) / tokens
        self._kl.update_state(ops.stop_gradient(mean_divergence), sample_weight=tokens)
        loss = -ops.sum(weights * gain) / tokens + self.kl_weight * mean_divergence
        return loss + sum(self.losses) if self.losses else loss


def _text(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: inputs[name] for name in ("token_ids", "padding_mask")}
