"""ONNX as a format object."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.format import Format
from keras_transformer.export.graph.interface_names import output_names
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.weights.external_data import check_external_data
from keras_transformer.export.runtime import libraries

if TYPE_CHECKING:
    import keras
    import numpy as np

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.integer_share import Product
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.export.data.preprocessing.steps import Preprocessing
    from keras_transformer.export.data.weights import StoredWeight, WeightBytes, WeightPair
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.runtime.generation_steps import RuntimeSteps
    from keras_transformer.export.runtime.runtime import Runtime


class OnnxFormat(Format):
    """ONNX files, run by ONNX Runtime on the CPU; see `Format`."""

    name = libraries.ONNX
    title, runtime_title = "ONNX", "ONNX Runtime"
    library = libraries.ONNX_RUNTIME
    writers = ("tf2onnx", "onnxscript", "onnx")
    takes_single_tokens = True
    takes_large_weights = True

    def write(self, traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
        from keras_transformer.export.onnx.convert import write

        return write(traced, spec, directory)

    def for_others(self, spec: ExportSpec) -> ExportSpec:
        """Without the contrib operator that OpenVINO writes to its files and does not read from them."""
        options = dataclasses.replace(spec.onnx or OnnxOptions(), cached_attention=False)
        return dataclasses.replace(super().for_others(spec), onnx=options)

    def steps_inside(self, preprocessing: Preprocessing) -> Sequence[str]:
        from keras_transformer.export.onnx.preprocessing import steps_inside

        return steps_inside(preprocessing)

    def output_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
        """An output with the name of an input, such as a cache, is named `NAME_output`: a graph has one namespace."""
        return output_names(inputs, outputs)

    def quantize(self, spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
        from keras_transformer.export.onnx.quantization import full_integers, quantize, ternary

        modules = {"ternary": ternary, "full_int8": full_integers}
        modules.get(spec.quantization.mode, quantize).quantize(spec, directory, files)

    def stored_weights(
        self, directory: pathlib.Path, files: dict[str, str], names: Sequence[str]
    ) -> Iterator[StoredWeight]:
        from keras_transformer.export.onnx.weights.stored_weights import stored_weights

        return stored_weights(directory, files, names)

    def weight_pairs(
        self,
        source: pathlib.Path,
        directory: pathlib.Path,
        files: dict[str, str],
        variables: Sequence[keras.Variable] = (),
    ) -> Iterator[WeightPair]:
        from keras_transformer.export.onnx.weights.weight_pairs import weight_pairs

        return weight_pairs(source, directory, files)

    def products(
        self, path: pathlib.Path, locate: Callable[[str, str], str], arrays: Mapping[str, np.ndarray]
    ) -> Iterator[Product]:
        from keras_transformer.export.onnx.quantization.products import products

        return products(path, locate, arrays)

    def open(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> Runtime:
        from keras_transformer.export.onnx.runtime import OnnxRuntime

        return OnnxRuntime(directory, manifest, signature, num_threads)

    def open_steps(self, directory: pathlib.Path, manifest: Manifest, num_threads: int) -> RuntimeSteps:
        from keras_transformer.export.onnx.generation_steps import OnnxSteps

        return OnnxSteps(directory, manifest, self.name, num_threads)

    def count_operations(self, path: pathlib.Path) -> collections.Counter[str]:
        from keras_transformer.export.onnx.graph import all_nodes
        from keras_transformer.export.onnx.weights.files import read

        return collections.Counter(node.op_type for node in all_nodes(read(path).graph))

    def inspect(self, path: pathlib.Path) -> list[str]:
        """The operations of a file, most frequent first."""
        try:
            counter = self.count_operations(path)
        except ImportError:
            return []
        return [f"{path.name}: " + ", ".join(f"{op} {count}" for op, count in counter.most_common())]

    def weight_bytes(self, directory: pathlib.Path, files: dict[str, str]) -> Iterator[WeightBytes]:
        from keras_transformer.export.onnx.weights.stored_weights import weight_bytes

        return weight_bytes(directory, files.values())

    def check_listed(self, directory: pathlib.Path, manifest: Manifest) -> None:
        """Refuses weights in a file that the manifest does not list: nothing is known of it."""
        for name in manifest.artifact(self.name).paths:
            path = directory / name
            check_external_data(path, {os.path.relpath(directory / each, path.parent) for each in manifest.files})

    def is_weights_file(self, name: str) -> bool:
        return name == "model.weights"


ONNX = OnnxFormat()
