"""VITS: transformers' `VitsModel`, such as MMS-TTS."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.audio import (
    ConvolutionFlow,
    CouplingFlow,
    DepthSeparableConvolutions,
    DurationPredictor,
    HiFiGAN,
    StochasticDurationPredictor,
    WaveNet,
)
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import integers
from keras_transformer.checkpoints.building.speech import convolution, weight_norm_names
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Expanded, Layout, PointConvolution, Transposed, WeightNormalized
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, norm, same
from keras_transformer.models import VITS, Size

_TRAINING = (
    r"^posterior_encoder\.",
    r"^duration_predictor\.post_",
    # Synthesis leaves out the first of the spline flows.
    r"^duration_predictor\.flows\.1\.",
)
_DEPTHS = {
    "depth_separable_num_layers": 3,
    "duration_predictor_num_flows": 4,
    "prior_encoder_num_flows": 4,
    "prior_encoder_num_wavenet_layers": 4,
}
_SPEAKER = (r"\.cond\.", r"\.cond_layer\.")
_DURATIONS, _COUPLING = "duration_predictor", "flow.flows"


class Vits(Architecture):
    """VITS: Kim et al., arXiv 2106.06103. The tensors of training, such as the posterior encoder, are written back."""

    remark = "MMS-TTS, VITS: speech from text, `model.speak`; one speaker or several, both duration predictors"
    ignored = _TRAINING
    heads = {"Model": Head(lambda backbone, config: _synthesizer(backbone, config))}

    def ignored_in(self, config: Config) -> tuple[str, ...]:
        return _TRAINING if _has_speakers(config) else (*_TRAINING, *_SPEAKER)

    def backbone(self, config: Config) -> keras.Model:
        width, epsilon = config.integer("hidden_size", 192), config.number("layer_norm_eps", 1e-5)
        depth = config.integer("num_hidden_layers", 6)
        return VITS(
            Size(depth, width, config.integer("num_attention_heads", 2), config.integer("ffn_dim", 768)),
            config.integer("vocab_size", 38),
            latent_dim=config.integer("flow_size", 192),
            num_speakers=config.integer("num_speakers", 1),
            speaker_dim=_speaker_dim(config),
            window=config.integer("window_size", 4),
            kernel_size=config.integer("ffn_kernel_size", 3),
            duration_predictor=_duration_predictor(config, epsilon),
            num_flows=config.integer("prior_encoder_num_flows", 4),
            flow=CouplingFlow(width, _wave_net(config)),
            decoder=_decoder(config),
            noise_scale=config.number("noise_scale", 0.667),
            activation=config.activation("hidden_act", "relu"),
            dropout=config.number("hidden_dropout", 0.1),
            attention_dropout=config.number("attention_dropout", 0.1),
            hidden_dropout=config.number("activation_dropout", 0.1),
            use_bias=config.flag("use_bias", True),
            layer_norm_epsilon=epsilon,
        )

    def entries(self, config: Config) -> list[Entry]:
        for name, default in _DEPTHS.items():
            config.check_depth(name, config.integer(name, default))
        entries = [
            *embedding("text_encoder.embed_tokens", "token_embedding"),
            *_pointwise("text_encoder.project", "prior"),
        ]
        if _has_speakers(config):
            entries += embedding("embed_speaker", "speaker_embedding")
        for index in range(config.integer("num_hidden_layers", 6)):
            entries += _block(config, f"text_encoder.encoder.layers.{index}", f"encoder_block_{index}")
        entries += _stochastic_durations(config) if _is_stochastic(config) else _durations(config)
        for index in range(config.integer("prior_encoder_num_flows", 4)):
            entries += _coupling(config, f"{_COUPLING}.{index}", f"flow_{index}")
        return entries + _decoder_entries(config)


def _synthesizer(backbone: keras.Model, config: Config) -> keras.Model:
    rate = config.number("speaking_rate", 1.0)
    if rate <= 0:
        raise ConfigError(f"{config.source}: 'speaking_rate' is {rate}; it must be positive.")
    return tasks.SpeechSynthesizer(backbone, sample_rate=config.integer("sampling_rate", 16000), speaking_rate=rate)


def _has_speakers(config: Config) -> bool:
    return config.integer("num_speakers", 1) > 1


def _speaker_dim(config: Config) -> int:
    width = config.integer("speaker_embedding_size", 0, minimum=0)
    if _has_speakers(config) and not width:
        raise ConfigError(f"{config.source}: 'speaker_embedding_size' must be at least 1 with several speakers.")
    return max(width, 1)


def _is_stochastic(config: Config) -> bool:
    return config.flag("use_stochastic_duration_prediction", True)


def _duration_predictor(config: Config, epsilon: float) -> StochasticDurationPredictor | DurationPredictor:
    kernel_size = config.integer("duration_predictor_kernel_size", 3)
    dropout = config.number("duration_predictor_dropout", 0.5)
    if not _is_stochastic(config):
        width = config.integer("duration_predictor_filter_channels", 256)
        return DurationPredictor(width, kernel_size, dropout, epsilon)
    # A duration and a second channel beside it.
    config.only("depth_separable_channels", 2, 2)
    convolutions = DepthSeparableConvolutions(config.integer("depth_separable_num_layers", 3), kernel_size)
    flow = ConvolutionFlow(
        convolutions,
        config.integer("duration_predictor_flow_bins", 10),
        config.number("duration_predictor_tail_bound", 5.0),
    )
    return StochasticDurationPredictor(flow, _num_flows(config), config.number("noise_scale_duration", 0.8), dropout)


def _num_flows(config: Config) -> int:
    """The spline flows of synthesis: all but the first."""
    return config.integer("duration_predictor_num_flows", 4) - 1


def _wave_net(config: Config) -> WaveNet:
    return WaveNet(
        config.integer("prior_encoder_num_wavenet_layers", 4),
        config.integer("wavenet_kernel_size", 5),
        config.integer("wavenet_dilation_rate", 1),
        config.number("wavenet_dropout", 0.0),
    )


def _decoder(config: Config) -> HiFiGAN:
    kernel_sizes = integers(config, "resblock_kernel_sizes", (3, 7, 11))
    return HiFiGAN(
        config.integer("upsample_initial_channel", 512),
        integers(config, "upsample_rates", (8, 8, 2, 2)),
        integers(config, "upsample_kernel_sizes", (16, 16, 4, 4)),
        kernel_sizes,
        _dilation_rates(config, len(kernel_sizes)),
        config.number("leaky_relu_slope", 0.1),
    )


def _dilation_rates(config: Config, count: int) -> list[list[int]]:
    found = config.get("resblock_dilation_sizes", [[1, 3, 5]] * 3)
    if not isinstance(found, list) or len(found) != count or not all(isinstance(each, list) for each in found):
        raise ConfigError(
            f"{config.source}: 'resblock_dilation_sizes' must be {count} lists of integers, one for each of "
            "'resblock_kernel_sizes'."
        )
    return found


# The mapping.


def _pointwise(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of a convolution over single tokens, which is a dense layer here."""
    return [
        Entry((f"{theirs}.weight",), (f"{ours}/kernel",), PointConvolution(rank=1)),
        same(f"{theirs}.bias", f"{ours}/bias"),
    ]


