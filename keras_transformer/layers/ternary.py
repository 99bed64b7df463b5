"""Linear maps with weights out of -1, 0 and 1, and activations in 8 bits: BitNet b1.58.

A `TernaryPolicy` as the dtype policy of a layer makes every `Projection` in it such a map, so that any block, attention or
feed-forward has ternary weights without knowing of it; `ternary_twin` gives a built model that policy.
"""

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.serialization import serializable

_LEAST = 1e-5
_LARGEST = 127


@serializable
class TernaryPolicy(keras.dtype_policies.DTypePolicyMap):
    """A dtype policy under which projections have ternary weights and 8-bit activations.

    Tables, norms and heads, which are no projections, are as under the policy of the same name.

    Args:
        name: str: "float32", "mixed_bfloat16", or another that Keras knows.
        frozen: bool. Whether kernels are the ternary numbers themselves, as they are exported, and not the real numbers that
            these are rounded from in training. Default False.

    Example:

    >>> from keras_transformer.feedforward import GatedFeedForward
    >>> GatedFeedForward(16, dtype=TernaryPolicy("float32")).compute_dtype
    'float32'

    Reference: Ma et al., The Era of 1-bit LLMs (BitNet b1.58), arXiv 2402.17764, section 2.
    """

    # A map of policies, and an empty one: of any other policy of float dtypes Keras keeps no more than the name.

    def __init__(self, name="float32", frozen=False):
        super().__init__(name)
        self.frozen = frozen

    @property
    def name(self):
        return self.default_policy.name

    def get_config(self):
        return {"name": self.name, "frozen": self.frozen}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)

    def __bool__(self):
        return True

    def __eq__(self, other):
        return isinstance(other, TernaryPolicy) and self.get_config() == other.get_config()

    __hash__ = None


def is_ternary(layer):
    """Whether the policy of a layer is a `TernaryPolicy`."""
    return isinstance(layer.dtype_policy, TernaryPolicy)


def has_ternary_kernel(layer):
    """Whether a layer is built as a ternary map."""
    return hasattr(layer, "ternary_scale")


def prepare_kernel(layer):
    """What a ternary layer does after it has built its kernel: keeps it in full precision; frozen, adds its scale."""
    keras_private.disable_autocast(keras_private.kernel(layer))  # The mean over a kernel in 16 bits would be another.
    layer.ternary_scale = None
    if is_ternary(layer) and layer.dtype_policy.frozen:
        options = {"trainable": False, "initializer": "ones", "autocast": False}
        layer.ternary_scale = layer.add_weight(name="ternary_scale", shape=(), **options)
        keras_private.kernel(layer).trainable = False


def saved_variables(layer, names):
    """Which variables Keras saves of a linear layer, by the mode of its quantization: a frozen one has a scale too."""
    if getattr(layer, "ternary_scale", None) is None:
        return names
    return {**names, None: [*names[None], "ternary_scale"]}


def ternary_weights(kernel):
    """A kernel as whole numbers t out of {-1, 0, 1} and one scale γ: `W ≈ γ t`, where γ is the mean of |W|.

    Args:
        kernel: float, any shape.

    Returns:
        `(t, γ)`: float32 of the kernel's shape, through which gradients pass as if nothing was rounded; float32 `()`.

    Example:

    >>> import numpy as np
    >>> codes, scale = ternary_weights(np.array([0.5, -1.5, 0.2, -0.2]))
    >>> codes.numpy().tolist(), round(float(scale), 6)
    ([1.0, -1.0, 0.0, -0.0], 0.6)
    """
    kernel = ops.cast(kernel, "float32")
    flat = ops.reshape(kernel, (-1,))  # A mean in the same order, whatever the shape.
    scale = ops.stop_gradient(ops.maximum(ops.mean(ops.abs(flat)), _LEAST))
    return _straight_through(kernel * (1 / scale), -1, 1), scale


