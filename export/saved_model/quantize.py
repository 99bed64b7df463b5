"""Quantized SavedModels: weights in 4, 8 or 16 bits that are dequantized when the model runs."""

from __future__ import annotations

import pathlib
import shutil

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.graph.traced import weight_names
from keras_transformer.export.graph.traced_graph import arguments_of
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.quantization.kept import blocks_of
from keras_transformer.export.quantization.options import KEPT, Quantization, matches
from keras_transformer.export.runtime.libraries import SAVED_MODEL
from keras_transformer.export.saved_model import convert as saved_model
from keras_transformer.export.saved_model.weights import KeptWeight, unpacked
from keras_transformer.utils.types import Tensor

_BLOCK = 128


def quantize(spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
    """Writes the SavedModel of a bundle again, with quantized weights.

    Args:
        spec: the `ExportSpec`, with its `quantization`.
        directory: `pathlib.Path` of the bundle that is being written.
        files: dict of signature name to the SavedModel's path in it.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight.
        ConversionError: TensorFlow cannot save the graphs.
    """
    module = QuantizedModule(spec, spec.quantization)
    shutil.rmtree(directory / SAVED_MODEL)
    saved_model.save(module, module.functions, directory / SAVED_MODEL)


class QuantizedModule(tf.Module):
    """The signatures of a spec around quantized weights; what `saved_model.save` takes.

    Args:
        spec: `ExportSpec`, whose `variables` are all weights that its functions read.
        quantization: `Quantization`.
    """

    def __init__(self, spec: ExportSpec, quantization: Quantization) -> None:
        super().__init__(name="quantized")
        names = weight_names(spec.variables).values()
        variables = {name: each for name, each in zip(names, spec.variables, strict=True) if _is_large(each)}
        kept = matches([each.path for each in variables.values()], quantization.keep_float)
        chosen = {name: each for name, each in variables.items() if each.path not in kept}
        if quantization.mode in KEPT:
            self.kept = _kept(chosen, quantization)
            small = [(chosen[name], weight) for name, weight in self.kept.items()]
        else:
            self.small = [_small(np.asarray(each), quantization) for each in chosen.values()]
            small = list(zip(chosen.values(), self.small, strict=True))
        self.exported_modules = list(spec.modules)
        self.functions = {name: self._trace(name, spec.signatures[name], small) for name in spec.names(SAVED_MODEL)}
        exported = {id(v): v for function in self.functions.values() for v in function.graph.variables}
        if quantization.mode in KEPT:
            # By their names, for the comparison of the file with the model.
            named = zip(names, (each.value for each in spec.variables), strict=True)
            self.floats = {name: each for name, each in named if id(each) in exported}
            owned = [each for weight in self.kept.values() for each in weight.variables]
            for each in (*owned, *self.floats.values()):
                exported.pop(id(each), None)
        self.exported_variables = list(exported.values())

    def _trace(
        self, name: str, signature: Signature, small: list[tuple[keras.Variable, KeptWeight]]
    ) -> tf.types.experimental.ConcreteFunction:
        def traced(**tensors: Tensor) -> dict[str, Tensor]:
            mapping = [(variable, dequantized()) for variable, dequantized in small]
            with keras.StatelessScope(state_mapping=mapping):
                outputs = signature.function(tensors)
            return {key: tf.identity(value, name=key) for key, value in outputs.items()}

        traced.__name__ = name
        return tf.function(traced, autograph=False).get_concrete_function(**arguments_of(signature))


def _is_large(variable: keras.Variable) -> bool:
    return str(variable.dtype) == "float32" and len(variable.shape) > 1 and np.prod(variable.shape) >= SMALL


def _kept(variables: dict[str, keras.Variable], quantization: Quantization) -> dict[str, KeptWeight]:
    """The weights whose integers are known."""
    blocks, weights = blocks_of(quantization), {}
    for name, variable in variables.items():
        found = blocks.find_weight(np.asarray(variable))
        if found is not None and found.blocks is not None:
            weights[name] = KeptWeight(found, tuple(variable.shape))
    return weights


def _small(array: np.ndarray, quantization: Quantization) -> _Half | _Blocks:
    if quantization.mode == "fp16":
        return _Half(array)
    is_int4 = quantization.mode == "weight_int4"
    return _Blocks(array, 4, quantization.weights_per_scale) if is_int4 else _Blocks(array, 8, _BLOCK)


class _Half(tf.Module):
    """A weight in half precision."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__()
        self.half = tf.Variable(array.astype("float16"), trainable=False)

    def __call__(self) -> Tensor:
        return tf.cast(self.half, tf.float32)


class _Blocks(tf.Module):
    """A weight in 4 or 8 bits, with a scale for each block of its last axis."""

    def __init__(self, array: np.ndarray, bits: int, block_size: int) -> None:
        super().__init__()
        width = array.shape[-1]
        self.shape, self.width, self.bits = array.shape, width, bits
        codes, scale = block_quantize.by_block(array.reshape(-1, width), bits, min(block_size, width + width % 2))
        self.codes = tf.Variable(block_quantize.pack_nibbles(codes) if bits == 4 else codes, trainable=False)
        self.scale = tf.Variable(scale.astype("float16" if bits == 4 else "float32"), trainable=False)

    def __call__(self) -> Tensor:
        codes = tf.convert_to_tensor(self.codes)
        codes = unpacked(codes) if self.bits == 4 else codes
        scale = tf.cast(self.scale, tf.float32)[..., tf.newaxis]
        rows = (tf.cast(codes, tf.float32) - float(1 << self.bits - 1)) * scale
        return tf.reshape(tf.reshape(rows, (rows.shape[0], -1))[:, : self.width], self.shape)
