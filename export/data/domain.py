"""What the probes of a signature span: where its files were compared with the Keras model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.axes import sizes_of
from keras_transformer.export.data.checks import (
    IncompleteError,
    is_count,
    is_list,
    is_names,
    is_number,
    is_object,
    shown,
)
from keras_transformer.export.data.export_spec import Coverage, Probe

# More sizes than so many are written as a range.
_MOST_SIZES = 9
_NOT_FINITE: dict[str, Callable[[np.ndarray], np.ndarray]] = {"NaN": np.isnan, "-inf": np.isneginf, "inf": np.isposinf}


@dataclasses.dataclass(frozen=True)
class Domain:
    """Ranges of values and sizes of axes on which files were compared with the model.

    Args:
        ranges: dict of the name of an input of numbers to its least and its greatest finite value.
        sizes: dict of the name of a dynamic axis to its sizes, in order.
        not_shown: the sizes and regions of values that the model itself does not take, and why.
        coverage: `Coverage` of the branches of the graph, or None.
        not_finite: dict of the name of an input to which of NaN and infinities it has, if any.
        without_effect: lines that name inputs which changed nothing in some output.

    Example:

    >>> domain = Domain({"x": (-2.0, 3.0)}, {"batch": (1, 2, 5)})
    >>> str(domain)
    'x from -2 to 3; batch 1, 2, 5'
    >>> domain.outside((ArraySpec("x", "float32", (None,), ("batch",)),), {"x": np.float32([4.0] * 9)})
    ['x from 4 to 4', 'batch 9']
    """

    ranges: Mapping[str, tuple[float, float]]
    sizes: Mapping[str, tuple[int, ...]]
    not_shown: tuple[str, ...] = ()
    coverage: Coverage | None = None
    without_effect: tuple[str, ...] = ()
    not_finite: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict[str, tuple[str, ...]])

    @classmethod
    def of(cls, inputs: Sequence[ArraySpec], probes: Iterable[Probe], without: Collection[str] = ()) -> Domain:
        """The domain of some probes.

        Args:
            inputs: the inputs of the signature.
            probes: its probes.
            without: names of inputs that are left out, such as those of a cache.
        """
        arrays = [each.inputs for each in probes]
        names = [spec.name for spec in inputs if spec.dtype not in ("bool", "string") and spec.name not in without]
        found = {name: _extremes([each[name] for each in arrays]) for name in names}
        sizes: dict[str, set[int]] = {}
        for each in arrays:
            for axis, size in sizes_of(inputs, each).items():
                sizes.setdefault(axis, set()).add(size)
        return cls(
            {name: each for name, each in found.items() if each is not None},
            {axis: tuple(sorted(each)) for axis, each in sizes.items()},
            not_finite={name: kinds for name in names if (kinds := _not_finite([each[name] for each in arrays]))},
        )

    def outside(self, inputs: Sequence[ArraySpec], arrays: Mapping[str, np.ndarray]) -> list[str]:
        """What of a call is beyond the domain, in words.

        Args:
            inputs: the inputs of the signature.
            arrays: those of the call.
        """
        found: list[str] = []
        for name, (low, high) in self.ranges.items():
            extremes = _extremes([arrays[name]]) if name in arrays else None
            if extremes is not None and (extremes[0] < low or extremes[1] > high):
                found.append(_range(name, *extremes))
        sizes = sizes_of(inputs, arrays)
        for axis, known in self.sizes.items():
            if axis in sizes and not known[0] <= sizes[axis] <= known[-1]:
                found.append(f"{axis} {sizes[axis]}")
        return found

    def __str__(self) -> str:
        parts = [", ".join([_range(name, *each), *self.not_finite.get(name, ())]) for name, each in self.ranges.items()]
        for axis, sizes in self.sizes.items():
            is_long = len(sizes) > _MOST_SIZES
            parts.append(f"{axis} {sizes[0]} to {sizes[-1]}" if is_long else f"{axis} {', '.join(map(str, sizes))}")
        return "; ".join(parts)

    def lines(self) -> list[str]:
        """The domain as lines of a report."""
        left = f"not shown: {self.not_shown[0]}" if self.not_shown else ""
        more = f", and {len(self.not_shown) - 1} more" if len(self.not_shown) > 1 else ""
        branches = [] if self.coverage is None or not self.coverage.count else [str(self.coverage)]
        return [f"compared for {self}", *branches, *self.without_effect, *([left + more] if left else [])]

    def to_dict(self) -> dict[str, object]:
        """The domain as dicts and lists."""
        ranges = {name: list(each) for name, each in self.ranges.items()}
        fields: dict[str, object] = {"ranges": ranges}
        fields["sizes"] = {axis: list(each) for axis, each in self.sizes.items()}
        if self.not_shown:
            fields["not_shown"] = list(self.not_shown)
        if self.coverage is not None:
            fields["coverage"] = self.coverage.to_dict()
        if self.not_finite:
            fields["not_finite"] = {name: list(each) for name, each in self.not_finite.items()}
        if self.without_effect:
            fields["without_effect"] = list(self.without_effect)
        return fields

    @classmethod
    def from_dict(cls, record: object, name: str) -> Domain:
        """The domain that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            name: name of the signature, for the error.

        Raises:
            IncompleteError: a range is no pair of numbers, or a size no positive integer.
        """
        fields = record if is_object(record) else {}
        ranges, sizes = fields.get("ranges"), fields.get("sizes")
        rest, effects = fields.get("not_shown", []), fields.get("without_effect", [])
        special = fields.get("not_finite", {})
        if (
            not is_object(ranges)
            or not is_object(sizes)
            or not is_names(rest)
            or not is_names(effects)
            or not is_object(special)
        ):
            raise IncompleteError(f"the domain of signature '{shown(name)}'")
        return cls(
            {key: _pair(each, name) for key, each in ranges.items()},
            {key: _counts(each, name) for key, each in sizes.items()},
            tuple(rest),
            Coverage.from_dict(fields["coverage"], f"domain of signature '{shown(name)}'")
            if "coverage" in fields
            else None,
            tuple(effects),
            {key: _marks(each, name) for key, each in special.items()},
        )


def domain_lines(domains: Mapping[str, Domain]) -> list[str]:
    """The domains of signatures as lines of a report; the only one without its name.

    Args:
        domains: dict of signature name to `Domain`.

    Example:

    >>> domain_lines({"serve": Domain({}, {"batch": (1, 5)}, ("batch=3: the model itself fails there",))})
    ['compared for batch 1, 5', 'not shown: batch=3: the model itself fails there']
    """
    if len(domains) == 1:
        return next(iter(domains.values())).lines()
    return [f"{name}: {line}" for name, each in domains.items() for line in each.lines()]


def _pair(record: object, name: str) -> tuple[float, float]:
    numbers = [each for each in record if is_number(each)] if is_list(record) else []
    if len(numbers) != 2:
        raise IncompleteError(f"a range in the domain of signature '{shown(name)}'")
    return float(numbers[0]), float(numbers[1])


def _marks(record: object, name: str) -> tuple[str, ...]:
    if not is_names(record):
        raise IncompleteError(f"a range in the domain of signature '{shown(name)}'")
    return tuple(record)


def _counts(record: object, name: str) -> tuple[int, ...]:
    counts = [each for each in record if is_count(each)] if is_list(record) else []
    if not counts or counts != record or counts != sorted(counts) or counts[0] < 1:
        raise IncompleteError(f"sizes in the domain of signature '{shown(name)}'")
    return tuple(counts)


def _extremes(arrays: Iterable[np.ndarray]) -> tuple[float, float] | None:
    """The least and the greatest finite value; None of no numbers."""
    finite = [each[np.isfinite(each)] for each in arrays if each.dtype.kind in "fiu"]
    finite = [each for each in finite if each.size]
    if not finite:
        return None
    return min(float(each.min()) for each in finite), max(float(each.max()) for each in finite)


def _not_finite(arrays: Sequence[np.ndarray]) -> tuple[str, ...]:
    """Which of NaN and infinities some arrays have."""
    floats = [each for each in arrays if each.dtype.kind == "f"]
    return tuple(name for name, has in _NOT_FINITE.items() if any(bool(has(each).any()) for each in floats))


def _range(name: str, low: float, high: float) -> str:
    return f"{name} from {low:.4g} to {high:.4g}"