def _weight_normalized(config: Config, theirs: str, ours: str, layout: Layout) -> list[Entry]:
    names = weight_norm_names(config, theirs)
    return [
        Entry(names, (f"{ours}/kernel",), WeightNormalized(layout, axis=0)),
        same(f"{theirs}.bias", f"{ours}/bias"),
    ]


def _block(config: Config, theirs: str, ours: str) -> list[Entry]:
    query, key, value, output = (f"{theirs}.attention.{name}_proj" for name in ("q", "k", "v", "out"))
    bias, position = config.flag("use_bias", True), f"{ours}/self_attention/position"
    return [
        *attention(f"{ours}/self_attention", query=query, key=key, value=value, output=output, bias=bias),
        Entry((f"{theirs}.attention.emb_rel_k",), (f"{position}/key_embeddings",), Expanded()),
        Entry((f"{theirs}.attention.emb_rel_v",), (f"{position}/value_embeddings",), Expanded()),
        *norm(f"{theirs}.layer_norm", f"{ours}/mixer_residual/norm"),
        *norm(f"{theirs}.final_layer_norm", f"{ours}/feedforward_residual/norm"),
        *convolution(f"{theirs}.feed_forward.conv_1", f"{ours}/feedforward/hidden"),
        *convolution(f"{theirs}.feed_forward.conv_2", f"{ours}/feedforward/output"),
    ]


