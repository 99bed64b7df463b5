"""wav2vec 2.0, XLS-R and MMS: transformers' `Wav2Vec2Model` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.speech import (
    CLASSIFIER,
    FRAME_CLASSIFIER,
    PRETRAINING,
    RECOGNIZER,
    adapter,
    block_adapter,
    convolution,
    speech_entries,
    speech_options,
    speech_size,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear, norm
from keras_transformer.models import Wav2Vec2


class Wav2Vec2Architecture(Architecture):
    """wav2vec 2.0: Baevski et al., arXiv 2006.11477; with adapters: MMS, Pratap et al., arXiv 2305.13516."""

    remark = "XLS-R and MMS too; pretraining too"
    base_prefix = "wav2vec2."
    heads = {
        "AudioFrameClassification": FRAME_CLASSIFIER,
        "CTC": RECOGNIZER,
        "PreTraining": PRETRAINING,
        "SequenceClassification": CLASSIFIER,
    }

    def backbone(self, config: Config) -> keras.Model:
        return Wav2Vec2(
            speech_size(config),
            adapter=adapter(config),
            block_adapter=block_adapter(config),
            **speech_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*speech_entries(config), *norm("feature_projection.layer_norm", "feature_norm")]
        if block_adapter(config) is not None:
            for index in range(config.integer("num_hidden_layers", 12)):
                theirs, ours = f"encoder.layers.{index}.adapter_layer", f"block_adapter_{index}"
                entries += norm(f"{theirs}.norm", f"{ours}/norm")
                entries += [
                    *linear(f"{theirs}.linear_1", f"{ours}/hidden"),
                    *linear(f"{theirs}.linear_2", f"{ours}/output"),
                ]
        shortening = adapter(config)
        if shortening is not None:
            for index in range(shortening.num_layers):
                entries += convolution(f"adapter.layers.{index}.conv", f"adapter/convolution_{index}")
            if shortening.hidden_dim is not None:
                entries += [
                    *linear("adapter.proj", "adapter/projection"),
                    *norm("adapter.proj_layer_norm", "adapter/norm"),
                ]
        return entries
