"""Types that signatures share. Importing them loads neither Keras nor a backend.

Shapes and dtypes of tensors are in docstrings: type checkers do not support them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

if TYPE_CHECKING:
    import keras
    import numpy as np


class Tensor(Protocol):
    """A tensor of whichever backend Keras runs on, symbolic or with values; or an array, which Keras takes as one.

    The protocol has what all of them share. A shape is a tuple in Keras, JAX and numpy; TensorFlow and PyTorch have a class
    for it.
    """

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __len__(self) -> int: ...
    def __array__(self) -> np.ndarray: ...
    def __eq__(self, other: Any, /) -> Any: ...  # type: ignore[override]
    def __ne__(self, other: Any, /) -> Any: ...  # type: ignore[override]
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __rfloordiv__(self, other: Any, /) -> Any: ...
    def __mod__(self, other: Any, /) -> Any: ...
    def __rmod__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __rpow__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...


# A tensor, or a structure of tensors, as `fit` takes inputs and labels.
Tensors: TypeAlias = "Tensor | Mapping[str, Any] | Sequence[Any]"
# What a layer returns: its output, or a tuple of it and scores, a cache or further outputs, as its documentation says.
Outputs: TypeAlias = "Tensor | tuple[Any, ...]"
# What numpy makes an array of.
ArrayLike: TypeAlias = Any
# Sizes: int, or None where they are not known before running.
Shape: TypeAlias = "tuple[Any, ...]"
Path: TypeAlias = "str | os.PathLike[str]"
# The keys and values, or the state, of a causal layer: named tensors of fixed shape; in a runtime without Keras, arrays.
Cache: TypeAlias = "dict[str, Any]"
# The config of a Keras object, as `get_config` returns it.
Config: TypeAlias = "dict[str, Any]"
# Special tokens by their role; a role of several has a list.
SpecialTokens: TypeAlias = "Mapping[str, str | Sequence[str] | None]"
# An object of JSON: names to numbers, texts, booleans, None, lists and objects.
JsonObject: TypeAlias = "dict[str, Any]"
DType: TypeAlias = "str | keras.DTypePolicy | None"
Activation: TypeAlias = "str | Config | Callable[..., Tensor] | None"
Initializer: TypeAlias = "str | Config | keras.Initializer | None"
Regularizer: TypeAlias = "str | Config | keras.Regularizer | None"
Constraint: TypeAlias = "str | Config | keras.constraints.Constraint | None"
Arrays: TypeAlias = "Mapping[str, ArrayLike]"
# A layer, its config, or a name that the argument's documentation lists.
LayerLike: TypeAlias = "str | Config | keras.layers.Layer"
# A position, or a pair: one added to the embedding and one inside attention.
PositionLike: TypeAlias = "LayerLike | tuple[LayerLike | None, LayerLike | None] | None"
# The attention of every block, or a list that repeats over the blocks.
AttentionLike: TypeAlias = "LayerLike | Sequence[LayerLike] | None"
# What Keras tells the methods of a callback.
Logs: TypeAlias = "dict[str, float]"


class LayerOptions(TypedDict, total=False):
    """The arguments of every Keras layer, which the constructors of layers pass on."""

    name: str | None
    dtype: DType
    trainable: bool
    autocast: bool
    activity_regularizer: Regularizer
