"""Tests of every layer."""

import json

import keras
import numpy as np
import pytest
from keras import ops
from variants import exhaustive_but

import cases
from keras_transformer.audio import ConformerConvolution
from keras_transformer.backend.keras_private import flatten_layers
from keras_transformer.utils.serialization import load_model
from laws import built, randomize


def inner(layer, cls):
    """Returns the object under test inside the layer that wraps it."""
    return next(part for part in (layer, *layer._flatten_layers()) if type(part) is cls)


def through_config(layer):
    """Returns a layer restored from its configuration in JSON, as in a saved model."""
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    return keras.saving.deserialize_keras_object(config)


def fingerprint(layer, inputs):
    """Returns all that an argument can change: initial weights, outputs in inference and training, losses, constraints."""
    layer(*inputs)
    starts = [(tuple(weight.shape), _constant(np.asarray(weight))) for weight in layer.weights]
    constraints = [type(getattr(weight, "constraint", None)).__name__ for weight in layer.weights]
    randomize(layer)
    inference = np.asarray(layer(*inputs)).tolist()
    losses = [float(loss) for loss in layer.losses]
    keras.utils.set_random_seed(4)
    training = np.asarray(layer(*inputs, training=True)).tolist() if layer._call_has_training_arg else None
    return starts, constraints, inference, losses, training


def _constant(values):
    """Returns the value that all entries share, or None."""
    return float(values.flat[0]) if np.all(values == values.flat[0]) else None


def argument_ids():
    return [(name, argument) for name, case in sorted(cases.ALL.items()) for argument in case.arguments]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name, argument", argument_ids())
def test_argument_survives_config_and_acts(name, argument):
    case = cases.ALL[name]
    others = case.with_arguments.get(argument, {})
    value = case.arguments[argument]
    if argument == "attention_axes":  # Inputs of rank 3 have one attention axis: the outputs are the same.
        assert through_config(case.make(attention_axes=value)).attention_axes == value
        return
    changed = case.make(**{**others, argument: value})
    restored = through_config(changed)
    config, restored_config = inner(changed, case.cls).get_config(), inner(restored, case.cls).get_config()
    assert restored_config[argument] == config[argument] or argument == "mechanism"
    if argument == "flash_attention":
        _assert_flash_attention_acts(changed, case)
        return
    effect = fingerprint(restored, case.inputs())
    assert effect == fingerprint(changed, case.inputs())
    if argument in case.neutral:
        return
    assert effect != _fingerprint_without(name, others), f"{argument} has no effect"


_DEFAULTS = {}


def _fingerprint_without(name, others):
    """Returns the fingerprint of a case with default arguments except `others`; cached."""
    key = name, repr(others)
    if key not in _DEFAULTS:
        _DEFAULTS[key] = fingerprint(cases.ALL[name].make(**others), cases.ALL[name].inputs())
    return _DEFAULTS[key]


def _assert_flash_attention_acts(layer, case):
    """TensorFlow has no fused kernel and JAX has none for the CPU: `flash_attention=True` must raise."""
    with pytest.raises((ValueError, RuntimeError), match=r"(?i)flash|cudnn"):
        layer(*case.inputs())


def test_unknown_argument_raises(case):
    with pytest.raises((TypeError, ValueError)):
        case.cls(**case.required(), no_such_argument=1)


@pytest.mark.exhaustive
def test_save_and_load_in_a_model(case, tmp_path):
    inputs = case.inputs()
    symbolic = [keras.Input(x.shape[1:], dtype=str(x.dtype)) for x in inputs]
    model = keras.Model(symbolic, case.make()(*symbolic))
    randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0))
    assert [weight.path for weight in loaded.weights] == [weight.path for weight in model.weights]


def test_build_creates_all_weights(case):
    """`build` with shapes creates the same weights as a call; loading depends on it."""
    inputs = case.inputs()
    by_call = built(case)
    by_shape = case.make()
    by_shape.build(*(x.shape for x in inputs))
    assert [tuple(w.shape) for w in by_shape.weights] == [tuple(w.shape) for w in by_call.weights]


