"""BitNet b1.58: linear layers with ternary weights, -1, 0 or 1, and 8-bit activations.

A `TernaryPolicy` as the dtype policy of a layer makes every `Projection` in it ternary, so that any block, attention or
feed-forward can have ternary weights. `ternary_twin` applies the policy to a built model.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.serialization import model_record, serializable
from keras_transformer.utils.types import Config, Tensor

_EPSILON = 1e-5
_INT8_MAX = 127


@serializable
class TernaryPolicy(keras.dtype_policies.DTypePolicyMap):
    """A dtype policy under which projections have ternary weights and 8-bit activations.

    Embeddings, norms and heads, which are not projections, follow the policy of the same name.

    Args:
        name: str: "float32", "mixed_bfloat16", or another name of a Keras policy.
        frozen: bool. Whether kernels are stored as ternary numbers, as in exported models, instead of the real numbers that
            training rounds. Default False.

    Example:

    >>> from keras_transformer.feedforward import GatedFeedForward
    >>> GatedFeedForward(16, dtype=TernaryPolicy("float32")).compute_dtype
    'float32'

    Reference: Ma et al., The Era of 1-bit LLMs (BitNet b1.58), arXiv 2402.17764, section 2.
    """

    # An empty map of policies: for other policies of float dtypes Keras stores nothing but the name.

    def __init__(self, name: str = "float32", frozen: bool = False) -> None:
        super().__init__(name)
        self.frozen = frozen

    @property
    def name(self) -> str:
        """The name of the policy of dtypes beneath it."""
        return self.default_policy.name

    def get_config(self) -> Config:
        return {"name": self.name, "frozen": self.frozen}

    @classmethod
    def from_config(cls, config: Config, custom_objects: Config | None = None) -> TernaryPolicy:
        return cls(**config)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TernaryPolicy) and self.get_config() == other.get_config()

    __hash__ = None  # type: ignore[assignment]  # As for any mutable object with __eq__.


def is_ternary(layer: keras.layers.Layer) -> bool:
    """Whether the dtype policy of a layer is a `TernaryPolicy`."""
    return isinstance(layer.dtype_policy, TernaryPolicy)


def has_ternary_kernel(layer: keras.layers.Layer) -> bool:
    """Whether a layer was built with a ternary kernel."""
    return hasattr(layer, "ternary_scale")


def prepare_kernel(layer: keras.layers.Layer) -> None:
    """Prepares the kernel of a ternary layer after `build`: no autocast; if frozen, a scale and no training."""
    keras_private.disable_autocast(keras_private.kernel(layer))  # The mean is taken over the kernel in full precision.
    layer.ternary_scale = None
    if is_ternary(layer) and layer.dtype_policy.frozen:
        options = {"trainable": False, "initializer": "ones", "autocast": False}
        layer.ternary_scale = layer.add_weight(name="ternary_scale", shape=(), **options)
        keras_private.kernel(layer).trainable = False


def saved_variables(layer: keras.layers.Layer, names: dict[str | None, list[str]]) -> dict[str | None, list[str]]:
    """Returns the names of a linear layer's saved variables by quantization mode, with the scale of a frozen kernel."""
    if getattr(layer, "ternary_scale", None) is None:
        return names
    return {**names, None: [*names[None], "ternary_scale"]}


def ternary_weights(kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds a kernel to integers t in {-1, 0, 1} with one scale γ: `W ≈ γ t`, where γ is the mean of |W|.

    Args:
        kernel: float, any shape.

    Returns:
        `(t, γ)`: float32 of the kernel's shape, with a straight-through gradient; float32 `()`.

    Example:

    >>> import numpy as np
    >>> codes, scale = ternary_weights(np.array([0.5, -1.5, 0.2, -0.2]))
    >>> codes.numpy().tolist(), round(float(scale), 6)
    ([1.0, -1.0, 0.0, -0.0], 0.6)
    """
    kernel = ops.cast(kernel, "float32")
    flat = ops.reshape(kernel, (-1,))  # The order of the sum does not depend on the shape.
    scale = ops.stop_gradient(ops.maximum(ops.mean(ops.abs(flat)), _EPSILON))
    return _straight_through(kernel * (1 / scale), -1, 1), scale


def int8_activations(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds vectors to integers from -128 to 127 with one scale each: `x ≈ q / s`, with s = 127 / max |x|.

    Args:
        x: float `(..., D)`.

    Returns:
        `(q, s)`: float32 `(..., D)`, with a straight-through gradient; float32 `(..., 1)`.
    """
    x = ops.cast(x, "float32")
    scale = ops.stop_gradient(_INT8_MAX / ops.maximum(ops.max(ops.abs(x), axis=-1, keepdims=True), _EPSILON))
    return _straight_through(x * scale, -_INT8_MAX - 1, _INT8_MAX), scale


def ternary_product(x: Tensor, kernel: Tensor, ternary_scale: Tensor | None = None) -> Tensor:
    """Returns `x W` of rounded vectors and a rounded kernel.

    All products and sums are integers below 2^24, which float32 represents exactly: the result is the same in every
    runtime and order of summation.

    Args:
        x: float `(n, K)`.
        kernel: float `(K, N)`: real numbers to round or, with a scale, ternary numbers.
        ternary_scale: float32 `()`, or None.

    Returns:
        float32 `(n, N)`.
    """
    codes, ternary_scale = ternary_weights(kernel) if ternary_scale is None else (kernel, ternary_scale)
    codes_of_x, scale = int8_activations(x)
    return ops.matmul(codes_of_x, codes) / scale * ternary_scale


def _straight_through(x, lowest, highest):
    """Rounds exactly, with the gradient of the identity; `x + (round(x) - x)` would depend on compiler optimizations."""

    @ops.custom_gradient
    def rounded(x):
        def gradient(*arguments, upstream=None):
            return arguments[0] if upstream is None else upstream

        return ops.clip(ops.round(x), lowest, highest), gradient

    return rounded(x)


def ternary_twin(model: keras.Model) -> keras.Model:
    """Returns a copy of a model, with the same weights, whose projections are ternary: for training.

    Args:
        model: a built Functional model. It is not changed.

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


def frozen_twin(model: keras.Model) -> keras.Model:
    """Returns a copy of a ternary model, with the same outputs, whose kernels are stored as ternary numbers: for export.

    Args:
        model: a built Functional model.

    Returns:
        The copy; the model itself if no layer is ternary or all are frozen.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> model = ternary_twin(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> inputs = {"token_ids": np.array([[3, 1, 4]]), "padding_mask": np.ones((1, 3), "bool")}
    >>> bool(np.allclose(frozen_twin(model)(inputs), model(inputs), atol=1e-5))
    True
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
    record = model_record(model)
    twin = keras.saving.deserialize_keras_object(_with_policy(record, frozen), safe_mode=False)
    if not twin.built:
        twin.build(model.input_shape)
    return twin


def _with_policy(record, frozen):
    """Copies the config of a model with every dtype policy replaced by a ternary one; layer names stay the same."""
    if isinstance(record, (list, tuple)):
        return type(record)(_with_policy(value, frozen) for value in record)
    if not isinstance(record, dict):
        return record
    if record.get("class_name") in ("DTypePolicy", "FloatDTypePolicy", "TernaryPolicy"):
        name = record["config"]["name"]
        return keras.saving.serialize_keras_object(TernaryPolicy(name, frozen)) if "float" in name else record
    return {name: _with_policy(value, frozen) for name, value in record.items()}
