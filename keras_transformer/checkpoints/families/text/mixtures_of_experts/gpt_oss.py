"""gpt-oss: transformers' `GptOssModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    head_width,
    layer_windows,
    norm_entries,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.files.mxfp4 import BLOCK, MXFP4
from keras_transformer.checkpoints.layouts import Interleaved, Layout
from keras_transformer.checkpoints.mapping import Entry, linear, same
from keras_transformer.feedforward import ClampedSwiGLU, MixtureOfExperts, TopKRouter
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder

_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


class GptOss(Llama):
    """gpt-oss: OpenAI, arXiv 2508.10925: sinks in attention, experts with biases and a clamped SwiGLU.

    The matrices of the experts are in MXFP4, or in 16 or 32 bits. "hidden_act" is not read, as in transformers.
    """

    remark = "also in MXFP4"
    heads = decoder_heads(names=("CausalLM", "SequenceClassification", "TokenClassification"))

    def backbone(self, config: Config) -> keras.Model:
        size, width = model_size(config), head_width(config, 64)
        if _has_mxfp4(config):
            for name in ("hidden_size", "intermediate_size"):
                if config.integer(name) % BLOCK:
                    config.only(name, f"a multiple of {BLOCK}")
        # transformers' default of "num_key_value_heads" is 8; a null is one for each head.
        groups = size.num_heads if "num_key_value_heads" in config.values else 8
        attention = rotary_attention(
            GroupedSize(size, config.integer("num_key_value_heads", groups), width),
            rotary(_with_rope(config), width, theta=150000.0),
            window=_windows(config),
            dropout=config.number("attention_dropout", 0.0),
            use_sinks=True,
            use_bias=config.flag("attention_bias", True),
        )
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=RMSNormalization(epsilon=config.number("rms_norm_eps", 1e-5)),
            attention=attention,
            feedforward=MixtureOfExperts(
                size.intermediate_dim,
                _router(config),
                activation=ClampedSwiGLU(config.number("swiglu_alpha", 1.702), config.number("swiglu_limit", 7.0)),
                use_bias=True,
            ),
            name="gpt_oss",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias, packed = config.flag("attention_bias", True), _has_mxfp4(config)
        windows = iter(_windows(config))

        def block(theirs: str, ours: str) -> list[Entry]:
            # In a sliding window, the softmax is a part of the mechanism.
            softmax = "mechanism" if next(windows) is None else "mechanism/softmax"
            return [
                *norm_entries(theirs, ours),
                *attention_entries(theirs, ours, bias=bias, output_bias=bias),
                same(f"{theirs}.self_attn.sinks", f"{ours}/self_attention/{softmax}/sinks"),
                *linear(f"{theirs}.mlp.router", f"{ours}/feedforward/router"),
                *_expert_entries(f"{theirs}.mlp.experts", f"{ours}/feedforward", packed),
            ]

        return decoder_entries(config, block)


def _expert_entries(theirs: str, ours: str, packed: bool) -> list[Entry]:
    """Returns the mapping of the experts; `packed` is whether their matrices are in MXFP4."""
    entries = []
    fused: list[tuple[str, tuple[str, ...], Layout]] = [
        ("gate_up_proj", ("gate", "hidden"), Interleaved()),
        ("down_proj", ("output",), Layout()),
    ]
    for name, parts, layout in fused:
        name, kernels = f"{theirs}.{name}", tuple(f"{ours}/{part}_kernel" for part in parts)
        if packed:
            entries.append(Entry((f"{name}_blocks", f"{name}_scales"), kernels, MXFP4(name, layout)))
        else:
            entries.append(Entry((name,), kernels, layout))
        entries.append(Entry((f"{name}_bias",), tuple(f"{ours}/{part}_bias" for part in parts), layout))
    return entries


def _has_mxfp4(config: Config) -> bool:
    if "quantization_config" not in config:
        return False
    return config.section("quantization_config").choice("quant_method", {"mxfp4": True})


def _with_rope(config: Config) -> Config:
    """Returns the config with transformers' default of the rotary position."""
    if "rope_parameters" in config or "rope_scaling" in config:
        return config
    theta = config.number("rope_theta", 150000.0)
    return Config({**config.values, "rope_parameters": {**_YARN, "rope_theta": theta}}, config.source)


def _windows(config: Config) -> list[int | None]:
    """Returns the window of each block; by default of every other one, from the first on."""
    count = config.integer("num_hidden_layers")
    types = ["full_attention" if index % 2 else "sliding_attention" for index in range(count)]
    slides = [width is not None for width in layer_windows(config, 1, types)]
    # A null is no default: there is no sliding window without a width.
    default = () if "sliding_window" in config.values else (128,)
    width = config.integer("sliding_window", *default) if any(slides) else None
    return [width if slide else None for slide in slides]


def _router(config: Config) -> TopKRouter:
    count = config.integer("num_local_experts", config.integer("num_experts", 128))
    # At least two: the weight of a single expert would always be 1.
    chosen = config.integer("num_experts_per_tok", 4, minimum=2, maximum=count)
    # transformers' loss is a mean over layers and a sum over the chosen experts, and off by default.
    weight = config.number("router_aux_loss_coef", 0.001) * chosen / config.integer("num_hidden_layers")
    return TopKRouter(
        count,
        chosen,
        load_balancing_weight=weight if config.flag("output_router_logits", False) else 0.0,
        use_bias=True,
    )
