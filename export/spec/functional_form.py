"""The Functional model that computes what another model or a layer computes: what the exporter traces."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.export.data.export_spec import Structure
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.spec.state import stateful_layers
from keras_transformer.utils.captured_stderr import captured
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Shape, Tensor, Tensors

if TYPE_CHECKING:
    import tensorflow as tf

# Of more inputs than so many, the dtypes are not tried in all combinations.
_MOST_INPUTS = 5
CALL = "call"
# Arguments of a call that Keras passes itself.
_OF_KERAS = ("mask", "training")


def functional_form(model: keras.layers.Layer, inputs: Any = None, method: str = CALL) -> keras.Model:
    """Returns a model as a Functional one. It shares the layers and the weights of the given one.

    Args:
        model: a Functional model, which is returned as it is; a Sequential or a subclassed model, or any layer.
        inputs: `keras.InputSpec` or `keras.Input` of each input, in the structure of the first argument, or in a dict by
            the names of the arguments. By default those that the model was built with, for batches of any size.
        method: name of the method that computes the outputs.

    Raises:
        InvalidModelError: the shapes of its inputs are not known, or it cannot be called on inputs of these shapes.

    Example:

    >>> form = functional_form(keras.layers.Dense(3), keras.InputSpec(shape=(None, 4)))
    >>> form.output_shape
    (None, 3)
    """
    if inputs is None and method == CALL and _has_graph(model) and not _has_batch_of_data(model):
        return model  # type: ignore[return-value]
    structure = _built_inputs(model) if inputs is None else keras.tree.map_structure(_symbolic, inputs)
    call = CallLayer(model, method, _arguments(getattr(model, method), structure))
    try:
        if not model.built:
            call(structure)
        if inputs is None:
            structure = _with_integers(call, structure)
        structure = call.named(structure)
        outputs = model(structure) if method == CALL and _has_graph(model) else call(structure)
        return keras.Model(structure, outputs, name=model.name)
    except library_exceptions() as error:
        shapes = [tuple(each.shape) for each in keras.tree.flatten(structure)]
        raise InvalidModelError(
            f"{title(model)} cannot be called on inputs of the shapes {shapes}: {one_line(error)}", Remedy.INPUTS
        ) from error


def called_model(form: keras.Model) -> keras.layers.Layer:
    """The model or layer that a Functional model was made for by `functional_form`; the Functional model itself, if none."""
    return next((each.layer for each in form.layers if isinstance(each, CallLayer)), form)


def input_structure(form: keras.Model, names: Sequence[str]) -> Structure:
    """The names of the inputs of a Functional model in the structure in which its inputs are given to `functional_form`."""
    structure = keras.tree.pack_sequence_as(form.input, list(names))
    arguments = next((each.arguments for each in form.layers if isinstance(each, CallLayer)), None)
    return structure if arguments is None else dict(zip(arguments, structure, strict=True))


class CallLayer(keras.layers.Layer):
    """A call of a layer, or of one of its methods, as a layer of its own: the other one gets no node of a graph.

    Args:
        layer: the layer or model.
        method: name of the method.
        arguments: names of the arguments, if the inputs are a dict of them or, in this order, a list; None if they are the
            first argument.
    """

    def __init__(
        self, layer: keras.layers.Layer, method: str = CALL, arguments: Sequence[str] | None = None, **options: Any
    ) -> None:
        super().__init__(dtype=layer.dtype_policy, **options)
        self.layer, self.method = layer, method
        self.arguments = None if arguments is None else tuple(arguments)
        self.built, self.supports_masking = True, True

    def call(self, inputs: Any) -> Any:
        """Calls the layer on the structure of inputs."""
        function = self.layer if self.method == CALL else getattr(self.layer, self.method)
        options = {}
        if self.method != CALL and "training" in inspect.signature(function).parameters:
            options["training"] = False
        if self.arguments is None:
            outputs = function(inputs, **options)
        else:
            named = inputs if isinstance(inputs, dict) else dict(zip(self.arguments, inputs, strict=True))
            outputs = function(**named, **options)
        return keras.tree.map_structure(keras.ops.convert_to_tensor, outputs)

    def named(self, structure: Any) -> Any:
        """The structure of inputs for a Functional model, named after keys and arguments.

        Arguments are a list: Keras sorts the keys of dicts.
        """
        if not isinstance(structure, dict):
            return structure
        inputs = {key: _renamed(each, key) for key, each in structure.items()}
        return inputs if self.arguments is None else [inputs[name] for name in self.arguments]

    def get_config(self) -> dict[str, Any]:
        layer = keras.saving.serialize_keras_object(self.layer)
        taken = inspect.signature(type(self.layer).__init__).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
            # Keras adds `trainable` and `dtype`, which a user's class need not take.
            layer["config"] = {name: each for name, each in layer["config"].items() if name in taken}
        return {"name": self.name, "layer": layer, "method": self.method, "arguments": self.arguments}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CallLayer:
        return cls(**{**config, "layer": keras.saving.deserialize_keras_object(config["layer"])})


def title(model: keras.layers.Layer) -> str:
    """What an error calls a model or layer."""
    kind = "model" if isinstance(model, keras.Model) else "layer"
    return f"{kind} '{model.name}' ({type(model).__name__})"


def _has_graph(model: keras.layers.Layer) -> bool:
    """Whether a model is functional, or sequential and built."""
    graph = keras_private.functional(model)
    return hasattr(graph, "operations") and bool(getattr(graph, "inputs", None))


def _has_batch_of_data(model: keras.layers.Layer) -> bool:
    """Whether the batch size of a Sequential model is that of the data that it was first called on.

    A loaded model does not tell: a size above 1 is taken for that of the data.
    """
    if not isinstance(model, keras.Sequential):
        return False
    size = model.inputs[0].shape[0]
    return size is not None and not stateful_layers(model) and (size > 1 or not keras_private.has_own_input(model))


def _arguments(method: Callable[..., object], structure: object) -> list[str] | None:
    """The arguments that a dict of inputs names, in their order; None if the inputs are the first argument."""
    names = list(inspect.signature(method).parameters)
    if not isinstance(structure, dict) or not structure or not structure.keys() <= set(names):
        return None
    return [name for name in names if name in structure]


def _built_inputs(model: keras.layers.Layer) -> Tensors:
    """Symbolic inputs of the shapes that a model or layer was built with, for any batch."""
    if isinstance(model, keras.layers.TFSMLayer):
        return _saved_inputs(model)
    if _has_graph(model):
        is_any = _has_batch_of_data(model)
        return keras.tree.map_structure(lambda each: _like(each, is_any), keras_private.functional(model).input)
    shapes = (model.get_build_config() or {}) if model.built else {}
    if shapes.get("input_shape") is not None:
        found = shapes["input_shape"]
        _warn_of_others(model)
    else:
        named: Mapping[str, Shape | None] = shapes.get("shapes_dict") or {}
        found = {name.removesuffix("_shape"): each for name, each in named.items() if each is not None}
    if not found and model.built:
        found = _default_shape(model)
    if not found:
        raise InvalidModelError(f"the inputs of {title(model)} are not known", Remedy.INPUTS)
    size = 1 if stateful_layers(model) else None
    return keras.tree.map_shape_structure(
        lambda each: keras.Input(batch_shape=(size and each[0], *each[1:])) if each else keras.Input(batch_shape=()),
        found,
    )


def _warn_of_others(model: keras.layers.Layer) -> None:
    """Warns of optional arguments of a user's `call`: Keras keeps the shape of the first argument alone."""
    if type(model).__module__.split(".")[0] == "keras":
        return
    _, *others = inspect.signature(model.call).parameters.values()
    names = [each.name for each in others if each.default is None and each.name not in _OF_KERAS]
    if names:
        left_out = ", ".join(map(repr, names))
        warnings.warn(
            f"{title(model)} is exported as called without {left_out}. To have it as an input, pass"
            " ExportOptions(inputs=...): a dict of keras.InputSpec by the names of the arguments.",
            stacklevel=2,
        )


