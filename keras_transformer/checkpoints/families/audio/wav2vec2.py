"""wav2vec 2.0, XLS-R, MMS, HuBERT and WavLM: transformers' `Wav2Vec2Model`, `HubertModel`, `WavLMModel` and their heads."""

from __future__ import annotations

import keras
import numpy as np

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
from keras_transformer.checkpoints.layouts import Layout, Matrix
from keras_transformer.checkpoints.mapping import Entry, linear, norm, same
from keras_transformer.models import HuBERT, Wav2Vec2, WavLM
from keras_transformer.positions import RelativeBias


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


class _Scales(Layout):
    """A weight `(N,)` as a tensor `(1, N, 1, 1)`."""

    def shapes(self, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [(1, *shape, 1, 1) for shape in shapes]

    def read(self, tensors: list[np.ndarray], shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
        return [tensor.reshape(-1) for tensor in tensors]

    def write(self, weights: list[np.ndarray]) -> list[np.ndarray]:
        return [weight.reshape(1, -1, 1, 1) for weight in weights]


class Wavlm(Architecture):
    """WavLM: Chen et al., arXiv 2110.13900."""

    base_prefix = "wavlm."
    heads = {"AudioFrameClassification": FRAME_CLASSIFIER, "CTC": RECOGNIZER, "SequenceClassification": CLASSIFIER}

    def backbone(self, config: Config) -> keras.Model:
        config.only("add_adapter", False)
        bias = RelativeBias(config.integer("num_buckets", 320), config.integer("max_bucket_distance", 800))
        return WavLM(speech_size(config), relative_bias=bias, **speech_options(config))

    def entries(self, config: Config) -> list[Entry]:
        attention, position = "encoder.layers.{}.attention", "encoder_block_{}/self_attention/position"
        entries = [
            *speech_entries(config),
            *norm("feature_projection.layer_norm", "feature_norm"),
            same(f"{attention.format(0)}.rel_attn_embed.weight", f"{position.format(0)}/relative_bias/embeddings"),
        ]
        for index in range(config.integer("num_hidden_layers", 12)):
            theirs, ours = f"{attention.format(index)}.gru_rel_pos", position.format(index)
            entries += [
                Entry((f"{theirs}_linear.weight",), (f"{ours}/gate_kernel",), Matrix()),
                same(f"{theirs}_linear.bias", f"{ours}/gate_bias"),
                Entry((f"{theirs}_const",), (f"{ours}/gate_scale",), _Scales()),
            ]
        return entries
