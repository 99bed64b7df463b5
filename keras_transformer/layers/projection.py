"""The linear projections of attention and feed-forward layers."""

from __future__ import annotations

import math
from collections.abc import MutableMapping

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.backend.compilation.xla import kernel_product
from keras_transformer.backend.devices.split_rows import mesh_that_splits_rows
from keras_transformer.layers.activations import in_training
from keras_transformer.layers.ternary import is_ternary, prepare_kernel, saved_variables, ternary_product
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Initializer, Shape, Tensor


@serializable
class Projection(keras.layers.EinsumDense):
    """`EinsumDense` over tokens, computed as one matrix product of rank 2.

    Weights, configuration and quantization are those of `EinsumDense`. The computation differs: the tokens of all
    examples form the rows of one matrix, for which kernels are fastest and every export format has an op. Under a
    `TernaryPolicy` the weights are ternary: see `BitDense`.

    LoRA differs, too: A is `(inputs..., rank)` and B `(rank, outputs...)`, so that a projection to heads has one A for all
    heads, as in the paper; and `x W + s (x A) B` is computed without the sum `W + s A B`, so that training computes no
    gradient of the size of W.

    Args:
        equation: str, such as "btd,dnh->btnh": `(B, T, ...)` in, kernel, `(B, T, ...)` out.
        **options: those of `keras.layers.EinsumDense`.

    Call arguments:
        inputs: float `(B, T, ...)`.
        copies: float `(B, T, devices, D)`: a copy of the inputs on each of the devices that the columns of the kernel are
            split over, to compute with in their place; or None. See `SharedInputs`.

    Returns:
        `(B, T, ...)`.

    Raises:
        ValueError: `quantize` of a layer whose adapter has several output axes.

    Example:

    >>> import numpy as np
    >>> layer = Projection("btd,dnh->btnh", output_shape=(None, 2, 3), bias_axes="nh")
    >>> tuple(layer(np.ones((1, 5, 4))).shape)
    (1, 5, 2, 3)
    """

    ternary_scale: keras.Variable | None

    def __init__(self, equation: str, **options: object) -> None:
        super().__init__(equation, **options)
        self.supports_masking = True  # Tokens are independent.

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if is_ternary(self):
            prepare_kernel(self)

    def call(self, inputs: Tensor, training: bool | None = None, copies: Tensor | None = None) -> Tensor:
        sizes, contracted = self._sizes, len(inputs.shape) - 2
        rows, columns = math.prod(sizes[:contracted]), sizes[contracted:]
        length = ops.shape(inputs)[1]
        if copies is None:
            # A matrix of all tokens would have to be gathered from the devices that share rows.
            is_matrix = mesh_that_splits_rows() is None or is_ternary(self)
            x = self._product(ops.reshape(inputs, (-1, rows) if is_matrix else (-1, length, rows)), rows)
        else:
            x = self._product_of_copies(copies)
        if self.bias is not None:
            x = ops.add(x, ops.reshape(self.bias, (-1,)))
        if self.activation is not None:
            x = (in_training(self.activation) if training else self.activation)(x)
        return ops.reshape(x, (-1, length, *columns))

    def _product(self, x, rows):
        """Returns the product of `(..., rows)` and the kernel, with its adapter."""
        if is_ternary(self):
            kernel = ops.reshape(self.kernel, (rows, -1))
            return ops.cast(ternary_product(x, kernel, self.ternary_scale), self.compute_dtype)
        if not self._is_factored:
            return kernel_product(x, self.kernel)
        a, b = self._factors()
        low_rank = self._lora_scale * ops.matmul(x, ops.cast(a, x.dtype))  # Smaller than the change of the outputs.
        return kernel_product(x, self._base_kernel()) + ops.matmul(low_rank, ops.cast(b, x.dtype))

    def takes_copies(self, devices: int) -> bool:
        """Whether it takes a copy of the input for each device: it reads vectors, and its first axis of outputs divides."""
        is_plain = self.quantization_mode is None and not self.lora_enabled and not is_ternary(self)
        return is_plain and self._num_contracted == 1 and self._sizes[1] % devices == 0

    def _product_of_copies(self, copies):
        """Returns the product `(B, T, outputs)` of each copy `(B, T, devices, D)` and its columns of the kernel."""
        _, length, devices, width = copies.shape
        kernel = ops.reshape(self.kernel, (width, devices, -1))
        return ops.reshape(ops.einsum("btmd,dmc->btmc", copies, kernel), (-1, length, devices * kernel.shape[2]))

    # Low-rank adapters.

    def _base_kernel(self):
        """Returns the kernel without the adapter; training that rounds the kernel overrides it."""
        return keras_private.kernel(self)

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Initializer = "he_uniform",
        b_initializer: Initializer = "zeros",
    ) -> None:
        """Adds an adapter like `EinsumDense`: `lora_kernel_a` `(inputs..., rank)`, `lora_kernel_b` `(rank, outputs...)`.

        A quantized layer has the adapter of `EinsumDense`.
        """
        super().enable_lora(rank, lora_alpha, a_initializer, b_initializer)
        if not self._is_factored or self._num_contracted == len(self._sizes) - 1:
            return
        options: dict[str, object] = {"dtype": "float32", "regularizer": self.kernel_regularizer}
        inputs, outputs = self._sizes[: self._num_contracted], self._sizes[self._num_contracted :]
        keras_private.remove_variables(self, ("lora_kernel_a", "lora_kernel_b"))
        with keras_private.unlocked(self):
            self.lora_kernel_a = self.add_weight(
                name="lora_kernel_a", shape=(*inputs, rank), initializer=a_initializer, **options
            )
            self.lora_kernel_b = self.add_weight(
                name="lora_kernel_b", shape=(rank, *outputs), initializer=b_initializer, **options
            )

    @property
    def kernel(self) -> Tensor:
        """The kernel, with the adapter added in the compute dtype."""
        if not (self.built and self._is_factored):
            return super().kernel
        return ops.cast(self._merged_kernel(), self.compute_dtype)

    def save_own_variables(self, store: MutableMapping[str, Tensor]) -> None:
        """Saves like `EinsumDense`: the kernel has the adapter added, in its own dtype."""
        if not (self.built and self._is_factored):
            super().save_own_variables(store)
            return
        names = [name for name in self.variable_serialization_spec[None] if name != "bias" or self.bias is not None]
        for index, name in enumerate(names):
            store[str(index)] = self._merged_kernel() if name == "kernel" else getattr(self, name)

    @property
    def _is_factored(self):
        """Whether the layer has an adapter of this class, not of a quantized `EinsumDense`."""
        return self.lora_enabled and self.quantization_mode is None

    @property
    def _sizes(self):
        return tuple(keras_private.kernel(self).shape) if self.quantization_mode is None else tuple(self.kernel.shape)

    @property
    def _num_contracted(self):
        """The number of leading axes of the kernel that are inputs."""
        return len(self.equation.partition(",")[0]) - 2

    @property
    def _lora_scale(self):
        return self.lora_alpha / self.lora_rank

    def _factors(self):
        """Returns A and B as matrices."""
        a, b = (ops.convert_to_tensor(each) for each in (self.lora_kernel_a, self.lora_kernel_b))
        return ops.reshape(a, (-1, self.lora_rank)), ops.reshape(b, (self.lora_rank, -1))

    def _merged_kernel(self):
        kernel = ops.convert_to_tensor(keras_private.kernel(self))
        a, b = self._factors()
        change = ops.reshape(self._lora_scale * ops.matmul(a, b), kernel.shape)
        return kernel + ops.cast(change, kernel.dtype)

    @property
    def variable_serialization_spec(self) -> dict[str | None, list[str]]:
        return saved_variables(self, super().variable_serialization_spec)

    def quantize(self, mode: str | None = None, type_check: bool = False, config: object = None) -> None:
        """Quantizes like `EinsumDense`. Keras refuses subclasses of it by default; the weights here are the same."""
        if self._is_factored and self._num_contracted < len(self._sizes) - 1:
            raise ValueError(
                f"{self.path!r} has an adapter, which quantization does not support: call merge_lora first."
            )
        return super().quantize(mode, type_check=False, config=config)


