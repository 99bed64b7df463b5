"""Parakeet: transformers' `ParakeetEncoder`, and `ParakeetForCTC`."""

from __future__ import annotations

import math

import keras

from keras_transformer import tasks
from keras_transformer.audio import ConvolutionSubsampling
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import PointConvolution, Sinusoidal, Transposed
from keras_transformer.checkpoints.mapping import Entry, attention, batch_norm, linear, norm, same
from keras_transformer.models import Parakeet, Size


class ParakeetEncoder(Architecture):
    """The encoder of Parakeet, FastConformer: Rekesh et al., arXiv 2305.05084."""

    remark = "FastConformer"
    ignored = (r"num_batches_tracked$",)

    def backbone(self, config: Config) -> keras.Model:
        depth = config.integer("num_hidden_layers", 24)
        config.check_depth("num_hidden_layers", depth)
        # The vectors of distances are no tensor here that parts could be dropped of.
        config.only("dropout_positions", 0.0, 0.0)
        return Parakeet(
            Size(
                depth,
                config.integer("hidden_size", 1024),
                config.integer("num_attention_heads", 8),
                config.integer("intermediate_size", 4096),
            ),
            num_mel_bins=config.integer("num_mel_bins", 80),
            subsampling=_subsampling(config),
            kernel_size=config.integer("conv_kernel_size", 9),
            scales_frames=config.flag("scale_input", True),
            activation=config.activation("hidden_act", "silu"),
            use_bias=config.flag("attention_bias", True),
            use_convolution_bias=config.flag("convolution_bias", True),
            dropout=config.number("dropout", 0.1),
            attention_dropout=config.number("attention_dropout", 0.1),
            hidden_dropout=config.number("activation_dropout", 0.1),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*_subsampling_entries(config)]
        for index in range(config.integer("num_hidden_layers", 24)):
            entries += _block(config, f"layers.{index}", f"encoder_block_{index}")
        return entries


class ParakeetCTC(ParakeetEncoder):
    """Parakeet CTC: the encoder, and a head on its frames."""

    base_prefix = "encoder."
    heads = {
        "CTC": Head(
            lambda backbone, config: _recognizer(backbone, config),
            lambda config, prefix: [
                Entry(("ctc_head.weight",), ("frame_logits/kernel",), PointConvolution(rank=1)),
                same("ctc_head.bias", "frame_logits/bias"),
            ],
        )
    }

    def backbone(self, config: Config) -> keras.Model:
        return super().backbone(_encoder(config))

    def entries(self, config: Config) -> list[Entry]:
        return super().entries(_encoder(config))


def _encoder(config: Config) -> Config:
    """The settings of the encoder, which is FastConformer."""
    section = config.section("encoder_config")
    section.only("model_type", "parakeet_encoder", "parakeet_encoder")
    return section


def _recognizer(backbone: keras.Model, config: Config) -> keras.Model:
    size = config.integer("vocab_size", 1025, minimum=2)
    blank_id = config.integer("pad_token_id", 1024, minimum=0, maximum=size - 1)
    return tasks.SpeechRecognizer(backbone, size, blank_id=blank_id)


def _num_convolutions(config: Config) -> int:
    """The strided convolutions: as many as the factor has binary digits after the first."""
    return int(math.log2(config.integer("subsampling_factor", 8, minimum=2)))


def _subsampling(config: Config) -> ConvolutionSubsampling:
    return ConvolutionSubsampling(
        config.integer("hidden_size", 1024),
        config.integer("subsampling_conv_channels", 256),
        _num_convolutions(config),
        config.integer("subsampling_conv_kernel_size", 3),
        config.integer("subsampling_conv_stride", 2),
    )


def _subsampling_entries(config: Config) -> list[Entry]:
    entries = [*linear("subsampling.linear", "subsampling/projection")]
    for index in range(_num_convolutions(config)):
        # A ReLU first, then a depthwise and a pointwise convolution and a ReLU each.
        number, ours = 0 if index == 0 else 3 * index - 1, f"subsampling/convolution_{index}"
        layout = Transposed((3, 2, 0, 1) if index == 0 else (2, 3, 0, 1))
        entries.append(Entry((f"subsampling.layers.{number}.weight",), (f"{ours}/kernel",), layout))
        entries.append(same(f"subsampling.layers.{number}.bias", f"{ours}/bias"))
        if index:
            theirs, ours = f"subsampling.layers.{number + 1}", f"subsampling/pointwise_{index}"
            entries.append(Entry((f"{theirs}.weight",), (f"{ours}/kernel",), PointConvolution()))
            entries.append(same(f"{theirs}.bias", f"{ours}/bias"))
    return entries


def _block(config: Config, theirs: str, ours: str) -> list[Entry]:
    bias = config.flag("attention_bias", True)
    position = f"{ours}/self_attention/position"
    entries = [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.self_attn.q_proj",
            key=f"{theirs}.self_attn.k_proj",
            value=f"{theirs}.self_attn.v_proj",
            output=f"{theirs}.self_attn.o_proj",
            bias=bias,
        ),
        Entry((f"{theirs}.self_attn.relative_k_proj.weight",), (f"{position}/kernel",), Sinusoidal()),
        same(f"{theirs}.self_attn.bias_u", f"{position}/content_bias"),
        same(f"{theirs}.self_attn.bias_v", f"{position}/position_bias"),
        *norm(f"{theirs}.norm_out", f"{ours}/final_norm"),
    ]
    for their_norm, residual in (
        ("feed_forward1", "first_feedforward"),
        ("self_att", "mixer"),
        ("conv", "convolution"),
        ("feed_forward2", "feedforward"),
    ):
        entries += norm(f"{theirs}.norm_{their_norm}", f"{ours}/{residual}_residual/norm")
    for their_part, part in (("feed_forward1", "first_feedforward"), ("feed_forward2", "feedforward")):
        entries += linear(f"{theirs}.{their_part}.linear1", f"{ours}/{part}/hidden", bias=bias)
        entries += linear(f"{theirs}.{their_part}.linear2", f"{ours}/{part}/output", bias=bias)
    return entries + _convolution(config, f"{theirs}.conv", f"{ours}/convolution")


def _convolution(config: Config, theirs: str, ours: str) -> list[Entry]:
    entries = batch_norm(f"{theirs}.norm", f"{ours}/norm")
    for name, part, layout in (
        ("pointwise_conv1", "first_dense", PointConvolution(rank=1)),
        ("depthwise_conv", "depthwise", Transposed((1, 2, 0))),
        ("pointwise_conv2", "last_dense", PointConvolution(rank=1)),
    ):
        entries.append(Entry((f"{theirs}.{name}.weight",), (f"{ours}/{part}/kernel",), layout))
        if config.flag("convolution_bias", True):
            entries.append(same(f"{theirs}.{name}.bias", f"{ours}/{part}/bias"))
    return entries
