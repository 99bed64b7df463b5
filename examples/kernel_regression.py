"""Fits a noisy function with the Nadaraya-Watson estimator (attention pooling); `model.fit` learns the kernel width.

    python examples/kernel_regression.py                      # the gaussian kernel
    python examples/kernel_regression.py --kernel triangular

Keys are the training points, values are their noisy function values, and the estimate at a query is the mean of the values,
weighted by the kernel of the distance. In training each point is estimated from all others: a width of 0 would reproduce
the noise, and an infinite width the mean.

The script prints the width and the error against the noiseless function before and after training, of the Keras model and
of the exported bundle in each runtime. It writes to `--out`: `model.keras`, `estimate.png` with the estimates and the
weights, and `bundle/`.
"""

import argparse
from pathlib import Path
from typing import Any

import keras
import numpy as np
from matplotlib.figure import Figure

from keras_transformer import export
from keras_transformer.attention import KernelPooling
from keras_transformer.attention.layers.convolutional.kernels import FLAT_KERNELS, KERNELS
from keras_transformer.plots.figure import COLOR_MAP, FAINT, FIRST, SECOND, new_figure

NUM_POINTS, NUM_QUERIES, NOISE = 60, 100, 0.5
LEARNING_RATE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", default="gaussian", choices=sorted(set(KERNELS) - set(FLAT_KERNELS)))
    parser.add_argument("--width", type=float, default=2.0, help="initial width")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("kernel_regression"))
    arguments = parser.parse_args()
    keras.utils.set_random_seed(arguments.seed)
    points, values, queries = make_data(arguments.seed)
    model = make_model(arguments.kernel, arguments.width)
    asked = {"query": queries, "key": points, "value": values}
    before = model.predict(asked, verbose=0)
    print(f"before: width {arguments.width:.3f}, error {error(queries, before):.4f}")
    fit(model, points, values, arguments.epochs)
    pooling = model.get_layer("pooling")
    after, weights = pooling(queries, points, values, return_attention_scores=True)
    print(f"after: width {float(np.exp(pooling.log_width[0])):.3f}, error {error(queries, after):.4f}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    model.save(arguments.out / "model.keras")
    draw(points, values, queries, (before, after), np.asarray(weights)).savefig(arguments.out / "estimate.png", dpi=150)
    # The number of queries may differ from that of points.
    axes = {"query": {1: "queries"}, "key": {1: "points"}, "value": {1: "points"}}
    probes = [asked, {"query": queries[:, :7], "key": points[:, ::2], "value": values[:, ::2]}]
    export.export(model, arguments.out / "bundle", probes=probes, options=export.ExportOptions(dynamic_axes=axes))
    for backend in ("saved_model", "tflite", "onnx"):
        (estimate,) = export.load(arguments.out / "bundle", backend)(asked).values()
        print(f"{backend}: error {error(queries, estimate):.4f}")


def function(x: np.ndarray) -> np.ndarray:
    """The noiseless function."""
    return 2 * np.sin(x) + x**0.8


def make_data(seed: int) -> tuple[np.ndarray, ...]:
    """Returns random points with noisy values, and equidistant queries; float32 `(1, n, 1)` each."""
    rng = np.random.default_rng(seed)
    points = np.sort(rng.uniform(0, 5, NUM_POINTS))
    values = function(points) + rng.normal(0, NOISE, NUM_POINTS)
    return tuple(x.reshape(1, -1, 1).astype("float32") for x in (points, values, np.linspace(0, 5, NUM_QUERIES)))


def make_model(kernel: str, width: float) -> keras.Model:
    """Returns the model of queries, keys and values to estimates; in training, queries are the keys."""
    inputs = {name: keras.Input((None, 1), name=name) for name in ("query", "key", "value")}
    pooling = KernelPooling(kernel, width, learn_width=True, leave_one_out=True, name="pooling")
    return keras.Model(inputs, {"estimate": pooling(**inputs)})


def fit(model: keras.Model, points: np.ndarray, values: np.ndarray, epochs: int) -> None:
    model.compile(keras.optimizers.Adam(LEARNING_RATE), "mse", jit_compile=False)
    data = {"query": points, "key": points, "value": values}
    model.fit(data, {"estimate": values}, epochs=epochs, verbose=0)


def error(queries: np.ndarray, estimate: Any) -> float:
    """Returns the mean squared error against the noiseless function."""
    estimate = estimate["estimate"] if isinstance(estimate, dict) else estimate
    return float(np.mean((np.asarray(estimate) - function(queries)) ** 2))


def draw(
    points: np.ndarray, values: np.ndarray, queries: np.ndarray, estimates: tuple[Any, Any], weights: np.ndarray
) -> Figure:
    """Plots the estimates before and after training, and the weights of the points for each query."""
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    x = queries.ravel()
    left.scatter(points.ravel(), values.ravel(), s=12, color=FAINT, label="points")
    left.plot(x, function(x), color="black", linestyle="--", linewidth=1, label="the function")
    before, after = estimates
    left.plot(x, before["estimate"].ravel(), color=SECOND, label="before")
    left.plot(x, np.asarray(after).ravel(), color=FIRST, label="after")
    left.set(xlabel="x", ylabel="y")
    left.legend(frameon=False, fontsize=8)
    shown = right.imshow(weights[0], cmap=COLOR_MAP, aspect="auto", vmin=0)
    right.set(xlabel="points, in order", ylabel="queries, in order")
    figure.colorbar(shown, ax=right, label="weight")
    return figure


if __name__ == "__main__":
    main()
