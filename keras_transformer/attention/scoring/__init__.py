"""Attention scoring functions, as layers.

`scoring(query, key)` maps `(B, T, N, H)` and `(B, S, K, H)`, N a multiple of K, to scores `(B, N, T, S)`.
The query heads that use key head j are `j * N/K .. (j + 1) * N/K - 1`.
"""

import keras

from keras_transformer.attention.scoring.additive import Additive
from keras_transformer.attention.scoring.bilinear import Bilinear
from keras_transformer.attention.scoring.cosine import Cosine
from keras_transformer.attention.scoring.dot import Dot
from keras_transformer.attention.scoring.gaussian import Gaussian
from keras_transformer.attention.scoring.location import Location
from keras_transformer.attention.scoring.scaled_dot import ScaledDot
from keras_transformer.attention.scoring.soft_capped_dot import SoftCappedDot

SCORINGS: dict[str, type[keras.layers.Layer]] = {
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "soft_capped_dot": SoftCappedDot,
    "bilinear": Bilinear,
    "additive": Additive,
    "cosine": Cosine,
    "gaussian": Gaussian,
    "location": Location,
}
