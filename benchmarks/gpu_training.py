"""Training throughput on a GPU: samples/s and the share of the device's peak, against PyTorch if it is installed.

    KERAS_BACKEND=jax python benchmarks/gpu_training.py
    KERAS_BACKEND=jax python benchmarks/gpu_training.py --networks decoder --batch-size 32 --peak-tflops 989
    python benchmarks/gpu_training.py --device cpu --tiny        # smoke test

ViT-S/16 on images of 224 x 224, and a decoder of the size of GPT-2 small on 1024 tokens: `mixed_bfloat16`, XLA, `fit`.
PyTorch: bfloat16 autocast, `scaled_dot_product_attention`, fused AdamW, `torch.compile`. The batch is on the device in both,
so input pipelines are not measured.
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
from measure import Table, Turn, arguments, ratio, take_turns, timed, versions
from networks import TINY, Measures

from keras_transformer import models, tasks

NUM_CLASSES = 1000
VIT_S = Measures(num_layers=12, image_size=224)
GPT2_SMALL = Measures(12, 768, 12, 3072, length=1024, vocabulary_size=50257)
BATCH_SIZES = {"vit": 256, "decoder": 16}


def vit(measures):
    backbone = models.ViT(measures.size, measures.patch_size, measures.image_size)
    return tasks.ImageClassifier(backbone, NUM_CLASSES, activation=None)


def decoder(measures):
    length = measures.length
    return tasks.LanguageModel(models.Decoder(measures.size, measures.vocabulary_size, max_sequence_length=length))


def vit_batch(measures, batch_size):
    random = np.random.default_rng(0)
    images = random.random((batch_size, measures.image_size, measures.image_size, 3), dtype="float32")
    return images, random.integers(0, NUM_CLASSES, batch_size, dtype="int32")


def decoder_batch(measures, batch_size):
    token_ids = np.random.default_rng(0).integers(0, measures.vocabulary_size, (batch_size, measures.length + 1))
    return token_ids[:, :-1].astype("int32"), token_ids[:, 1:].astype("int32")


def vit_length(measures):
    return (measures.image_size // measures.patch_size) ** 2 + 1


NETWORKS = {"vit": (VIT_S, vit, vit_batch), "decoder": (GPT2_SMALL, decoder, decoder_batch)}


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
    inputs, labels = batch
    if "padding_mask" in (model.input if isinstance(model.input, dict) else {}):
        inputs = {"token_ids": inputs, "padding_mask": np.ones(inputs.shape, "bool")}
    data = _endless(inputs, labels)

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
    batch = keras.tree.map_structure(keras.ops.convert_to_tensor, (inputs, labels))
    return (batch for _ in itertools.count())


# PyTorch


def torch_turn(network, measures, batch, steps, device, compiled):
    """Returns the same function for PyTorch, and its parameter count."""
    import torch_networks

    if network == "vit":
        peer = torch_networks.ViT(measures, NUM_CLASSES)
        batch = (np.ascontiguousarray(batch[0].transpose(0, 3, 1, 2)), batch[1])
    else:
        peer = torch_networks.GPT(measures)
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


def measure(table, network, device, peak, options):
    measures, build, make_batch = NETWORKS[network]
    measures = measures._replace(**TINY) if options.tiny else measures
    batch_size = options.batch_size or (2 if options.tiny else BATCH_SIZES[network])
    batch = make_batch(measures, batch_size)
    model = build(measures)
    rivals = {"keras_transformer": keras_turn(model, batch, options.steps)}
    peer_device = torch_device(device) if options.torch else None
    if peer_device:
        compiled = options.torch_compile and not options.tiny
        rivals["torch"], parameters = torch_turn(network, measures, batch, options.steps, peer_device, compiled)
        if parameters != model.count_params():
            raise AssertionError(f"Not the same network: {model.count_params()} and {parameters} parameters")
    elif options.torch:
        table.note("PyTorch is not installed, or does not support this device: no peer.")
    turns = take_turns(rivals, options.rounds)
    length = measures.length if network == "decoder" else vit_length(measures)
    flops = training_flops(model.count_params(), measures, length, batch_size)
    for name, found in turns.items():
        seconds = statistics.median(turn.wall for turn in found)
        compared = ratio(turns["keras_transformer"], found) if name == "torch" else {}
        compared.pop("cpu_ratio", None)
        table.add(
            network=network,
            by=name,
            batch=batch_size,
            parameters=model.count_params(),
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
    keras.config.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(0)
    title = f"Training in mixed_bfloat16 with XLA, {backend} backend, {name}"
    table = Table(title, versions("keras-transformer", "keras", backend, "torch"))
    if warning:
        table.note(warning)
    for network in options.networks:
        keras.utils.clear_session()
        measure(table, network, device, peak, options)
    peak_words = f"{peak} TFLOP/s" if peak else "unknown: pass --peak-tflops"
    table.note(f"FLOPs: 6 x parameters x tokens + 12 x layers x length^2 x width per sequence. Peak: {peak_words}.")
    table.note(f"ratio: seconds of ours / of PyTorch, median of {options.rounds} turns of {options.steps} steps.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
