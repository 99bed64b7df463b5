"""Contrastive pretraining of encoders of speech."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio import GumbelQuantizer, SpanMasking
from keras_transformer.backend import keras_private
from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_backbone, check_count, check_tokens
from keras_transformer.tasks.speech.code_counts import CodeCounts
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.serialization import clone, serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

_LOWEST = -1e9


def SpeechPretraining(
    backbone: keras.Model,
    *,
    quantizer: GumbelQuantizer | None = None,
    projection_dim: int = 256,
    num_distractors: int = 100,
    temperature: float = 0.1,
    diversity_weight: float = 0.1,
    dropout: float = 0.0,
    name: str = "speech_pretraining",
) -> keras.Model:
    """Contrastive pretraining of wav2vec 2.0: the quantized latent speech of a hidden frame is told from that of others.

    The loss is a part of the model: `compile(optimizer)` and `fit(inputs)` train it on recordings alone, and show the
    accuracy of the choice and the perplexity of the codebooks, at most G V. The layers of the backbone are used, not copied,
    and afterwards `tasks.SpeechRecognizer(backbone, ...)` is trained on texts.

    Args:
        backbone: `models.Wav2Vec2` with `span_masking`, and without an adapter.
        quantizer: `audio.GumbelQuantizer` to copy; None for two codebooks of 320 entries.
        projection_dim: int >= 1. Width in which frames and quantized targets are compared. Default 256.
        num_distractors: int >= 1. K, drawn uniformly from the other hidden frames of a recording. Default 100.
        temperature: float > 0. κ. Default 0.1.
        diversity_weight: float >= 0. α. Default 0.1.
        dropout: float in [0, 1). Of the inputs of the quantizer. Default 0.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "predictions" and "targets", both float32 `(B, T, projection_dim)`: the
        frames and the quantized latent speech. Its loss is that of `ContrastiveSpeechLoss`.

    Raises:
        ValueError: a backbone without `span_masking` or "feature_norm", or an argument out of its range.

    Example:

    >>> from keras_transformer import audio, models
    >>> backbone = models.Wav2Vec2(models.Size(1, 32, 2, 64), span_masking=audio.SpanMasking())
    >>> SpeechPretraining(backbone, projection_dim=8).output["targets"].shape
    (None, None, 8)

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 3.
    """
    check_tokens(backbone)
    check_count("projection_dim", projection_dim)
    masking = _only_output(backbone, SpanMasking)
    features = next((layer for layer in backbone.layers if layer.name == "feature_norm"), None)
    if masking is None or features is None:
        raise ValueError(f"{backbone.name!r} must have a SpanMasking and a norm of its features. Use models.Wav2Vec2.")
    quantizer = GumbelQuantizer() if quantizer is None else quantizer
    x = Dropout(dropout, name="quantizer_dropout")(features.output)
    entries, ids, probabilities = clone(quantizer, name="quantizer")(x)
    targets = keras.layers.Dense(projection_dim, dtype="float32", name="target_projection")(entries)
    predictions = keras.layers.Dense(projection_dim, dtype="float32", name="projection")(backbone.output)
    loss = ContrastiveSpeechLoss(
        num_distractors, temperature, diversity_weight, dtype="float32", name="contrastive_loss"
    )
    predictions = loss(predictions, targets, ids=ids, probabilities=probabilities, hidden=masking[1])
    return TaskModel(backbone.input, {"predictions": predictions, "targets": targets}, name=name)


def _only_output(backbone: keras.Model, cls: type) -> list[keras.KerasTensor] | None:
    """Returns the outputs of the last layer of a class in a backbone."""
    check_backbone(backbone)
    nodes = [node for node in keras_private.nodes_in_order(backbone) if isinstance(node.operation, cls)]
    return nodes[-1].output_tensors if nodes else None


@serializable
class ContrastiveSpeechLoss(keras.layers.Layer):
    """Adds the loss of wav2vec 2.0 in training, `L = L_m + α L_d`, and returns the predictions as they are.

        L_m = mean_t -log( exp(sim(c_t, q_t) / κ) / Σ_q exp(sim(c_t, q) / κ) )     (equation 3)
        L_d = 1/(G V) Σ_g Σ_v p_gv log p_gv                                        (equation 4)

    over the hidden frames t. c are predictions, q the target of the frame and K distractors, sim the cosine, and p the mean
    over the hidden frames of the probabilities of the V entries of each of G codebooks. A distractor with the codes of the
    target does not count.

    Args:
        num_distractors: int >= 1. K. Default 100.
        temperature: float > 0. κ. Default 0.1.
        diversity_weight: float >= 0. α. Default 0.1.
        seed: int or None. Of the distractors.

    Call arguments:
        predictions, targets: float `(B, T, P)`.
        ids: int `(B, T, G)`. The codes of the targets.
        probabilities: float `(B, T, G, V)`.
        hidden: boolean `(B, T)`.

    Returns:
        The predictions `(B, T, P)`.

    Raises:
        ValueError: an argument out of its range.

    Cost: memory grows with `B T²`, and with `B T K`.

    Example:

    >>> import numpy as np
    >>> hidden = np.array([[True, True, False, True]])
    >>> positions, exists = ContrastiveSpeechLoss(num_distractors=9).distractors(hidden)
    >>> set(np.array(positions)[0, 0].tolist()) <= {1, 3}
    True

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 3.2; distractors are drawn with replacement, as in the
    published code, which has the perplexity `Σ_g exp(H(p_g))` in the place of the entropies of equation 4.
    """

    def __init__(
        self,
        num_distractors: int = 100,
        temperature: float = 0.1,
        diversity_weight: float = 0.1,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_count("num_distractors", num_distractors)
        if not temperature > 0 or not diversity_weight >= 0:
            raise ValueError(
                "temperature must be above 0, and diversity_weight at least 0. Received: "
                f"{temperature!r} and {diversity_weight!r}"
            )
        self.num_distractors = num_distractors
        self.temperature = temperature
        self.diversity_weight = diversity_weight
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, *shapes: Shape, **more: object) -> None:
        counters = self.add_weight(name="counters", shape=(4,), dtype="int32", initializer="zeros", trainable=False)
        self._counts = CodeCounts(counters)

    def call(
        self,
        predictions: Tensor,
        targets: Tensor,
        ids: Tensor,
        probabilities: Tensor,
        hidden: Tensor,
        training: bool | None = None,
    ) -> Tensor:
        if training:
            chosen, exists = self.distractors(hidden)
            logits = self.logits(predictions, targets, ids, chosen, exists)
            weights = _shares(hidden)
            losses = ops.logsumexp(logits, axis=-1) - logits[..., 0]
            is_best = ops.greater_equal(logits[..., 0], ops.max(logits, axis=-1))
            entropies = self.entropies(probabilities, hidden)
            size = probabilities.shape[2] * probabilities.shape[3]
            diversity = -ops.sum(entropies) / size
            self.add_loss(ops.sum(losses * weights) + self.diversity_weight * diversity)
            hits, frames = (ops.sum(ops.cast(ops.logical_and(each, hidden), "int32")) for each in (is_best, True))
            self._counts.update_state(hits, frames, ops.sum(ops.exp(entropies)))
        return predictions

    def distractors(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Draws distractors: positions of other hidden frames of the same row.

        Args:
            hidden: boolean `(B, T)`.

        Returns:
            Pair of positions, int32 `(B, T, K)`, and whether each exists, boolean: False in a row with one hidden frame.
        """
        marks = ops.cast(hidden, "int32")
        count = ops.expand_dims(ops.sum(marks, axis=1, keepdims=True), -1)
        rank = ops.expand_dims(ops.cumsum(marks, axis=1) - 1, -1)
        # The hidden positions first, in their order.
        length = ops.shape(hidden)[1]
        keys = ops.arange(length, dtype="int32") + length * (1 - marks)
        order = ops.cast(ops.argsort(keys, axis=1), "int32")
        shape = (*ops.shape(hidden), self.num_distractors)
        draws = keras.random.uniform(shape, seed=self.seed_generator)
        others = ops.cast(count - 1, "float32")
        drawn = ops.cast(ops.minimum(ops.floor(draws * others), ops.maximum(others - 1, 0)), "int32")
        drawn = drawn + ops.cast(ops.greater_equal(drawn, rank), "int32")
        exists = ops.less(drawn, count)
        flat = ops.reshape(ops.where(exists, drawn, 0), (-1, length * self.num_distractors))
        return ops.reshape(ops.take_along_axis(order, flat, axis=1), shape), exists

    def logits(self, predictions: Tensor, targets: Tensor, ids: Tensor, chosen: Tensor, exists: Tensor) -> Tensor:
        """Returns `sim(c_t, q) / κ` of the target, then of the distractors: `(B, T, 1 + K)`."""
        length = ops.shape(predictions)[1]
        similar = ops.einsum("btp,bsp->bts", _unit(predictions), _unit(targets)) / self.temperature
        same = ops.all(ops.equal(ops.expand_dims(ids, 2), ops.expand_dims(ids, 1)), axis=-1)
        is_same = ops.cast(ops.take_along_axis(ops.cast(same, "int32"), chosen, axis=2), "bool")
        others = ops.take_along_axis(similar, chosen, axis=2)
        others = ops.where(ops.logical_and(exists, ops.logical_not(is_same)), others, _LOWEST)
        own = ops.reshape(ops.arange(length, dtype="int32"), (1, -1, 1))
        own = ops.take_along_axis(similar, ops.broadcast_to(own, (ops.shape(similar)[0], length, 1)), axis=2)
        return ops.concatenate([own, others], axis=2)

    def entropies(self, probabilities: Tensor, hidden: Tensor) -> Tensor:
        """Returns the entropy of the mean probabilities of each codebook, `(G,)`."""
        weights = ops.reshape(_shares(hidden), (*ops.shape(hidden), 1, 1))
        mean = ops.sum(ops.cast(probabilities, "float32") * weights, axis=(0, 1))
        return -ops.sum(mean * ops.log(ops.maximum(mean, 1e-12)), axis=-1)

    def compute_output_spec(self, predictions: Tensor, *args: object, **kwargs: object) -> keras.KerasTensor:
        return keras.KerasTensor(predictions.shape, self.compute_dtype)

    def get_config(self) -> Config:
        names = ("num_distractors", "temperature", "diversity_weight", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _shares(hidden: Tensor) -> Tensor:
    """Returns weights `(B, T)` with sum 1 over all hidden frames."""
    marks = ops.cast(hidden, "float32")
    return marks / ops.maximum(ops.sum(marks), 1.0)


def _unit(x: Tensor) -> Tensor:
    x = ops.cast(x, "float32")
    return x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-12)
