"""Bytes that a training step moves, beside those that it must move: what XLA compiles for `fit` on JAX.

    KERAS_BACKEND=jax python benchmarks/step_bytes.py
    KERAS_BACKEND=jax python benchmarks/step_bytes.py --networks gpt2_medium --batch-size 16

The step is compiled for the device of this machine and does not run; the model has no memory. A step must read and write the
weights and what the optimizer keeps, write and read the gradients, and write and read the activations that the backward pass
needs. XLA's count of bytes is of every operation after fusion, as if nothing stayed in a cache. On a CPU, which has neither
bfloat16 nor a fused kernel, it says how far fusion can go there, and nothing about a GPU.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "jax")

import math

import jax
import keras
import numpy as np
from gpu_networks import NETWORKS
from measure import Table, arguments, versions

from keras_transformer.backend.devices.unallocated import unallocated

GIGABYTE = 1e9


def described(tree):
    """Shapes and dtypes of variables, tensors or arrays."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(tuple(x.shape), keras.backend.standardize_dtype(x.dtype)), tree)


def size(tree):
    """Bytes of the arrays of a tree."""
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def compiled_step(model, batch):
    """Returns the state of `fit`, described, and its step as Keras compiles it: the state is donated."""
    model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True)
    with unallocated():
        model.optimizer.build(model.trainable_variables)
    kinds = (model.trainable_variables, model.non_trainable_variables)
    state = [described(list(each)) for each in (*kinds, model.optimizer.variables, model.metrics_variables)]
    step = jax.jit(model.train_step, donate_argnums=0)
    return state, step.lower(tuple(state), described(batch)).compile()


def saved_activations(model, state, batch):
    """Bytes of what the backward pass reads of the forward pass, without the weights."""
    inputs, labels = batch
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def forward(weights, others, inputs, labels):
        outputs, _ = model.stateless_call(weights, others, inputs, training=True)
        return loss(labels, outputs)

    def residuals(weights, others, inputs, labels):
        return jax.vjp(lambda weights: forward(weights, others, inputs, labels), weights)[1]

    saved = jax.eval_shape(residuals, state[0], state[1], described(inputs), described(labels))
    shapes = {leaf.shape for leaf in jax.tree.leaves(state[0])}
    return size([leaf for leaf in jax.tree.leaves(saved) if leaf.shape not in shapes])


def measure(table, name, options):
    network = NETWORKS[name].tiny() if options.tiny else NETWORKS[name]
    batch_size = options.batch_size or network.batch_size
    batch = network.batch(network.measures, batch_size)
    with unallocated():
        model = network.build(network.measures)
    state, step = compiled_step(model, batch)
    activations, gradients = saved_activations(model, state, batch), size(state[0])
    needed = 2 * (size(state) + gradients + activations)
    memory, moved = step.memory_analysis(), step.cost_analysis()["bytes accessed"]
    figures = {"state": size(state), "activations": activations, "needed": needed, "moved": moved}
    figures["temporary"] = memory.temp_size_in_bytes
    table.add(
        network=name,
        batch=batch_size,
        **{f"{part}_gb": float(f"{count / GIGABYTE:.3g}") for part, count in figures.items()},
        ratio=round(moved / needed, 2),
        donated=round(memory.alias_size_in_bytes / size(state), 3),
    )


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=["vit_s16", "bert_base", "gpt2_medium"])
    parser.add_argument("--batch-size", type=int, help="by default that of gpu_training.py")
    return parser.parse_args()


def main():
    options = parse()
    if keras.backend.backend() != "jax":
        raise SystemExit("step_bytes compiles for JAX: set KERAS_BACKEND=jax.")
    device = jax.devices()[0]
    table = Table(f"Bytes of a training step, {device.device_kind}", versions("keras-transformer", "keras", "jax"))
    for name in options.networks:
        keras.utils.clear_session()
        keras.config.set_dtype_policy("mixed_bfloat16")  # Which clearing the session has reset.
        measure(table, name, options)
    table.note("needed: state, gradients and activations, each once in and once out. temporary: peak beside the state.")
    table.note("donated: the fraction of the state that is updated in place.")
    if device.platform == "cpu":
        table.note("Compiled for a CPU, without a fused kernel: the scores of attention are among what it moves.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