def test_symbolic_output_matches_the_call(case):
    inputs = case.inputs()
    layer = case.make()
    symbolic = layer(*(keras.Input(batch_shape=x.shape, dtype=str(x.dtype)) for x in inputs))
    output = layer(*inputs)
    assert tuple(symbolic.shape) == tuple(output.shape)
    assert symbolic.dtype == keras.backend.standardize_dtype(output.dtype)


@pytest.mark.parametrize("run_eagerly", exhaustive_but([True, False], True))
def test_gradients_reach_every_weight_and_are_finite(case, run_eagerly):
    """One step, run eagerly by TensorFlow: to trace its graph takes three times as long."""
    # Outside of one compiled function, JAX compiles each operation for each shape.
    compiled = keras.backend.backend() == "jax"
    options = {"jit_compile": compiled, "run_eagerly": run_eagerly and not compiled}
    layer, inputs = case.make(), case.inputs()
    model_inputs = [keras.Input(batch_shape=x.shape, dtype=str(x.dtype)) for x in inputs]
    model = keras.Model(model_inputs, layer(*model_inputs))
    randomize(layer)
    before = [np.asarray(weight) for weight in layer.trainable_weights]
    target = np.random.default_rng(9).normal(size=model.output_shape)
    model.compile(keras.optimizers.SGD(1.0), loss="mse", **options)
    model.train_on_batch(list(inputs), target)
    normalized = _biases_before_a_batch_norm(layer)
    for weight, old in zip(layer.trainable_weights, before, strict=True):
        new = np.asarray(weight)
        assert np.all(np.isfinite(new)), weight.path
        if "key" in weight.path and weight.name == "bias":
            continue  # A key bias adds a constant to all scores of a query; softmax is invariant to it.
        if any(weight is bias for bias in normalized):
            continue  # Batch normalization subtracts it again: its gradient is rounding, or zero.
        if "location" in weight.path or _is_unseen_by_location(layer, weight):
            continue
        assert np.any(new != old), f"no gradient for {weight.path}"


def _biases_before_a_batch_norm(layer):
    """Found by the layers that own them: Keras counts the names of layers over a process."""
    convolutions = [part for part in flatten_layers(layer) if type(part) is ConformerConvolution]
    parts = [part for convolution in convolutions for part in flatten_layers(convolution)]
    return [part.bias for part in parts if type(part) is keras.layers.DepthwiseConv1D]


def _is_unseen_by_location(layer, weight):
    """Location scores depend on the query only: the key projection is unused."""
    scoring = getattr(getattr(layer, "mechanism", None), "scoring", None)
    return type(scoring).__name__ == "Location" and "key" in weight.path


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(case, policy):
    inputs = case.inputs()
    full = randomize(built(case))
    keras.config.set_dtype_policy(policy)
    try:
        mixed = built(case)
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(full.get_weights())
    output = mixed(*inputs)
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")
    assert all(weight.dtype == "float32" for weight in mixed.trainable_weights)
    expected = np.asarray(full(*inputs))
    # One unit in the last place is 2^-8 in bfloat16 and 2^-11 in float16; several layers add up.
    tolerance = (2**-8 if policy == "mixed_bfloat16" else 2**-11) * 12 * np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(ops.cast(output, "float32")), expected, atol=tolerance)


@pytest.mark.exhaustive
def test_jit_compiled_equals_eager(case):
    layer, inputs = randomize(built(case)), case.inputs()
    symbolic = [keras.Input(x.shape[1:], dtype=str(x.dtype)) for x in inputs]
    model = keras.Model(symbolic, layer(*symbolic))
    model.compile(jit_compile=True)
    expected = np.asarray(layer(*inputs))
    np.testing.assert_allclose(
        model.predict_on_batch(list(inputs)), expected, rtol=0, atol=2e-6 * max(1, np.abs(expected).max())
    )
