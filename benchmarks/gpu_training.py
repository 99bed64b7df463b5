"""Training throughput on a GPU: samples/s and the share of the device's peak, against PyTorch if it is installed.

    KERAS_BACKEND=jax python benchmarks/gpu_training.py --json gpu.json
    KERAS_BACKEND=jax python benchmarks/gpu_training.py --networks gpt2_medium --batch-size 16 --peak-tflops 989
    python benchmarks/gpu_training.py --device cpu --tiny        # smoke test

ViT-S/16 on images of 224 x 224, BERT-base on 512 tokens, GPT-2 small and medium on 1,024: `mixed_bfloat16`, XLA, `fit`, full
rows without a padding mask, no dropout, which no fused kernel of JAX supports. PyTorch: bfloat16 autocast,
`scaled_dot_product_attention`, fused AdamW, `torch.compile`. The batch is on the device in both, so input pipelines are not
measured. On JAX neither TensorFlow nor its packages need be installed.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # Leaves GPU memory for PyTorch.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import argparse
import importlib.util
import itertools
import statistics
import time

import keras
import numpy as np
from flops import peak_tflops, training_flops
from gpu_networks import NETWORKS, multiplied_parameters
from measure import Table, Turn, arguments, ratio, take_turns, timed, versions

BATCH_SIZES = {name: network.batch_size for name, network in NETWORKS.items()}

# Keras


class _Clock(keras.callbacks.Callback):
    """Time of one epoch, from its first step until the loss of the last one is computed."""

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter(), time.process_time()

    def on_epoch_end(self, epoch, logs=None):
        float(logs["loss"])
        self.wall = time.perf_counter() - self._start[0]
        self.cpu = time.process_time() - self._start[1]


def keras_turn(model, batch, steps):
    """Returns a function that runs `fit` for `steps` steps and returns the `Turn` of one step."""
    model.compile(
        keras.optimizers.AdamW(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True
    )
    data = _endless(*batch)

    def turn():
        clock = _Clock()
        model.fit(data, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[clock])
        return Turn(clock.wall / steps, clock.cpu / steps)

    turn()
    return turn


def _endless(inputs, labels):
    """Returns a stream that repeats one batch, on the device if the backend supports it."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensors((inputs, labels)).repeat()
        gpus = tf.config.list_logical_devices("GPU")
        return data.apply(tf.data.experimental.copy_to_device(gpus[0].name)).prefetch(2) if gpus else data
    convert = keras.ops.convert_to_tensor
    batch = keras.tree.map_structure(lambda array: array if array is None else convert(array), (inputs, labels))
    return (batch for _ in itertools.count())


# PyTorch


def torch_turn(network, batch, steps, device, compiled):
    """Returns the same function for PyTorch, and its parameter count."""
    import torch_networks

    peer, (inputs, labels) = network.peer(torch_networks, network.measures), batch
    inputs = inputs["token_ids"] if isinstance(inputs, dict) else np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
    batch = inputs, labels
    step = torch_networks.training_step(peer, batch, device, compiled)

    def run():
        for _ in range(steps):
            step()
        torch_networks.wait(device)

    turn = timed(run, warm_up=2)
    return lambda: Turn(*(seconds / steps for seconds in turn())), torch_networks.count_parameters(peer)


# The machine


def device_name():
    """Returns the GPU (or TPU) of the backend, or None."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else None


def torch_device(device):
    """Returns the device of the peer, "cuda" or "cpu", or None if PyTorch is missing or does not support the GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if device == "cpu":
        return "cpu"
    return "cuda" if torch.cuda.is_available() else None


# The table


def measure(table, name, device, peak, options):
    network = NETWORKS[name].tiny() if options.tiny else NETWORKS[name]
    batch_size = options.batch_size or network.batch_size
    batch, model = network.batch(network.measures, batch_size), network.build(network.measures)
    parameters = model.count_params()
    rivals = {"keras_transformer": keras_turn(model, batch, options.steps)}
    peer_device = torch_device(device) if options.torch else None
    if peer_device:
        compiled = options.torch_compile and not options.tiny
        rivals["torch"], found = torch_turn(network, batch, options.steps, peer_device, compiled)
        if found != parameters:
            raise AssertionError(f"Not the same network: {parameters} and {found} parameters")
    elif options.torch:
        table.note("PyTorch is not installed, or does not support this device: no peer.")
    turns = take_turns(rivals, options.rounds)
    multiplied = multiplied_parameters(network, parameters)
    flops = training_flops(multiplied, network.measures, network.length(network.measures), batch_size)
    for by, found in turns.items():
        seconds = statistics.median(turn.wall for turn in found)
        compared = ratio(turns["keras_transformer"], found) if by == "torch" else {}
        compared.pop("cpu_ratio", None)
        table.add(
            network=name,
            by=by,
            dtype=model.compute_dtype,
            batch=batch_size,
            parameters=parameters,
            samples_per_s=round(batch_size / seconds, 2),
            tflops=float(f"{flops / seconds / 1e12:.3g}"),
            share_of_peak=peak and round(flops / seconds / 1e12 / peak, 3),
            **compared,
        )


def choose_device(options):
    """Returns ("gpu" or "cpu", device name, note)."""
    name = device_name() if options.device != "cpu" else None
    if name:
        return "gpu", name, None
    if options.device == "gpu":
        raise SystemExit(f"The {keras.backend.backend()} backend finds no GPU.")
    options.tiny = True
    found = "NO GPU WAS ASKED FOR" if options.device == "cpu" else "NO GPU WAS FOUND"
    return "cpu", "CPU", f"{found}: toy networks on the CPU. These figures say nothing about a GPU."


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--device", choices=["auto", "gpu", "cpu"], default="auto", help="auto: a GPU if there is one")
    parser.add_argument("--peak-tflops", type=float, help="of the device, in bfloat16; by default from its name")
    parser.add_argument("--batch-size", type=int, help=f"by default {BATCH_SIZES}")
    parser.add_argument("--steps", type=int, default=20, help="training steps per turn")
    parser.add_argument("--torch", action=argparse.BooleanOptionalAction, default=True, help="measure PyTorch too")
    parser.add_argument(
        "--torch-compile", action=argparse.BooleanOptionalAction, default=True, help="compile PyTorch's step"
    )
    return parser.parse_args()


def main():
    options = parse()
    device, name, warning = choose_device(options)
    peak = options.peak_tflops or peak_tflops(name)
    backend = keras.backend.backend()
    keras.utils.set_random_seed(0)
    title = f"Training in mixed_bfloat16 with XLA, {backend} backend, {name}"
    table = Table(title, versions("keras-transformer", "keras", backend, "torch"))
    if warning:
        table.note(warning)
    for network in options.networks:
        keras.utils.clear_session()
        keras.config.set_dtype_policy("mixed_bfloat16")  # Which clearing the session has reset.
        measure(table, network, device, peak, options)
    peak_words = f"{peak} TFLOP/s" if peak else "unknown: pass --peak-tflops"
    table.note(
        f"FLOPs: 6 x multiplied parameters x tokens + 12 x layers x length^2 x width per sequence. Peak: {peak_words}."
    )
    table.note(f"ratio: seconds of ours / of PyTorch, median of {options.rounds} turns of {options.steps} steps.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
