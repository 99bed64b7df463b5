"""Trains a language model or a Vision Transformer on many devices, and goes on where it stood when it was ended.

    python examples/distributed_training.py --devices 2                    # two virtual devices of this processor
    python examples/distributed_training.py --model image                  # all GPUs of this machine
    KERAS_BACKEND=jax python examples/distributed_training.py --devices 8 --model-parallel 4

On TensorFlow, several processes work together where TF_CONFIG names them, as `examples/kubernetes/workers.yaml` does for a
cluster; all see the folder `--checkpoints`. Two of them on this machine:

    export TF_CONFIG='{"cluster": {"worker": ["localhost:2222", "localhost:2223"]}, "task": {"type": "worker", "index": 0}}'

and the same with index 1 in another shell. End one with `kill -9`, and both again: each step is made, and counted, once.

The language model learns the characters of `--data`, a text file; without one, sums such as "17+25=42". The ViT learns the
classes of `--data`, folders or zips of images as `data.load_images` takes them; without, in which of nine fields of a
noisy image a bright spot is. `--batch-size` is that of all devices together.
"""

import argparse
import os
from pathlib import Path

LANGUAGE_SIZE = (4, 128, 4, 512)
IMAGE_SIZE = (4, 128, 4, 256)
CONTEXT = 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("language", "image"), default="language")
    parser.add_argument("--data", type=Path, help="a text file, or the folder of the images; made up without it")
    parser.add_argument("--devices", type=int, help="so many virtual devices, all of this processor")
    parser.add_argument("--model-parallel", type=int, default=1, help="devices that share the weights (JAX)")
    parser.add_argument(
        "--checkpoints", type=Path, default=Path("distributed_training"), help="where the state is kept"
    )
    parser.add_argument("--save-freq", type=int, default=20, help="batches from one checkpoint to the next")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="batches an epoch, of the language model")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--recompute", action="store_true", help="compute activations twice rather than keep them")
    parser.add_argument("--quick", action="store_true", help="a tiny run that shows that everything works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.steps, arguments.save_freq = 2, 4, 2
    return arguments


def main():
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

    # First of all: TensorFlow joins its workers before it does anything else.
    model = training.distributed(build, compile_model, model_parallel=arguments.model_parallel)
    batches = batches()
    checkpoint = training.TrainingCheckpoint(arguments.checkpoints, batches, arguments.save_freq)
    is_first = training.is_chief(model)
    history = model.fit(
        batches.repeat(),
        steps_per_epoch=len(batches),
        epochs=arguments.epochs,
        callbacks=[checkpoint],
        shuffle=False,  # The batches come shuffled.
        verbose=2 if is_first else 0,
    ).history
    if is_first:
        print(f"loss {history['loss'][-1]:.4f} after {arguments.epochs} epochs of {len(batches)} steps", flush=True)


def set_devices(count):
    """Splits this processor into virtual devices; before the backend starts."""
    if count is None:
        return
    if os.environ.get("KERAS_BACKEND") == "jax":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={count}".strip()
        return
    import tensorflow as tf

    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * count)


def language(arguments):
    """Functions to the batches and to a model of the characters of a text."""
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


def image(arguments):
    """Functions to the batches and to a model of the classes of images."""
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
        # A function of epoch and step alone: whoever starts in the midst finds the same batch.
        order = np.random.default_rng([0, epoch]).permutation(len(labels))
        rows = order[step * arguments.batch_size : (step + 1) * arguments.batch_size]
        return pixels[rows].astype("float32"), labels[rows].astype("int32")

    def batches():
        return data.BatchStream(make, steps, fingerprint=f"{pixels.shape} {arguments.batch_size}", fixed_shapes=True)

    return batches, build


def sums():
    """A text of sums, one a line."""
    import numpy as np

    pairs = np.random.default_rng(0).integers(0, 50, (2000, 2))
    return "".join(f"{a}+{b}={a + b}\n" for a, b in pairs)


def spots(count):
    """Noisy images of 12 x 12 pixels with a bright spot in one of nine fields, and which."""
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
