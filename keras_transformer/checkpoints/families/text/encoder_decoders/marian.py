"""Marian and Pegasus: transformers\' `MarianMTModel` and `PegasusForConditionalGeneration`."""

from __future__ import annotations

import keras

from keras_transformer import models
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoder_decoders import (
    SIDES,
    block_entries,
    language_head,
    language_model,
    options,
    sizes,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.encoder_decoders.bart import Bart
from keras_transformer.checkpoints.mapping import Entry, embedding


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
