"""TFLite (LiteRT) as a format object."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.format import Format
from keras_transformer.export.runtime import libraries

if TYPE_CHECKING:
    import keras
    import numpy as np

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.integer_share import Product
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.export.data.weights import StoredWeight, WeightBytes, WeightPair
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.runtime.generation_steps import RuntimeSteps
    from keras_transformer.export.runtime.runtime import Runtime
    from keras_transformer.export.runtime.weight_folder import WeightFolder
    from keras_transformer.export.tflite.weight_cache import WeightCache


class TFLiteFormat(Format):
    """TFLite files of built-in operations, run by LiteRT's interpreter; see `Format`."""

    name = libraries.TFLITE
    title, runtime_title = "TFLite", "LiteRT"
    library = libraries.LITERT
    takes_fixed_shapes = True
    takes_large_weights = True
    packs_weights = True

    def __init__(self, weights: WeightFolder | None = None) -> None:
        self._weights = weights

    def with_weight_folder(self, folder: WeightFolder) -> TFLiteFormat:
        return TFLiteFormat(folder)

    def write(self, traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
        from keras_transformer.export.tflite.convert import write

        return write(traced, spec, directory)

    def quantize(self, spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
        from keras_transformer.export.tflite.quantization import full_integers, quantize, ternary

        modules = {"ternary": ternary, "full_int8": full_integers}
        modules.get(spec.quantization.mode, quantize).quantize(spec, directory, files)

    def stored_weights(
        self, directory: pathlib.Path, files: dict[str, str], names: Sequence[str]
    ) -> Iterator[StoredWeight]:
        from keras_transformer.export.tflite.weights.stored_weights import stored_weights

        return stored_weights(directory, files, names)

    def weight_pairs(
        self,
        source: pathlib.Path,
        directory: pathlib.Path,
        files: dict[str, str],
        variables: Sequence[keras.Variable] = (),
    ) -> Iterator[WeightPair]:
        from keras_transformer.export.tflite.weights.weight_pairs import weight_pairs

        return weight_pairs(source, directory, files)

    def products(
        self, path: pathlib.Path, locate: Callable[[str, str], str], arrays: Mapping[str, np.ndarray]
    ) -> Iterator[Product]:
        from keras_transformer.export.tflite.quantization.products import products

        return products(path, locate)

    def open(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> Runtime:
        from keras_transformer.export.tflite.runtime import fitting_runtime

        weights = self._weight_cache(directory, manifest, signature)
        return fitting_runtime(directory, manifest, signature, num_threads, weights)

    def open_steps(self, directory: pathlib.Path, manifest: Manifest, num_threads: int) -> RuntimeSteps:
        from keras_transformer.export.tflite.generation_steps import TFLiteSteps

        weights = self._weight_cache(directory, manifest, "prefill")
        return TFLiteSteps(directory, manifest, self.name, num_threads, weights=weights)

    def _weight_cache(self, directory: pathlib.Path, manifest: Manifest, signature: str) -> WeightCache:
        from keras_transformer.export.tflite.weight_cache import WeightCache

        path = manifest.path(directory, self.name, signature)
        record = manifest.files.get(manifest.artifact(self.name).signatures[signature])
        return WeightCache(path, "" if record is None else record.sha256, self._weights)

    def count_operations(self, path: pathlib.Path) -> collections.Counter[str]:
        from ai_edge_litert import schema_py_generated as schema

        names = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
        model: schema.Model = schema.Model.GetRootAs(path.read_bytes(), 0)
        codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
        counter: collections.Counter[str] = collections.Counter()
        for position in range(model.SubgraphsLength()):
            graph = model.Subgraphs(position)
            for index in range(graph.OperatorsLength()):
                code = codes[graph.Operators(index).OpcodeIndex()]
                counter[names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]] += 1
        return counter

    def inspect(self, path: pathlib.Path) -> list[str]:
        """What XNNPACK and a GPU delegate take of each signature."""
        if not self.library.is_installed:
            return []
        from keras_transformer.export.tflite.inspection import delegate_report

        return [str(row) for row in delegate_report(path)]

    def weight_bytes(self, directory: pathlib.Path, files: dict[str, str]) -> Iterator[WeightBytes]:
        from keras_transformer.export.tflite.weights.stored_weights import weight_bytes

        return weight_bytes(directory, files.values())


TFLITE = TFLiteFormat()
