"""Rotation of the residual stream, folded into the weights around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.layers.norms import ZeroCenteredRMSNormalization
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import kernels_of
from keras_transformer.quantization.observation.calibration import as_batches
from keras_transformer.quantization.observation.recording import outputs_of, recorded
from keras_transformer.quantization.transforms.hadamard import orthogonal
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.quantization.kernels import Kernel

_NORMS = (keras.layers.RMSNormalization, ZeroCenteredRMSNormalization)
# Of the largest output: what the rounding of float32 may change in a deep model.
_TOLERANCE = 2e-3


def rotate(model: keras.Model, data: Any = None, seed: int = 0) -> None:
    """Rotates the residual stream of a pre-norm model with RMS norms, in place: its outputs stay the same up to rounding.

    The weights of the norms move into the products behind them, which then multiply with R; whatever is added to the stream,
    tables of embeddings too, is multiplied with R. R is a Hadamard matrix with random signs, or a matrix made of one: large
    values of single channels are spread over all channels, which leaves weights that are easier to round. Nothing is added
    to the model, and it exports as before.

    Args:
        model: Functional `keras.Model`, in float32, such as `tasks.LanguageModel` of a `Llama` with a head of its own.
        data: a batch, or batches, as `fit` takes them, on which the outputs are compared: the first example is run. None:
            some tokens.
        seed: int. Of the signs.

    Raises:
        WeightQuantizationError: the model has no RMS norm of one width, its embeddings are tied to the head (see
            `tasks.untie_embeddings`), or its outputs would change, as where layers read the stream without a norm, or with a
            layer norm. The model is then unchanged.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.LanguageModel(models.Llama(models.Size(1, 16, 2, 32), 50), tie_embeddings=False)
    >>> rotate(model)

    Reference: Ashkboos et al., QuaRot, arXiv 2404.00456, section 4, stage 1a; Liu et al., SpinQuant, arXiv 2405.16406, R1.
    Deviations: the rotation is not learned; sizes that are no power of two use the constructions of Paley.
    """
    graph = keras_private.functional(model)
    first = as_batches(model, [_example(graph)] if data is None else data)[0]
    batch = {name: array[:1] for name, array in first.items()}

    def outputs():
        return outputs_of(model, batch)

    groups, writers = _around(model, outputs)
    expected = outputs()
    changed = [norm.scale for norm, _ in groups]
    changed += [each.variable for each in [*(kernel for _, group in groups for kernel in group), *writers]]
    changed += [each.layer.bias for each in writers if getattr(each.layer, "bias", None) is not None]
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in changed]
    _rotate(groups, writers, orthogonal(_outputs(writers[0]), seed))
    differences = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(outputs(), expected, strict=True)]
    if not max(differences) <= _TOLERANCE:
        for variable, value in zip(changed, before, strict=True):
            variable.assign(value)
        raise WeightQuantizationError(
            f"{model.name!r} computes something else with a rotated residual stream (by {max(differences):.1e} of "
            "the largest output): it is no pre-norm model of RMS norms"
        )


def _example(graph):
    """Some tokens, or random numbers, for each input."""
    random = np.random.default_rng(0)
    tables = [
        layer.input_dim for layer in keras_private.flatten_layers(graph) if isinstance(layer, keras.layers.Embedding)
    ]
    found = {}
    for name, tensor in zip(keras_private.input_names(graph), graph.inputs, strict=True):
        shape = [1, *(16 if size is None else size for size in tensor.shape[1:])]
        if tensor.dtype == "bool":
            found[name] = np.ones(shape, bool)
        elif "int" in tensor.dtype:
            found[name] = random.integers(0, min(tables, default=2), shape).astype(tensor.dtype)
        else:
            found[name] = random.normal(size=shape).astype(tensor.dtype)
    return found


def _around(model, run):
    """The norms of the residual stream, each with the weights that read it, and the weights that add to it."""
    kernels = {id(kernel.layer): kernel for kernel in kernels_of(model, smallest=1)}
    norms = [layer for layer in keras_private.flatten_layers(model) if isinstance(layer, _NORMS) and layer.built]
    calls: list[tuple[keras.layers.Layer, Tensor, Tensor]] = []
    with recorded([*norms, *(kernel.layer for kernel in kernels.values())], lambda *call: calls.append(call)):
        run()
    outputs = {id(output): layer for layer, _, output in calls if isinstance(layer, _NORMS)}
    behind: dict[int, dict[int, Kernel]] = {}
    for layer, x, _ in calls:
        if id(layer) in kernels and id(x) in outputs:
            behind.setdefault(id(outputs[id(x)]), {})[id(layer)] = kernels[id(layer)]
    widths = {kernel.width for group in behind.values() for kernel in group.values()}
    if not widths:
        raise WeightQuantizationError(f"{model.name!r} has no RMS norm with products behind it")
    width = max(widths)
    used = {id(norm): norm for norm in norms if norm.scale.shape == (width,)}
    groups = {key: list(group.values()) for key, group in behind.items() if key in used}
    readers = {id(kernel.layer): kernel for group in groups.values() for kernel in group}
    tied = [kernel.path for kernel in readers.values() if kernel.is_table]
    if tied:
        raise WeightQuantizationError(
            f"{tied[0]!r} is both embedding and head, with the norm's weights between: call tasks.untie_embeddings first"
        )
    writers = [each for key, each in kernels.items() if key not in readers and _outputs(each) == width]
    if not writers:
        raise WeightQuantizationError(f"nothing in {model.name!r} adds {width} channels to a residual stream")
    return [(used[key], group) for key, group in groups.items()], writers


def _rotate(groups, writers, rotation):
    for norm, group in groups:
        scale = keras.ops.convert_to_numpy(norm.scale).astype("float64")
        is_centered = isinstance(norm, ZeroCenteredRMSNormalization)
        for kernel in group:
            kernel.assign(((kernel.rows() * (scale + 1 if is_centered else scale)) @ rotation).astype("float32"))
        norm.scale.assign(np.zeros_like(scale) if is_centered else np.ones_like(scale))
    for kernel in writers:
        rows = kernel.rows().astype("float64")
        kernel.assign((rows @ rotation if kernel.is_table else rotation.T @ rows).astype("float32"))
        bias = getattr(kernel.layer, "bias", None)
        if bias is not None:
            bias.assign((keras.ops.convert_to_numpy(bias).reshape(-1) @ rotation).reshape(bias.shape))


def _outputs(kernel):
    return kernel.width if kernel.is_table else kernel.count
