"""What encoder and decoder blocks share."""

import keras

from keras_transformer.blocks.norms import NORMS
from keras_transformer.blocks.residuals import RESIDUALS, Residual, make_residual
from keras_transformer.saving import choice, resolve, serialize


class Block(keras.layers.Layer):
    """Base of the blocks: sublayers, each with a residual scheme of its own around it."""

    def __init__(self, residual, norm, dropout, seed, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.residual = _template(residual, RESIDUALS, Residual)
        self.norm = _template(norm, NORMS, keras.layers.Layer)
        self.dropout = dropout
        self.seed = seed
        self._dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def _make_residual(self, name):
        return make_residual(self.residual, self.norm, name, self.dtype_policy)

    def _around(self, residual, sublayer, x, mask, training):
        """`sublayer`, a function of one tensor, inside its residual scheme."""
        y = sublayer(residual.enter(x, mask=mask, training=training))
        y = self._dropout_layer(y, training=training)
        return residual.leave(x, y, mask=mask, training=training)

    def compute_output_shape(self, inputs_shape, *args, **kwargs):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "residual": _serialize(self.residual),
            "norm": _serialize(self.norm),
            "dropout": self.dropout,
            "seed": self.seed,
        }


def _template(identifier, choices, base):
    if isinstance(identifier, str):
        choice(identifier, choices)
        return identifier
    return resolve(identifier, choices, base)


def _serialize(identifier):
    return identifier if isinstance(identifier, str) else serialize(identifier)
