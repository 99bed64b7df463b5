"""The weights of a model that can be quantized: kernels of products, and tables of embeddings."""

from __future__ import annotations

import collections
import fnmatch
import math
from collections.abc import Iterable, Mapping

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.scheme import WeightScheme

# Smaller weights stay float: the operators would cost more than they save.
SMALL = 2048


class Kernel:
    """A weight of a layer as rows `(N, K)`: each row gives one output of a product, or is one embedding.

    Args:
        layer: `Dense`, `EinsumDense` (and `Projection`) or `Embedding`, built.
        contracted: int: the number of leading axes of the kernel that are inputs; 0 for a table.
    """

    def __init__(self, layer: keras.layers.Layer, contracted: int) -> None:
        self.layer, self.contracted = layer, contracted
        self.variable = keras_private.kernel(layer) if contracted else keras_private.embeddings(layer)

    @classmethod
    def of(cls, layer: keras.layers.Layer) -> Kernel:
        """That of a layer with a kernel or a table."""
        contracted = _contracted(layer)
        if contracted is None:
            raise WeightQuantizationError(f"{layer.path!r} has no weight that can be quantized")
        return cls(layer, contracted)

    @property
    def path(self) -> str:
        """The path of the variable."""
        return self.variable.path

    @property
    def is_table(self) -> bool:
        """Whether it is a table of embeddings."""
        return self.contracted == 0

    @property
    def width(self) -> int:
        """K: the numbers of a row."""
        shape = tuple(self.variable.shape)
        return math.prod(shape[1:] if self.is_table else shape[: self.contracted])

    @property
    def count(self) -> int:
        """N: the number of rows."""
        return math.prod(self.variable.shape) // self.width

    def rows(self) -> np.ndarray:
        """The values, float32 `(N, K)`."""
        array = keras.ops.convert_to_numpy(self.variable).astype("float32")
        return array.reshape(-1, self.width) if self.is_table else array.reshape(self.width, -1).T

    def assign(self, rows: np.ndarray) -> None:
        """Replaces the values by rows `(N, K)`."""
        self.variable.assign((rows if self.is_table else rows.T).reshape(self.variable.shape))


def kernels_of(model: keras.Model, smallest: int = SMALL, *, with_adapters: bool = False) -> list[Kernel]:
    """The weights of a model that can be quantized, in the order of its layers; each once.

    Args:
        model: `keras.Model`.
        smallest: int. How many numbers a weight has at least. Default 2,048.
        with_adapters: bool. Whether layers may have adapters, which are not part of the weights. Default False.

    Raises:
        WeightQuantizationError: a layer has an adapter, unless they may, or is quantized by Keras.

    Example:

    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide"), keras.layers.Dense(2)])
    >>> [kernel.layer.name for kernel in kernels_of(model)]
    ['wide']
    """
    found: dict[int, Kernel] = {}
    for layer in keras_private.flatten_layers(model):
        contracted = _contracted(layer)
        if contracted is None:
            continue
        if getattr(layer, "quantization_mode", None) is not None:
            raise WeightQuantizationError(f"{layer.path!r} is quantized by Keras: build the model without it")
        if getattr(layer, "lora_enabled", False) and not with_adapters:
            raise WeightQuantizationError(f"{layer.path!r} has an adapter: call merge_lora first")
        kernel = Kernel(layer, contracted)
        if math.prod(kernel.variable.shape) >= smallest:
            found.setdefault(id(kernel.variable), kernel)
    return list(found.values())


def _contracted(layer: keras.layers.Layer) -> int | None:
    """The number of leading axes of a layer's kernel that are inputs, 0 for a table; None for other layers."""
    if not layer.built:
        return None
    if isinstance(layer, keras.layers.Embedding):
        return 0
    if isinstance(layer, keras.layers.EinsumDense):
        return _leading_axes(layer.equation)
    return 1 if isinstance(layer, keras.layers.Dense) else None


def _leading_axes(equation: str) -> int | None:
    """The number of contracted axes, if they are the last of the input and the first of the kernel, in the same order.

    Example:

    >>> [_leading_axes(each) for each in ("btd,dnh->btnh", "btnh,nhd->btd", "btd,nd->btn")]
    [1, 2, None]
    """
    inputs, _, rest = equation.partition(",")
    kernel, _, outputs = rest.partition("->")
    contracted = "".join(axis for axis in kernel if axis not in outputs)
    fits = contracted and kernel.startswith(contracted) and inputs.endswith(contracted)
    return len(contracted) if fits else None


def chosen(
    kernels: Iterable[Kernel], schemes: WeightScheme | Mapping[str, WeightScheme | None]
) -> list[tuple[Kernel, WeightScheme]]:
    """The weights to quantize, each with its scheme.

    Args:
        kernels: iterable of `Kernel`.
        schemes: a `WeightScheme` for all products (tables then have 8 bits and a scale for each row), or a dict of patterns
            (`fnmatch`) of paths to schemes, of which the first that matches counts; None, or no pattern, leaves a weight in
            float.

    Raises:
        WeightQuantizationError: nothing is chosen, a pattern matches no weight, two weights have one path, or rows are no
            whole blocks.
    """
    kernels = list(kernels)
    check_paths(kernels)
    if isinstance(schemes, WeightScheme):
        table = WeightScheme(8, None)
        pairs = [(each, table if each.is_table else schemes) for each in kernels]
    else:
        for pattern in schemes:
            if not any(fnmatch.fnmatchcase(each.path, pattern) for each in kernels):
                names = ", ".join(each.path for each in kernels[:8])
                raise WeightQuantizationError(f"{pattern!r} matches none of the weights: {names}")
        pairs = [(each, scheme) for each in kernels if (scheme := _first(schemes, each.path)) is not None]
    for kernel, scheme in pairs:
        if kernel.width % (scheme.block_size or 1):
            raise WeightQuantizationError(
                f"{kernel.path!r} has rows of {kernel.width} numbers, which are no whole blocks of {scheme.block_size}: "
                "choose another block_size for it, or None"
            )
    if not pairs:
        raise WeightQuantizationError(
            "the model has no weight to quantize: no product or table of 2,048 numbers or more"
        )
    return pairs


def check_paths(weights: Iterable[Kernel | keras.Variable]) -> None:
    """Checks that weights can be told apart by their paths.

    Raises:
        WeightQuantizationError: two have one path.
    """
    for path, count in collections.Counter(each.path for each in weights).items():
        if count > 1:
            raise WeightQuantizationError(f"{count} weights have the path {path!r}: give their layers different names")


def _first(schemes, path):
    return next((scheme for pattern, scheme in schemes.items() if fnmatch.fnmatchcase(path, pattern)), None)
