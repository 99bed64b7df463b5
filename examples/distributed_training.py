"""Trains a language model or a Vision Transformer on many devices, and resumes after an interruption.

    python examples/distributed_training.py --devices 2                    # two virtual CPU devices
    python examples/distributed_training.py --model image                  # all GPUs of this machine
    KERAS_BACKEND=jax python examples/distributed_training.py --devices 8 --model-parallel 4
    KERAS_BACKEND=jax python examples/distributed_training.py --devices 8 --fully-sharded

On TensorFlow, TF_CONFIG connects several processes, as `examples/kubernetes/workers.yaml` does for a cluster; all of them
share the folder `--checkpoints`. Two processes on this machine:

    export TF_CONFIG='{"cluster": {"worker": ["localhost:2222", "localhost:2223"]}, "task": {"type": "worker", "index": 0}}'

and the same with index 1 in another shell. Kill one with `kill -9` and restart both: each step runs, and counts, once.

The language model learns the characters of `--data`, a text file; by default, sums such as "17+25=42". The ViT learns the
classes of `--data`, folders or zips of images as `data.load_images` reads them; by default, in which of nine cells of a
noisy image a bright spot is. `--batch-size` is the global batch size.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # Nothing may start the backend before the devices are set.
    import keras
    import numpy as np

    from keras_transformer import data

    # Functions that create the batches and the model.
    Task: TypeAlias = tuple[Callable[[], data.BatchStream], Callable[[], keras.Model]]

LANGUAGE_SIZE = (4, 128, 4, 512)
IMAGE_SIZE = (4, 128, 4, 256)
CONTEXT = 64


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("language", "image"), default="language")
    parser.add_argument("--data", type=Path, help="text file, or folder of images; default: synthetic data")
    parser.add_argument("--devices", type=int, help="number of virtual CPU devices")
    parser.add_argument("--model-parallel", type=int, default=1, help="devices that the weights are sharded over (JAX)")
    parser.add_argument(
        "--fully-sharded", action="store_true", help="split weights and optimizer over all devices (JAX)"
    )
    parser.add_argument(
        "--checkpoints", type=Path, default=Path("distributed_training"), help="directory of the training checkpoint"
    )
    parser.add_argument("--save-freq", type=int, default=20, help="batches between checkpoints")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="batches per epoch of the language model")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--recompute", action="store_true", help="recompute activations in the backward pass")
    parser.add_argument("--quick", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.steps, arguments.save_freq = 2, 4, 2
    return arguments


def main() -> None:
    arguments = parse_arguments()
    set_devices(arguments.devices)
    import keras

    from keras_transformer import training

    keras.utils.set_random_seed(0)
    batches, build = {"language": language, "image": image}[arguments.model](arguments)

    def compile_model(model):
        if arguments.recompute:
            training.recompute_blocks(model)
        optimizer = keras.optimizers.AdamW(arguments.learning_rate, global_clipnorm=1.0)
        model.compile(optimizer, training.MaskedCrossentropy(), metrics=[training.MaskedAccuracy(name="accuracy")])

    # First: TensorFlow must connect its workers before any other operation.
    model = training.distributed(
        build, compile_model, model_parallel=arguments.model_parallel, fully_sharded=arguments.fully_sharded
    )
    batches = batches()
    is_split = arguments.fully_sharded or arguments.model_parallel > 1
    checkpoint_class = training.ShardedCheckpoint if is_split else training.TrainingCheckpoint
    checkpoint = checkpoint_class(arguments.checkpoints, batches, arguments.save_freq)
    is_first = training.is_chief(model)
    history = model.fit(
        batches.repeat(),
        steps_per_epoch=len(batches),
        epochs=arguments.epochs,
        callbacks=[checkpoint],
        shuffle=False,  # The batches are already shuffled.
        verbose=2 if is_first else 0,
    ).history
    if is_first:
        print(f"loss {history['loss'][-1]:.4f} after {arguments.epochs} epochs of {len(batches)} steps", flush=True)


def set_devices(count: int | None) -> None:
    """Creates virtual CPU devices; must run before the backend starts."""
    if count is None:
        return
    if os.environ.get("KERAS_BACKEND") == "jax":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}".strip()
        return
    import tensorflow as tf

    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * count)


def language(arguments: argparse.Namespace) -> Task:
    """Returns functions that create the batches and the model of the characters of a text."""
    import numpy as np

    from keras_transformer import data, models, tasks, text

    content = arguments.data.read_text(encoding="utf-8") if arguments.data else sums()
    tokenizer = text.Characters.train([content])
    token_ids = np.array(tokenizer.encode(content), "int32")
    size = models.Size(1, 16, 2, 32) if arguments.quick else models.Size(*LANGUAGE_SIZE)

    def build():
        backbone = models.Decoder(size, tokenizer.vocabulary_size, max_sequence_length=CONTEXT)
        return tasks.LanguageModel(backbone)

    def batches():
        return data.language_model_batches(token_ids, CONTEXT, arguments.batch_size, arguments.steps)

    return batches, build


def image(arguments: argparse.Namespace) -> Task:
    """Returns functions that create the batches and the model of the classes of images."""
    import numpy as np

    from keras_transformer import data, models, tasks

    if arguments.data:
        pixels, labels = (np.asarray(part) for part in data.load_images(data_dir=arguments.data).train)
    else:
        pixels, labels = spots(256 if arguments.quick else 4096)
    size = models.Size(1, 16, 2, 32) if arguments.quick else models.Size(*IMAGE_SIZE)
    steps = len(labels) // arguments.batch_size

    def build():
        backbone = models.ViT(size, 4, pixels.shape[1:3], num_channels=pixels.shape[3])
        classifier = tasks.ImageClassifier(backbone, int(labels.max()) + 1, activation=None)
        return data.on_pixels(classifier, pixels[:1000])

    def make(epoch, step):
        # A function of epoch and step only, so that a resumed training gets the same batches.
        order = np.random.default_rng([0, epoch]).permutation(len(labels))
        rows = order[step * arguments.batch_size : (step + 1) * arguments.batch_size]
        return pixels[rows].astype("float32"), labels[rows].astype("int32")

    def batches():
        return data.BatchStream(make, steps, fingerprint=f"{pixels.shape} {arguments.batch_size}", fixed_shapes=True)

    return batches, build


def sums() -> str:
    """Returns a text of sums, one per line."""
    import numpy as np

    pairs = np.random.default_rng(0).integers(0, 50, (2000, 2))
    return "".join(f"{a}+{b}={a + b}\n" for a, b in pairs)


def spots(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns noisy images of 12 x 12 pixels with a bright spot in one of nine cells, and the index of the cell."""
    import numpy as np

    drawn = np.random.default_rng(0)
    labels = drawn.integers(0, 9, count)
    pixels = drawn.integers(0, 128, (count, 12, 12, 1))
    for one, label in zip(pixels, labels, strict=True):
        row, column = 4 * (label // 3), 4 * (label % 3)
        one[row : row + 4, column : column + 4] += 64
    return pixels.astype("uint8"), labels


if __name__ == "__main__":
    main()
