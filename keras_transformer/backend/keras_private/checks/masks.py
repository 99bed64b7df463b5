"""Self-tests of the private attributes of masks of tensors."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops

from keras_transformer.backend import keras_private as private
from keras_transformer.backend.keras_private.checks.self_tests import SelfTests, expect
from keras_transformer.utils.types import Outputs, Tensor

CHECKS = SelfTests()


@CHECKS.of("Tensor._keras_mask")
def _masks() -> None:
    layer = keras.layers.Embedding(3, 2, mask_zero=True)
    mask = private.get_mask(layer(np.array([[0, 1]])))
    expect(None if mask is None else np.asarray(mask).tolist(), [[False, True]])
    # A layer receives the mask that was attached here.
    masking, received = _MaskReader(), ops.ones((1, 2, 2))
    private.set_mask(received, ops.convert_to_tensor([[True, False]]))
    masking(received)
    expect(np.asarray(masking.received).tolist(), [[True, False]])


class _MaskReader(keras.layers.Layer):
    """A layer that keeps the mask that Keras hands it."""

    received: object = None
    supports_masking = True

    def call(self, inputs: Tensor, mask: Tensor | None = None) -> Outputs:
        self.received = mask
        return inputs
