"""LiteRT's GPU delegate (WebGPU, OpenCL and Metal share its operators): TFLite files of fixed shapes."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.runtime.libraries import LITERT, TFLITE
from keras_transformer.export.targets.target import Arrays, Measured, NoAcceleratorError, Node, Target
from keras_transformer.export.targets.tflite_rules import gpu_nodes, graph_of
from keras_transformer.export.tflite.tree import read_file, write
from keras_transformer.utils.captured_stderr import captured_stderr
from keras_transformer.utils.errors import library_exceptions

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

_COUNTS = re.compile(r"(\d+) operations will run on the GPU, and the remaining (\d+) operations")
_REFUSED = re.compile(r"not supported by GPU delegate:\n(?P<lines>(?:[A-Z][A-Z0-9_]*: .*\n)+)")
_ABSENT = ("No adapters found", "Failed to initialize WebGPU", "Couldn't load Vulkan")


class LiteRTGPU(Target):
    """The GPU delegate of LiteRT, run through WebGPU and Vulkan. See `Target`."""

    name = "litert-gpu"
    format = TFLITE
    libraries = (LITERT,)
    precisions = (None, "fp16")
    tolerance = {None: 1e-4, "fp16": 2e-2}
    setup = "pip install ai-edge-litert"

    def rewrite(self, model: ModelT, slots: int | None = None) -> None:
        from keras_transformer.export.tflite.delegates.rewrite import rewrite_for_gpu

        rewrite_for_gpu(model)

    def nodes(self, path: pathlib.Path, signature: str) -> int:
        return len(graph_of(read_file(path), signature).subgraph.operators)

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        return gpu_nodes(path, signature)

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        with captured_stderr() as log:
            try:
                compiled, inputs, outputs = _compiled(path, signature, precision)
                found = [_call(compiled, inputs, outputs, each) for each in cases]
                is_whole = compiled.is_fully_accelerated()
            except library_exceptions() as error:
                if any(each in log() for each in _ABSENT):
                    raise NoAcceleratorError("LiteRT finds no GPU and no Vulkan driver") from error
                raise
            text = log()
        nodes = self.nodes(path, signature)
        counts = _COUNTS.search(text)
        if is_whole or counts is None:
            return Measured(nodes, nodes if is_whole else 0, found, {})
        return Measured(nodes, nodes - int(counts[2]), found, refused(text))


def refused(log: str) -> dict[str, str]:
    """Dict of operator to the reason for which the delegate refuses it, from its log.

    Example:

    >>> refused("ERROR: Following operations are not supported by GPU delegate:\\nCAST: int64\\n3 operations will run")
    {'CAST': 'int64'}
    """
    found = {}
    for match in _REFUSED.finditer(log):
        for line in match["lines"].splitlines():
            op, _, reason = line.partition(": ")
            found[op] = reason.strip().rstrip(".")
    return found


def _compiled(path: pathlib.Path, signature: str, precision: str | None) -> tuple[Any, list[str], list[str]]:
    """The compiled graph of one signature, and the names of its inputs and outputs."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.gpu_options import GpuOptions
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import Options

    model = read_file(path)
    chosen = next(each for each in model.signatureDefs if each.signatureKey.decode() == signature)
    model.subgraphs = [model.subgraphs[chosen.subgraphIndex]]
    chosen.subgraphIndex = 0
    model.signatureDefs = [chosen]
    # The CPU takes what the GPU does not, so that both are measured.
    accelerators = HardwareAccelerator.GPU | HardwareAccelerator.CPU
    options = Options(hardware_accelerators=accelerators, gpu_options=GpuOptions(enforce_f32=precision != "fp16"))
    compiled = CompiledModel.from_buffer(write(model), options=options)
    names = compiled.get_signature_by_index(0)
    return compiled, names["inputs"], names["outputs"]


def _call(compiled: Any, inputs: list[str], outputs: list[str], arrays: Arrays) -> dict[str, np.ndarray]:
    given, results = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
    for name, buffer in zip(inputs, given, strict=True):
        buffer.write(np.ascontiguousarray(arrays[name]))
    compiled.run_by_index(0, given, results)
    details = compiled.get_output_tensor_details(compiled.get_signature_list().__iter__().__next__())
    found = {}
    for name, buffer in zip(outputs, results, strict=True):
        shape, dtype = tuple(details[name]["shape"]), np.dtype(details[name]["dtype"])
        found[name] = buffer.read(int(np.prod(shape)), dtype.type).reshape(shape)
    return found
