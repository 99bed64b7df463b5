"""The specification of one input or output of a signature."""

import dataclasses

from keras_transformer.export.data.checks import IncompleteError, is_count, is_list, is_object, shown
from keras_transformer.utils.types import Shape

_DTYPES = {
    *("bool", "string", "float16", "float32", "float64", "complex64", "complex128"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_MOST_AXES = 32


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Name, dtype and shape of one input or output.

    Args:
        name: name by which the array is passed or returned.
        dtype: numpy dtype name, such as `"float32"`.
        shape: sizes; None where the size is dynamic.
        axes: for each dimension the name of the dynamic axis, or None where the size is fixed.
        label: what a loaded bundle calls an output whose key in the Keras model is no identifier; or None.

    Example:

    >>> ArraySpec("token_ids", "int32", (None, None), ("batch", "length")).describe()
    'int32 (batch, length)'
    """

    name: str
    dtype: str
    shape: Shape
    axes: tuple[str | None, ...]
    label: str | None = None

    def to_dict(self) -> dict[str, object]:
        """The spec as plain lists and strings, for `manifest.json`."""
        label = {} if self.label is None else {"label": self.label}
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape), "axes": list(self.axes), **label}

    @classmethod
    def from_dict(cls, record: object, owner: str = "the record") -> "ArraySpec":
        """The spec that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            owner: what has the input or output, for the error.

        Raises:
            IncompleteError: a field is missing, or out of its range.
        """
        fields = record if is_object(record) else {}
        name, dtype, shape, axes, label = map(fields.get, ("name", "dtype", "shape", "axes", "label"))
        if not isinstance(name, str) or not name:
            raise IncompleteError(f"{owner} has an input or output without a name")
        where = f"{owner}, '{shown(name)}'"
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise IncompleteError(f"{where}: dtype {shown(dtype)}")
        if not is_list(shape) or not is_list(axes) or not len(axes) == len(shape) <= _MOST_AXES:
            raise IncompleteError(f"{where}: shape {shown(shape)} with axes {shown(axes)}")
        names: list[str | None] = []
        for size, axis in zip(shape, axes, strict=True):
            if not (axis is None and is_count(size)) and not (size is None and isinstance(axis, str) and axis):
                raise IncompleteError(f"{where}: size {shown(size)} along axis {shown(axis)}")
            names.append(axis)
        return cls(name, dtype, tuple(shape), tuple(names), label if isinstance(label, str) and label else None)

    def describe(self) -> str:
        """The spec in one line: `float32 (batch, length, 64)`."""
        sizes = [str(axis or size) for axis, size in zip(self.axes, self.shape, strict=True)]
        return f"{self.dtype} ({', '.join(sizes)})"
