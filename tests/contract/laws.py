"""Helpers shared by the contract tests."""

import numpy as np
from keras import ops


def built(case, **arguments):
    layer = case.make(**arguments)
    layer(*case.inputs())
    return layer


def randomize(layer, seed=0, scale=0.3):
    """Sets all weights, including biases, to different values other than zero."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        if weight.dtype.startswith("float"):
            values = rng.normal(0.1, scale, weight.shape)
            weight.assign(np.abs(values) if weight.name == "moving_variance" else values)
    return layer


def check_pieces(layer, x, sizes, max_length, atol=1e-5):
    """Asserts that chunks of these sizes, processed with the cache, give the outputs of the full pass `(B, T, D)`."""
    whole = as_float32(layer(x, x, use_causal_mask=True))
    cache, outputs, index = layer.init_cache(x.shape[0], max_length), [], 0
    for size in sizes:
        part = x[:, index : index + size]
        output, cache = layer(part, part, cache=cache, cache_index=np.int32(index))
        outputs.append(as_float32(output))
        index += size
    # Rounding is relative to the largest terms of a sum.
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole, atol=atol * max(1.0, np.abs(whole).max()))


def as_float32(x):
    """Returns a tensor of any float dtype as a float32 NumPy array."""
    return ops.convert_to_numpy(ops.cast(x, "float32"))
