"""A signature of a bundle as a callable model."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformer.export.bundle.probe_files import read_probes, resized_inputs
from keras_transformer.export.bundle.tokenizers import encode_texts
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.errors import InputError, InvalidBundleError, RunError
from keras_transformer.export.runtime.inputs import check_axis_limits, check_inputs, check_outputs
from keras_transformer.export.runtime.runtime import Runtime
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import ArrayLike


class RuntimeModel:
    """One signature of a bundle in its runtime. Several threads may call it at once.

    Args:
        runtime: `Runtime`: maps a dict of checked arrays to a dict of arrays.
        inputs: tuple of `ArraySpec`.
        outputs: tuple of `ArraySpec`.
        origin: names of the backend and of the signature, for errors.
        directory: path of the bundle, for its probes.

    Call arguments:
        arrays: a dict of input name to array, or the array itself where the model has one input; or a text or a list of
            texts, where the bundle has a tokenizer.
        named: the same by keyword.

    Returns:
        Dict of output name to numpy array.

    Attributes:
        metadata: dict that describes the model, as it was given to `export`: class names, ranges of inputs and others.

    Raises:
        InputError: an input is missing or unknown, or its dtype, rank or a fixed size is wrong, or two inputs disagree
            on the size of an axis they share, or an axis is longer than the model allows.
        RunError: the runtime fails, or its outputs differ from the manifest.
    """

    def __init__(
        self,
        runtime: Runtime,
        inputs: tuple[ArraySpec, ...],
        outputs: tuple[ArraySpec, ...],
        origin: tuple[str, str],
        directory: pathlib.Path,
    ) -> None:
        self._runtime = runtime
        self._origin = origin
        self._directory = directory
        self.inputs = inputs
        self.outputs = outputs
        self.tokenizer: Any = None
        self.tokenizer_options: dict[str, Any] = {}
        self.axis_limits: Mapping[str, int] = {}
        self.metadata: dict[str, Any] = {}

    def __call__(self, arrays: ArrayLike = None, **named: ArrayLike) -> dict[str, np.ndarray]:
        return self._run(self._read(arrays, named))

    def predict(self, arrays: ArrayLike = None, *, batch_size: int = 32, **named: ArrayLike) -> dict[str, np.ndarray]:
        """Calls the model on batches of examples, and concatenates the outputs.

        Args:
            arrays, named: as in a call, of any number of examples.
            batch_size: int >= 1: the most examples of one call. Default 32.

        Returns:
            Dict of output name to numpy array, of all examples.

        Raises:
            InputError: as in a call; or there is more than one batch, and an output without the axis `batch`.
            RunError: the runtime fails.
        """
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise InputError("batch_size", "a positive integer", repr(batch_size))
        checked = self._read(arrays, named)
        input_axes, output_axes = _batch_axes(self.inputs), _batch_axes(self.outputs)
        total = next((checked[name].shape[axis] for name, axis in input_axes.items()), 0)
        if total <= batch_size:
            return self._run(checked)
        for spec in self.outputs:
            if spec.name not in output_axes:
                limit = f"at most {batch_size} at once: output '{spec.name}' has no batch axis"
                raise InputError("(batch)", limit, str(total))
        results = []
        for start in range(0, total, batch_size):
            rows = np.arange(start, min(start + batch_size, total))
            batch = {name: np.take(checked[name], rows, axis=axis) for name, axis in input_axes.items()}
            results.append(self._run(checked | {name: np.ascontiguousarray(each) for name, each in batch.items()}))
        return {name: np.concatenate([each[name] for each in results], axis) for name, axis in output_axes.items()}

    def warm_up(self, **sizes: int) -> "RuntimeModel":
        """Runs the model before it is needed: the first call of a shape makes preparations for the others.

        Args:
            sizes: size by axis name, such as `batch=8, length=128`; other axes are as in a probe of the bundle. Without
                any, every probe is run.

        Returns:
            The model.

        Raises:
            InputError: no such axis.
            RunError: the runtime fails.
        """
        for arrays in [self.example(**sizes)] if sizes else [probe.inputs for probe in self._probes()]:
            self(arrays)
        return self

    def example(self, **sizes: int) -> dict[str, np.ndarray]:
        """Valid inputs, from a probe of the bundle, in sizes by axis name.

        Returns:
            Dict of input name to numpy array.

        Raises:
            InputError: no such axis.
            InvalidBundleError: the bundle's probes cannot be read.
        """
        return resized_inputs(self.inputs, self._probes()[0], sizes)

    def _probes(self) -> list[Probe]:
        signature = self._origin[1]
        probes = read_probes(self._directory, signature).get(signature)
        if not probes:
            raise InvalidBundleError(f"the bundle has no probe of signature '{signature}'")
        for probe in probes:
            check_inputs(self.inputs, probe.inputs)
        return probes

    def _read(self, arrays: ArrayLike, named: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        if isinstance(arrays, str) or (isinstance(arrays, (list, tuple)) and arrays and isinstance(arrays[0], str)):
            arrays = encode_texts(arrays, self.tokenizer, self.tokenizer_options, self.inputs)
        if arrays is not None and not isinstance(arrays, dict):
            if len(self.inputs) != 1:
                names = ", ".join(spec.name for spec in self.inputs)
                raise InputError("(unnamed)", f"a dict with {names}", type(arrays).__name__)
            arrays = {self.inputs[0].name: arrays}
        return check_inputs(self.inputs, {**(arrays or {}), **named})

    def _run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            return check_outputs(self.outputs, self._runtime(arrays))
        except library_exceptions() as error:
            check_axis_limits(self.inputs, arrays, self.axis_limits)
            raise RunError(*self._origin, error) from error


def _batch_axes(specs: tuple[ArraySpec, ...]) -> dict[str, int]:
    """Index of the batch axis by name, of the arrays that have one."""
    return {spec.name: spec.axes.index("batch") for spec in specs if "batch" in spec.axes}