def _durations(config: Config) -> list[Entry]:
    entries = _pointwise(f"{_DURATIONS}.proj", f"{_DURATIONS}/log_durations")
    for index in range(2):
        entries += convolution(f"{_DURATIONS}.conv_{index + 1}", f"{_DURATIONS}/convolution_{index}")
        entries += norm(f"{_DURATIONS}.norm_{index + 1}", f"{_DURATIONS}/norm_{index}")
    return entries + _speaker(config, f"{_DURATIONS}.cond", _DURATIONS)


def _stochastic_durations(config: Config) -> list[Entry]:
    entries = [
        *_pointwise(f"{_DURATIONS}.conv_pre", f"{_DURATIONS}/first_dense"),
        *_pointwise(f"{_DURATIONS}.conv_proj", f"{_DURATIONS}/last_dense"),
        *_convolutions(config, f"{_DURATIONS}.conv_dds", f"{_DURATIONS}/convolutions"),
        Entry((f"{_DURATIONS}.flows.0.translate",), (f"{_DURATIONS}/affine/translation",), Expanded(axis=1)),
        Entry((f"{_DURATIONS}.flows.0.log_scale",), (f"{_DURATIONS}/affine/log_scale",), Expanded(axis=1)),
    ]
    for index in range(_num_flows(config)):
        theirs, ours = f"{_DURATIONS}.flows.{index + 2}", f"{_DURATIONS}/flow_{index}"
        entries += _pointwise(f"{theirs}.conv_pre", f"{ours}/first_dense")
        entries += _pointwise(f"{theirs}.conv_proj", f"{ours}/bins")
        entries += _convolutions(config, f"{theirs}.conv_dds", f"{ours}/convolutions")
    return entries + _speaker(config, f"{_DURATIONS}.cond", _DURATIONS)


def _convolutions(config: Config, theirs: str, ours: str) -> list[Entry]:
    entries = []
    for index in range(config.integer("depth_separable_num_layers", 3)):
        kernel = Entry(
            (f"{theirs}.convs_dilated.{index}.weight",), (f"{ours}/depthwise_{index}/kernel",), Transposed((1, 2, 0))
        )
        entries += [kernel, same(f"{theirs}.convs_dilated.{index}.bias", f"{ours}/depthwise_{index}/bias")]
        entries += _pointwise(f"{theirs}.convs_pointwise.{index}", f"{ours}/pointwise_{index}")
        entries += norm(f"{theirs}.norms_1.{index}", f"{ours}/depthwise_norm_{index}")
        entries += norm(f"{theirs}.norms_2.{index}", f"{ours}/pointwise_norm_{index}")
    return entries


def _speaker(config: Config, theirs: str, ours: str) -> list[Entry]:
    return _pointwise(theirs, f"{ours}/speaker") if _has_speakers(config) else []


def _coupling(config: Config, theirs: str, ours: str) -> list[Entry]:
    wave_net = f"{ours}/wave_net"
    entries = [
        *_pointwise(f"{theirs}.conv_pre", f"{ours}/first_dense"),
        *_pointwise(f"{theirs}.conv_post", f"{ours}/last_dense"),
    ]
    for index in range(config.integer("prior_encoder_num_wavenet_layers", 4)):
        for name, part, layout in (
            ("in_layers", "gate", Transposed((2, 1, 0))),
            ("res_skip_layers", "output", PointConvolution(rank=1)),
        ):
            entries += _weight_normalized(
                config, f"{theirs}.wavenet.{name}.{index}", f"{wave_net}/{part}_{index}", layout
            )
    if _has_speakers(config):
        name = f"{theirs}.wavenet.cond_layer"
        entries += _weight_normalized(config, name, f"{wave_net}/speaker", PointConvolution(rank=1))
    return entries


def _decoder_entries(config: Config) -> list[Entry]:
    entries = [
        *convolution("decoder.conv_pre", "decoder/first_convolution"),
        *convolution("decoder.conv_post", "decoder/last_convolution", bias=False),
        *_speaker(config, "decoder.cond", "decoder"),
    ]
    decoder = _decoder(config)
    per_level = len(decoder.block_kernel_sizes)
    for index in range(len(decoder.strides)):
        entries += convolution(f"decoder.upsampler.{index}", f"decoder/upsampling_{index}")
        for number, rates in enumerate(decoder.block_dilation_rates):
            theirs, ours = f"decoder.resblocks.{index * per_level + number}", f"decoder/block_{index}_{number}"
            for step in range(len(rates)):
                entries += convolution(f"{theirs}.convs1.{step}", f"{ours}_dilated_{step}")
                entries += convolution(f"{theirs}.convs2.{step}", f"{ours}_plain_{step}")
    return entries
