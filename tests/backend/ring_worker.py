"""Compares ring attention on eight virtual devices with softmax attention on one; prints differences and sizes, as JSON."""

import json
import math
import os
import re

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"

import jax
import keras
import numpy as np

from keras_transformer.attention import SoftmaxAttention
from keras_transformer.attention.masks import Visibility
from keras_transformer.backend.kernels.ring_attention import Ring, ring_attention
from keras_transformer.training.distribution.communication import collectives

# Name -> shape of the mesh, heads of queries and keys, causal, masked, length of rows.
CASES = {
    "plain": ((1, 8, 1), 2, 2, False, False, 256),
    "causal": ((1, 8, 1), 2, 2, True, False, 256),
    "causal, three devices of odd parts": ((1, 3, 1), 2, 1, True, True, 57),
    "grouped, masked": ((2, 4, 1), 4, 2, False, True, 256),
    "causal, grouped, masked, heads split": ((2, 2, 2), 4, 2, True, True, 256),
}
BATCH, WIDTH = 2, 16


def compared(shape, heads, key_heads, causal, masked, length):
    devices = keras.distribution.list_devices("cpu")[: int(np.prod(shape))]
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "sequence", "model"), devices)
    ring = Ring(mesh, "sequence", "batch", "model")
    drawn = np.random.default_rng(0)
    counts = (
        heads,
        key_heads,
        key_heads,
        heads,
    )  # Of query, key and value, and of the weights of the context in the loss.
    inputs = [drawn.normal(size=(BATCH, length, count, WIDTH)).astype("float32") for count in counts]
    mask = np.ones((BATCH, length), bool)
    if masked:
        mask[0, 40:] = mask[1, :5] = False  # The first queries of the second row attend to none, if causal.
    softmax = SoftmaxAttention(flash_attention=None)
    slots = np.arange(length)
    visibility = Visibility.from_slots(slots, slots, causal=causal, key_mask=mask if masked else None)

    def whole(query, key, value, weights):
        context = softmax(query, key, value, visibility=visibility)
        return (context * weights).sum(), context

    def split(query, key, value, weights):
        context = ring_attention(query, key, value, ring, mask if masked else None, causal)
        return (context * weights).sum(), context

    spec = jax.sharding.PartitionSpec("batch", "sequence", "model")
    sharding = jax.sharding.NamedSharding(mesh.backend_mesh, spec)
    results = []
    for function, arrays in ((whole, inputs), (split, [jax.device_put(each, sharding) for each in inputs])):
        compiled = jax.jit(jax.grad(function, (0, 1, 2), has_aux=True)).lower(*arrays).compile()
        gradients, context = compiled(*arrays)
        results.append([np.asarray(each) for each in (context, *gradients)])
    program = compiled.as_text()
    return {
        "work": multiplications(jax.make_jaxpr(jax.grad(split, (0, 1, 2), has_aux=True))(*inputs).jaxpr),
        "difference": max(float(abs(a - b).max()) for a, b in zip(*results, strict=True)),
        "largest": max(math.prod(map(int, size.split(","))) for size in re.findall(r"\w\d+\[([\d,]+)\]", program)),
        "exchanged": sorted({each.name for each in collectives(program)}),
    }


def multiplications(jaxpr, times=1):
    """Those of the matrix products of one device, which run the same program."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += times * inner * math.prod(equation.outvars[0].aval.shape)
        repeated = times * equation.params.get("length", 1)
        for part in jax.core.jaxprs_in_params(equation.params):
            total += multiplications(part, repeated)
    return total


if __name__ == "__main__":
    for name, case in CASES.items():
        print(json.dumps({"name": name, **compared(*case)}), flush=True)
