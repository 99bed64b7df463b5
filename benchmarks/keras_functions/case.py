"""What a case of a function of Keras is, and the dict of them, `CASES`, that the modules beside this one fill."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

random = np.random.default_rng(5)


@dataclasses.dataclass(frozen=True)
class Case:
    """A call of a function.

    Args:
        function: of tensors; returns a tensor, or a list or tuple of them.
        arrays: its arguments.
        shapes: for each argument the shape of its input where sizes are dynamic, with None for those that are. By default
            the first axis of each is dynamic. An empty tuple where sizes have to be fixed: Keras's own function needs them.
    """

    function: Callable
    arrays: tuple
    shapes: tuple | None = None

    def inputs(self, kind):
        """The shapes of the inputs of the model of a kind, `"fixed"` or `"dynamic"`; None where there is no such model."""
        if kind == "fixed":
            return [each.shape for each in self.arrays]
        shapes = [(None, *each.shape[1:]) for each in self.arrays] if self.shapes is None else self.shapes
        return list(shapes) or None


CASES: dict[tuple[str, str], Case] = {}


def case(name, function, *arrays, label="", **options):
    """Adds a case of a function, under a label where there are several."""
    assert (name, label) not in CASES, (name, label)
    CASES[name, label] = Case(function, arrays, **options)


def each(names, *arrays, label="", module=keras.ops, prefix="", **options):
    """Adds a case of each of several functions that take the same arrays."""
    for name in names.split():
        case(prefix + name, getattr(module, name), *arrays, label=label, **options)


def normal(*shape):
    return random.normal(size=shape).astype("float32")


def uniform(low, high, *shape):
    return random.uniform(low, high, shape).astype("float32")


def whole(low, high, *shape, dtype="int32"):
    return random.integers(low, high, shape).astype(dtype)


# Floats of several sizes and both signs, integers, and booleans.
FLOATS = np.concatenate(
    [normal(1, 5), 4 * normal(1, 5), 0.1 * normal(1, 5), np.array([[0, -1, 2, 0.5, -2.5]], "float32")]
)
OTHERS = normal(4, 5)
WHOLE, DIVISORS = whole(-9, 10, 4, 5), np.array([[1, 2, -3, 4, -5]] * 4, "int32")
BOOLS, OTHER_BOOLS = whole(0, 2, 4, 5, dtype="bool"), whole(0, 2, 4, 5, dtype="bool")
ANY = ((None, None),)
PAIR = ((None, None), (None, None))
