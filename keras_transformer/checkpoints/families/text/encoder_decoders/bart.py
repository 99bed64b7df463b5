"""BART, mBART, Marian, Pegasus: `BartModel`, `MBartModel`, `MarianModel`, `PegasusModel` of transformers, heads."""

from __future__ import annotations

import keras

from keras_transformer import models
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building import encoder_decoders as of_both
from keras_transformer.checkpoints.building.encoder_decoders import (
    SIDES,
    block_entries,
    language_head,
    language_model,
    options,
    sizes,
)
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


class Marian(Architecture):
    """Marian: Junczys-Dowmunt et al., arXiv 1804.00344."""

    base_prefix = "model."
    # The table of sinusoidal positions, which older versions stored.
    ignored = (r"embed_positions\.weight$",)
    tied = Bart.tied
    heads = {"Model": Head(), "MTModel": Head(language_model, language_head)}

    def backbone(self, config: Config) -> keras.Model:
        shares = config.flag("share_encoder_decoder_embeddings", True)
        return models.Marian(
            **sizes(config),
            target_vocabulary_size=None
            if shares
            else config.integer("decoder_vocab_size", config.integer("vocab_size")),
            tie_embeddings=shares,
            **options(config, scales_embeddings=False),
        )

    def entries(self, config: Config) -> list[Entry]:
        tables = {"shared": "token_embedding"}
        if not config.flag("share_encoder_decoder_embeddings", True):
            tables = {f"{theirs}.embed_tokens": f"{ours}_token_embedding" for theirs, ours in SIDES.items()}
        entries = [entry for table in tables.items() for entry in embedding(*table)]
        return [*entries, *block_entries(config, has_final_norm=False)]


class Pegasus(Architecture):
    """Pegasus: Zhang et al., arXiv 1912.08777."""

    base_prefix = "model."
    ignored = Marian.ignored
    tied = Bart.tied
    heads = {"ConditionalGeneration": Head(language_model, language_head), "Model": Head()}

    def backbone(self, config: Config) -> keras.Model:
        return models.Pegasus(**sizes(config), **options(config, scales_embeddings=False))

    def entries(self, config: Config) -> list[Entry]:
        return [*embedding("shared", "token_embedding"), *block_entries(config, has_final_norm=True)]
