"""HuBERT: transformers' `HubertModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.speech import (
    CLASSIFIER,
    RECOGNIZER,
    speech_entries,
    speech_options,
    speech_size,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, norm
from keras_transformer.models import HuBERT


class Hubert(Architecture):
    """HuBERT: Hsu et al., arXiv 2106.07447."""

    base_prefix = "hubert."
    heads = {"CTC": RECOGNIZER, "SequenceClassification": CLASSIFIER}

    def backbone(self, config: Config) -> keras.Model:
        config.only("conv_pos_batch_norm", False)
        normalizes = config.flag("feat_proj_layer_norm", True)
        return HuBERT(speech_size(config), normalizes_features=normalizes, **speech_options(config))

    def entries(self, config: Config) -> list[Entry]:
        normalizes = config.flag("feat_proj_layer_norm", True)
        return [
            *speech_entries(config),
            *(norm("feature_projection.layer_norm", "feature_norm") if normalizes else []),
        ]
