"""A signature of a bundle as a callable model."""

import dataclasses
import pathlib
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.bundle.probe_files import read_probes, resized_inputs
from keras_transformer.export.bundle.tokenizers import encode_texts
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.domain import Domain
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.data.manifest_records import FileNames
from keras_transformer.export.data.tables import Part, Table, html_of, plain
from keras_transformer.export.errors import InputError, InvalidBundleError, RunError
from keras_transformer.export.runtime.inputs import (
    check_axis_limits,
    check_inputs,
    check_outputs,
    drawn_arrays,
    named_arrays,
)
from keras_transformer.export.runtime.runtime import Runtime, named_runtime
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
        arrays: what the Keras model takes: an array for each input, or a list, tuple or dict of them; or a text or a list
            of texts, where the bundle has a tokenizer or the one input takes strings.
        named: arrays by the name of the input.

    Returns:
        Dict of output name to numpy array, in the order of the outputs of the Keras model. The states of a model with
        `stateful=True` are kept for the next call, as Keras keeps them; called with its states, the model returns the next
        ones too, and keeps nothing. Random numbers that the model draws are drawn in each call, unless it is given them.

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
        self.tokenizer_options: dict[str, object] = {}
        self._states: tuple[str, ...] = ()
        self._state: dict[str, np.ndarray] = {}
        self._state_lock = threading.Lock()
        self._draws: Mapping[str, str] = {}
        self.axis_limits: Mapping[str, int] = {}
        self._domain: Domain | None = None
        self.metadata: dict[str, Any] = {}

    def __repr__(self) -> str:
        return plain(self._parts())

    def _repr_html_(self) -> str:
        return html_of(self._parts())

    def _parts(self) -> list[Part]:
        """What the model takes and returns, and a call of it."""
        backend, signature = self._origin
        sides = (("input", self.inputs), ("output", self.outputs))
        rows = [(side, each.name, each.describe()) for side, specs in sides for each in specs]
        given = [each.name for each in self.inputs if each.name not in {*self._states, *self._draws}]
        call = (
            "model(['a text'])"
            if self.tokenizer is not None
            else f"model({', '.join(f'{each}=...' for each in given)})"
        )
        head = f"{type(self).__name__} of '{self._directory}': {backend}, signature '{signature}'"
        columns = ("", "name", "takes and returns")
        return [
            head,
            Table(columns, rows, texts=columns),
            f"{call} returns a dict of numpy arrays; also model.example()",
        ]

    def __call__(self, *arrays: ArrayLike, **named: ArrayLike) -> dict[str, np.ndarray]:
        given = self._named(arrays, named)
        if not self._states or any(name in given for name in self._states):
            return self._run(check_inputs(self.inputs, given))
        with self._state_lock:
            results = self._run(check_inputs(self.inputs, given | self._state))
            self._state = {name: results.pop(name) for name in self._states}
        return results

    def keep_state(self, names: Iterable[str]) -> None:
        """Lets the model keep some of its outputs as the inputs of the next call, at first zeros.

        Args:
            names: each of an input of fixed shape, and of an output.
        """
        self._states = tuple(names)
        self.reset_state()

    def reset_state(self) -> None:
        """Makes the states zeros again, as `reset_state` of a Keras layer does."""
        with self._state_lock:
            specs = (spec for spec in self.inputs if spec.name in self._states)
            self._state = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}

    def draw(self, kinds: Mapping[str, str]) -> None:
        """Lets the model draw random inputs that a call does not give.

        Args:
            kinds: dict of input name to `"normal"` or `"uniform"`.
        """
        self._draws = dict(kinds)

    def check_domain(self, domain: Domain | None) -> None:
        """Lets the model warn once of inputs beyond those on which its files were compared with the Keras model.

        Args:
            domain: `Domain`, or None for no warning.
        """
        self._domain = domain

    def _warn_of_domain(self, arrays: dict[str, np.ndarray]) -> None:
        found = self._domain.outside(self.inputs, arrays) if self._domain is not None else []
        if found:
            domain, self._domain = self._domain, None
            warnings.warn(
                f"{' and '.join(found)}: the {self._origin[0]} file was compared with Keras for {domain}",
                stacklevel=4,
            )

    def use_labels(self) -> None:
        """Names the outputs as the Keras model does, in place of identifiers."""
        inputs = {spec.name: spec.name for spec in self.inputs}
        names = FileNames(inputs, {spec.label or spec.name: spec.name for spec in self.outputs})
        self._runtime, self.outputs = named_runtime(self._runtime, names), labeled(self.outputs)

    def predict(self, *arrays: ArrayLike, batch_size: int = 32, **named: ArrayLike) -> dict[str, np.ndarray]:
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
        if self._states:
            return self(*arrays, **named)
        checked = check_inputs(self.inputs, self._named(arrays, named))
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

    def _named(self, arrays: Sequence[ArrayLike], named: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
        """The arrays of a call by name, not checked."""
        first = arrays[0] if len(arrays) == 1 else None
        if isinstance(first, str) or (isinstance(first, (list, tuple)) and first and isinstance(first[0], str)):
            arrays = [self._of_texts([first] if isinstance(first, str) else first)]
        own = {*self._states, *self._draws} - named.keys()
        specs = [spec for spec in self.inputs if spec.name not in own]
        found = named_arrays(specs, [each for each in arrays if each is not None], named)
        return found | drawn_arrays(self.inputs, found, self._draws)

    def _of_texts(self, texts: Sequence[str]) -> ArrayLike:
        """Texts as they are, where the only input takes strings; or as the tokenizer encodes them."""
        if [spec.dtype for spec in self.inputs] == ["string"]:
            return texts
        return encode_texts(texts, self.tokenizer, self.tokenizer_options, self.inputs)

    def _run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._warn_of_domain(arrays)
        try:
            return check_outputs(self.outputs, self._runtime(arrays))
        except library_exceptions() as error:
            check_axis_limits(self.inputs, arrays, self.axis_limits)
            raise RunError(*self._origin, error) from error


def _batch_axes(specs: tuple[ArraySpec, ...]) -> dict[str, int]:
    """Index of the batch axis by name, of the arrays that have one."""
    return {spec.name: spec.axes.index("batch") for spec in specs if "batch" in spec.axes}


def labeled(specs: Sequence[ArraySpec]) -> tuple[ArraySpec, ...]:
    """Outputs under the names that the Keras model has for them."""
    return tuple(dataclasses.replace(spec, name=spec.label or spec.name, label=None) for spec in specs)
