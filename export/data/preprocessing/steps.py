"""What a manifest says of the preprocessing in front of a file: layers that the format cannot contain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.checks import IncompleteError, is_list, is_names, is_object, is_tuple, shown
from keras_transformer.export.data.preprocessing.layers import OPERATIONS, Operation, lookup_of, operation_of

_INTEGERS = "int32", "int64"


class Step(NamedTuple):
    """One layer of the preprocessing.

    Args:
        inputs: names of what it reads: inputs of the model, or outputs of steps before it.
        output: name of what it computes.
        dtype: that of the output: "int32" or "int64".
        operation: what it computes.
    """

    inputs: tuple[str, ...]
    output: str
    dtype: str
    operation: Operation

    def to_dict(self) -> dict[str, object]:
        """The step as dicts, lists, strings and numbers."""
        own = {"inputs": list(self.inputs), "output": self.output, "dtype": self.dtype}
        return {"layer": self.operation.layer, **own, **_plain(dataclasses.asdict(self.operation))}

    @classmethod
    def from_dict(cls, record: object, where: str) -> Step:
        """The step that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the step, for the error.

        Raises:
            IncompleteError: the layer is not known, or a field is missing or out of its range.
        """
        fields = dict(record) if is_object(record) else {}
        layer, inputs, output, dtype = (fields.pop(name, None) for name in ("layer", "inputs", "output", "dtype"))
        operation = OPERATIONS.get(layer) if isinstance(layer, str) else None
        if operation is None or not is_names(inputs) or not isinstance(output, str) or dtype not in _INTEGERS:
            raise IncompleteError(f"{where}: a step of layer {shown(layer)}")
        return cls(
            tuple(inputs), output, str(dtype), operation_of(operation, fields, f"{where}, {layer} '{shown(output)}'")
        )


class Preprocessing(NamedTuple):
    """The layers between the inputs of a signature and those of its file, in the order in which they run.

    Args:
        steps: tuple of `Step`.
        outputs: tuple of `ArraySpec`: the inputs of the file. Those that no step computes are inputs of the signature.

    Example:

    >>> from keras_transformer.export.data.preprocessing.layers import Lookup
    >>> lookup = Lookup("preprocessing/color.json")
    >>> outputs = (ArraySpec("color", "int64", (None,), ("batch",)),)
    >>> found = Preprocessing((Step(("color",), "color", "int64", lookup),), outputs)
    >>> Preprocessing.from_dict(found.to_dict(), "the record") == found
    True
    """

    steps: tuple[Step, ...]
    outputs: tuple[ArraySpec, ...]

    @property
    def paths(self) -> list[str]:
        """Paths of the vocabularies in the bundle, each once."""
        lookups = [lookup_of(each.operation) for each in self.steps]
        return list(dict.fromkeys(each.vocabulary for each in lookups if each is not None))

    def to_dict(self) -> dict[str, object]:
        """The record as dicts, lists, strings and numbers."""
        return {"steps": [each.to_dict() for each in self.steps], "outputs": [each.to_dict() for each in self.outputs]}

    @classmethod
    def from_dict(cls, record: object, where: str) -> Preprocessing:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the preprocessing, for the error.

        Raises:
            IncompleteError: a step or an output is wrong.
        """
        fields = record if is_object(record) else {}
        steps, outputs = fields.get("steps"), fields.get("outputs")
        if not is_list(steps) or not is_list(outputs):
            raise IncompleteError(f"{where}: preprocessing without steps or outputs")
        return cls(
            tuple(Step.from_dict(each, where) for each in steps),
            tuple(ArraySpec.from_dict(each, where) for each in outputs),
        )

    def check_inputs(self, names: Iterable[str], where: str) -> None:
        """Checks that every step reads what is known before it, and that every output is known at the end.

        Args:
            names: names of the inputs of the signature.
            where: what has the preprocessing, for the error.

        Raises:
            IncompleteError: names what is not known.
        """
        known = set(names)
        for step in self.steps:
            _check_known(step.inputs, known, where)
            known.add(step.output)
        _check_known([each.name for each in self.outputs], known, where)

    def without(self, inside: Iterable[str], inputs: Mapping[str, ArraySpec]) -> Preprocessing:
        """The preprocessing of a file that itself has some of the steps.

        Args:
            inside: names of the outputs of these steps; each reads one input of the signature.
            inputs: dict of name to `ArraySpec` of the inputs of the signature.
        """
        moved = {each.output: inputs[each.inputs[0]] for each in self.steps if each.output in set(inside)}
        steps = tuple(each for each in self.steps if each.output not in moved)
        return Preprocessing(steps, tuple(moved.get(each.name, each) for each in self.outputs))


def _plain(fields: Mapping[str, object]) -> dict[str, object]:
    """Fields with lists in place of tuples, as JSON has them."""
    return {name: _plain_value(each) for name, each in fields.items()}


def _plain_value(value: object) -> object:
    return _plain(value) if is_object(value) else [*value] if is_tuple(value) else value


def _check_known(names: Iterable[str], known: set[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise IncompleteError(f"{where}: preprocessing reads '{shown(name)}', which nothing computes")
