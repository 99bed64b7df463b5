"""Trains a compact Vision Transformer on CIFAR-10 from scratch and exports it to three runtimes.

    python examples/image_classification.py --data-dir DIR      # DIR/train.zip and DIR/test.zip, or folders of images
    python examples/image_classification.py                     # CIFAR-10, downloaded by Keras

The script prints the training curve by epoch and the accuracy on the whole test set, and writes to `--out`:
`model.keras`, `history.json`, `curve.png` and `bundle/` with a SavedModel, a TFLite and an ONNX file, compared with the
Keras model. The models take raw pixels, 0 to 255.

There are two stems, with the same encoder of 6 blocks of width 128 over 64 tokens:

    --stem conv    three 3x3 convolutions (Xiao et al., arXiv 2106.14881)
    --stem patch   patches of 4x4 pixels, as in the paper (Dosovitskiy et al., arXiv 2010.11929)

The default training takes about an hour on 2 cores. With a GPU, bfloat16 and XLA are enabled.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import models, plots, tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import EncoderBlock
from keras_transformer.data import Augmentation, ImageData, batches, load_images, on_pixels
from keras_transformer.export import ExportOptions, export
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.positions import Learned
from keras_transformer.training import WarmupCosine

SIZE = models.Size(num_layers=6, hidden_dim=128, num_heads=4, intermediate_dim=256)
AUGMENTATION = Augmentation(shift=4, flip=True, color=0.2)
LABEL_SMOOTHING = 0.1
WEIGHT_DECAY = 0.05


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    # On 2 CPU cores bfloat16 is slower than float32, and XLA is slower with strided convolutions.
    keras.config.set_dtype_policy("mixed_bfloat16" if on_gpu else "float32")
    use_xla = on_gpu or arguments.stem == "patch"

    data = load_images(None if arguments.data_dir else "cifar10", arguments.data_dir)
    model = build_model(arguments.stem, data)
    model.summary(line_length=100)
    history = train(model, data, arguments, use_xla)
    model.save(arguments.out / "model.keras")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))
    plots.training_curve(history).savefig(arguments.out / "curve.png", dpi=150)

    test = batches(data.test, 500, len(data.class_names))
    accuracy = model.evaluate(test, verbose=0, return_dict=True)["accuracy"]
    print(f"test accuracy: {accuracy:.2%} of {len(data.test.labels)} images", flush=True)
    probes = [{"images": data.test.images[:count].astype("float32")} for count in (1, 5)]
    options = ExportOptions(metadata={"class_names": list(data.class_names)})
    print(export(model, arguments.out / "bundle", probes=probes, options=options))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folders or zips of images; default: keras.datasets.cifar10")
    parser.add_argument("--out", type=Path, default=Path("image_classification"), help="output directory")
    parser.add_argument("--stem", choices=("conv", "patch"), default="conv")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def build_model(stem: str, data: ImageData) -> keras.Model:
    """Returns the classifier: normalization, tokens, encoder, mean over tokens, linear head."""
    image_shape = data.train.images.shape[1:]
    if stem == "patch":
        backbone = models.ViT(SIZE, 4, image_shape[:2], num_channels=image_shape[2], class_token=False)
    else:
        backbone = convolutional_vit(image_shape)
    classifier = tasks.ImageClassifier(backbone, len(data.class_names), pooling="mean")
    return on_pixels(classifier, data.train.images, name="image_classification")


def convolutional_vit(image_shape: tuple[int, ...]) -> keras.Model:
    """Returns a ViT with a convolutional stem; each token has a receptive field of 9 x 9 pixels."""
    images = keras.Input(image_shape, name="images")
    x = convolution(32, strides=1)(images)
    x = convolution(64, strides=2)(x)
    x = keras.layers.Conv2D(SIZE.hidden_dim, 3, strides=2, padding="same", name="to_tokens")(x)
    x = keras.layers.Reshape((-1, SIZE.hidden_dim), name="tokens")(x)
    x = Learned(x.shape[1], name="position_embedding")(x)
    for index in range(SIZE.num_layers):
        attention = MultiHeadAttention(SIZE.num_heads, SIZE.hidden_dim // SIZE.num_heads, name="self_attention")
        feed_forward = DenseFeedForward(SIZE.intermediate_dim, activation="gelu")
        x = EncoderBlock(attention, feed_forward, name=f"encoder_block_{index}")(x)
    x = keras.layers.LayerNormalization(name="final_norm")(x)
    return keras.Model(images, x, name="convolutional_vit")


def convolution(filters: int, strides: int) -> keras.Sequential:
    layers = [
        keras.layers.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False),
        keras.layers.BatchNormalization(),
        keras.layers.ReLU(),
    ]
    return keras.Sequential(layers, name=f"convolution_{filters}")


def train(model: keras.Model, data: ImageData, arguments: argparse.Namespace, use_xla: bool) -> dict[str, Any]:
    """Trains the model; returns the history and the training time."""
    num_classes = len(data.class_names)
    training = batches(
        data.train,
        arguments.batch_size,
        num_classes,
        augmentation=AUGMENTATION,
        label_smoothing=LABEL_SMOOTHING,
        shuffle=True,
        seed=arguments.seed,
    )
    # 1,000 test images per epoch are enough for the curve; they are not used for model selection.
    some = np.random.default_rng(0).permutation(len(data.test.labels))[:1000]
    glimpse = batches((data.test.images[some], data.test.labels[some]), 500, num_classes)
    steps = len(training) * arguments.epochs
    schedule = WarmupCosine(arguments.learning_rate, warmup_steps=steps // 10, total_steps=steps)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "embedding"])
    model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"], jit_compile=use_xla)
    start, start_cpu = time.perf_counter(), cpu_seconds()
    # The batches are already shuffled.
    history = model.fit(training, validation_data=glimpse, epochs=arguments.epochs, shuffle=False, verbose=2).history
    wall, cpu = time.perf_counter() - start, cpu_seconds() - start_cpu
    print(f"trained for {wall / 60:.1f} minutes, {cpu / 60:.1f} minutes of CPU time", flush=True)
    return {**history, "seconds": wall, "cpu_seconds": cpu}


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
