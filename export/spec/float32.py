"""A float32 twin of a model trained in mixed or half precision."""

import keras

from keras_transformer.backend import keras_private
from keras_transformer.export.errors import InvalidModelError, one_line

_HALF = {"mixed_float16", "mixed_bfloat16", "float16", "bfloat16"}


def uses_half_precision(model):
    """Whether anything in the model computes or keeps weights in 16 bits."""
    layers = [model, *keras_private.flatten_layers(model, include_self=False)]
    dtypes = {str(dtype) for layer in layers for dtype in (layer.compute_dtype, layer.variable_dtype)}
    dtypes |= {str(variable.dtype) for variable in model.variables}
    dtypes |= {str(tensor.dtype) for tensor in [*keras.tree.flatten(model.inputs), *keras.tree.flatten(model.outputs)]}
    return bool(dtypes & _HALF)


def float32_twin(model):
    """Rebuilds a model with every dtype policy float32 and the same weights; the model itself is left alone.

    Args:
        model: a built Functional or Sequential model.

    Returns:
        The model given when it is float32 throughout, else its twin.

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
    record = keras.saving.serialize_keras_object(model)
    record.pop("compile_config", None)
    try:
        twin = keras.saving.deserialize_keras_object(_in_float32(record), custom_objects_of(model), safe_mode=False)
        if not twin.built:
            twin.build(model.input_shape)
        twin.set_weights([weight.astype("float32") if _is_half(weight) else weight for weight in model.get_weights()])
    except Exception as error:
        raise InvalidModelError(
            f"model '{model.name}' holds 16-bit layers and cannot be rebuilt in float32: {one_line(error)}"
        ) from error
    return twin


def custom_objects_of(model):
    """Every class used in the model under the name by which Keras looks it up, registered or not."""
    parts = [*keras_private.flatten_layers(model), *getattr(model, "operations", ())]
    return {keras.saving.get_registered_name(type(part)): type(part) for part in parts}


def _is_half(array):
    return str(array.dtype) in _HALF


def _in_float32(record, key=None, is_policy=False):
    """Copy of a serialized model with every 16-bit dtype and policy replaced; names of layers are not touched."""
    if isinstance(record, dict):
        policy = is_policy or "Policy" in str(record.get("class_name", ""))
        return {name: _in_float32(value, name, policy and name in ("config", "name")) for name, value in record.items()}
    if isinstance(record, (list, tuple)):
        return type(record)(_in_float32(value, key, is_policy) for value in record)
    if isinstance(record, str) and record in _HALF and (is_policy or str(key).endswith("dtype")):
        return "float32"
    return record
