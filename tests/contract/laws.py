"""What the contract tests share."""

import numpy as np


def built(case, **arguments):
    layer = case.make(**arguments)
    layer(*case.inputs())
    return layer


def randomise(layer, seed=0):
    """Weights that are all different and none zero: biases too."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        if weight.dtype.startswith("float"):
            weight.assign(rng.normal(0.1, 0.3, weight.shape) + 0.01)
    return layer
