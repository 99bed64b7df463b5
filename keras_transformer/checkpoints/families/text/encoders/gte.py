"""GTE: transformers' `GteModel` and its heads, and the `NewModel` that the first checkpoints name."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import (
    encoder_options,
    masked_language_head,
    sequence_head,
    token_head,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, fused_linear, linear, norm
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.models.building.bert_encoder import bert_encoder
from keras_transformer.positions import LinearScaling, Rotary

# Settings of other variants, with the only values that are supported.
_FIXED = {
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
    "position_embedding_type": "rope",
}
# Heads that a file may have besides the one that its config names first.
_OTHER_HEADS = (r"^classifier\.", r"^lm_head\.", r"pooler\.", r"^qa_outputs\.")


class Gte(Architecture):
    """GTE: Zhang et al., mGTE, arXiv 2407.19669: BERT with rotary positions and gated feed-forwards.

    The first checkpoints, such as `gte-base-en-v1.5`, have the model type "new", and code beside them that is not run.
    """

    remark = "GTE"
    base_prefix = ("gte.", "new.")
    tied = {
        "lm_head.decoder.weight": tuple(f"{prefix}embeddings.word_embeddings.weight" for prefix in ("gte.", "new."))
    }
    heads = {
        "Model": Head(ignored=_OTHER_HEADS),
        "MaskedLM": masked_language_head(
            "lm_head.dense",
            "lm_head.norm",
            "lm_head.decoder.bias",
            # transformers' own class has this one under every setting.
            activation=lambda config: config.activation() if _is_first(config) else "gelu",
        ),
        "SequenceClassification": sequence_head("{prefix}pooler.dense", "classifier"),
        "TokenClassification": token_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        for name, value in _FIXED.items():
            config.only(name, value)
        # transformers' default of the dropout of attention differs from that of BERT.
        config = Config({"attention_probs_dropout_prob": 0.0} | config.values, config.source, config.tensors)
        size, options = model_size(config), encoder_options(config)
        width = config.integer("head_dim", size.hidden_dim // size.num_heads)
        return bert_encoder(
            size,
            options.pop("vocabulary_size"),
            num_segments=config.integer("type_vocab_size", 1, minimum=0) or None,
            position=None,
            attention=MultiHeadAttention(
                size.num_heads,
                width,
                mechanism=SoftmaxAttention(dropout=options.pop("attention_dropout")),
                position=_position(config, width),
            ),
            feedforward=GatedFeedForward(
                size.intermediate_dim, options.pop("activation"), options["dropout"], use_output_bias=True
            ),
            **options,
            name="gte",
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("embeddings.word_embeddings", "token_embedding"),
            *norm("embeddings.LayerNorm", "embedding_norm"),
        ]
        if config.integer("type_vocab_size", 1, minimum=0):
            entries += embedding("embeddings.token_type_embeddings", "segment_embedding")
        for index in range(config.integer("num_hidden_layers")):
            entries += _block_entries(f"encoder.layer.{index}", f"encoder_block_{index}", config)
        return entries


def _is_first(config: Config) -> bool:
    """Whether this is one of the first checkpoints."""
    return config.get("model_type") == "new"


def _position(config: Config, width: int) -> Rotary:
    """Returns the rotary position; "ntk" has factors of its own in the code of the first checkpoints."""
    theta = 10000.0 if _is_first(config) else 160000.0
    scaling = config.section("rope_scaling") if "rope_scaling" in config else Config({}, config.source)
    if "rope_parameters" in config or scaling.get("type", scaling.get("rope_type")) != "ntk":
        return rotary(config, width, theta)
    scaling.only("mixed_b", None)
    factor = scaling.number("factor")
    if factor < 1:
        raise ConfigError(f"{scaling.source}: 'factor' is {factor}; it must be a number of at least 1.")
    # Pair i has the rate (factor · theta)^(-2i / H) / factor^(2 / H).
    theta = factor * config.number("rope_theta", theta)
    return Rotary(theta, "halves", scaling=LinearScaling(factor ** (2 / width)))


def _block_entries(theirs: str, ours: str, config: Config) -> list[Entry]:
    layer, feedforward = f"{ours}/self_attention", f"{ours}/feedforward"
    packed = [f"{layer}/{name}" for name in ("query", "key", "value")]
    output = f"{theirs}.attention.o_proj"
    if config.flag("pack_qkv", True):
        projections = [
            *fused_linear(f"{theirs}.attention.qkv_proj", packed),
            *linear(output, f"{layer}/attention_output", inputs=2),
        ]
    else:
        query, key, value = (f"{theirs}.attention.{letter}_proj" for letter in "qkv")
        projections = attention(layer, query=query, key=key, value=value, output=output)
    return [
        *projections,
        *norm(f"{theirs}.attn_ln", f"{ours}/mixer_residual/norm"),
        *fused_linear(f"{theirs}.mlp.up_gate_proj", [f"{feedforward}/hidden", f"{feedforward}/gate"], bias=False),
        *linear(f"{theirs}.mlp.down_proj", f"{feedforward}/output"),
        *norm(f"{theirs}.mlp_ln", f"{ours}/feedforward_residual/norm"),
    ]