def _default_shape(model: keras.layers.Layer) -> Sequence[int | None] | None:
    """The shape that `build` of a class has by default: Keras keeps those alone that it was called with."""
    defaults = [each.default for each in inspect.signature(type(model).build).parameters.values()]
    return next((each for each in defaults if isinstance(each, (tuple, list))), None)


def _like(tensor: keras.KerasTensor, is_any_batch: bool) -> keras.KerasTensor:
    """A symbolic input like that of a model, or, for one of a Sequential model's own making, for any batch, of float32."""
    if is_any_batch:
        return keras.Input(batch_shape=(None, *tensor.shape[1:]))
    return keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name)


def _saved_inputs(layer: keras.layers.TFSMLayer) -> Tensors:
    """Symbolic inputs of the signature, or of the function, of a SavedModel."""
    function: Any = layer.call_endpoint_fn
    for each in getattr(function, "concrete_functions", [function]):
        positional, named = each.structured_input_signature
        specs = [*positional, *named.values()]
        if len(specs) == 1:
            return keras.tree.map_structure(_symbolic, specs[0])
    raise InvalidModelError(f"{title(layer)} takes several arguments", Remedy.ARGUMENTS)


def _symbolic(spec: Any) -> keras.KerasTensor:
    """The symbolic input of a specification."""
    if isinstance(spec, keras.KerasTensor):
        return spec
    if getattr(spec, "shape", None) is None:
        raise InvalidModelError(
            f"`inputs` must be made of keras.InputSpec with a shape, or keras.Input. Received: {spec!r}"
        )
    dtype = "float32" if spec.dtype is None else getattr(spec.dtype, "name", spec.dtype)
    return keras.Input(batch_shape=tuple(spec.shape), dtype=dtype)


