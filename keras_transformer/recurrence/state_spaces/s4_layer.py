"""Base class of S4 and S4D: input, output, skip connection, activation, gate and state."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.backend.kernels.scan import chunk_size_for
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.state_spaces.state_space import system_response
from keras_transformer.utils.types import Activation, Cache, Config, Initializer, LayerOptions, Shape, Tensor


class S4Layer(Recurrence):
    """Base class of S4 and S4D. A subclass creates weights in `_build_system`, and its `ChunkedSystem` in `_system`."""

    def __init__(
        self,
        state_dim: int = 64,
        min_step: float = 0.001,
        max_step: float = 0.1,
        chunk_size: int = 64,
        activation: Activation = "gelu",
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        channels: int = 1,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if positive("state_dim", state_dim) % 2:
            raise ValueError(f"state_dim must be even: a state has real and imaginary parts. Received: {state_dim}")
        if not 0 < min_step <= max_step:
            raise ValueError(f"Steps must satisfy 0 < min_step <= max_step. Received: {min_step}, {max_step}")
        self.state_dim = state_dim
        self.min_step = min_step
        self.max_step = max_step
        self.chunk_size = positive("chunk_size", chunk_size)
        self.activation = get_activation(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.channels = positive("channels", channels)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._built_width = width = query_shape[-1]
        self._build_system(width)
        self._add("skip", (self.channels * width,), "ones")
        responses = (*query_shape[:2], self.channels * width)
        self.output_dense = token_projection(self, "output", width)
        self.output_dense.build(responses)
        self.gate_dense = token_projection(self, "gate", width)
        self.gate_dense.build(responses)

    def _add(self, name, shape, start):
        initializer = start if not isinstance(start, np.ndarray) else _constant(start)
        setattr(self, name, self.add_weight(shape=shape, initializer=initializer, name=name))

    def _add_steps(self, width):
        steps = keras.initializers.RandomUniform(np.log(self.min_step), np.log(self.max_step), seed=self.seed)
        self._add("log_step", (width,), steps)

    def _add_outputs(self, width, half):
        for offset, name in enumerate(("output_real", "output_imaginary")):
            seed = None if self.seed is None else self.seed + 1 + offset
            self._add(name, (self.channels * width, half), keras.initializers.RandomNormal(stddev=0.5**0.5, seed=seed))

    def _float(self, name):
        return ops.cast(getattr(self, name), "float32")

    def _outputs(self):
        """Returns the real and imaginary parts of c, `(D, M, S / 2)` each, from weights that are `(M · D, S / 2)`."""
        parts = (self._float(f"output_{part}") for part in ("real", "imaginary"))
        if self.channels == 1:
            return tuple(ops.expand_dims(part, 1) for part in parts)
        shape = (self.channels, -1, self.state_dim // 2)
        return tuple(ops.transpose(ops.reshape(part, shape), (1, 0, 2)) for part in parts)

    def _build_system(self, width):
        raise NotImplementedError

    def _system(self, size):
        """Returns the `ChunkedSystem` for chunks of `size` tokens."""
        raise NotImplementedError

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        size = chunk_size_for(x, self.chunk_size)
        inputs = ops.cast(x, "float32")
        state = None if cache is None else cache["state"]
        outputs, state = system_response(self._system(size), inputs, mask, state)
        inputs = inputs if self.channels == 1 else ops.concatenate([inputs] * self.channels, axis=-1)
        outputs = ops.cast(self.activation(outputs + self._float("skip") * inputs), x.dtype)
        return self.output_dense(outputs) * ops.sigmoid(self.gate_dense(outputs)), {"state": state}

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty state, float32. Its size does not depend on `max_length`."""
        return {"state": ops.zeros((batch_size, self._width(), self.state_dim), dtype="float32")}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "state_dim": self.state_dim,
            "min_step": self.min_step,
            "max_step": self.max_step,
            "chunk_size": self.chunk_size,
            "activation": keras.activations.serialize(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
            "channels": self.channels,
        }


def _constant(start):
    return lambda shape, dtype: ops.convert_to_tensor(start, dtype)
