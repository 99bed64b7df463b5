"""SavedModel as a format object."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.format import Format
from keras_transformer.export.runtime import libraries

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.export.data.weights import StoredWeight, WeightPair
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.runtime.generation_steps import RuntimeSteps
    from keras_transformer.export.runtime.runtime import Runtime


class SavedModelFormat(Format):
    """SavedModels, run by TensorFlow; see `Format`."""

    name = libraries.SAVED_MODEL
    title, runtime_title = "SavedModel", "TensorFlow"
    library = libraries.TENSORFLOW
    takes_text = True
    reports_operations = False
    shares_loaded = True

    def write(self, traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
        from keras_transformer.export.saved_model.convert import write

        return write(traced, spec, directory)

    def quantize(self, spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
        if spec.quantization.mode == "ternary":
            return  # TensorFlow multiplies float32: ternary kernels stay in it.
        from keras_transformer.export.saved_model.quantize import quantize

        quantize(spec, directory, files)

    def stored_weights(
        self, directory: pathlib.Path, files: dict[str, str], names: Sequence[str]
    ) -> Iterator[StoredWeight]:
        from keras_transformer.export.saved_model.weights import stored_weights

        return stored_weights(directory, files, names)

    def weight_pairs(
        self,
        source: pathlib.Path,
        directory: pathlib.Path,
        files: dict[str, str],
        variables: Sequence[keras.Variable] = (),
    ) -> Iterator[WeightPair] | None:
        from keras_transformer.export.saved_model.weights import kept_pairs

        return kept_pairs(directory, variables) if variables else None

    def open(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> Runtime:
        from keras_transformer.export.saved_model.runtime import SavedModelRuntime

        return SavedModelRuntime(directory, manifest, signature, num_threads)

    def open_steps(self, directory: pathlib.Path, manifest: Manifest, num_threads: int) -> RuntimeSteps:
        from keras_transformer.export.saved_model.runtime import SavedModelSteps

        return SavedModelSteps(directory, manifest, self.name, num_threads)

    def count_operations(self, path: pathlib.Path) -> collections.Counter[str]:
        from keras_transformer.utils.captured_stderr import captured

        with captured():
            from tensorflow.core.protobuf import saved_model_pb2

            message = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        counter: collections.Counter[str] = collections.Counter()
        for function in message.meta_graphs[0].graph_def.library.function:
            if "signature_wrapper" not in function.signature.name and "traced_" not in function.signature.name:
                counter.update(node.op for node in function.node_def)
        return counter


SAVED_MODEL = SavedModelFormat()
