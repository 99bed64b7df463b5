"""Recurrent token mixers: a state of fixed size takes the place of keys and values."""

from keras_transformer.backend.kernels.scan import associative_scan, linear_scan
from keras_transformer.recurrence.delta.gated_delta_net import GatedDeltaNet
from keras_transformer.recurrence.delta.kimi_delta_attention import KimiDeltaAttention
from keras_transformer.recurrence.gated_retention import GatedRetention
from keras_transformer.recurrence.lightning_attention import LightningAttention
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.retention import MultiScaleRetention
from keras_transformer.recurrence.rwkv.channel_mixing import ChannelMixing
from keras_transformer.recurrence.rwkv.rwkv7_time_mixing import RWKV7TimeMixing
from keras_transformer.recurrence.rwkv.time_mixing import TimeMixing
from keras_transformer.recurrence.state_spaces.mamba2 import Mamba2
from keras_transformer.recurrence.state_spaces.s4 import S4
from keras_transformer.recurrence.state_spaces.s4d import S4D

RECURRENCES: dict[str, type[Recurrence]] = {
    "retention": MultiScaleRetention,
    "gated_retention": GatedRetention,
    "lightning_attention": LightningAttention,
    "gated_delta_net": GatedDeltaNet,
    "kimi_delta_attention": KimiDeltaAttention,
    "mamba2": Mamba2,
    "time_mixing": TimeMixing,
    "rwkv7_time_mixing": RWKV7TimeMixing,
    "channel_mixing": ChannelMixing,
    "s4d": S4D,
    "s4": S4,
}

__all__ = [
    "RECURRENCES",
    "S4",
    "S4D",
    "ChannelMixing",
    "GatedDeltaNet",
    "GatedRetention",
    "KimiDeltaAttention",
    "LightningAttention",
    "Mamba2",
    "MultiScaleRetention",
    "RWKV7TimeMixing",
    "Recurrence",
    "TimeMixing",
    "associative_scan",
    "linear_scan",
]
