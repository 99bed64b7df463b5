"""Nomic BERT: transformers' `NomicBertModel` and its heads."""

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
from keras_transformer.checkpoints.mapping import Entry, embedding, fused_linear, linear, norm
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.models.building.bert_encoder import bert_encoder

# The names of the first configs, which those of GPT-2 were adapted from.
_OLD_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
    "rotary_emb_base": "rope_theta",
}
# Their settings of other variants, with the only values that are supported.
_FIXED = {
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
}


class NomicBert(Architecture):
    """Nomic BERT: Nussbaum et al., Nomic Embed, arXiv 2402.01613: BERT with rotary positions and SwiGLU."""

    base_prefix = "nomic_bert."
    tied = {
        "cls.predictions.decoder.weight": "nomic_bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    heads = {
        "Model": Head(),
        "MaskedLM": masked_language_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.layer_norm", "cls.predictions.bias"
        ),
        "SequenceClassification": sequence_head("{prefix}pooler.dense", "classifier"),
        "TokenClassification": token_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config = _current(config)
        size, options = model_size(config), encoder_options(config, "silu")
        width = config.integer("head_dim", size.hidden_dim // size.num_heads)
        return bert_encoder(
            size,
            options.pop("vocabulary_size"),
            num_segments=config.integer("type_vocab_size", 2),
            position=None,
            attention=MultiHeadAttention(
                size.num_heads,
                width,
                use_bias=False,
                mechanism=SoftmaxAttention(dropout=options.pop("attention_dropout")),
                position=rotary(config, width, theta=1000.0),
            ),
            feedforward=GatedFeedForward(size.intermediate_dim, options.pop("activation")),
            **options,
            name="nomic_bert",
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("embeddings.word_embeddings", "token_embedding"),
            *embedding("embeddings.token_type_embeddings", "segment_embedding"),
            *norm("emb_ln", "embedding_norm"),
        ]
        for index in range(_current(config).integer("num_hidden_layers")):
            theirs, ours = f"encoder.layers.{index}", f"encoder_block_{index}"
            attention = f"{ours}/self_attention"
            entries += [
                *fused_linear(
                    f"{theirs}.attn.Wqkv", [f"{attention}/{name}" for name in ("query", "key", "value")], bias=False
                ),
                *linear(f"{theirs}.attn.out_proj", f"{attention}/attention_output", inputs=2, bias=False),
                *norm(f"{theirs}.norm1", f"{ours}/mixer_residual/norm"),
                *linear(f"{theirs}.mlp.fc11", f"{ours}/feedforward/hidden", bias=False),
                *linear(f"{theirs}.mlp.fc12", f"{ours}/feedforward/gate", bias=False),
                *linear(f"{theirs}.mlp.fc2", f"{ours}/feedforward/output", bias=False),
                *norm(f"{theirs}.norm2", f"{ours}/feedforward_residual/norm"),
            ]
        return entries


def _current(config: Config) -> Config:
    """Returns a config with transformers' names of settings."""
    if "n_embd" not in config:
        return config
    for name, value in _FIXED.items():
        config.only(name, value)
    renamed = {new: config.get(old) for old, new in _OLD_NAMES.items() if old in config}
    # A dropout of the first configs is 0 by default.
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return Config(dropouts | config.values | renamed, config.source)
