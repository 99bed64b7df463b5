"""What encoder and decoder blocks share."""

import inspect

import keras

from keras_transformer.backend.recompute import recomputed
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.blocks.residual.schemes import RESIDUALS, make_residual
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import build_once, choice, resolve, serialize


class Block(keras.layers.Layer):
    """Base of the blocks: sublayers, each with a residual scheme of its own around it."""

    def __init__(self, residual, norm, dropout, seed, recompute=False, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.residual = template(residual, RESIDUALS, Residual)
        self.norm = template(norm, NORMS, keras.layers.Layer)
        self.dropout = dropout
        self.seed = seed
        self.recompute = recompute
        self._dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def _make_residual(self, name, residual=None):
        return make_residual(residual or self.residual, self.norm, name, self.dtype_policy)

    def _build_around(self, residual, sublayer, shape, *other_shapes):
        """Builds a sublayer for tokens of `shape`, and for other shapes if it takes more, and the scheme around it."""
        build_once(residual, shape)
        if not sublayer.built:
            sublayer.build(shape, *other_shapes)
            residual.initialize_sublayer(sublayer)

    def _build_streams(self, scheme, inputs_shape):
        """What makes a block whose scheme has several streams a stack by itself, where its tokens come without any.

        Returns:
            The shape of the tokens of one stream.
        """
        self._opening = self._closing = None
        if scheme.num_streams > 1 and len(inputs_shape) == 3:
            self._opening = scheme.stack_input_layer(name="open_streams", dtype=self.dtype_policy)
            self._closing = scheme.stack_output_layer(scheme.norm, name="join_streams", dtype=self.dtype_policy)
            self._closing.build(self._opening.compute_output_shape(inputs_shape))
        return (*inputs_shape[:2], inputs_shape[-1])

    def _opened(self, x):
        return x if self._opening is None else self._opening(x)

    def _closed(self, x, mask, training):
        return x if self._closing is None else self._closing(x, mask=mask, training=training)

    def _run(self, function, *tensors, training):
        """`function` of float tensors; in training its activations are recomputed if the block is to."""
        return recomputed(self, function, *tensors) if self.recompute and training else function(*tensors)

    def _around(self, residual, sublayer, x, mask, training):
        """`sublayer`, a function of one tensor, inside its residual scheme."""
        y = sublayer(residual.pre(x, mask=mask, training=training))
        y = self._dropout_layer(y, training=training)
        return residual.post(x, residual.drop_path(y, training=training), mask=mask, training=training)

    def _feed(self, x, padding_mask, training):
        """The feed-forward; one that asks which tokens are real, as a mixture of experts does, is told."""
        asks = "padding_mask" in inspect.signature(self.feedforward.call).parameters
        options = {"padding_mask": padding_mask} if asks else {}
        return self.feedforward(x, training=training, **options)

    def compute_output_shape(self, inputs_shape, *args, **kwargs):
        return inputs_shape

    def get_config(self):
        return {
            **super().get_config(),
            "residual": serialize_template(self.residual),
            "norm": serialize_template(self.norm),
            "dropout": self.dropout,
            "seed": self.seed,
            "recompute": self.recompute,
        }


def template(identifier, choices, base):
    """What the layers of a block are made from: a name in `choices`, or an instance."""
    if isinstance(identifier, str):
        choice(identifier, choices)
        return identifier
    return resolve(identifier, choices, base)


def serialize_template(identifier):
    """The config of a `template`."""
    return identifier if isinstance(identifier, str) else serialize(identifier)
