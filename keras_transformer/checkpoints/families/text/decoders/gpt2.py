"""GPT-2: transformers\' `GPT2Model` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.attention import ScaledDot
from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, embedding, fused_linear, linear, norm
from keras_transformer.models import GPT2, Size


class Gpt2(Architecture):
    """GPT-2: Radford et al., Language Models are Unsupervised Multitask Learners.

    Its matrices are stored as `(inputs, outputs)`.
    """

    base_prefix = "transformer."
    ignored = (r"\.attn\.(masked_)?bias$",)
    tied = {"lm_head.weight": "transformer.wte.weight"}
    heads = decoder_heads("LMHeadModel", tied=True, tagger="classifier")

    def backbone(self, config: Config) -> keras.Model:
        config.only("add_cross_attention", False)
        width = config.integer("n_embd")
        return GPT2(
            Size(
                config.integer("n_layer"),
                width,
                config.integer("n_head"),
                config.integer("n_inner", 4 * width),
            ),
            config.integer("vocab_size"),
            max_sequence_length=config.integer("n_positions"),
            activation=config.activation("activation_function", "gelu_new"),
            dropout=config.number("resid_pdrop", 0.1),
            embedding_dropout=config.number("embd_pdrop", 0.1),
            attention_dropout=config.number("attn_pdrop", 0.1),
            layer_norm_epsilon=config.number("layer_norm_epsilon", 1e-5),
            scoring=self._scoring(config, width),
        )

    def _scoring(self, config: Config, width: int) -> ScaledDot | list[ScaledDot]:
        """Returns the scaling of the scores: the same in all layers, or decreasing with depth."""
        scale = (width // config.integer("n_head")) ** -0.5 if config.flag("scale_attn_weights", True) else 1.0
        if not config.flag("scale_attn_by_inverse_layer_idx", False):
            return ScaledDot(scale)
        return [ScaledDot(scale / (index + 1)) for index in range(config.integer("n_layer"))]

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("wte", "token_embedding"),
            *embedding("wpe", "position_embedding"),
            *norm("ln_f", "final_norm"),
        ]
        for index in range(config.integer("n_layer")):
            theirs, ours = f"h.{index}", f"decoder_block_{index}"
            attention = f"{ours}/self_attention"
            entries += [
                *norm(f"{theirs}.ln_1", f"{ours}/mixer_residual/norm"),
                *fused_linear(
                    f"{theirs}.attn.c_attn",
                    [f"{attention}/{name}" for name in ("query", "key", "value")],
                    transposed=False,
                ),
                *linear(f"{theirs}.attn.c_proj", f"{attention}/attention_output", inputs=2, transposed=False),
                *norm(f"{theirs}.ln_2", f"{ours}/feedforward_residual/norm"),
                *linear(f"{theirs}.mlp.c_fc", f"{ours}/feedforward/hidden", transposed=False),
                *linear(f"{theirs}.mlp.c_proj", f"{ours}/feedforward/output", transposed=False),
            ]
        return entries
