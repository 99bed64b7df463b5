"""OpenVINO IR as a format object."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.format import Format
from keras_transformer.export.graph.interface_names import output_names
from keras_transformer.export.openvino.library import NAME, OPENVINO
from keras_transformer.export.runtime.libraries import ONNX

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.export.data.weights import StoredWeight, WeightBytes
    from keras_transformer.export.runtime.generation_steps import RuntimeSteps
    from keras_transformer.export.runtime.runtime import Runtime


class OpenVINOFormat(Format):
    """OpenVINO IR, made from the ONNX files, run by OpenVINO on the CPU; see `Format`."""

    name = NAME
    title, runtime_title = "OpenVINO IR", "OpenVINO"
    library = OPENVINO
    made_from = ONNX

    def convert(self, sources: dict[str, str], spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
        from keras_transformer.export.openvino.convert import convert

        return convert(sources, spec, directory)

    def output_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
        """Those of the ONNX file."""
        return output_names(inputs, outputs)

    def stored_weights(
        self, directory: pathlib.Path, files: dict[str, str], names: Sequence[str]
    ) -> Iterator[StoredWeight]:
        from keras_transformer.export.openvino.layers import stored_weights

        return stored_weights(directory, files.values(), names)

    def open(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> Runtime:
        from keras_transformer.export.openvino.runtime import OpenVINORuntime

        return OpenVINORuntime(directory, manifest, signature, num_threads)

    def open_steps(self, directory: pathlib.Path, manifest: Manifest, num_threads: int) -> RuntimeSteps:
        from keras_transformer.export.openvino.runtime import OpenVINOSteps

        return OpenVINOSteps(directory, manifest, self.name, num_threads)

    def count_operations(self, path: pathlib.Path) -> collections.Counter[str]:
        from keras_transformer.export.openvino.layers import operations

        return collections.Counter(operations(path))

    def weight_bytes(self, directory: pathlib.Path, files: dict[str, str]) -> Iterator[WeightBytes]:
        from keras_transformer.export.openvino.layers import weight_bytes

        return weight_bytes(directory, files.values())

    def is_weights_file(self, name: str) -> bool:
        return name.startswith("model.") and name.endswith(".bin")


OPENVINO_IR = OpenVINOFormat()
