"""Moonshine: transformers' `MoonshineModel` and its head."""

from __future__ import annotations

import keras

from keras_transformer import models
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoder_decoders import language_model
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Transposed
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, fused_linear, linear, norm, same

_SIDES = ("encoder", "decoder")


class Moonshine(Architecture):
    """Moonshine: Jeffries et al., arXiv 2410.15608."""

    remark = "an encoder-decoder"
    base_prefix = "model."
    tied = {"proj_out.weight": "model.decoder.embed_tokens.weight"}
    heads = {
        "Model": Head(),
        "ConditionalGeneration": Head(
            lambda backbone, config: language_model(backbone, config),
            lambda config, prefix: [] if _is_tied(config) else linear("proj_out", "head", bias=False),
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        heads = config.integer("encoder_num_attention_heads", 8)
        # transformers gives both sides the heads of the encoder, and has no groups.
        config.only("decoder_num_attention_heads", heads, heads)
        for side in _SIDES:
            config.only(f"{side}_num_key_value_heads", heads, heads)
        width = config.integer("hidden_size", 288)
        position = rotary(config, width // heads, fraction=0.9, layout="pairs")
        return models.Moonshine(
            models.Size(_num_layers(config, "encoder"), width, heads, config.integer("intermediate_size", 1152)),
            config.integer("vocab_size", 32768),
            num_decoder_layers=_num_layers(config, "decoder"),
            position=position,
            encoder_activation=config.activation("encoder_hidden_act", "gelu"),
            decoder_activation=config.activation("decoder_hidden_act", "silu"),
            use_attention_bias=config.flag("attention_bias", False),
            attention_dropout=config.number("attention_dropout", 0.0),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("decoder.embed_tokens", "token_embedding"),
            *norm("encoder.layer_norm", "encoder_final_norm", bias=False),
            *norm("decoder.norm", "decoder_final_norm", bias=False),
            *norm("encoder.groupnorm", "stem/norm"),
        ]
        for number in (1, 2, 3):
            theirs, ours = f"encoder.conv{number}", f"stem/convolution_{number}"
            entries.append(Entry((f"{theirs}.weight",), (f"{ours}/kernel",), Transposed((2, 1, 0))))
            entries += [same(f"{theirs}.bias", f"{ours}/bias")] if number > 1 else []
        bias = config.flag("attention_bias", False)
        for side in _SIDES:
            for index in range(_num_layers(config, side)):
                entries += _block(side, f"{side}.layers.{index}", f"{side}_block_{index}", bias)
        return entries


def _block(side: str, theirs: str, ours: str, bias: bool) -> list[Entry]:
    """Returns the mapping of one block; the feed-forward of the decoder has a gate behind its hidden layer."""
    mlp, feedforward = f"{theirs}.mlp", f"{ours}/feedforward"
    entries = [
        *_attention(f"{theirs}.self_attn", f"{ours}/self_attention", bias),
        *norm(f"{theirs}.input_layernorm", f"{ours}/mixer_residual/norm", bias=False),
        *linear(f"{mlp}.fc2", f"{feedforward}/output"),
    ]
    after = f"{theirs}.post_attention_layernorm"
    if side == "encoder":
        return [
            *entries,
            *norm(after, f"{ours}/feedforward_residual/norm", bias=False),
            *linear(f"{mlp}.fc1", f"{feedforward}/hidden"),
        ]
    return [
        *entries,
        *norm(after, f"{ours}/cross_attention_residual/norm", bias=False),
        *_attention(f"{theirs}.encoder_attn", f"{ours}/cross_attention", bias),
        *norm(f"{theirs}.final_layernorm", f"{ours}/feedforward_residual/norm", bias=False),
        *fused_linear(f"{mlp}.fc1", [f"{feedforward}/hidden", f"{feedforward}/gate"]),
    ]


def _attention(theirs: str, ours: str, bias: bool) -> list[Entry]:
    query, key, value, output = (f"{theirs}.{letter}_proj" for letter in "qkvo")
    return attention(ours, query=query, key=key, value=value, output=output, bias=bias, output_bias=False)


def _num_layers(config: Config, side: str) -> int:
    name = f"{side}_num_hidden_layers"
    found = config.integer(name, 6)
    config.check_depth(name, found)
    return found


def _is_tied(config: Config) -> bool:
    return config.flag("tie_word_embeddings", True)
