"""Trains a small Vision Transformer on the digits of scikit-learn and exports it with its attention for the page.

    python examples/web/digits.py --out digits

The 1,797 images of 8 x 8 pixels are part of scikit-learn; nothing is downloaded. One fifth is the test set. The script
writes to `--out`: `model.keras`, the classifier, and `bundle/` with an ONNX file that returns "logits" and "attention"
`(B, 8, 8)`: the attention of the class token to each pixel over all blocks, by attention rollout (Abnar & Zuidema,
arXiv 2005.00928); and "distance" `(B,)` to the nearest training image. The metadata has "largest_distance", 1.4 times
that of the farthest test image: the page takes drawings that are farther away for no digit.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from scipy import interpolate, ndimage
from sklearn.datasets import load_digits

from keras_transformer import models, tasks, training
from keras_transformer.attention.capture import capture
from keras_transformer.attention.maps import attention_layers
from keras_transformer.export import ExportOptions, export

SIDE = 8
SIZE = models.Size(num_layers=3, hidden_dim=64, num_heads=4, intermediate_dim=128)
BATCH_SIZE = 64
# The bitmap whose dots the pixels of the data count, how broad a drawing is in it, and the radius of the pen.
FINE, BROADEST, RADIUS = 32, 26, 2.2


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    (images, labels), test = split(arguments.seed)
    model = build_model()
    start = time.perf_counter()
    fit(model, images, labels, arguments)
    print(f"trained for {(time.perf_counter() - start) / 60:.1f} minutes, {model.count_params():,} parameters")
    accuracy = model.evaluate(*test, batch_size=BATCH_SIZE, verbose=0, return_dict=True)["accuracy"]
    print(f"test accuracy: {accuracy:.2%} of {len(test[1])} images")
    largest = 1.4 * float(distances(images, test[0]).max())
    share = np.mean(distances(images, scribbles(1000, arguments.seed)) <= largest)
    print(f"largest distance of a digit: {largest:.1f}; of 1,000 scribbles {share:.1%} are nearer")
    metadata = {"accuracy": accuracy, "largest_distance": largest}
    model.save(arguments.out / "model.keras")
    probes = [{"images": test[0][:count]} for count in (1, 5)]
    options = ExportOptions(metadata=metadata)
    print(export(with_attention(model, images), arguments.out / "bundle", probes=probes, options=options))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("digits"), help="output directory")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def split(seed: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns (images, labels) for training and for testing; images `(B, 8, 8, 1)` from 0 to 16."""
    digits = load_digits()
    images = digits.images.astype("float32")[..., None]
    order = np.random.default_rng(seed).permutation(len(images))
    cut = len(images) // 5
    held, rest = order[:cut], order[cut:]
    return (images[rest], digits.target[rest]), (images[held], digits.target[held])


def build_model() -> keras.Model:
    """Returns the classifier: two convolutions, one token per pixel, a class token.

    Without the convolutions the test accuracy is 86 %.
    """
    backbone = models.ViT(SIZE, 1, SIDE, num_channels=SIZE.hidden_dim, dropout=0.1, name="digits_vit")
    images = keras.Input((SIDE, SIDE, 1), name="images")
    x = keras.layers.Rescaling(1 / 8, offset=-1.0, name="scaled")(images)
    for index, filters in enumerate((32, SIZE.hidden_dim)):
        x = keras.layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"convolution_{index}")(x)
    logits = tasks.ImageClassifier(backbone, 10, activation=None, name="classifier")(x)
    return keras.Model(images, logits, name="digits")


