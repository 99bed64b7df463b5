"""What the contract tests share."""

import numpy as np


def built(case, **arguments):
    layer = case.make(**arguments)
    layer(*case.inputs())
    return layer


def randomise(layer, seed=0, scale=0.3):
    """Weights that are all different and none zero: biases too."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        if weight.dtype.startswith("float"):
            values = rng.normal(0.1, scale, weight.shape)
            weight.assign(np.abs(values) if weight.name == "moving_variance" else values)
    return layer
