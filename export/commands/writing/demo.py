"""The command `demo`: trains a small Vision Transformer on real images, exports it and compares the three runtimes."""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import time
from typing import TYPE_CHECKING, Any

from keras_transformer.export.commands.console import positive_int, print_status
from keras_transformer.export.errors import ExportError

if TYPE_CHECKING:
    import keras

    from keras_transformer.data import ImageData
    from keras_transformer.export.reporting.comparison import Comparison

EXAMPLES = ["", "--dataset cifar10"]
DATASETS = ("digits", "cifar10", "fashion_mnist", "mnist")
BATCH = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `keras-transformer demo`."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--dataset",
        choices=DATASETS,
        help="digits (default) is part of scikit-learn, the others are downloaded once",
    )
    source.add_argument(
        "--data-dir",
        type=pathlib.Path,
        metavar="DIR",
        help="your own images: DIR/train/CLASS/FILE and DIR/test/CLASS/FILE, train.zip and test.zip, or DIR/CLASS/FILE",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("keras_transformer_demo"),
        metavar="DIR",
        help="directory of the results (default: %(default)s)",
    )
    parser.add_argument("--epochs", type=positive_int, metavar="N", help="default: depends on the number of images")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the training (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Runs `keras-transformer demo`.

    Args:
        arguments: the parsed options of `add_arguments`.

    Returns:
        0, the exit status.

    Raises:
        ExportError: the images are unsuitable or missing, the output cannot be written, or an artifact fails verification.
    """
    from keras_transformer.export.reporting.terminal import show

    # Errors in the arguments are raised before the training.
    out = _check_out(arguments.out)
    if arguments.data_dir and not arguments.data_dir.exists():
        raise ExportError(f"no such folder or zip: '{arguments.data_dir}'")
    os.environ["KERAS_BACKEND"] = "tensorflow"  # The data are `tf.data`, and only TensorFlow writes the formats.
    print_status(_plan(arguments))
    data = _load(arguments.dataset, arguments.data_dir)
    patch_size = _patch_size(*data.train.images.shape[1:3])
    model, history = _train(data, patch_size, arguments.epochs or _default_epochs(data), arguments.seed)
    _write_model(model, history, data, out)
    found = _compare(model, data.test, out)
    _draw(model, history, data, out)
    show(["", *found.parts()])
    print(_next_steps(out), flush=True)  # Commands are not wrapped.
    return 0


def _plan(arguments: argparse.Namespace) -> str:
    """What the demo will do."""
    images = arguments.data_dir or arguments.dataset or "digits"
    time = "one to two minutes on two cores" if images == "digits" and not arguments.epochs else "some minutes"
    return (
        f"This takes {time} and writes into '{arguments.out}':\n"
        f"  1. read the images of {images}\n"
        "  2. train a small Vision Transformer with model.fit\n"
        "  3. export it to SavedModel, TFLite and ONNX, and prove each file equal to the Keras model\n"
        "  4. classify the test images with Keras and in each runtime, and compare accuracy and speed\n"
    )


def _check_out(out: pathlib.Path) -> pathlib.Path:
    from keras_transformer.export.bundle.writing import check_target

    if out.exists() and not out.is_dir():
        raise ExportError(f"--out '{out}' is a file")
    check_target(out / "bundle")
    return out


def _load(dataset: str | None, data_dir: pathlib.Path | None) -> ImageData:
    from keras_transformer.utils.captured_stderr import captured

    with captured():  # Imports TensorFlow.
        from keras_transformer.data import ImageDataError, load_images
    print_status(f"reading {data_dir or dataset or 'digits'}")
    try:
        data = load_images(None if data_dir else dataset or "digits", data_dir)
    except (ImageDataError, ImportError) as error:
        raise ExportError(str(error)) from error
    height, width, channels = data.train.images.shape[1:]
    count = f"{len(data.train.labels):,} training and {len(data.test.labels):,} test images"
    print_status(f"{count}, {width}x{height}x{channels}, {len(data.class_names)} classes")
    if len(data.train.labels) < BATCH:
        raise ExportError(f"too few images to train with: {len(data.train.labels)}, at least {BATCH} are needed")
    return data


def _patch_size(height: int, width: int) -> int:
    """The smallest patch size from 2 pixels for at most 64 patches; else the largest for at most 256 patches."""
    common = math.gcd(height, width)
    sizes = [size for size in range(2, common + 1) if common % size == 0]
    few = [size for size in sizes if height * width <= 64 * size**2]
    some = [size for size in sizes if height * width <= 256 * size**2]
    if not some:
        raise ExportError(
            f"images of {width}x{height} pixels do not divide into square patches; resize them, for example to 64x64"
        )
    return few[0] if few else some[-1]


def _default_epochs(data: ImageData) -> int:
    """Epochs for about 80,000 training examples in total, at least 3."""
    return max(3, round(80_000 / len(data.train.labels)))


def _train(data: ImageData, patch_size: int, epochs: int, seed: int) -> tuple[keras.Model, dict[str, list[float]]]:
    """Trains a compact ViT; returns the model and its history."""
    from keras_transformer.utils.captured_stderr import captured

    with captured():
        import keras

        from keras_transformer.data import Augmentation, batches
        from keras_transformer.training import WarmupCosine

        keras.utils.set_random_seed(seed)
        model = _build(data, patch_size)
        classes = len(data.class_names)
        # Without mirroring, which would change the meaning of digits.
        options: dict[str, Any] = {
            "augmentation": Augmentation(warp=0.2),
            "label_smoothing": 0.05,
            "shuffle": True,
            "seed": seed,
        }
        training, testing = batches(data.train, BATCH, classes, **options), batches(data.test, 256, classes)
        steps = epochs * len(training)
        schedule: keras.optimizers.schedules.LearningRateSchedule = WarmupCosine(3e-3, steps // 10, steps)
        optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05)
        model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy"])
    print_status(f"training a ViT of {model.count_params():,} parameters for {epochs} epochs with model.fit")
    with captured():
        report = _progress(epochs)
        silent: Any = 0  # Keras types it as str.
        history = model.fit(
            training, validation_data=testing, epochs=epochs, shuffle=False, verbose=silent, callbacks=[report]
        )
    return model, history.history


def _build(data: ImageData, patch_size: int) -> keras.Model:
    from keras_transformer import models, tasks
    from keras_transformer.data import on_pixels

    height, width, channels = data.train.images.shape[1:]
    size = models.Size(num_layers=4, hidden_dim=64, num_heads=4, intermediate_dim=128)
    backbone = models.ViT(size, patch_size, (height, width), num_channels=channels)
    return on_pixels(tasks.ImageClassifier(backbone, len(data.class_names)), data.train.images, name="demo")


def _progress(epochs: int) -> keras.callbacks.Callback:
    """A callback that reports every epoch on a terminal, about 12 of them elsewhere."""
    import keras

    from keras_transformer.utils.captured_stderr import real_stderr

    every = 1 if os.isatty(real_stderr()) else math.ceil(epochs / 12)
    start = time.perf_counter()

    def report(epoch: int, logs: dict[str, float]) -> None:
        if (epoch + 1) % every and epoch + 1 < epochs:
            return
        seconds = time.perf_counter() - start
        accuracy = f"accuracy {logs['accuracy']:6.2%}, on the test images {logs['val_accuracy']:6.2%}"
        _to_user(
            f"epoch {epoch + 1:>{len(str(epochs))}}/{epochs}  loss {logs['loss']:.3f}, {accuracy}  {seconds:.0f} s"
        )

    return keras.callbacks.LambdaCallback(on_epoch_end=report)


def _to_user(line: str) -> None:
    """Prints a line on the real stderr while stderr is captured."""
    from keras_transformer.utils.captured_stderr import real_stderr

    os.write(real_stderr(), (line + "\n").encode())


def _write_model(model: keras.Model, history: dict[str, list[float]], data: ImageData, out: pathlib.Path) -> None:
    """Writes the bundle, verified on test images, then the Keras file and some images as input."""
    import numpy as np

    from keras_transformer.export.api import export
    from keras_transformer.export.options import ExportOptions

    out.mkdir(parents=True, exist_ok=True)
    images = data.test.images.astype("float32")
    probes = [{"images": images[:count]} for count in (1, 5, 32)]
    metadata = {
        "name": "Compact Vision Transformer",
        "class_names": list(data.class_names),
        "epochs": len(history["loss"]),
        "test accuracy": f"{history['val_accuracy'][-1]:.2%}",
        "input": "pixels from 0 to 255",
    }
    export(model, out / "bundle", probes=probes, options=ExportOptions(metadata=metadata))
    model.save(out / "model.keras")
    np.save(out / "images.npy", images[:8])


def _compare(model: keras.Model, test: Any, out: pathlib.Path) -> Comparison:
    from keras_transformer.export.reporting.comparison import compare
    from keras_transformer.utils.captured_stderr import captured

    images = test.images.astype("float32")
    print_status(f"running the {len(images):,} test images through Keras and each runtime")
    with captured():
        return compare(model, out / "model.keras", out / "bundle", images, test.labels)


def _draw(model: keras.Model, history: dict[str, list[float]], data: ImageData, out: pathlib.Path) -> None:
    """Draws the figures if matplotlib is installed."""
    from keras_transformer import plots
    from keras_transformer.attention import attention_maps

    images, labels = data.test.images[:16], data.test.labels[:16]
    probabilities = model.predict_on_batch(images.astype("float32"))
    clearest = int(probabilities.max(axis=-1).argmax())
    try:
        plots.training_curve(history).savefig(out / "curve.png", dpi=150)
    except ImportError as error:
        print_status(f"no pictures: {error}")
        return
    maps = attention_maps(model)(images.astype("float32"))
    plots.attention(maps, image=images[clearest], example=clearest).savefig(out / "attention.png", dpi=150)
    plots.predictions(images, labels, probabilities, data.class_names).savefig(out / "predictions.png", dpi=150)


def _next_steps(out: pathlib.Path) -> str:
    pictures = "curve.png, attention.png, predictions.png, " if (out / "predictions.png").exists() else ""
    return (
        f"\nThe report, a page for a browser: {out / 'bundle' / 'report.html'}\n"
        f"Also in {out}: bundle/ (the three formats), model.keras, {pictures}images.npy. Next commands:\n"
        f"  keras-transformer inspect {out / 'bundle'}\n"
        f"  keras-transformer verify {out / 'bundle'}\n"
        f"  keras-transformer run {out / 'bundle'} --input {out / 'images.npy'} --backend tflite"
    )