def int8_activations(x):
    """Vectors as whole numbers from -128 to 127 and one scale for each: `x ≈ q / s`, where s is 127 by the largest |x|.

    Args:
        x: float `(..., D)`.

    Returns:
        `(q, s)`: float32 `(..., D)`, through which gradients pass as if nothing was rounded; float32 `(..., 1)`.
    """
    x = ops.cast(x, "float32")
    scale = ops.stop_gradient(_LARGEST / ops.maximum(ops.max(ops.abs(x), axis=-1, keepdims=True), _LEAST))
    return _straight_through(x * scale, -_LARGEST - 1, _LARGEST), scale


def ternary_product(x, kernel, ternary_scale=None):
    """`x W` of rounded vectors and a rounded kernel.

    All products and sums are of whole numbers below 2^24, which float32 holds exactly: every runtime, in whatever order it
    adds them, gives the same.

    Args:
        x: float `(n, K)`.
        kernel: float `(K, N)`: to be rounded; or, with a scale, ternary numbers.
        ternary_scale: float32 `()`, or None.

    Returns:
        float32 `(n, N)`.
    """
    codes, ternary_scale = ternary_weights(kernel) if ternary_scale is None else (kernel, ternary_scale)
    numbers, scale = int8_activations(x)
    return ops.matmul(numbers, codes) / scale * ternary_scale


def _straight_through(x, least, most):
    """Whole numbers, exactly: as `x + (round(x) - x)` they would depend on what a compiler makes of the sum."""

    @ops.custom_gradient
    def rounded(x):
        def gradient(*arguments, upstream=None):
            return arguments[0] if upstream is None else upstream

        return ops.clip(ops.round(x), least, most), gradient

    return rounded(x)


def ternary_twin(model):
    """A model with the weights of another, whose projections are ternary: to train on, or to train from the start.

    Args:
        model: a built Functional model; it is left alone.

    Returns:
        A model of the same class.

    Example:

    >>> from keras_transformer import models
    >>> model = ternary_twin(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> model.get_layer("decoder_block_0").dtype_policy.name
    'float32'
    """
    twin = _rebuilt(model, frozen=False)
    twin.set_weights(model.get_weights())
    return twin


def frozen_twin(model):
    """A ternary model with its kernels rounded for good, which computes the same: what is exported.

    Args:
        model: a built Functional model.

    Returns:
        The model given where nothing in it is ternary or all is frozen, else its twin.
    """
    ternary = [layer for layer in keras_private.flatten_layers(model) if has_ternary_kernel(layer)]
    if all(layer.ternary_scale is not None for layer in ternary):
        return model
    values = {weight.path: weight for weight in model.weights}
    for layer in ternary:
        codes, scale = ternary_weights(layer.kernel)
        values |= {keras_private.kernel(layer).path: codes, f"{layer.path}/ternary_scale": scale}
    twin = _rebuilt(model, frozen=True)
    for weight in twin.weights:
        weight.assign(values[weight.path])
    return twin


def _rebuilt(model, frozen):
    record = keras.saving.serialize_keras_object(model)
    record.pop("compile_config", None)
    twin = keras.saving.deserialize_keras_object(_with_policy(record, frozen), safe_mode=False)
    if not twin.built:
        twin.build(model.input_shape)
    return twin


def _with_policy(record, frozen):
    """Copy of a serialized model with every dtype policy ternary; names of layers are not touched."""
    if isinstance(record, (list, tuple)):
        return type(record)(_with_policy(value, frozen) for value in record)
    if not isinstance(record, dict):
        return record
    if record.get("class_name") in ("DTypePolicy", "FloatDTypePolicy", "TernaryPolicy"):
        name = record["config"]["name"]
        return keras.saving.serialize_keras_object(TernaryPolicy(name, frozen)) if "float" in name else record
    return {name: _with_policy(value, frozen) for name, value in record.items()}
