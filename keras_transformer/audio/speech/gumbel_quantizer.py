"""Product quantization with Gumbel softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.processor_config import is_count, is_number
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class GumbelQuantizer(keras.layers.Layer):
    """Product quantization: an entry of each of G codebooks, concatenated, chosen with Gumbel softmax in training.

    With logits `l = x W + b` of the V entries of a codebook, the entry with the largest `l + n` is chosen, with Gumbel noise
    n; the gradient is that of `softmax((l + n) / τ)`. Outside of training that with the largest l is chosen. The temperature
    τ falls with every training step.

    Args:
        num_codebooks: int >= 1. G. Default 2.
        num_codevectors: int >= 1. V, of each codebook. Default 320.
        codevector_dim: int that G divides. Width of the concatenated entries. Default 256.
        temperature: triple of floats: the first τ, the smallest, and the factor of each step. Default (2, 0.5, 0.999995).
        seed: int or None.

    Call arguments:
        inputs: float `(B, T, C)`.

    Returns:
        Triple of the chosen entries `(B, T, codevector_dim)`, their ids, int32 `(B, T, G)`, and the probabilities without
        noise, `softmax(l)`, float32 `(B, T, G, V)`.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np
    >>> entries, ids, probabilities = GumbelQuantizer(2, 5, 6)(np.zeros((1, 3, 4), "float32"))
    >>> tuple(entries.shape), tuple(ids.shape), tuple(probabilities.shape)
    ((1, 3, 6), (1, 3, 2), (1, 3, 2, 5))

    Reference: Baevski et al., wav2vec 2.0, arXiv 2006.11477, section 2, equation 1, and section 4.2 (temperature); Jang et
    al., arXiv 1611.01144; initializers as in the published code.
    """

    def __init__(
        self,
        num_codebooks: int = 2,
        num_codevectors: int = 320,
        codevector_dim: int = 256,
        temperature: Sequence[float] = (2.0, 0.5, 0.999995),
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (
            ("num_codebooks", num_codebooks),
            ("num_codevectors", num_codevectors),
            ("codevector_dim", codevector_dim),
        ):
            if not is_count(value):
                raise ValueError(f"{name} must be an int of at least 1. Received: {value!r}")
        if codevector_dim % num_codebooks:
            raise ValueError(f"num_codebooks must divide codevector_dim. Received: {num_codebooks}, {codevector_dim}")
        if len(temperature) != 3 or not all(is_number(value) and value > 0 for value in temperature):
            raise ValueError(f"temperature must be three numbers above 0. Received: {temperature!r}")
        self.num_codebooks = num_codebooks
        self.num_codevectors = num_codevectors
        self.codevector_dim = codevector_dim
        self.temperature = tuple(temperature)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, inputs_shape: Shape) -> None:
        count = self.num_codebooks * self.num_codevectors
        self._logits_dense = keras.layers.Dense(
            count,
            kernel_initializer=keras.initializers.RandomNormal(stddev=1.0),
            dtype=self.dtype_policy,
            name="code_logits",
        )
        self._logits_dense.build(inputs_shape)
        self.codevectors = self.add_weight(
            name="codevectors",
            shape=(count, self.codevector_dim // self.num_codebooks),
            initializer=keras.initializers.RandomUniform(0.0, 1.0),
        )
        self.steps = self.add_weight(name="steps", shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Tensor, training: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
        length, groups, size = ops.shape(inputs)[1], self.num_codebooks, self.num_codevectors
        logits = ops.cast(self._logits_dense(inputs), "float32")
        logits = ops.reshape(logits, (-1, length, groups, size))
        probabilities = ops.softmax(logits, axis=-1)
        chances = self._noisy(logits) if training else logits
        # Not argmax, which TFLite lacks.
        ids = ops.top_k(chances, 1)[1][..., 0]
        chosen = ops.one_hot(ids, size, dtype="float32")
        if training:
            soft = ops.softmax(chances, axis=-1)
            chosen = ops.stop_gradient(chosen - soft) + soft
        table = ops.reshape(ops.cast(self.codevectors, "float32"), (groups, size, -1))
        entries = ops.einsum("btgv,gvd->btgd", chosen, table)
        entries = ops.reshape(entries, (-1, length, self.codevector_dim))
        return ops.cast(entries, self.compute_dtype), ops.cast(ids, "int32"), probabilities

    def _noisy(self, logits):
        """Returns the logits with Gumbel noise, over the temperature of this step."""
        first, least, factor = self.temperature
        steps = ops.cast(self.steps, "float32")
        temperature = ops.maximum(first * ops.power(factor, steps), least)
        self.steps.assign_add(1)
        noise = keras.random.uniform(ops.shape(logits), 1e-7, 1.0, seed=self.seed_generator)
        return (logits - ops.log(-ops.log(noise))) / temperature

    def compute_output_spec(self, inputs: Tensor, training: bool | None = None) -> tuple[keras.KerasTensor, ...]:
        shape = tuple(inputs.shape[:2])
        return (
            keras.KerasTensor((*shape, self.codevector_dim), self.compute_dtype),
            keras.KerasTensor((*shape, self.num_codebooks), "int32"),
            keras.KerasTensor((*shape, self.num_codebooks, self.num_codevectors), "float32"),
        )

    def get_config(self) -> Config:
        names = ("num_codebooks", "num_codevectors", "codevector_dim", "temperature", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
