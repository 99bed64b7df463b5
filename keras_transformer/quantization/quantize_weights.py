"""Quantization of a model's weights after training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import Kernel, check_paths, chosen, kernels_of
from keras_transformer.quantization.methods import METHODS, Method
from keras_transformer.quantization.observation.calibration import as_batches, calibrate
from keras_transformer.quantization.quantized_weights import QuantizedWeights, values_beside
from keras_transformer.quantization.rounding import round_rows
from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.utils.serialization import resolve

_DEFAULT = WeightScheme()


def quantize_weights(
    model: keras.Model,
    schemes: WeightScheme | Mapping[str, WeightScheme | None] = _DEFAULT,
    method: str | Method = "nearest",
    data: Any = None,
    verbose: bool = False,
) -> QuantizedWeights:
    """Rounds the weights of a model to integers with scales, in place.

    With data, the model runs node by node, such as block by block, and each node gets the outputs of those before it that
    are rounded already. A layer that is used several times is rounded at its last use, by the inputs of all. Tables of
    embeddings, and weights that the data does not reach, are rounded to the nearest integers by every method.

    Args:
        model: `keras.Model`, built, in float32; a Functional one for methods with data. Its weights get the values that the
            integers stand for. "awq" also changes norms and biases; `QuantizedWeights` has them.
        schemes: a `WeightScheme`, or a dict of patterns of paths to schemes; see `kernels.chosen`. Default
            `WeightScheme()`.
        method: name in `METHODS`: "nearest", "clipping", "gptq" or "awq"; or an instance, such as `GPTQ(damping=0.02)`.
        data: a batch, or an iterable of batches, as `fit` and `predict` take them, for methods that need it: some thousands
            of tokens. Padding does not count.
        verbose: bool. Whether each node writes a line to stderr.

    Returns:
        `QuantizedWeights`, which is the model's attribute `quantized_weights` too.

    Raises:
        WeightQuantizationError: a scheme does not fit the weights, or the data the model, a method needs data and has none,
            or two weights have one path; the model is then unchanged.

    Example:

    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")])
    >>> weights = quantize_weights(model, WeightScheme(bits=4, block_size=32))
    >>> weights.nbytes  # Of 16,384: two numbers to a byte, and 128 scales.
    2304
    >>> weights = quantize_weights(model, WeightScheme(bits=3), "gptq", data=keras.random.normal((100, 64)))
    """
    resolved = _resolved(method)
    pairs = chosen(kernels_of(model), schemes)
    check_paths(model.weights)
    if data is None and resolved.needs_data:
        raise WeightQuantizationError(f"{method!r} needs data: some batches of inputs of {model.name!r}")
    batches = as_batches(model, data) if resolved.needs_data else None
    resolved.prepare(model, pairs, batches, verbose)
    blocks: dict[str, Blocks] = {}

    def settle(kernel: Kernel, found: Blocks) -> None:
        blocks[kernel.path] = found
        kernel.assign(found.values)

    for kernel, scheme in pairs:
        if kernel.is_table:
            settle(kernel, round_rows(kernel.rows(), scheme))
    rest = {kernel.path: (kernel, scheme) for kernel, scheme in pairs if not kernel.is_table}
    if batches is not None and rest:
        for ready in calibrate(model, [kernel for kernel, _ in rest.values()], batches, verbose):
            for kernel, statistics in ready:
                _, scheme = rest.pop(kernel.path)
                settle(kernel, resolved.round(kernel.rows(), scheme, statistics))
    for kernel, scheme in rest.values():  # Those that no data reached.
        settle(kernel, resolved.round(kernel.rows(), scheme))
    in_order = {kernel.path: blocks[kernel.path] for kernel, _ in pairs}
    weights = QuantizedWeights(in_order, values_beside(model, in_order))
    model.quantized_weights = weights
    return weights


def _resolved(method):
    try:
        return resolve(method, METHODS, Method, argument="method")
    except ValueError as error:
        raise WeightQuantizationError(str(error)) from error
