"""Masking of random spans of frames and of features."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.random_augmentation import check_range
from keras_transformer.utils.processor_config import is_count
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class SpanMasking(keras.layers.Layer):
    """Masking of random spans, in training only: hidden frames become a learned vector, hidden features become 0.

    Each row has `max(min_spans, floor(probability · T / span_length + u))` spans of frames, with u uniform in [0, 1), and T
    the number of its real frames. Their starts are drawn without replacement, and spans may overlap. Spans of features are
    drawn in the same way, over the width.

    Args:
        probability: float in [0, 1). Upper limit of the share of hidden frames. Default 0.65, half of the frames in the
            mean.
        span_length: int >= 1. In frames. Default 10.
        min_spans: int >= 0. Default 2.
        feature_probability: float in [0, 1). Upper limit of the share of hidden features. Default 0.
        feature_span_length: int >= 1. Default 10.
        min_feature_spans: int >= 0. Has no effect if `feature_probability` is 0. Default 0.
        seed: int or None.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real frame; padding is on the right. None for all real.

    Returns:
        Pair of the masked inputs `(B, T, D)` and the boolean mask of the hidden frames `(B, T)`; the inputs and False,
        unless `training`.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np
    >>> masked, hidden = SpanMasking(0.5, span_length=2, seed=1)(np.ones((1, 8, 4), "float32"), training=True)
    >>> int(np.sum(hidden)) in (3, 4)
    True

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 3.1 and 4.2, where p = 0.065 is `probability /
    span_length`, and appendix B (features); the numbers of spans as in the published code.
    """

    def __init__(
        self,
        probability: float = 0.65,
        span_length: int = 10,
        min_spans: int = 2,
        feature_probability: float = 0.0,
        feature_span_length: int = 10,
        min_feature_spans: int = 0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_range(1, probability=probability, feature_probability=feature_probability)
        for name, value, least in (
            ("span_length", span_length, 1),
            ("feature_span_length", feature_span_length, 1),
            ("min_spans", min_spans, 0),
            ("min_feature_spans", min_feature_spans, 0),
        ):
            if not is_count(value) and not value == least == 0:
                raise ValueError(f"{name} must be an int of at least {least}. Received: {value!r}")
        self.probability = probability
        self.span_length = span_length
        self.min_spans = min_spans
        self.feature_probability = feature_probability
        self.feature_span_length = feature_span_length
        self.min_feature_spans = min_feature_spans
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, inputs_shape: Shape) -> None:
        self.mask_embedding = self.add_weight(name="mask_embedding", shape=(inputs_shape[-1],), initializer="uniform")

    def call(
        self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> tuple[Tensor, Tensor]:
        batch_size, length, width = ops.shape(inputs)
        real = ops.ones_like(inputs[:, :, 0], dtype="bool") if padding_mask is None else ops.cast(padding_mask, "bool")
        hidden = ops.logical_and(real, False)
        if training and self.probability:
            lengths = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True)
            hidden = self._spans(lengths, length, self.probability, self.span_length, self.min_spans)
            vector = ops.reshape(ops.cast(self.mask_embedding, inputs.dtype), (1, 1, -1))
            inputs = ops.where(ops.expand_dims(hidden, -1), vector, inputs)
        if training and self.feature_probability:
            lengths = ops.full((batch_size, 1), width, "int32")
            options = (self.feature_probability, self.feature_span_length, self.min_feature_spans)
            features = self._spans(lengths, width, *options)
            inputs = ops.where(ops.expand_dims(features, 1), ops.zeros_like(inputs), inputs)
        return inputs, hidden

    def _spans(self, lengths, size, probability, span_length, min_spans):
        """Returns random spans, boolean `(B, size)`, within the first `lengths` `(B, 1)` items of each row."""
        offset = keras.random.uniform((), seed=self.seed_generator)
        counts = probability * ops.cast(lengths, "float32") / span_length + offset
        counts = ops.maximum(ops.cast(ops.floor(counts), "int32"), min_spans)
        last = lengths - span_length + 1
        # No more spans than fit, and than there are starts.
        counts = ops.minimum(counts, ops.minimum(ops.maximum(last, 0), size // span_length))
        noise = keras.random.uniform((ops.shape(lengths)[0], size), seed=self.seed_generator)
        can_start = ops.less(ops.expand_dims(ops.arange(size, dtype="int32"), 0), last)
        ranks = ops.argsort(ops.argsort(ops.where(can_start, noise, 2.0), axis=1), axis=1)
        starts = ops.logical_and(can_start, ops.less(ops.cast(ranks, "int32"), counts))
        begun = ops.cumsum(ops.cast(starts, "int32"), axis=1)
        ended = ops.pad(begun, ((0, 0), (span_length, 0)))[:, :size]
        return ops.greater(begun, ended)

    def compute_output_spec(
        self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        shape = tuple(inputs.shape)
        return keras.KerasTensor(shape, self.compute_dtype), keras.KerasTensor(shape[:2], "bool")

    def get_config(self) -> Config:
        names = ("probability", "span_length", "min_spans", "feature_probability", "feature_span_length")
        own = {name: getattr(self, name) for name in (*names, "min_feature_spans", "seed")}
        return {**super().get_config(), **own}
