"""The preprocessing of a model, cut off: layers of strings and hashes become steps in front of a model of numbers."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import keras
from keras import layers

from keras_transformer.backend import keras_private
from keras_transformer.export.data.preprocessing.steps import Step
from keras_transformer.export.errors import UnsupportedOpError
from keras_transformer.export.formats import get_format
from keras_transformer.export.operations.lookups import hashes_texts
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.spec import names
from keras_transformer.export.spec.preprocessed.layer_steps import encoded, step_dtype, step_operation, step_shape
from keras_transformer.utils.types import Shape, Tensors

FOLDER = "preprocessing"


@dataclasses.dataclass
class SplitModel:
    """A model of numbers, and the steps that make its inputs.

    Args:
        core: the Functional model behind the steps, of the layers of the whole one.
        steps: list of `Step`.
        vocabularies: dict of path in the bundle to the tokens of a lookup.
    """

    core: keras.Model
    steps: list[Step]
    vocabularies: dict[str, list[Any]]


class NoStepError(ValueError):
    """A layer takes or returns strings, and no step computes it.

    Args:
        layer: the layer or operation.
    """

    def __init__(self, layer: keras.Operation) -> None:
        super().__init__(layer.name)
        self.kind, self.name = type(layer).__name__, layer.name


def has_preprocessing(model: keras.Model) -> bool:
    """Whether a Functional model has layers that only a SavedModel can contain: they take or return strings, or hash."""
    if any(map(_is_string, keras.tree.flatten((model.input, model.output)))):
        return True
    return any(map(hashes_texts, keras_private.flatten_layers(model, include_self=False)))


def split_for(model: keras.Model, formats: Sequence[str]) -> SplitModel | None:
    """`split_model` for some formats; None where a layer has no step, and every format contains it.

    Raises:
        UnsupportedOpError: a format does not; names the layer.
    """
    try:
        return split_model(model)
    except NoStepError as error:
        lacking = [name for name in formats if not get_format(name).takes_text]
        if lacking:
            raise UnsupportedOpError(lacking[0], error.kind, error.name, remedy=Remedy.STRINGS) from error
        return None


def split_model(model: keras.Model) -> SplitModel:
    """Cuts a Functional model behind its layers of strings and hashes; those of nested models too.

    Args:
        model: the model, which stays as it is.

    Raises:
        NoStepError: a layer of strings has no step.
    """
    splitter = _Splitter()
    values: dict[int, keras.KerasTensor] = {}
    for name, tensor in zip(names.input_names(model), keras.tree.flatten(model.input), strict=True):
        values[id(tensor)] = splitter.add_input(name, tensor)
    return splitter.finished(splitter.run(model, values), model.name)


class _Splitter:
    """Runs the graph of a model with symbolic tensors, in which the results of steps are new inputs."""

    def __init__(self) -> None:
        self.vocabularies: dict[str, list[Any]] = {}
        self._steps: list[Step] = []
        self._names: dict[int, str] = {}  # Of the inputs and the results of steps, by the id of their tensors.
        self._tensors: dict[str, keras.KerasTensor] = {}
        self._roots: dict[str, tuple[str, ...]] = {}  # Of which inputs these are made.
        # Layers that may become steps, by their results.
        self._sources: dict[int, tuple[keras.layers.Layer, list[keras.KerasTensor]]] = {}

    def add_input(self, name: str, tensor: keras.KerasTensor) -> keras.KerasTensor:
        """A new input in place of one of the model."""
        return self._named(name, (name,), tensor.shape, tensor.dtype)

    def _named(self, name: str, roots: tuple[str, ...], shape: Shape, dtype: str) -> keras.KerasTensor:
        tensor = keras.Input(batch_shape=shape, dtype=dtype, name=name)
        self._names[id(tensor)], self._tensors[name], self._roots[name] = name, tensor, roots
        return tensor

    def run(self, model: keras.Model, values: dict[int, keras.KerasTensor]) -> Tensors:
        """The outputs of a Functional model."""
        for node in keras_private.nodes_in_order(model):
            args, kwargs = keras_private.fill_in(node, values)
            results = self._call(node.operation, *args, **kwargs)
            pairs = zip(keras.tree.flatten(node.output_tensors), keras.tree.flatten(results), strict=True)
            values.update((id(before), after) for before, after in pairs)
        return keras.tree.map_structure(lambda each: values[id(each)], model.output)

    def finished(self, outputs: Tensors, name: str) -> SplitModel:
        """The model from the results of steps, and from the other inputs, to the outputs."""
        read = _inputs_of(keras.tree.flatten(outputs))
        own = {key: each for key, each in self._tensors.items() if id(each) in read}
        for each in own.values():
            if _is_string(each):
                raise NoStepError(keras_private.producer(each))
        core = keras.Model(list(own.values()) if len(own) > 1 else next(iter(own.values())), outputs, name=name)
        steps = self._needed_steps(own)
        labels = self._labels(steps)
        for key, each in own.items():
            each.name = labels.get(key, key)  # Its name in the file.
        renamed = [each._replace(output=labels.get(each.output, each.output)) for each in steps]
        return SplitModel(core, renamed, self.vocabularies)

    def _needed_steps(self, names: Iterable[str]) -> list[Step]:
        """The steps with a result among these, or that such a step reads."""
        needed, found = set(names), []
        for step in reversed(self._steps):
            if step.output in needed:
                needed.update(step.inputs)
                found.append(step)
        return found[::-1]

    def _labels(self, steps: Sequence[Step]) -> dict[str, str]:
        """Names of results that are those of inputs: of strings that a single step reads."""
        readers = collections.Counter(name for step in steps for name in step.inputs)
        singles = [step for step in steps if len(step.inputs) == 1 and readers[step.inputs[0]] == 1]
        return {
            each.output: each.inputs[0]
            for each in singles
            if _is_string(self._tensors[each.inputs[0]]) and not readers[each.output]
        }

    def _call(self, layer: keras.layers.Layer, *args: object, **kwargs: object) -> Tensors:
        inputs = [each for each in keras.tree.flatten((args, kwargs)) if isinstance(each, keras.KerasTensor)]
        inner = keras_private.functional(layer)
        if keras_private.is_graph(inner) and has_preprocessing(inner):
            own = keras.tree.flatten(inner.input)
            given = keras.tree.flatten(args[0] if args else inputs)
            return self.run(inner, dict(zip(map(id, own), given, strict=True)))
        if hashes_texts(layer) or any(map(_is_string, inputs)):
            return encoded(layer, self._indices(layer, inputs))
        result = layer(*args, **kwargs)
        if any(map(_is_string, keras.tree.flatten(result))):
            raise NoStepError(layer)
        if isinstance(layer, (layers.IntegerLookup, layers.Discretization)):
            self._sources[id(result)] = layer, inputs
        return result

    def _indices(self, layer: keras.layers.Layer, inputs: list[keras.KerasTensor]) -> keras.KerasTensor:
        sources = tuple(self._source(layer, each) for each in inputs)
        roots = tuple(dict.fromkeys(root for each in sources for root in self._roots[each]))
        name = self._name(layer, roots)
        operation = step_operation(layer, inputs, functools.partial(self._add_vocabulary, name))
        if operation is None:
            raise NoStepError(layer)
        dtype = step_dtype(layer)
        self._steps.append(Step(sources, name, dtype, operation))
        return self._named(name, roots, step_shape(operation, inputs[0].shape), dtype)

    def _source(self, layer: keras.layers.Layer, tensor: keras.KerasTensor) -> str:
        """The name of a tensor that a step reads: an input, the result of a step, or that of a layer that becomes one."""
        if id(tensor) not in self._names and id(tensor) in self._sources:
            self._indices(*self._sources[id(tensor)])
            self._names[id(tensor)] = self._steps[-1].output
        if id(tensor) not in self._names:
            raise NoStepError(layer)
        return self._names[id(tensor)]

    def _name(self, layer: keras.layers.Layer, roots: tuple[str, ...]) -> str:
        """A name for the result of a step: those of the inputs that it is made of, and the kind of layer."""
        wanted = "_".join([*roots, names.automatic_name(layer)])
        numbered = (f"{wanted}_{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([wanted], numbered) if name not in self._tensors)

    def _add_vocabulary(self, name: str, tokens: Sequence[str | int]) -> str:
        path = f"{FOLDER}/{name}.json"
        self.vocabularies[path] = [str(each) if isinstance(each, str) else int(each) for each in tokens]
        return path


def _inputs_of(outputs: Sequence[keras.KerasTensor]) -> set[int]:
    """Ids of the inputs from which tensors are computed."""
    found, open_tensors, seen = set(), list(outputs), set()
    while open_tensors:
        tensor = open_tensors.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        before = keras_private.inputs_of(tensor)
        open_tensors.extend(before)
        if not before:
            found.add(id(tensor))
    return found


def _is_string(tensor: keras.KerasTensor) -> bool:
    return str(tensor.dtype) == "string"
