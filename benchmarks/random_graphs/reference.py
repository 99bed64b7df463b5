"""Keras on the inputs of all regions, and how a file differs from it.

Keras computes a model in two ways: operation by operation, and compiled by XLA, as `fit` and `predict` do. Where these
differ, as a softmax of infinities does, neither is the right one, and nothing is compared.
"""

import dataclasses
import functools
import re

import numpy as np
import tensorflow as tf

from keras_transformer.export.bundle.manifest import read_manifest

from .regions import ORDINARY

EQUAL, REFUSED, SAID, OUTSIDE, WRONG, UNSOUND, CAUGHT, CRASH = (
    *("proven and equal", "refused", "differs as reported", "differs beyond the reported range", "WRONG"),
    *("SOUND BUT REFUSED", "refused since it differs", "CRASH"),
)
# What a run ends with a status for.
FAULTS = (WRONG, UNSOUND, CRASH)
_ULP = 2.0**-23
# Draws of noise, and further ones where they do not explain a difference: one of two signs is drawn six times in a row.
_DRAWS, _FURTHER = 6, 40
# Units in the last place of the noise on each tensor, how many times its movement is rounding, and what bounded functions
# are exact to: their relative error grows where they tend to 0.
_UNITS, _FACTOR, _ABSOLUTE = 8, 16, 2.0**-23
# Units in the last place of the largest element that every element may be away: sums within a layer have summands of its
# size. And what is zero in a runtime that has no denormal numbers.
_OF_LARGEST, _LEAST = 4, 2.0**-124
_BOUNDED = re.compile(
    r"sigmoid|tanh|softmax|gelu|silu|swish|erf|LSTM|GRU|RNN|ttention|soft|mish|log|entropy|sin|cos|Encoder|Gated|case"
)
# What sums, so that a result near zero is as inexact as its summands.
_SUMS = re.compile(
    r"layers\.(?!Act|ReLU|Flat|Drop|Masking)|attention|blocks|feedforward|recurrence|case|mat|sum|mean|ein|norm|var|std"
)
# What reads images at coordinates, which are rounded within a node: 16 times as many units of the largest element.
_COORDINATES = re.compile(r"image|Resiz")
_OF_COORDINATES = 16
# LiteRT's sines are none of larger numbers, whose last digit is a share of a period.
_WAVES, _LARGEST_ANGLE = re.compile(r"\b(sin|cos|tan)\b"), 1e7
# What underflows: a product of many small numbers is 0, or next to it, and so is what tends to 0 as an exponential does.
_UNDERFLOWS = re.compile(r"prod|exp|pow|square|soft|sigmoid|silu|swish|gelu|mish")
# What selects other numbers in place of NaN.
_CHOICES = re.compile(r"where|nan|finite|Masking")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a graph in a format.

    Args:
        kind: such as `EQUAL`.
        detail: the error, or how far the file is from Keras.
        region: that of the inputs on which the file differs, or "".
        output: the output that differs, or "".
        arrays: those inputs, or None.
    """

    kind: str
    detail: str = ""
    region: str = ""
    output: str = ""
    arrays: dict | None = None

    @property
    def key(self):
        """What a reduced graph must have in common with its graph."""
        return self.kind, self.detail.partition(":")[0] if self.kind == CRASH else ""


class Reference:
    """Keras on the inputs of all regions, each with how far rounding moves its outputs.

    Args:
        program: `Program`.
        given: list of a region and arrays; what Keras does not compute is left out.
    """

    def __init__(self, program, given):
        self._program, self._rounding, self._compiled = program, {}, {}
        self._random = np.random.default_rng(0)
        self.trials = []
        for region, arrays in given:
            try:
                self.trials.append((region, arrays, program.outputs(arrays)))
            except Exception:  # Of any library: what Keras does not compute, no file has to.
                continue

    def difference(self, model, said=None, regions=None):
        """The `Outcome` of a file that is not Keras, or None: the first that its report does not say, or the first.

        Args:
            model: a loaded file.
            said: what the report of its export says; without one it is compared where Keras computes two results, too.
            regions: those that count; all by default.
        """
        first = None
        for number, (region, arrays, _) in enumerate(self.trials):
            is_beyond = said is not None and region not in ORDINARY and said.is_beyond(arrays)
            if (regions is not None and region not in regions) or (is_beyond and first is not None):
                continue
            found = self._found(number, model, said is not None)
            if found is None:
                continue
            kind = OUTSIDE if is_beyond else self._kind(number, found.output, said)
            if kind == WRONG:
                return found
            first = first or dataclasses.replace(found, kind=kind)
        return first

    def _kind(self, number, output, said):
        """What a difference within the reported range is; NaN counts where the model tells it from numbers."""
        tensors = self._program.tensors(self.trials[number][1])
        nodes = dataclasses.replace(self._program.graph, outputs=(output,)).needed().nodes
        if said is not None and any(_is_of_large_angles(node, tensors) for node in nodes):
            return OUTSIDE
        holding = [name for name, each in tensors.items() if each.dtype.is_floating and np.isnan(each).any()]
        if said is None or not holding:
            return WRONG
        if said.names_nan:
            return SAID
        read = [node for node in nodes if not set(holding).isdisjoint(node.sources)]
        is_told = any(not tensors[node.name].dtype.is_floating or _CHOICES.search(node.text) for node in read)
        return WRONG if is_told else OUTSIDE

    def _found(self, number, model, has_two):
        """How a file differs on one trial, or None."""
        region, arrays, expected = self.trials[number]
        try:
            found = model(arrays)
        except Exception as error:  # A file that was accepted must run.
            if self._has_empty(arrays):
                return None
            return Outcome(WRONG, f"it does not run: {one_line(error)}", region, next(iter(expected)), arrays)
        for name, array in expected.items():
            text = self._compared(number, name, np.asarray(found[name]), array, has_two)
            if text:
                return Outcome(WRONG, text, region, name, arrays)
        return None

    def _has_empty(self, arrays):
        """Whether a tensor has no elements: runtimes refuse those."""
        return any(0 in tensor.shape for tensor in self._program.tensors(arrays).values())

    def _compared(self, number, name, found, expected, has_two):
        """How an output differs by more than rounding, or ""; not where Keras has two results, if those are asked for."""
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return f"{found.dtype} {found.shape} in place of {expected.dtype} {expected.shape}"
        found, expected = found.astype("float64"), expected.astype("float64")
        wrong = self._wrong(number, name, found, expected)
        if wrong.any() and has_two:
            compiled = self._compiled_output(number, name)
            if compiled is not None and compiled.shape == expected.shape:
                wrong &= ~self._wrong(number, name, compiled.astype("float64"), expected)
        if not wrong.any():
            return ""
        place = tuple(int(each) for each in np.argwhere(wrong)[0])
        count = f"{int(wrong.sum())} of {wrong.size} elements"
        return f"{count}: {found[place]:.9g} in place of {expected[place]:.9g} at {list(place)}"

    def _wrong(self, number, name, found, expected):
        """Where an output differs by more than rounding; not where Keras's is infinite or NaN."""
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        with np.errstate(invalid="ignore", over="ignore"):
            largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
            allowed = _ULP * (_UNITS * np.abs(expected) + _OF_LARGEST * largest) + _LEAST
            wrong = ~same & ~(np.abs(found - expected) <= allowed) & np.isfinite(expected)
            for draws in (_DRAWS, _DRAWS + _FURTHER):
                if wrong.any():
                    moved = allowed + _FACTOR * self._moved(number, draws)[name]
                    wrong &= ~(np.abs(found - expected) <= moved) & np.isfinite(moved)
        return wrong

    def _moved(self, number, draws):
        """How far noise on each tensor moves each output; infinite where it makes a number NaN."""
        _, arrays, expected = self.trials[number]
        zeros = {name: np.zeros(array.shape) for name, array in expected.items()}
        known, moved = self._rounding.get(number, (0, zeros))
        for _ in range(known, draws):
            found = self._program.tensors(arrays, _noise(self._random))
            for name, array in expected.items():
                moved[name] = np.maximum(moved[name], _distance(np.asarray(found[name]), array))
        self._rounding[number] = max(known, draws), moved
        return moved

    def _compiled_output(self, number, name):
        """What Keras computes of an output of a trial where XLA compiles it; None where that does not."""
        if (number, name) not in self._compiled:
            try:
                self._compiled[number, name] = self._program.compiled(self.trials[number][1], name)
            except Exception:  # Of operations that XLA does not have.
                self._compiled[number, name] = None
        return self._compiled[number, name]


