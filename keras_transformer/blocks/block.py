"""Base class of encoder and decoder blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import keras

from keras_transformer.backend.call_arguments import takes
from keras_transformer.backend.devices.gathered_weights import gathered_weights
from keras_transformer.backend.gradients.recompute import recomputed
from keras_transformer.blocks.residual import RESIDUALS, make_residual
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import build_once, choice, resolve, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape


class Block(keras.layers.Layer):
    """Base of the blocks: sublayers, each inside a residual scheme of its own."""

    _open_streams: keras.layers.Layer | None = None
    _join_streams: keras.layers.Layer | None = None

    def __init__(
        self,
        residual: str | Residual,
        norm: LayerLike,
        dropout: float,
        seed: int | None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.residual = template(residual, RESIDUALS, Residual)
        self.norm = template(norm, NORMS, keras.layers.Layer)
        self.dropout = dropout
        self.seed = seed
        self.recompute = recompute
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def _make_residual(self, name, residual=None):
        return make_residual(residual or self.residual, self.norm, name, self.dtype_policy)

    def _build_sublayer(self, residual, sublayer, shape, *other_shapes):
        """Builds a residual scheme and its sublayer, for tokens of `shape` and for the shapes of further arguments."""
        build_once(residual, shape)
        if not sublayer.built:
            sublayer.build(shape, *other_shapes)
            residual.initialize_sublayer(sublayer)

    def _build_streams(self, scheme, inputs_shape):
        """Adds the layers that split and join the streams of a multi-stream scheme, if the inputs are a single stream.

        Returns:
            The shape of the tokens of one stream.
        """
        self._open_streams = self._join_streams = None
        if scheme.num_streams > 1 and len(inputs_shape) == 3:
            first = scheme.stack_input_layer(name="open_streams", dtype=self.dtype_policy)
            last = scheme.stack_output_layer(scheme.norm, name="join_streams", dtype=self.dtype_policy)
            last.build(first.compute_output_shape(inputs_shape))
            self._open_streams, self._join_streams = first, last
        return inputs_shape if scheme.num_streams == 1 else (*inputs_shape[:2], inputs_shape[-1])

    def _split_streams(self, x):
        return x if self._open_streams is None else self._open_streams(x)

    def _merge_streams(self, x, mask, training):
        return x if self._join_streams is None else self._join_streams(x, mask=mask, training=training)

    def _run(self, function, *tensors, training):
        """Calls `function` of float tensors; if `recompute` is set, training recomputes its activations."""

        def run(*tensors):
            with gathered_weights(self):
                return function(*tensors)

        return recomputed(self, run, *tensors) if self.recompute and training else run(*tensors)

    def _apply_residual(self, residual, sublayer, x, mask, training, condition=None, first_token_only=False):
        """Calls `sublayer`, a function of one tensor, inside its residual scheme, with the condition if it takes one.

        With `first_token_only` the sublayer returns the first token, `(B, 1, D)`, of all.
        """
        options = self._residual_options(residual, mask, training, condition)
        h = residual.pre(x, **options)
        y = sublayer(h)
        y = self._dropout_layer(y, training=training)
        x, h = (x[:, :1], h[:, :1]) if first_token_only else (x, h)
        return residual.post(residual.skip(x, h), residual.drop_path(y, training=training), **options)

    def _residual_options(self, residual, mask, training, condition):
        options = {"mask": mask, "training": training}
        return options | ({"condition": condition} if residual.takes_condition else {})

    def _check_condition(self, condition, *residuals):
        """Refuses a condition that no residual scheme of the block takes."""
        if condition is not None and not any(each.takes_condition for each in residuals if each is not None):
            raise ValueError(
                f"{self.name}: no residual scheme of the block takes a condition, as 'ada_ln_zero' does. "
                f"Received: residual={serialize_template(self.residual)!r}"
            )

    def _feed_forward(self, x, padding_mask, training):
        """Calls the feed-forward layer, with the padding mask if it takes one, as a mixture of experts does."""
        options = {"padding_mask": padding_mask} if takes(self.feedforward, "padding_mask") else {}
        return self.feedforward(x, training=training, **options)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "residual": serialize_template(self.residual),
            "norm": serialize_template(self.norm),
            "dropout": self.dropout,
            "seed": self.seed,
            "recompute": self.recompute,
        }


def template(identifier: object, choices: Mapping[str, Callable[..., object]], base: type) -> Any:
    """Checks a template of layers: a name in `choices`, which is returned as it is, or an instance or its config."""
    if isinstance(identifier, str):
        choice(identifier, choices)
        return identifier
    return resolve(identifier, choices, base)


def serialize_template(identifier: object) -> str | Config | None:
    """Returns the config of a `template`."""
    return identifier if isinstance(identifier, str) else serialize(identifier)
