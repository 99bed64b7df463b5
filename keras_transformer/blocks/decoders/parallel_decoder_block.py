"""The transformer decoder block whose attention and feed-forward run in parallel."""

from __future__ import annotations

from typing import Unpack

from keras_transformer.blocks.decoders.decoder_block import DecoderBlock
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape


@serializable
class ParallelDecoderBlock(DecoderBlock):
    """Transformer decoder block in parallel form: `x + mixer(norm_1(x)) + feedforward(norm_2(x))`.

    Args:
        mixer: `MultiHeadAttention`, another causal `TokenMixer`, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        shared_norm: bool. Whether both sublayers read one norm of the input. Default False: each has its own.
        norm: a name in `NORMS`, or a norm layer to copy.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. See `DecoderBlock`.

    Call arguments: as `DecoderBlock`, without an encoder.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: an unknown name.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = ParallelDecoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(16), shared_norm=True)
    >>> tuple(block(np.ones((1, 3, 8))).shape)
    (1, 3, 8)

    Reference: Wang and Komatsuzaki, GPT-J-6B, 2021; Black et al., GPT-NeoX-20B, arXiv 2204.06745, section 2.1; with a shared
    norm, Almazrouei et al., The Falcon Series of Open Language Models, arXiv 2311.16867, section 4.
    """

    def __init__(
        self,
        mixer: LayerLike,
        feedforward: LayerLike,
        shared_norm: bool = False,
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(mixer, feedforward, norm=norm, dropout=dropout, seed=seed, recompute=recompute, **kwargs)
        self.shared_norm = shared_norm
        if shared_norm:
            self.feedforward_residual = None

    def build(self, inputs_shape: Shape, encoder_output_shape: Shape | None = None) -> None:
        self._check_encoder_output(encoder_output_shape)
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, shape, shape)
        self._build_sublayer(self.feedforward_residual or self.mixer_residual, self.feedforward, shape)

    def _apply_sublayers(self, x, mix, attend_encoder, feed_forward, padding_mask, training, condition=None):
        del condition  # Refused before: the scheme is pre-norm.
        options = {"mask": padding_mask, "training": training}
        normalized = self.mixer_residual.pre(x, **options)
        mixed = self._dropout_layer(mix(normalized), training=training)
        if self.feedforward_residual is not None:
            normalized = self.feedforward_residual.pre(x, **options)
        fed = self._dropout_layer(feed_forward(normalized), training=training)
        return self.mixer_residual.post(x, mixed + fed, **options)

    def get_config(self) -> Config:
        config = {**super().get_config(), "shared_norm": self.shared_norm}
        return {name: value for name, value in config.items() if name not in ("residual", "cross_attention")}
