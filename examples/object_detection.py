"""Trains a detector on drawn circles, squares and triangles, from scratch, and exports it to three runtimes.

    python examples/object_detection.py                     # some minutes on 2 cores
    python examples/object_detection.py --quick             # a few steps, to see that all works
    python examples/object_detection.py --resume            # goes on with the model in --out

Pictures of 64 x 64 pixels have one to four shapes of any color on noise. The model is a small YOLOS: a Vision Transformer
with a token for each object. After training the script prints COCO's average precision for pictures that it has not seen,
and writes to `--out`: `model.keras`, `history.json`, `detections.png`, some pictures with the boxes that were found, and
`bundle/` with a SavedModel, a TFLite and an ONNX file, compared with the Keras model.
"""

import argparse
import json
import time
from pathlib import Path

import keras
import numpy as np
from PIL import Image, ImageDraw

from keras_transformer import load_model, models, tasks, vision
from keras_transformer.export import ExportOptions, export
from keras_transformer.training import DetectionLoss, average_precision

CLASSES = ("circle", "square", "triangle")
SIDE = 64
SIZE = models.Size(num_layers=4, hidden_dim=64, num_heads=4, intermediate_dim=128)


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    file, record = arguments.out / "model.keras", arguments.out / "history.json"
    model = load_model(file) if arguments.resume else build_model(arguments.learning_rate)
    history = json.loads(record.read_text()) if arguments.resume else []
    start = time.perf_counter()
    for _ in range(arguments.epochs):
        # New pictures in every epoch: none is seen twice.
        images, targets = training_set(arguments.pictures, seed=len(history) + 1)
        data = model.processor.dataset(images, targets, batch_size=arguments.batch_size)
        history.append(model.fit(data, verbose=0).history["loss"][0])
        seconds = time.perf_counter() - start
        print(f"epoch {len(history)}: loss {history[-1]:.3f}, {seconds:.0f} s", flush=True)
        if arguments.seconds and seconds > arguments.seconds:
            break
    model.save(file)
    record.write_text(json.dumps(history))

    images, boxes, labels = draw_shapes(arguments.test_pictures, seed=0)
    found = model.detect(images, threshold=0.0)
    scores = average_precision(found, boxes, labels)
    print({name: round(value, 3) for name, value in scores.items() if not np.isnan(value)}, flush=True)
    show(images[:12], model.detect(images[:12]), arguments.out / "detections.png")
    if arguments.export:
        metadata = {"class_names": list(CLASSES), "inputs": {"images": model.processor.normalization}}
        print(export(tasks.with_detections(model), arguments.out / "bundle", options=ExportOptions(metadata=metadata)))


def parse_arguments(
    description: str | None = __doc__,
    out: str = "object_detection",
    epochs: int = 60,
    pictures: int = 4096,
    learning_rate: float = 5e-4,
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(out), help="output directory")
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--pictures", type=int, default=pictures, help="number of new pictures in an epoch")
    parser.add_argument("--test-pictures", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=learning_rate)
    parser.add_argument("--seconds", type=float, help="stop after the epoch that ends later than this")
    parser.add_argument("--resume", action="store_true", help="go on with the model in --out")
    parser.add_argument("--quick", action="store_true", help="8 small steps and 8 test pictures")
    parser.add_argument("--no-export", dest="export", action="store_false", help="write no bundle")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.epochs, arguments.pictures, arguments.batch_size, arguments.test_pictures = 2, 16, 4, 8
    return arguments


def build_model(learning_rate: float) -> tasks.DetectionModel:
    """Returns the detector, compiled, with its image processor."""
    backbone = models.YOLOS(SIZE, patch_size=8, image_size=SIDE, num_detection_tokens=8)
    model = tasks.ObjectDetector(backbone, len(CLASSES))
    model.processor = vision.ImageProcessor(size=(SIDE, SIDE), mean=0.5, std=0.25)
    optimizer = keras.optimizers.AdamW(learning_rate, weight_decay=1e-4, global_clipnorm=1.0)
    model.compile(optimizer, loss=DetectionLoss())
    return model


def training_set(count: int, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns pictures and the arrays that `DetectionLoss` takes."""
    images, boxes, labels = draw_shapes(count, seed)
    return images, vision.box_targets(boxes, labels, (SIDE, SIDE), max_objects=4)


def draw_shapes(count: int, seed: int) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Returns uint8 pictures, and the corners and classes of the shapes of each."""
    rng = np.random.default_rng(seed)
    images, boxes, labels = [], [], []
    for _ in range(count):
        noise = rng.integers(0, 120, (SIDE // 2, SIDE // 2, 3)).astype("uint8")
        picture = Image.fromarray(noise).resize((SIDE, SIDE))
        number = int(rng.integers(1, 5))
        sides = rng.integers(12, 29, number)
        corners = np.stack([rng.integers(0, SIDE - sides), rng.integers(0, SIDE - sides)], 1)
        classes = rng.integers(0, len(CLASSES), number)
        for corner, side, label in zip(corners, sides, classes, strict=True):
            draw_shape(picture, CLASSES[label], corner, int(side), tuple(rng.integers(100, 256, 3)))
        images.append(np.asarray(picture))
        boxes.append(np.concatenate([corners, corners + sides[:, None]], 1).astype("float32"))
        labels.append(classes.astype("int32"))
    return np.stack(images), boxes, labels


def draw_shape(
    picture: Image.Image,
    name: str,
    corner: np.ndarray,
    side: int,
    fill: int | tuple[int, ...],
    outline: int | tuple[int, ...] | None = None,
) -> None:
    """Draws one shape into its box; without an outline, its edge has the color of its inside."""
    pen, (left, top) = ImageDraw.Draw(picture), map(int, corner)
    right, bottom = left + side - 1, top + side - 1
    if name == "circle":
        pen.ellipse((left, top, right, bottom), fill=fill, outline=outline)
    elif name == "square":
        pen.rectangle((left, top, right, bottom), fill=fill, outline=outline)
    else:
        pen.polygon([((left + right) // 2, top), (left, bottom), (right, bottom)], fill=fill, outline=outline)


def show(images: np.ndarray, found: list[tasks.Detections], file: Path, scale: int = 4) -> None:
    """Writes a sheet of pictures with the boxes, classes and scores that were found."""
    side, columns = SIDE * scale, 4
    sheet = Image.new("RGB", (columns * side, -(-len(images) // columns) * side))
    for index, (image, detections) in enumerate(zip(images, found, strict=True)):
        picture = Image.fromarray(image).resize((side, side), Image.Resampling.NEAREST)
        pen = ImageDraw.Draw(picture)
        for box, label, score in zip(*detections, strict=True):
            corners = [float(each) * scale for each in box]
            pen.rectangle(corners, outline="white", width=2)
            pen.text((corners[0] + 4, corners[1] + 2), f"{CLASSES[label]} {score:.2f}", fill="white")
        sheet.paste(picture, (index % columns * side, index // columns * side))
    sheet.save(file)


if __name__ == "__main__":
    main()
