"""Trains a segmenter on drawn circles, squares and triangles, from scratch, and exports it to three runtimes.

    python examples/segmentation.py                     # some minutes on 2 cores
    python examples/segmentation.py --quick             # a few steps, to see that all works
    python examples/segmentation.py --resume            # goes on with the model in --out

Pictures of 64 x 64 pixels have one to four shapes of any color on noise; later ones cover earlier ones. The model is a small
SegFormer: each pixel gets a class, or the background. After training the script prints the mean intersection over union for
pictures that it has not seen, and writes to `--out`: `model.keras`, `history.json`, `masks.png`, some pictures beside the
classes of their pixels, drawn and found, and `bundle/` with a SavedModel, a TFLite and an ONNX file, compared with the Keras
model.
"""

import argparse
import json
import time
from pathlib import Path

import keras
import numpy as np
from object_detection import draw_shape, parse_arguments
from PIL import Image

from keras_transformer import load_model, models, tasks, vision
from keras_transformer.export import ExportOptions, export

CLASSES = ("background", "circle", "square", "triangle")
COLORS = np.array([(0, 0, 0), (230, 70, 60), (70, 160, 230), (240, 200, 60)], "uint8")
SIDE = 64
# The pixels at the edges of shapes, which are half of one class and half of another, do not count.
IGNORED = 255
# A grid of 32 x 32 tokens, then of 16 x 16 and 8 x 8.
SIZE = models.SegFormerSize(
    hidden_dims=(24, 48, 96),
    num_layers=(1, 2, 2),
    num_heads=(1, 2, 4),
    patch_sizes=(5, 3, 3),
    strides=(2, 2, 2),
    reduction_ratios=(4, 2, 1),
    mlp_ratios=(2, 2, 2),
)


def main() -> None:
    arguments = parse_arguments(__doc__, "segmentation", epochs=15, pictures=2048, learning_rate=2e-3)
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    file, record = arguments.out / "model.keras", arguments.out / "history.json"
    model = load_model(file) if arguments.resume else build_model(arguments)
    history = json.loads(record.read_text()) if arguments.resume else []
    start = time.perf_counter()
    for _ in range(arguments.epochs):
        # New pictures in every epoch: none is seen twice.
        images, masks = draw_shapes(arguments.pictures, seed=len(history) + 1)
        data = model.processor.dataset(images, masks, batch_size=arguments.batch_size)
        history.append({name: values[0] for name, values in model.fit(data, verbose=0).history.items()})
        seconds = time.perf_counter() - start
        figures = ", ".join(f"{name} {value:.3f}" for name, value in history[-1].items())
        print(f"epoch {len(history)}: {figures}, {seconds:.0f} s", flush=True)
        if arguments.seconds and seconds > arguments.seconds:
            break
    model.save(file)
    record.write_text(json.dumps(history))

    images, masks = draw_shapes(arguments.test_pictures, seed=0)
    found = model.segment(images)
    metric = keras.metrics.MeanIoU(len(CLASSES), ignore_class=IGNORED)
    metric.update_state(masks, np.stack(found))
    print(f"mean intersection over union: {float(metric.result()):.3f}", flush=True)
    show(images[:8], masks[:8], found[:8], arguments.out / "masks.png")
    if arguments.export:
        metadata = {"class_names": list(CLASSES), "inputs": {"images": model.processor.normalization}}
        print(export(tasks.with_masks(model), arguments.out / "bundle", options=ExportOptions(metadata=metadata)))


def build_model(arguments: argparse.Namespace) -> tasks.SegmentationModel:
    """Returns the segmenter, compiled, with its image processor."""
    backbone = models.SegFormer(SIZE, image_size=SIDE, stochastic_depth=0.0)
    model = tasks.SemanticSegmenter(backbone, len(CLASSES), hidden_dim=64)
    model.processor = vision.ImageProcessor(size=(SIDE, SIDE), mean=0.5, std=0.25)
    steps = arguments.epochs * -(-arguments.pictures // arguments.batch_size)
    rate = keras.optimizers.schedules.CosineDecay(arguments.learning_rate, steps, alpha=0.02)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=IGNORED)
    metric = keras.metrics.MeanIoU(len(CLASSES), ignore_class=IGNORED, sparse_y_pred=False, name="mean_iou")
    optimizer = keras.optimizers.AdamW(rate, weight_decay=1e-4, global_clipnorm=1.0)
    model.compile(optimizer, loss=loss, metrics=[metric])
    return model


def draw_shapes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns uint8 pictures, and the class of each of their pixels."""
    rng = np.random.default_rng(seed)
    images, masks = [], []
    for _ in range(count):
        noise = rng.integers(0, 120, (SIDE // 2, SIDE // 2, 3)).astype("uint8")
        picture, mask = Image.fromarray(noise).resize((SIDE, SIDE)), Image.new("L", (SIDE, SIDE))
        for _ in range(int(rng.integers(1, 5))):
            side, label = int(rng.integers(12, 33)), int(rng.integers(1, len(CLASSES)))
            corner, color = rng.integers(0, SIDE - side, 2), tuple(int(each) for each in rng.integers(100, 256, 3))
            draw_shape(picture, CLASSES[label], corner, side, color, color)
            draw_shape(mask, CLASSES[label], corner, side, label, IGNORED)
        images.append(np.asarray(picture))
        masks.append(np.asarray(mask).astype("int32"))
    return np.stack(images), np.stack(masks)


def show(images: np.ndarray, masks: np.ndarray, found: list[np.ndarray], file: Path, scale: int = 3) -> None:
    """Writes a sheet: pictures, under each the classes of its pixels as drawn, gray at edges, and as found."""
    side = SIDE * scale
    sheet = Image.new("RGB", (len(images) * side, 3 * side))
    for column, (image, mask, classes) in enumerate(zip(images, masks, found, strict=True)):
        drawn = np.where((mask == IGNORED)[..., None], 128, COLORS[np.where(mask == IGNORED, 0, mask)])
        for row, pixels in enumerate((image, drawn.astype("uint8"), COLORS[classes])):
            picture = Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
            sheet.paste(picture, (column * side, row * side))
    sheet.save(file)


if __name__ == "__main__":
    main()
