"""A model that trains in LiteRT, as on a phone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.export.runtime.inputs import check_inputs
from keras_transformer.export.runtime.libraries import LITERT, TFLITE
from keras_transformer.export.tflite.flatbuffer.checks import check_flatbuffer
from keras_transformer.export.tflite.runtime import PlannedRunner
from keras_transformer.utils.types import ArrayLike, JsonObject, Path


class OnDeviceTrainer:
    """The signatures of a file of `export_training` in one interpreter of LiteRT: `train`, `infer`, `save`, `restore`.

    An app calls the same signatures in Kotlin, Swift or C++. The weights that train, and the variables of the optimizer, are
    kept in the interpreter from call to call. Not for several threads at once.

    Args:
        directory: path of the bundle.
        num_threads: int. Threads of a call.

    Raises:
        InvalidBundleError: it is no bundle, or none that trains.
        MissingLibraryError: LiteRT is not installed.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export_training
    >>> model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(1, name="y")])
    >>> x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    >>> report = export_training(
    ...     model, "/tmp/keras_transformer_doctest", (x, y), loss="mse", optimizer="sgd", progress=False)
    >>> trainer = OnDeviceTrainer("/tmp/keras_transformer_doctest")
    >>> losses = [trainer.train({"x": x}, y) for _ in range(50)]
    >>> losses[-1] < 0.01 * losses[0], sorted(trainer.infer({"x": x}))
    (True, ['y'])
    """

    def __init__(self, directory: Path, num_threads: int = 1) -> None:
        with LITERT.required_by(f"backend '{TFLITE}'"):
            from ai_edge_litert.interpreter import Interpreter

        manifest = read_manifest(directory)
        if manifest.training is None:
            raise InvalidBundleError(f"'{directory}' does not train: it was not written by export_training")
        path = str(manifest.path(directory, TFLITE, "infer"))
        check_flatbuffer(path)
        self._record: JsonObject = manifest.training
        # See `TFLiteRuntime`.
        self._interpreter = Interpreter(
            model_path=path, num_threads=num_threads, experimental_disable_delegate_clustering=True
        )
        signatures = self._record["signatures"].items()
        self._inputs = {name: [ArraySpec.from_dict(each) for each in record["inputs"]] for name, record in signatures}
        self._runners = {name: PlannedRunner(self._interpreter.get_signature_runner(name)) for name in self._inputs}

    @property
    def state(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all variables, by the path of the weight or of the optimizer's variable."""
        outputs = self._record["signatures"]["save"]["outputs"]
        return {each["name"]: tuple(each["shape"]) for each in outputs}

    @property
    def weights(self) -> list[str]:
        """The paths of the weights that train."""
        return list(self._record["weights"])

    def train(self, inputs: Mapping[str, ArrayLike], labels: ArrayLike) -> float:
        """Trains on one batch of the size that the file has; returns the loss before the step.

        Args:
            inputs: dict of arrays by input name.
            labels: array of labels.

        Raises:
            InputError: a name, a shape or a type is not that of the signature.
        """
        return float(self._called("train", {**inputs, "labels": labels})["loss"])

    def infer(self, inputs: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """The outputs of the model with the weights as they are now.

        Args:
            inputs: dict of arrays by input name; the batch may have any size.

        Raises:
            InputError: a name, a shape or a type is not that of the signature.
        """
        return self._called("infer", inputs)

    def save(self) -> dict[str, np.ndarray]:
        """Copies of all variables: the trained weights by their paths, and those of the optimizer."""
        return {name: np.array(value) for name, value in self._runners["save"]({}).items()}

    def restore(self, state: Mapping[str, ArrayLike]) -> None:
        """Assigns all variables: to go on with a saved state, or to run one base with another adapter.

        Args:
            state: dict of arrays as `save` returns it. Without the variables of the optimizer these stay as they are.

        Raises:
            InputError: a weight is missing, a name is unknown, or an array has another shape or type.
        """
        others = {} if len(state) == len(self.state) else self.save()
        kept = {name: value for name, value in others.items() if name not in self.weights}
        self._called("restore", {**kept, **state})

    def _called(self, name: str, arrays: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        return self._runners[name](check_inputs(self._inputs[name], arrays))
