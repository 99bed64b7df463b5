"""Inputs of all regions: ordinary, zero, tiny, large, the ends of a type, infinities and NaN, in many batches and lengths.

Denormal numbers are no region: some threads of TensorFlow take them as zero, and others do not.
"""

import numpy as np

BATCHES, LENGTHS = (1, 2, 3, 4, 7, 8, 16), (1, 8, 9, 16, 33)
_MOST = np.finfo("float32").max
# What each region gives an input of floats: of a generator of random numbers and a shape.
FLOATS = {
    "normal": lambda random, shape: random.normal(size=shape),
    "constant": lambda random, shape: np.full(shape, random.normal()),
    "zero": lambda random, shape: np.zeros(shape),
    "signed zero": lambda random, shape: random.choice([0.0, -0.0, 1.0], shape),
    "whole": lambda random, shape: random.integers(-6, 7, shape) / random.choice([1, 2]),
    "thirty": lambda random, shape: 30 * random.normal(size=shape),
    "pixels": lambda random, shape: random.integers(0, 256, shape),
    "tiny": lambda random, shape: 1e-6 * random.normal(size=shape),
    "least": lambda random, shape: 1e-30 * random.normal(size=shape),
    "large": lambda random, shape: 10.0 ** random.uniform(3, 12) * random.normal(size=shape),
    "most": lambda random, shape: random.choice([_MOST, -_MOST, 1e30, -1e30, 0.0], shape),
    "infinite": lambda random, shape: _some(random, shape, [np.inf, -np.inf]),
    "nan": lambda random, shape: _some(random, shape, [np.nan]),
}
# What it gives an input of integers, of their least and largest value; other regions give what "normal" does.
INTEGERS = {
    "normal": lambda random, shape, low, high: random.integers(max(low, -9), 10, shape),
    "constant": lambda random, shape, low, high: np.full(shape, random.integers(max(low, -3), 4)),
    "zero": lambda random, shape, low, high: np.zeros(shape),
    "thirty": lambda random, shape, low, high: random.integers(max(low, -300), min(high, 300), shape),
    "pixels": lambda random, shape, low, high: random.integers(0, min(high, 256), shape),
    "large": lambda random, shape, low, high: random.integers(max(low, -(10**9)), min(high, 10**9), shape),
    "most": lambda random, shape, low, high: random.choice(np.array([low, low + 1, 0, high - 1, high]), shape),
}
# The regions that data of users are in; a difference elsewhere is told apart.
ORDINARY = ("normal", "constant", "zero", "whole", "thirty", "pixels", "tiny")


def _some(random, shape, values):
    """Normal numbers, one of eight replaced."""
    return np.where(random.random(shape) < 0.125, random.choice(values, shape), random.normal(size=shape))


def arrays_of(inputs, region, batch, lengths, random):
    """Arrays by the names of inputs.

    Args:
        inputs: list of `Input`.
        region: a key of `FLOATS`.
        batch: the size of a dynamic first axis.
        lengths: the sizes of other dynamic axes, by index.
        random: `numpy.random.Generator`.
    """
    sizes = (batch, *lengths)
    found = {}
    for each in inputs:
        shape = tuple(sizes[axis] if size is None else size for axis, size in enumerate(each.shape))
        found[each.name] = _values(each.dtype, region, shape, random)
    return found


def _values(dtype, region, shape, random):
    if dtype == "bool":
        return random.random(shape) < {"zero": 0.0, "constant": 1.0}.get(region, 0.5)
    if dtype == "float32":
        return np.asarray(FLOATS[region](random, shape)).astype(dtype)
    ends = np.iinfo(dtype)
    draw = INTEGERS.get(region, INTEGERS["normal"])
    return np.asarray(draw(random, shape, int(ends.min), int(ends.max))).astype(dtype)


def trials(graph, seed, regions=tuple(FLOATS)):
    """Yields regions with arrays: each region once, with a batch and lengths of its own."""
    random = np.random.default_rng(seed)
    for region in regions:
        lengths = random.choice(LENGTHS, 5)
        if any(len(each.shape) > 3 for each in graph.inputs):
            lengths = np.minimum(np.maximum(lengths, 8), 16)
        yield region, arrays_of(graph.inputs, region, random.choice(BATCHES), lengths, random)
