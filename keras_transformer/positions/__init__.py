"""Position encodings: embedding positions are added to the input, attention positions act inside attention."""

import keras

from keras_transformer.positions.alibi import ALiBi
from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.axial import Axial
from keras_transformer.positions.axial_rotary import AxialRotary
from keras_transformer.positions.axial_sinusoidal import AxialSinusoidal
from keras_transformer.positions.boxes import BoxPosition
from keras_transformer.positions.decomposed_grid_bias import DecomposedGridBias
from keras_transformer.positions.gated_relative_bias import GatedRelativeBias
from keras_transformer.positions.grid_rotary import GridRotary
from keras_transformer.positions.learned import Learned
from keras_transformer.positions.length_scaling import DynamicNTKScaling, LongRoPEScaling
from keras_transformer.positions.multimodal_rotary import MultimodalRotary
from keras_transformer.positions.relative_bias import RelativeBias
from keras_transformer.positions.relative_embedding import RelativeEmbedding
from keras_transformer.positions.relative_grid_bias import RelativeGridBias
from keras_transformer.positions.rotary import ROTARY_SCALINGS, Rotary
from keras_transformer.positions.rotary_scaling import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryScaling,
    YaRNScaling,
)
from keras_transformer.positions.shaw import ShawRelative
from keras_transformer.positions.sinusoidal import Sinusoidal
from keras_transformer.positions.transformer_xl import TransformerXLRelative
from keras_transformer.positions.xpos import XPos

EMBEDDING_POSITIONS: dict[str, type[keras.layers.Layer]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "axial": Axial,
    "axial_sinusoidal": AxialSinusoidal,
}

ATTENTION_POSITIONS: dict[str, type[AttentionPosition]] = {
    "rotary": Rotary,
    "axial_rotary": AxialRotary,
    "grid_rotary": GridRotary,
    "multimodal_rotary": MultimodalRotary,
    "xpos": XPos,
    "alibi": ALiBi,
    "relative_bias": RelativeBias,
    "gated_relative_bias": GatedRelativeBias,
    "relative_grid_bias": RelativeGridBias,
    "shaw": ShawRelative,
    "transformer_xl": TransformerXLRelative,
}

__all__ = [
    "ATTENTION_POSITIONS",
    "EMBEDDING_POSITIONS",
    "ROTARY_SCALINGS",
    "ALiBi",
    "AttentionPosition",
    "Axial",
    "AxialRotary",
    "AxialSinusoidal",
    "BoxPosition",
    "DecomposedGridBias",
    "DynamicNTKScaling",
    "GatedRelativeBias",
    "GridRotary",
    "Learned",
    "LinearScaling",
    "Llama3Scaling",
    "LongRoPEScaling",
    "MultimodalRotary",
    "NTKScaling",
    "RelativeBias",
    "RelativeEmbedding",
    "RelativeGridBias",
    "Rotary",
    "RotaryScaling",
    "ShawRelative",
    "Sinusoidal",
    "TransformerXLRelative",
    "XPos",
    "YaRNScaling",
]
