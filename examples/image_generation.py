"""Trains a diffusion transformer to draw images of a class, and exports the whole sampler to three runtimes.

    python examples/image_generation.py --data-dir DIR          # DIR/train.zip and DIR/test.zip, or folders of images
    python examples/image_generation.py                         # handwritten digits of 8 x 8 pixels, of scikit-learn
    python examples/image_generation.py --quick                 # smoke test: a few steps of a tiny model

A `models.DiT` learns the velocity of a rectified flow, or with `--process ddpm` the noise, and keeps moving averages of its
weights. Then a sampler draws images of every class with classifier-free guidance. Their Fréchet distance to the test images
is that of the features of a small classifier, which is trained first: it compares trainings of this script, and no others.
Beside it stands the distance of as many training images, a bound on what can be expected.

With `--checkpoint DIR` an interrupted training of the denoiser resumes at its epoch.

The script writes to `--out`: `denoiser.keras`, `history.json`, `samples.png` with one row for each class, and `bundle/` with
a SavedModel, a TFLite and an ONNX file from noise and labels to pixels, compared with the Keras model.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer import models, tasks
from keras_transformer.data import ImageData, load_images, on_pixels
from keras_transformer.diffusion import DenoisingTrainer, ImageGenerator, frechet_distance
from keras_transformer.export import ExportOptions, export
from keras_transformer.training import AveragedWeights, TrainingCheckpoint, WarmupCosine

SIZE = models.Size(num_layers=6, hidden_dim=128, num_heads=4, intermediate_dim=512)
QUICK_SIZE = models.Size(num_layers=1, hidden_dim=16, num_heads=2, intermediate_dim=32)
CLASSIFIER_SIZE = models.Size(num_layers=2, hidden_dim=64, num_heads=4, intermediate_dim=128)
SAMPLES_PER_CLASS = 10


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    data = load_images(None if arguments.data_dir else "digits", arguments.data_dir)
    denoiser = build_denoiser(data, arguments)
    history = train(denoiser, data, arguments)
    denoiser.save(arguments.out / "denoiser.keras")
    (arguments.out / "history.json").write_text(json.dumps(history, indent=1))

    generator = pixel_generator(denoiser, arguments)
    images, labels = draw(generator, len(data.class_names), arguments.num_images, arguments.seed)
    save_grid(arguments.out / "samples.png", images, labels)
    report_distance(images, data, arguments)
    probes = [{name: array[:count] for name, array in inputs(generator, labels, 5, seed=1).items()} for count in (1, 5)]
    options = ExportOptions(metadata={"class_names": list(data.class_names)})
    print(export(generator, arguments.out / "bundle", probes=probes, options=options))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folders or zips of images; default: scikit-learn's digits")
    parser.add_argument("--out", type=Path, default=Path("image_generation"), help="output directory")
    parser.add_argument("--checkpoint", type=Path, help="directory of the training checkpoint")
    parser.add_argument("--process", choices=("rectified_flow", "ddpm"), default="rectified_flow")
    parser.add_argument("--sampler", choices=("euler", "ddim", "dpm_solver_pp"), default="euler")
    parser.add_argument("--sampler-steps", type=int, default=50)
    parser.add_argument("--guidance-scale", type=float, default=2.0)
    parser.add_argument("--num-images", type=int, default=500, help="images for the Fréchet distance")
    parser.add_argument("--patch-size", type=int, help="default: 4 pixels, or 2 of images of less than 16")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="smoke test with a tiny model")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.sampler_steps, arguments.num_images = 1, 4, 40
    return arguments


def build_denoiser(data: ImageData, arguments: argparse.Namespace) -> keras.Model:
    height, width, channels = data.train.images.shape[1:]
    patch_size = arguments.patch_size or (2 if height < 16 else 4)
    size = QUICK_SIZE if arguments.quick else SIZE
    return models.DiT(size, patch_size, (height, width), num_channels=channels, num_classes=len(data.class_names))


def train(denoiser: keras.Model, data: ImageData, arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains the denoiser on pixels between -1 and 1; returns the history and the training time."""
    steps = -(-len(data.train.labels) // arguments.batch_size) * arguments.epochs
    schedule = WarmupCosine(arguments.learning_rate, warmup_steps=steps // 20, total_steps=steps)
    momentum = min(0.999, 1 - 10 / (steps + 10))
    optimizer = keras.optimizers.AdamW(
        schedule, weight_decay=0.0, use_ema=True, ema_momentum=momentum, global_clipnorm=1.0
    )
    trainer = DenoisingTrainer(denoiser, arguments.process, seed=arguments.seed)
    trainer.compile(optimizer, jit_compile=False)
    checkpoints = [TrainingCheckpoint(arguments.checkpoint)] if arguments.checkpoint else []
    start = time.perf_counter()
    history = trainer.fit(
        as_inputs(data.train),
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_data=(as_inputs(data.test), None),
        validation_batch_size=500,
        validation_freq=max(1, arguments.epochs // 20),
        callbacks=[*checkpoints, AveragedWeights()],
        verbose=2,
    ).history
    seconds = time.perf_counter() - start
    print(f"trained for {seconds / 60:.1f} minutes", flush=True)
    return {**history, "seconds": seconds}


def as_inputs(examples: Any) -> dict[str, np.ndarray]:
    return {"images": examples.images.astype("float32") / 127.5 - 1.0, "labels": examples.labels.astype("int32")}


def pixel_generator(denoiser: keras.Model, arguments: argparse.Namespace) -> keras.Model:
    """Returns the sampler and the denoiser as one model from noise and labels to pixels from 0 to 255."""
    generator = ImageGenerator(
        denoiser,
        arguments.process,
        arguments.sampler,
        num_steps=arguments.sampler_steps,
        guidance_scale=arguments.guidance_scale,
        data_range=(-1.0, 1.0) if arguments.process == "ddpm" else None,
    )
    pixels = keras.layers.Rescaling(127.5, 127.5, name="to_pixels")(generator.output)
    return keras.Model(generator.input, keras.ops.clip(pixels, 0.0, 255.0), name="image_generation")


def inputs(generator: keras.Model, labels: np.ndarray, count: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shape = (count, *generator.input["noise"].shape[1:])
    return {"noise": random.standard_normal(shape, "float32"), "labels": labels[:count].astype("int32")}


def draw(generator: keras.Model, num_classes: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images of all classes in turn, and their labels."""
    labels = np.arange(count) % num_classes
    start = time.perf_counter()
    images = generator.predict(inputs(generator, labels, count, seed), batch_size=100, verbose=0)
    print(f"{count} images drawn in {time.perf_counter() - start:.1f} seconds", flush=True)
    return images, labels


def save_grid(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Saves the first images of each class, one row for each, enlarged four times."""
    rows = [np.concatenate(list(images[labels == label][:SAMPLES_PER_CLASS]), axis=1) for label in np.unique(labels)]
    grid = np.concatenate(rows, axis=0).repeat(4, axis=0).repeat(4, axis=1)
    keras.utils.save_img(path, grid, scale=False)


def report_distance(images: np.ndarray, data: ImageData, arguments: argparse.Namespace) -> None:
    """Prints the Fréchet distances of drawn and of real images to test images, and whether classes are recognized."""
    classifier, features = train_classifier(data, arguments)
    # Folders are read class by class: the first images would be of one class.
    chosen = np.random.default_rng(0).permutation(len(data.train.images))[: len(images)]
    drawn, test, real = (
        features.predict(pixels.astype("float32"), batch_size=500, verbose=0)
        for pixels in (images, data.test.images, data.train.images[chosen])
    )
    labels = np.arange(len(images)) % len(data.class_names)
    right = np.mean(classifier.predict(images, batch_size=500, verbose=0).argmax(axis=1) == labels)
    print(f"recognized as its class: {right:.1%} of {len(images)} images")
    print(
        f"Fréchet distance to the test images: {frechet_distance(drawn, test):.2f}; "
        f"of as many training images: {frechet_distance(real, test):.2f}",
        flush=True,
    )


def train_classifier(data: ImageData, arguments: argparse.Namespace) -> tuple[keras.Model, keras.Model]:
    """Returns a classifier of pixels, and the model of the features that its last layer sees."""
    shape = data.train.images.shape[1:]
    patch_size = 2 if shape[0] < 16 else 4
    backbone = models.ViT(CLASSIFIER_SIZE, patch_size, shape[:2], num_channels=shape[2], class_token=False)
    classifier = tasks.ImageClassifier(backbone, len(data.class_names), pooling="mean")
    model = on_pixels(classifier, data.train.images)
    model.compile(keras.optimizers.AdamW(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    epochs = 1 if arguments.quick else max(4, 40_000 // len(data.train.labels))
    model.fit(data.train.images.astype("float32"), data.train.labels, batch_size=64, epochs=epochs, verbose=0)
    accuracy = model.evaluate(data.test.images.astype("float32"), data.test.labels, batch_size=500, verbose=0)[1]
    print(f"the classifier of the features is right for {accuracy:.1%} of the test images", flush=True)
    return model, on_pixels(keras.Model(classifier.input, classifier.layers[-1].input), data.train.images)


if __name__ == "__main__":
    main()
