"""Position encodings: embedding positions are added to the input, attention positions act inside attention."""

import keras

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.grids.axial import Axial
from keras_transformer.positions.grids.axial_rotary import AxialRotary
from keras_transformer.positions.grids.axial_sinusoidal import AxialSinusoidal
from keras_transformer.positions.grids.boxes import BoxPosition
from keras_transformer.positions.grids.decomposed_grid_bias import DecomposedGridBias
from keras_transformer.positions.grids.grid_rotary import GridRotary
from keras_transformer.positions.grids.relative_grid_bias import RelativeGridBias
from keras_transformer.positions.learned import Learned
from keras_transformer.positions.relative.alibi import ALiBi
from keras_transformer.positions.relative.gated_relative_bias import GatedRelativeBias
from keras_transformer.positions.relative.relative_bias import RelativeBias
from keras_transformer.positions.relative.relative_embedding import RelativeEmbedding
from keras_transformer.positions.relative.shaw import ShawRelative
from keras_transformer.positions.relative.transformer_xl import TransformerXLRelative
from keras_transformer.positions.rotations.length_scaling import DynamicNTKScaling, LongRoPEScaling
from keras_transformer.positions.rotations.multimodal_rotary import MultimodalRotary
from keras_transformer.positions.rotations.rotary import ROTARY_SCALINGS, Rotary
from keras_transformer.positions.rotations.rotary_scaling import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    RotaryScaling,
    YaRNScaling,
)
from keras_transformer.positions.rotations.xpos import XPos
from keras_transformer.positions.sinusoidal import Sinusoidal

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