def _is_of_large_angles(node, tensors):
    floats = [np.asarray(tensors[name]) for name in node.sources if tensors[name].dtype.is_floating]
    return bool(_WAVES.search(node.text)) and any((np.abs(each) > _LARGEST_ANGLE).any() for each in floats)


def _distance(found, expected):
    if found.shape != expected.shape:
        return np.full(expected.shape, np.inf)
    found, expected = found.astype("float64"), expected.astype("float64")
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        away = np.where(same, 0.0, np.abs(found - expected))
    return np.nan_to_num(away, nan=np.inf)


def _noise(random):
    """A change of tensors: each float by some units in its last place, and by some of what its summands are."""

    def change(node, tensor):
        if not tensor.dtype.is_floating:
            return tensor
        text, array = getattr(node, "text", ""), np.asarray(tensor)
        units = _OF_LARGEST * bool(_SUMS.search(text)) + _OF_COORDINATES * bool(_COORDINATES.search(text))
        absolute = units * _ULP * np.abs(array[np.isfinite(array)]).max(initial=0)
        absolute += _ABSOLUTE if _BOUNDED.search(text) else 0
        factor = 1 + _UNITS * _ULP * random.uniform(-1, 1, array.shape)
        moved = array * factor + absolute * random.uniform(-1, 1, array.shape)
        if absolute:  # What is smaller than a result is exact to may be 0, by which nothing is divided.
            moved = np.where(np.abs(array) < absolute, moved * random.choice([0, 1], array.shape), moved)
        if _UNDERFLOWS.search(text):  # Runtimes may have no denormal numbers, or others in a different order.
            least = _LEAST * random.choice([0, 1], array.shape) * random.uniform(-1, 1, array.shape)
            moved = np.where(np.abs(array) < _LEAST, least, moved)
        if text:  # The sign of a zero that is computed is as good as the other one.
            moved = np.where(array == 0, moved * random.choice([-1, 1], array.shape), moved)
        result = tf.constant(moved.astype(array.dtype))
        if getattr(tensor, "_keras_mask", None) is not None:
            result._keras_mask = tensor._keras_mask
        return result

    return change


@dataclasses.dataclass(frozen=True)
class Said:
    """What the report of an export says of a file.

    Args:
        ranges: dict of the name of an input to the least and the greatest number for which the file was compared.
        names_nan: bool. Whether the file is said to differ for NaN.
    """

    ranges: dict
    names_nan: bool

    @classmethod
    def of(cls, folder, format):
        """What the manifest of a bundle has of it."""
        manifest = read_manifest(folder)
        ranges = [each.ranges for each in manifest.domain.values()]
        return cls(functools.reduce(dict.__or__, ranges, {}), bool(manifest.artifact(format).known_differences))

    def is_beyond(self, arrays):
        """Whether a number, or an infinity, is beyond the ranges."""
        pairs = [(arrays[name], each) for name, each in self.ranges.items()]
        return any(((array < low) | (array > high)).any() for array, (low, high) in pairs)


def one_line(error):
    """The type and text of an error."""
    text = " ".join(re.sub(r"\x1b\[\d+m", "", str(error)).split())
    return f"{type(error).__name__}: {text}"[:600]