def _renamed(structure: Any, name: str) -> Any:
    """A structure of symbolic inputs with names that begin with the name of the argument or key."""
    if isinstance(structure, keras.KerasTensor):
        return keras.Input(batch_shape=structure.shape, dtype=structure.dtype, name=name.replace("/", "_"))
    parts = structure.items() if isinstance(structure, dict) else enumerate(structure)
    found = {key: _renamed(each, f"{name}_{key}") for key, each in parts}
    return found if isinstance(structure, dict) else list(found.values())


def _with_integers(call: CallLayer, structure: Tensors) -> Tensors:
    """The inputs, those of integers that the model takes as integers alone, or turns into some before it does anything else.

    Keras does not keep the dtypes that a model was built with.
    """
    flat = keras.tree.flatten(structure)
    if keras.backend.backend() != "tensorflow":
        return structure
    for dtypes in _possible_dtypes(flat):
        try:
            with captured():  # TensorFlow warns of an abandoned trace.
                tensors = _traced_inputs(call, structure, dtypes)
        except library_exceptions():  # Whatever a layer or TensorFlow raises for a dtype that it does not take.
            continue
        found = [
            keras.Input(batch_shape=each.shape, dtype="int32" if _becomes_integer(tensor) else dtype)
            if _becomes_integer(tensor) or dtype != each.dtype
            else each
            for each, dtype, tensor in zip(flat, dtypes, tensors, strict=False)
        ]
        return keras.tree.pack_sequence_as(structure, found)
    return structure


def _possible_dtypes(inputs: Sequence[keras.KerasTensor]) -> Iterator[list[str]]:
    """The dtypes that inputs may have: their own, or int32 for one of them, for two, and so on."""
    numbers = range(len(inputs))
    most = len(inputs) if len(inputs) <= _MOST_INPUTS else 0
    for count in range(most + 1):
        for chosen in itertools.combinations(numbers, count):
            yield ["int32" if number in chosen else inputs[number].dtype for number in numbers]


def _traced_inputs(call: CallLayer, structure: Tensors, dtypes: Sequence[str]) -> list[Tensor]:
    """The inputs of the graph of a call, in order."""
    import tensorflow as tf

    def traced(*tensors: Tensor) -> Tensors:
        return call(keras.tree.pack_sequence_as(structure, list(tensors)))

    specs = [
        tf.TensorSpec(each.shape, dtype) for each, dtype in zip(keras.tree.flatten(structure), dtypes, strict=True)
    ]
    with keras.StatelessScope():
        graph: tf.Graph = tf.function(traced, autograph=False).get_concrete_function(*specs).graph
    return list(graph.inputs)


def _becomes_integer(tensor: tf.Tensor) -> bool:
    readers = tensor.consumers()
    return bool(readers) and all(each.type == "Cast" and each.get_attr("DstT").is_integer for each in readers)
