"""BART and mBART: transformers' `BartModel`, `MBartModel`, and their heads."""

from __future__ import annotations

import keras

from keras_transformer import models
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building import encoder_decoders as of_both
from keras_transformer.checkpoints.building.encoder_decoders import SIDES, block_entries, options, sizes
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, embedding, norm


class Bart(Architecture):
    """BART: Lewis et al., arXiv 1910.13461."""

    base_prefix = "model."
    ignored = (r"^(model\.)?(en|de)coder\.version$",)
    tied = {
        "lm_head.weight": "model.shared.weight",
        **{
            f"{prefix}{side}.embed_tokens.weight": f"{prefix}shared.weight"
            for prefix in ("", base_prefix)
            for side in SIDES
        },
    }
    heads = {
        "ConditionalGeneration": Head(of_both.language_model, of_both.language_head),
        "Model": Head(),
        "QuestionAnswering": Head(of_both.span_answerer, of_both.span_head),
        "SequenceClassification": Head(of_both.sequence_classifier, of_both.classification_head),
    }
    make = staticmethod(models.BART)
    scales_embeddings = False
    has_final_norm = False

    def backbone(self, config: Config) -> keras.Model:
        return self.make(
            **sizes(config),
            max_sequence_length=config.integer("max_position_embeddings"),
            **options(config, self.scales_embeddings),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*embedding("shared", "token_embedding")]
        for theirs, ours in SIDES.items():
            entries += [
                *embedding(f"{theirs}.embed_positions", f"{ours}_position"),
                *norm(f"{theirs}.layernorm_embedding", f"{ours}_embedding_norm"),
            ]
        return [*entries, *block_entries(config, self.has_final_norm)]


class MBart(Bart):
    """mBART: Liu et al., arXiv 2001.08210."""

    heads = {name: Bart.heads[name] for name in ("ConditionalGeneration", "Model")}
    make = staticmethod(models.MBart)
    has_final_norm = True