def token_projection(
    layer: keras.layers.Layer, name: str, width: int, use_bias: bool = True, activation: Activation = None
) -> Projection:
    """Returns an unbuilt projection of tokens to `width` channels, with the initializer and dtype of its parent layer.

    Args:
        layer: parent layer. Its `kernel_initializer` is cloned: a shared one would return equal weights.
        name: str.
        width: int.
        use_bias: bool.
        activation: as in `keras.layers.Dense`.
    """
    return _projection(layer, name, "btd,de->bte", (None, width), use_bias, activation)


def split_heads(
    layer: keras.layers.Layer, name: str, num_heads: int, width: int, use_bias: bool | None = None
) -> Projection:
    """Returns an unbuilt projection `(B, T, D)` to `(B, T, num_heads, width)`; `use_bias` defaults to `layer.use_bias`."""
    use_bias = layer.use_bias if use_bias is None else use_bias
    return _projection(layer, name, "btd,dnh->btnh", (None, num_heads, width), use_bias)


def join_heads(layer: keras.layers.Layer, name: str, width: int) -> Projection:
    """Returns an unbuilt projection `(B, T, N, H)` to `(B, T, width)`: see `split_heads`."""
    return _projection(layer, name, "btnh,nhd->btd", (None, width), layer.use_bias)


def _projection(layer, name, equation, output_shape, use_bias, activation=None):
    return Projection(
        equation,
        output_shape=output_shape,
        bias_axes=equation.rpartition("bt")[2] if use_bias else None,
        activation=activation,
        kernel_initializer=layer.kernel_initializer.clone(),
        name=name,
        dtype=layer.dtype_policy,
    )
