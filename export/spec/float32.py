"""A float32 twin of a model trained in mixed or half precision."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.spec.twins import rebuilt
from keras_transformer.utils.types import Tensor

_REASON = "16-bit layers"
# Where the config of a policy names a precision, that of quantized layers too.
_POLICY_KEYS = ("config", "name", "source_name")
_HALF = {"mixed_float16", "mixed_bfloat16", "float16", "bfloat16"}


def uses_half_precision(model: keras.Model) -> bool:
    """Whether a layer of the model computes, or keeps weights, in 16 bits."""
    return bool(half_precisions(model))


def half_precisions(model: keras.Model) -> set[str]:
    """The types of 16 bits in which layers of the model compute, or keep weights."""
    layers = [model, *keras_private.flatten_layers(model, include_self=False)]
    dtypes = {str(dtype) for layer in layers for dtype in (layer.compute_dtype, layer.variable_dtype)}
    dtypes |= {str(variable.dtype) for variable in model.variables}
    dtypes |= {str(tensor.dtype) for tensor in [*keras.tree.flatten(model.inputs), *keras.tree.flatten(model.outputs)]}
    return dtypes & {"bfloat16", "float16"}


def float32_twin(model: keras.Model) -> keras.Model:
    """A model with the weights of another and every dtype policy float32. The other is not changed.

    Args:
        model: a built Functional or Sequential model.

    Returns:
        The same model where all of it is float32, else its twin.

    Raises:
        InvalidModelError: the model cannot be rebuilt from its config.

    Example:

    >>> import keras
    >>> from keras_transformer.export.spec.float32 import float32_twin
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, dtype="mixed_bfloat16")])
    >>> float32_twin(model).layers[0].compute_dtype
    'float32'
    """
    if not uses_half_precision(model):
        return model
    twin = _rebuilt_in_float32(model)
    twin.set_weights([weight.astype("float32") if _is_half(weight) else weight for weight in model.get_weights()])
    return twin


def streamed_twin(model: keras.Model) -> keras.Model:
    """`float32_twin` without memory for its weights: each is made of the other model's one when it is read.

    A call of the twin holds one weight in float32 at a time, and takes the time of their conversion.

    Args:
        model: as for `float32_twin`. Its weights must not change while the twin is used.

    Returns:
        The same model where all of it is float32, else its twin.

    Raises:
        InvalidModelError: the model cannot be rebuilt from its config.
    """
    if not uses_half_precision(model):
        return model
    with unallocated():
        twin = _rebuilt_in_float32(model)
    for variable, source in zip(twin.variables, model.variables, strict=True):
        keras_private.set_initializer(variable, _reader(source))
    return twin


def _rebuilt_in_float32(model: keras.Model) -> keras.Model:
    """The model from its config in float32. Layers that another one makes by itself take the policy of the process."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        twin = rebuilt(model, _in_float32, _REASON)
        _add_adapters(model, twin)
    finally:
        keras.config.set_dtype_policy(policy)
    if [tuple(each.shape) for each in twin.variables] != [tuple(each.shape) for each in model.variables]:
        raise InvalidModelError(f"model '{model.name}' has {_REASON}, and its config does not build the same weights")
    for layer in keras_private.flatten_layers(twin):
        if layer.compute_dtype in _HALF:
            raise InvalidModelError(
                f"layer '{layer.name}' ({type(layer).__name__}) computes in {layer.compute_dtype} by its own code",
                Remedy.DTYPE,
            )
    return twin


def _add_adapters(model: keras.Model, twin: keras.Model) -> None:
    """Gives layers the adapters that others have beside quantized kernels; the config of a layer leaves alpha out."""
    # Of layers of other kinds one of the two may have more.
    adaptable = ([each for each in layers_in_order(one) if hasattr(each, "lora_enabled")] for one in (model, twin))
    for layer, other in zip(*adaptable, strict=True):
        if layer.lora_enabled:
            if not other.lora_enabled:
                other.enable_lora(layer.lora_rank)
            other.lora_alpha = layer.lora_alpha


def _reader(source: keras.Variable) -> Callable[..., Tensor]:
    """The initializer of a variable with the values of another one."""
    return lambda shape, dtype: keras.ops.cast(source.value, dtype)


def _is_half(array: np.ndarray) -> bool:
    return str(array.dtype) in _HALF


def _in_float32(record: Any, key: Any = None, is_policy: bool = False) -> Any:
    """Copy of a serialized model with every 16-bit dtype and policy replaced; names of layers are kept."""
    if isinstance(record, dict):
        policy = is_policy or "Policy" in str(record.get("class_name", ""))
        return {name: _in_float32(value, name, policy and name in _POLICY_KEYS) for name, value in record.items()}
    if isinstance(record, (list, tuple)):
        return type(record)(_in_float32(value, key, is_policy) for value in record)
    if isinstance(record, str) and record in _HALF and (is_policy or str(key).endswith("dtype")):
        return "float32"
    return record
