"""What share of a quantized file is integers: of its multiplications and its weights, and which layers stayed float."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from keras_transformer.export.data.checks import IncompleteError, is_count, is_names, is_number, is_object

# Layers that a report names.
_SHOWN = 5
# Fewer examples may not show the ranges of activations.
_FEW = 32


class Product(NamedTuple):
    """A product or convolution of a file, or another operator on floats.

    Args:
        layer: name of its layer, or of the operation where that is not known.
        multiplications: of numbers, on one probe; 0 of other operators.
        is_integer: whether both factors are integers.
    """

    layer: str
    multiplications: int
    is_integer: bool


@dataclasses.dataclass(frozen=True)
class IntegerShare:
    """The shares of a quantized file that are integers.

    Args:
        products: share of the multiplications in products and convolutions whose factors are integers, on one probe; None
            where the operators of the format are not read.
        weights: share of the numbers in weights that are stored in fewer than 32 bits.
        float_layers: names of the layers with products or convolutions of floats, and in "full_int8" of those with any
            operators of floats.
        examples: how many examples the ranges of activations were measured on; None where none are measured.

    Example:

    >>> products = [Product("stem", 900, True), Product("head", 100, False)]
    >>> str(IntegerShare.of(products, 0.5))
    '90.0% of the multiplications are of integers, 50.0% of the weights are quantized; float: head'
    """

    products: float | None
    weights: float
    float_layers: tuple[str, ...] = ()
    examples: int | None = None

    @classmethod
    def of(cls, products: Iterable[Product] | None, weights: float, examples: int | None = None) -> IntegerShare:
        """The shares of a file.

        Args:
            products: iterable of `Product`, or None.
            weights: share of the weights.
            examples: how many examples ranges were measured on, or None.
        """
        if products is None:
            return cls(None, weights, examples=examples)
        found = list(products)
        total = sum(each.multiplications for each in found)
        integer = sum(each.multiplications for each in found if each.is_integer)
        floats = dict.fromkeys(each.layer for each in found if not each.is_integer)
        return cls(integer / total if total else None, weights, tuple(floats), examples)

    def __str__(self) -> str:
        products = "" if self.products is None else f"{self.products:.1%} of the multiplications are of integers, "
        shown = ", ".join(self.float_layers[:_SHOWN])
        more = len(self.float_layers) - _SHOWN
        floats = f"; float: {shown}{f' and {more} more' if more > 0 else ''}" if shown else ""
        is_small = self.examples is not None and self.examples < _FEW
        few = f"; the ranges of activations are of {self.examples} examples only" if is_small else ""
        return f"{products}{self.weights:.1%} of the weights are quantized{floats}{few}"

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        examples = {} if self.examples is None else {"examples": self.examples}
        return {"products": self.products, "weights": self.weights, "float_layers": list(self.float_layers), **examples}

    @classmethod
    def from_dict(cls, record: object, where: str) -> IntegerShare:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the record, for the error.

        Raises:
            IncompleteError: a share or the list of layers is missing.
        """
        fields: Mapping[str, object] = record if is_object(record) else {}
        products, weights, layers = (fields.get(name) for name in ("products", "weights", "float_layers"))
        examples = fields.get("examples")
        if (products is not None and not is_number(products)) or not is_number(weights) or not is_names(layers):
            raise IncompleteError(f"{where}: integers")
        if examples is not None and not is_count(examples):
            raise IncompleteError(f"{where}: integers, examples")
        return cls(products, weights, tuple(layers), examples)
