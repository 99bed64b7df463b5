"""Location-based scores."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.scoring.base import Scoring
from keras_transformer.backend.kernels.shared_matmul import shared_matmul
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class Location(Scoring):
    """Location-based scores, `W q`: the score of slot s depends on the query only, not on the key.

    Args:
        max_sequence_length: int. The number of slots of W.
        kernel_initializer: of W, `(N, H, max_sequence_length)`.

    Call arguments and returns: as for `Dot`.

    Raises:
        ValueError: statically more keys than `max_sequence_length`.

    Example:

    >>> import numpy as np
    >>> layer = Location(max_sequence_length=8, kernel_initializer="ones")
    >>> layer(np.ones((1, 1, 1, 4)), np.zeros((1, 3, 1, 4))).numpy().ravel().tolist()
    [4.0, 4.0, 4.0]

    Reference: Luong et al., arXiv 1508.04025, equation 8.
    """

    def __init__(
        self,
        max_sequence_length: int = 512,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(query_shape[2], query_shape[3], self.max_sequence_length),
            initializer=self.kernel_initializer,
        )

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        if key.shape[1] is not None and key.shape[1] > self.max_sequence_length:
            raise ValueError(f"{key.shape[1]} keys are more than max_sequence_length={self.max_sequence_length}.")
        kernel = ops.convert_to_tensor(self.kernel)[:, :, : ops.shape(key)[1]]
        return shared_matmul(ops.transpose(query, (0, 2, 1, 3)), kernel)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
