"""The quantizers of other packages as methods of `quantize_weights`, so that all round the same weights by the same data.

`ai_edge_quantizer` rounds rows with its own algorithms, onnxruntime with those of `MatMulNBitsQuantizer`, and llama.cpp a
whole GGUF file, from the libraries in npm's package `@node-llama-cpp/linux-x64`. Keras quantizes whole models.
"""

import ctypes
import pathlib

import keras
import numpy as np

from keras_transformer.quantization import Method
from keras_transformer.quantization.blocks import Blocks


class OnnxRuntime(Method):
    """onnxruntime's rounding of blocks to 4 or 8 bits by their range."""

    needs_data = False

    def round(self, rows, scheme, statistics=None):
        from onnxruntime.quantization.matmul_nbits_quantizer import (
            DefaultWeightOnlyQuantConfig,
            DefaultWeightOnlyQuantizer,
        )

        config = DefaultWeightOnlyQuantConfig(
            scheme.block_size or rows.shape[1], is_symmetric=not scheme.has_minimum, bits=scheme.bits
        )
        quantizer = DefaultWeightOnlyQuantizer(config)
        packed, scale, zero = quantizer.qbits_block_quant(np.ascontiguousarray(rows.T))
        scale = scale.reshape(len(rows), -1)
        codes = _unpacked(packed, scheme.bits).reshape(*scale.shape, -1)
        if not scheme.has_minimum:
            return Blocks(codes, scale, None, 2 ** (scheme.bits - 1), scheme.bits)
        zero = _unpacked(zero.reshape(len(rows), -1), scheme.bits)[:, : scale.shape[1]]
        return Blocks(codes, scale, -scale * zero, 0, scheme.bits)


class AiEdge(Method):
    """An algorithm of ai-edge-quantizer for the weight of a fully connected layer: "min_max", "octav" or "gptq"."""

    def __init__(self, algorithm):
        self.algorithm = algorithm
        self.needs_data = algorithm == "gptq"

    def round(self, rows, scheme, statistics=None):
        from ai_edge_quantizer import qtyping
        from ai_edge_quantizer.algorithms.uniform_quantize import gptq, naive_min_max_quantize, octav

        if scheme.has_minimum:
            raise ValueError("fully connected layers of LiteRT have symmetric weights")
        granularity = f"BLOCKWISE_{scheme.block_size}" if scheme.block_size else "CHANNELWISE"
        weight = qtyping.TensorQuantizationConfig(
            scheme.bits, symmetric=True, granularity=qtyping.QuantGranularity[granularity]
        )
        settings = qtyping.OpQuantizationConfig(
            weight_tensor_config=weight, compute_precision=qtyping.ComputePrecision.FLOAT, explicit_dequantize=True
        )
        operator = qtyping.OpInfo(None, qtyping.TFLOperationName.FULLY_CONNECTED, 0, settings)
        module = {"min_max": naive_min_max_quantize, "octav": octav, "gptq": gptq}[self.algorithm]
        known = None
        if self.algorithm == "gptq" and statistics is not None:
            known = {"activation_tensor_qsv": {"hessian": 2 * statistics.hessian}}
        found = module.get_tensor_quant_params(operator, weight, np.ascontiguousarray(rows), known)
        zero = 2 ** (scheme.bits - 1)
        scale = np.asarray(found.scale, "float32").reshape(len(rows), -1)
        codes = found.quantized_data.reshape(*scale.shape, -1).astype("int16") + zero
        return Blocks(codes.astype("uint8"), scale, None, zero, scheme.bits)


METHODS = {
    "onnxruntime": OnnxRuntime(),
    "ai_edge_min_max": AiEdge("min_max"),
    "ai_edge_octav": AiEdge("octav"),
    "ai_edge_gptq": AiEdge("gptq"),
}
KERAS = ("keras_gptq", "keras_awq")


def by_keras(model, scheme, method, rows):
    """Quantizes the blocks of a model by Keras, in place."""
    blocks = [layer for layer in model.layers if "block" in layer.name]
    options = {
        "dataset": list(rows),
        "tokenizer": list,  # Not called: these are tokens.
        "num_samples": len(rows),
        "sequence_length": rows.shape[1],
        "group_size": scheme.block_size or -1,
        "quantization_layer_structure": {
            "pre_block_layers": [model.get_layer("token_embedding")],
            "sequential_blocks": blocks,
        },
    }
    if method == "keras_gptq":
        symmetric = not scheme.has_minimum
        config = keras.quantizers.GPTQConfig(
            weight_bits=scheme.bits, symmetric=symmetric, activation_order=True, **options
        )
    else:
        config = keras.quantizers.AWQConfig(**options)
    model.quantize(
        method.removeprefix("keras_"), config=config, filters=lambda layer: "decoder_block" in (layer.path or "")
    )


class LlamaCpp:
    """llama.cpp's quantizer of files, without an importance matrix.

    Args:
        folder: that of its libraries.
    """

    KINDS = {"Q4_0": 2, "Q8_0": 7, "Q3_K_M": 12, "Q4_K_S": 14, "Q4_K_M": 15}
    _THREADS, _KIND = 0, 1

    class _Parameters(ctypes.Structure):
        # Unseen but for two places; larger than any release's.
        _fields_ = [("words", ctypes.c_int32 * 128)]

    def __init__(self, folder):
        for name in ("libggml-base", "libggml", "libllama"):
            library = ctypes.CDLL(str(min(pathlib.Path(folder).glob(f"{name}.*"))), mode=ctypes.RTLD_GLOBAL)
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        library.llama_log_set.argtypes = [type(self._quiet), ctypes.c_void_p]
        library.llama_log_set(self._quiet, None)
        library.llama_model_quantize_default_params.restype = self._Parameters
        library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(self._Parameters)]
        self._library = library

    def quantize(self, source, target, kind, threads=2):
        """Writes a file of a kind, such as "Q4_K_M", from a float file."""
        parameters = self._library.llama_model_quantize_default_params()
        parameters.words[self._THREADS], parameters.words[self._KIND] = threads, self.KINDS[kind]
        if self._library.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters)):
            raise RuntimeError(f"llama.cpp does not write {kind}")


def _unpacked(packed, bits):
    """Numbers of 4 bits from bytes, the low one first; bytes are themselves."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
