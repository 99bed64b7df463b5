"""Quantization-aware training: a model whose weights and activations are rounded while it trains."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from keras_transformer.backend import keras_private
from keras_transformer.layers.ternary import has_ternary_kernel
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import chosen, kernels_of
from keras_transformer.quantization.quantized_weights import QuantizedWeights, values_beside
from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.training.adapters import adapter_variables
from keras_transformer.training.compression.integers.model import (
    FULL_INT8,
    IntegerAware,
    integer_layers,
    with_integers,
    with_rounded_weights,
)
from keras_transformer.training.compression.quantization_aware_class import (
    QuantizationAware,
    add_adapters,
    attach,
    rebuilt,
    record_of,
)
from keras_transformer.training.compression.quantized_layers import QUANTIZERS, quantized_layers
from keras_transformer.utils.serialization import choice

_INITIAL_STEPS = {name: name for name in ("least_squares", "mean")}
_DEFAULT_SCHEME = WeightScheme()
_RANGES = {name: name for name in ("per_token", "static")}


def quantization_aware(
    model: keras.Model,
    schemes: WeightScheme | Mapping[str, WeightScheme | None] | str = _DEFAULT_SCHEME,
    activations: int | None = None,
    *,
    step: str = "learned",
    initial_step: str = "least_squares",
    activation_range: str = "per_token",
) -> keras.Model:
    """Returns a copy of a model that trains with the rounding of its quantized files.

    The forward pass computes with the integers of the scheme times scales that have the precision of files; gradients reach
    the real weights beneath, which stay in float32. Train the copy with `compile` and `fit` as any other model, with mixed
    precision, adapters (`add_lora`: the quantized weights are then frozen, and the adapters are float) and `.keras` files as
    usual. Then `learned_model` gives the ordinary model to export.

    With "full_int8", every layer of a Functional model trains with the integers of its files: `export(aware, folder,
    quantize=FullInt8(data))` writes the ranges that were learned. The weights of products, of convolutions of every kind and
    of recurrent cells have 8 bits and the scale `max |w| / 127` for each channel, so that folding a `BatchNormalization`
    changes no integer. What layers read and return has 8 bits and a range for each tensor, where files have a tensor: a norm
    and a rectifier behind a product are part of it. Scores and weights of attention are rounded; states of recurrent cells
    are float. A layer of another package is left alone, and named in a warning if it has weights.

    Args:
        model: `keras.Model`, built, usually trained. It is not changed.
        schemes: a `WeightScheme` for all products (tables then have 8 bits and a scale for each row), or a dict of patterns
            of paths to schemes; see `quantization.kernels.chosen`. Or "full_int8", for which `step` alone counts of the
            arguments below.
        activations: 8, or None for float. Bits of the inputs of the quantized products, from -127 to 127 times a scale.
        step: "learned" for scales that are trained (LSQ); "straight_through" for scales that follow the weights: those of
            the least squared error among a few; "scales_only" for scales that are trained while the integers stay (PEQA),
            and the quantized weights are frozen. With "full_int8" it is said of ranges: "learned" for moving averages of
            the extremes times factors that are trained, named "relative_range", or "straight_through" for averages alone.
            Default "learned".
        initial_step: "least_squares" for learned scales that begin as those of `quantize_weights`, or "mean" for
            `2 mean(|w|) / sqrt(Q)`, those of the paper. Default "least_squares". A weight that `quantize_weights` has
            rounded by the same scheme begins with its own scales and integers, such as those of GPTQ.
        activation_range: "per_token" for a scale for each token, or "static" for one of all, from a moving average over the
            training batches, which ONNX files have for weights of 8 bits with a scale for each row. Default "per_token".

    Returns:
        A model of the same class, but for its rounding. The variables of its learned scales are named
        "relative_step", 1 at first, and "minimum" in schemes that have one, or "shift" with "scales_only", or
        "relative_range" with "full_int8": exclude these from weight decay.

    Raises:
        WeightQuantizationError: a scheme does not fit the weights; the model has adapters, is ternary or quantized already,
            or cannot be rebuilt from its config; for "full_int8" it is not Functional.
        ValueError: another value of an option.

    Example:

    >>> from keras_transformer.quantization import WeightScheme
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")], name="model")
    >>> model = quantization_aware(model, WeightScheme(bits=2, block_size=32), activations=8)
    >>> [weight.path for weight in model.trainable_weights]
    ['wide/kernel', 'wide/bias', 'wide/weight_quantizer/relative_step']
    >>> sorted(learned_weights(model))
    ['wide/kernel']

    Reference: Esser et al., Learned Step Size Quantization, arXiv 1902.08153; for "scales_only" Kim et al.,
    Memory-Efficient Fine-Tuning of Compressed Large Language Models, arXiv 2305.14152. Deviations: a step for each row or
    block, not for each layer; in training too, steps have the precision of files, with a straight-through gradient; initial
    steps other than "mean"; activations have dynamic or averaged ranges, which are not learned.
    """
    if isinstance(schemes, str):
        return _with_integers(model, schemes, activations, step)
    if activations not in (None, 8):
        raise ValueError(f"activations must be 8 or None. Received: {activations!r}")
    settings = {
        "activation_range": None
        if activations is None
        else choice(activation_range, _RANGES, argument="activation_range"),
        "step": choice(step, {name: name for name in QUANTIZERS}, argument="step"),
    }
    choice(initial_step, _INITIAL_STEPS, argument="initial_step")
    _check(model)
    kernels = kernels_of(model)
    found = {kernel.path: scheme for kernel, scheme in chosen(kernels, schemes)}
    twin = _twin(model)
    # By order: a copy that is built from a config may have other paths.
    pairs = zip(kernels, kernels_of(twin), strict=True)
    by_path = {ours.path: found[theirs.path] for theirs, ours in pairs if theirs.path in found}
    known = getattr(model, "quantized_weights", None) or {}
    blocks = {ours.path: known.get(theirs.path) for theirs, ours in zip(kernels, kernels_of(twin), strict=True)}
    return attach(twin, by_path, settings, initial_step, blocks)


def _with_integers(model: keras.Model, mode: str, activations: int | None, step: str) -> keras.Model:
    """A copy that trains with the integers of a mode of files."""
    choice(mode, {FULL_INT8: FULL_INT8}, argument="schemes")
    choice(step, {name: name for name in ("learned", "straight_through")}, argument="step")
    if activations not in (None, 8):
        raise ValueError(f"activations must be 8 or None. Received: {activations!r}")
    _check(model)
    adapted = next((each for each in keras_private.flatten_layers(model) if getattr(each, "lora_enabled", False)), None)
    if adapted is not None:
        raise WeightQuantizationError(f"{adapted.path!r} has an adapter: call merge_lora first")
    return with_integers(_twin(model), step)


def _twin(model: keras.Model) -> keras.Model:
    """A copy of a model, rebuilt from its config."""
    twin = rebuilt(record_of(model), model.name)
    twin.set_weights(model.get_weights())
    return _with_tokenizer(twin, model)


def _with_tokenizer(twin: keras.Model, model: keras.Model) -> keras.Model:
    if getattr(model, "tokenizer", None) is not None:
        twin.tokenizer = model.tokenizer  # It is not part of any config.
    return twin


def learned_weights(model: keras.Model) -> QuantizedWeights:
    """Returns the integers and scales that a model of `quantization_aware` computes with.

    Args:
        model: `keras.Model` of `quantization_aware`, at any time of its training.

    Returns:
        `QuantizedWeights`: the values of each of its `Blocks` are exactly the numbers of the forward pass; with the ranges
        of activations that are static. Without adapters.

    Raises:
        WeightQuantizationError: the model is another one, or one of "full_int8".

    Example:

    >>> from keras_transformer.quantization import WeightScheme
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")], name="model")
    >>> blocks = learned_weights(quantization_aware(model, WeightScheme(bits=2)))["wide/kernel"]
    >>> sorted({*blocks.codes.flatten().tolist()}), blocks.values.shape
    ([6, 7, 8, 9], (64, 64))
    """
    _check_aware(model)
    kernels = {id(kernel.layer): kernel for kernel in kernels_of(model, with_adapters=True)}
    layers = quantized_layers(model)
    blocks = {kernels[id(layer)].path: layer.weight_quantizer.blocks(kernels[id(layer)].variable) for layer in layers}
    ranges = {
        kernels[id(layer)].path: float(layer.input_quantizer.largest)
        for layer in layers
        if layer.input_quantizer is not None and layer.input_quantizer.largest is not None
    }
    learned = {path: largest for path, largest in ranges.items() if largest > 0}
    return QuantizedWeights(blocks, values_beside(model, blocks, without=_own_weights(model)), learned)


def learned_model(model: keras.Model) -> keras.Model:
    """Returns an ordinary copy of a model of `quantization_aware`: its weights have the rounded values, nothing is rounded.

    `export(learned_model(model), folder, quantize="learned")` writes the integers that were trained. A model of "full_int8"
    is exported itself: its ranges are not part of an ordinary one.

    Args:
        model: `keras.Model` of `quantization_aware`. It is not changed.

    Returns:
        A model of the class that `quantization_aware` was given, with `learned_weights` as its attribute
        `quantized_weights`, but of "full_int8". If there are adapters, it has them too.

    Raises:
        WeightQuantizationError: the model is another one.

    Example:

    >>> from keras_transformer.quantization import WeightScheme
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide")], name="model")
    >>> plain = learned_model(quantization_aware(model, WeightScheme(bits=2)))
    >>> type(plain).__name__, plain.quantized_weights["wide/kernel"].codes.shape
    ('Sequential', (64, 2, 32))
    """
    if isinstance(model, IntegerAware):
        return _with_tokenizer(with_rounded_weights(model), model)
    weights = learned_weights(model)
    config = model.get_config()
    plain = rebuilt(config["model"], model.name)
    own = _own_weights(model)
    kept = [weight for weight in model.weights if id(weight) not in own]
    for weight, value in zip(plain.weights, kept, strict=True):
        weight.assign(keras.ops.convert_to_numpy(value))
    weights.apply(plain)
    _with_tokenizer(plain, model)
    add_adapters(plain, config["adapters"])
    adapted = {layer.path: layer for layer in keras_private.flatten_layers(model) if layer.path in config["adapters"]}
    for layer in keras_private.flatten_layers(plain):
        if layer.path in adapted:
            for ours, theirs in zip(adapter_variables(layer), adapter_variables(adapted[layer.path]), strict=True):
                ours.assign(keras.ops.convert_to_numpy(theirs))
    return plain


def _check(model):
    name = model.name
    if isinstance(model, (QuantizationAware, IntegerAware)) or quantized_layers(model) or integer_layers(model):
        raise WeightQuantizationError(f"{name!r} is quantization-aware already")
    ternary = next((layer for layer in keras_private.flatten_layers(model) if has_ternary_kernel(layer)), None)
    if ternary is not None:
        raise WeightQuantizationError(f"{ternary.path!r} is ternary: it trains with its own rounding")


def _check_aware(model):
    if not isinstance(model, QuantizationAware):
        raise WeightQuantizationError(f"{model.name!r} is not a model of quantization_aware")


def _own_weights(model):
    """The ids of the weights that an ordinary model has not."""
    return {id(weight) for layer in quantized_layers(model) for weight in _extra_weights(layer)}


def _extra_weights(layer):
    """The weights of a quantized layer that an ordinary one has not."""
    adapter = adapter_variables(layer) if layer.lora_enabled else ()
    inputs = [] if layer.input_quantizer is None else layer.input_quantizer.weights
    return [*layer.weight_quantizer.weights, *inputs, *adapter]