def fit(model: keras.Model, images: np.ndarray, labels: np.ndarray, arguments: argparse.Namespace) -> None:
    """Trains with random rotation, scaling and translation of the images in every epoch."""
    steps = -(-len(images) // BATCH_SIZE)
    schedule = training.WarmupCosine(arguments.learning_rate, 2 * steps, steps * arguments.epochs)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta", "embedding"])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=True)
    model.fit(Warped(images, labels, arguments.seed), epochs=arguments.epochs, verbose=2)


class Warped(keras.utils.PyDataset):
    """Yields shuffled batches of images with a small random affine map each."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, seed: int) -> None:
        super().__init__()
        self.images, self.labels = images, labels
        self.random = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return len(self.images) // BATCH_SIZE

    def __getitem__(self, step):
        rows = self.order[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]
        return np.stack([self.warp(self.images[row, ..., 0]) for row in rows])[..., None], self.labels[rows]

    def on_epoch_end(self) -> None:
        self.order = self.random.permutation(len(self.images))

    def warp(self, image: np.ndarray) -> np.ndarray:
        angle, slant = self.random.uniform(-0.2, 0.2, 2)
        stretch = self.random.uniform(0.9, 1.15, 2)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix = turn @ np.diag(stretch) @ np.array([[1, 0], [slant, 1]])
        center = (SIDE - 1) / 2
        offset = center - matrix @ np.full(2, center) + self.random.uniform(-0.6, 0.6, 2)
        return ndimage.affine_transform(image, matrix, offset, order=1).clip(0, 16).astype("float32")


def distances(examples: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Returns the Euclidean distances `(B,)` of images to the nearest of the examples, as the bundle computes them."""
    return np.array([np.sqrt(np.square(examples - image).sum((1, 2, 3)).min()) for image in images])


def scribbles(count: int, seed: int) -> np.ndarray:
    """Returns drawings `(B, 8, 8, 1)` of one or two long curves through random points, as the page makes pixels of them."""
    random = np.random.default_rng(seed)
    return np.stack([pixels(scribble(random)) for _ in range(count)])


def scribble(random: np.random.Generator) -> list[np.ndarray]:
    """Returns strokes, each points `(n, 2)` on a smooth curve with many turns: one with few may be a digit."""
    strokes = []
    for _ in range(random.integers(1, 3)):
        corners = random.uniform(0, 1, (random.integers(8, 16), 2))
        places = np.linspace(0, len(corners) - 1, 8 * len(corners))
        strokes.append(interpolate.CubicSpline(range(len(corners)), corners)(places))
    return strokes


def pixels(strokes: list[np.ndarray]) -> np.ndarray:
    """Returns the pixels `(8, 8, 1)` of strokes, as `page/strokes.js` does: counts of the dots of a 32 x 32 bitmap."""
    points = np.concatenate(strokes)
    low, high = points.min(0), points.max(0)
    scale = np.min((np.array([BROADEST, FINE]) - 2 * RADIUS) / (high - low))
    dots = np.mgrid[0.5:FINE, 0.5:FINE][::-1]  # Columns, rows.
    is_marked = np.zeros((FINE, FINE), bool)
    for stroke in strokes:
        places = FINE / 2 + scale * (stroke - (low + high) / 2)
        begin, way = places[:-1, :, None, None], np.diff(places, axis=0)[..., None, None]
        along = ((dots - begin) * way).sum(1) / np.maximum((way**2).sum(1), 1e-12)
        distance = ((dots - begin - way * along.clip(0, 1)[:, None]) ** 2).sum(1)
        is_marked |= (distance <= RADIUS**2).any(0)
    block = FINE // SIDE
    return is_marked.reshape(SIDE, block, SIDE, block).sum((1, 3)).astype("float32")[..., None]


def with_attention(model: keras.Model, examples: np.ndarray) -> keras.Model:
    """Returns a model with the same weights that returns "logits", "attention" and the "distance" to the nearest example."""
    images = keras.Input((SIDE, SIDE, 1), name="images")
    logits, attention = Explained(model, name="explained")(images)
    outputs = {"logits": logits, "attention": attention, "distance": Distance(examples, name="nearest")(images)}
    return keras.Model(images, outputs, name="explained_digits")


class Distance(keras.layers.Layer):
    """Euclidean distance `(B,)` of each image to the nearest of the examples."""

    def __init__(self, examples: np.ndarray, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.examples = self.add_weight(shape=examples.shape, trainable=False, name="examples")
        self.examples.assign(examples)

    def call(self, images: Any) -> Any:
        squares = ops.sum(ops.square(images[:, None] - self.examples), axis=(2, 3, 4))
        return ops.sqrt(ops.min(squares, axis=1))


class Explained(keras.layers.Layer):
    """Logits of a classifier and the attention rollout of its class token."""

    def __init__(self, model: keras.Model, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.attention = attention_layers(model)

    def call(self, images: Any) -> tuple[Any, Any]:
        with capture(self.attention) as scores:
            logits = self.model(images, training=False)
        seen = None
        for layer in self.attention:
            heads = ops.mean(scores[id(layer)], axis=1)
            mixed = (
                heads + ops.eye(SIDE * SIDE + 1, dtype=heads.dtype)
            ) / 2  # Half of the residual stream is the token itself.
            seen = mixed if seen is None else ops.matmul(mixed, seen)
        return logits, ops.reshape(seen[:, 0, 1:], (-1, SIDE, SIDE))


if __name__ == "__main__":
    main()
