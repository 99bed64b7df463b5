"""Whisper: transformers\' `WhisperModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import models, tasks
from keras_transformer.checkpoints.architecture import Architecture, Head, head_of
from keras_transformer.checkpoints.building.encoder_decoders import SIDES, block_entries, language_model, options, sizes
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Transposed
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, same


def _language_head(config: Config, prefix: str) -> list[Entry]:
    return [] if config.flag("tie_word_embeddings", True) else linear("proj_out", "head", bias=False)


def _audio_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("use_weighted_layer_sum", False)
    projector = keras.layers.Dense(config.integer("classifier_proj_size", 256), name="projector")
    projected = keras.Model(backbone.input, projector(backbone.output), name=backbone.name)
    return tasks.SequenceClassifier(projected, config.num_labels, pooling="mean", activation=None)


def _audio_head(config: Config, prefix: str) -> list[Entry]:
    return [*linear("projector", "projector"), *linear("classifier", "logits")]


class Whisper(Architecture):
    """Whisper: Radford et al., arXiv 2212.04356."""

    remark = "from spectrograms or raw samples"
    base_prefix = "model."
    tied = {"proj_out.weight": "model.decoder.embed_tokens.weight"}
    heads = {
        # On the encoder only.
        "AudioClassification": Head(_audio_classifier, _audio_head),
        "ConditionalGeneration": Head(language_model, _language_head),
        "Model": Head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        arguments = {
            **sizes(config),
            **options(config, scales_embeddings=False),
            "num_mel_bins": config.integer("num_mel_bins", 80),
            "num_frames": 2 * config.integer("max_source_positions", 1500),
            "max_sequence_length": config.integer("max_target_positions", 448),
        }
        # transformers reads this setting, but does not scale.
        del arguments["scale_embeddings"]
        if not _has_decoder(config):
            of_decoder = ("decoder_size", "vocabulary_size", "max_sequence_length")
            return models.WhisperEncoder(**{n: value for n, value in arguments.items() if n not in of_decoder})
        return models.Whisper(**arguments)

    def entries(self, config: Config) -> list[Entry]:
        entries = [*embedding("encoder.embed_positions", "source_position")]
        for number in (1, 2):
            theirs, ours = f"encoder.conv{number}", f"convolution_{number}"
            entries += [
                Entry((f"{theirs}.weight",), (f"{ours}/kernel",), Transposed((2, 1, 0))),
                same(f"{theirs}.bias", f"{ours}/bias"),
            ]
        if _has_decoder(config):
            entries += embedding("decoder.embed_tokens", "token_embedding")
            entries += embedding("decoder.embed_positions", "target_position")
        sides = tuple(SIDES) if _has_decoder(config) else ("encoder",)
        return [*entries, *block_entries(config, has_final_norm=True, key_bias=False, sides=sides)]


def _has_decoder(config: Config) -> bool:
    return head_of(config) != "AudioClassification"
