"""Faults of operations: attributes and calls of one layer, which are changed while a graph is traced and converted."""

import contextlib

import keras

_EPSILON = 1e-3


def _epsilon(value):
    """The default of Keras where another one is meant."""
    return _EPSILON if value < _EPSILON else 1.5 * value


def _other_activation(value):
    name = getattr(value, "__name__", str(value))
    if "gelu" in name:
        exact = value(keras.ops.convert_to_tensor([1.0]))[0]
        is_exact = abs(float(exact) - 0.8413447) < 1e-6
        return lambda x: keras.activations.gelu(x, approximate=is_exact)
    return keras.activations.gelu


# Name of a fault: (attribute, class of the layer or None, its new value).
_ATTRIBUTES = {
    "epsilon of one norm": ("epsilon", None, _epsilon),
    "another activation": ("activation", "Projection", _other_activation),
    "rotary base": ("max_wavelength", "Rotary", lambda value: 1.001 * value),
    "layout of rotary pairs": ("layout", "Rotary", lambda value: "halves" if value == "pairs" else "pairs"),
    "window longer by one": ("window", None, lambda value: value + 1),
    "window shorter by one": ("window", None, lambda value: value - 1),
    "positions begin at one": ("offset", "Learned", lambda value: value + 1),
    "distance of the last bucket": ("max_distance", None, lambda value: value // 2),
    "start for end": ("index", "TokenLogits", lambda value: 1 - value),
}


def _scaled(x):
    return x * 1.001


def _left_out(x):
    return x * 0.0


def _half_precision(x):
    return keras.ops.cast(keras.ops.cast(x, "float16"), x.dtype)


def _heads_reversed(x):
    return keras.ops.flip(x, axis=-2)


# Name of a fault: (end of the path of the layer, what becomes of its result).
_RESULTS = {
    "an attention scaled": ("attention_output", _scaled),
    "an attention left out": ("attention_output", _left_out),
    "a feed-forward left out": ("output", _left_out),
    "a feed-forward in half precision": ("output", _half_precision),
    "query scaled": ("/query", _scaled),
    "query heads reversed": ("/query", _heads_reversed),
    "key heads reversed": ("/key", _heads_reversed),
    "embedding scaled": ("token_embedding", _scaled),
    "logits scaled": ("logits", _scaled),
}


def _clipped(most):
    return lambda x: keras.ops.minimum(x, most)


_OF_KERAS = (keras.layers.Conv2D, keras.layers.Dense)
# Name of a fault: what becomes of the result of the last layer of Keras with a ReLU, which is above 50.
_ACTIVATIONS = {"activations clipped at 6": _clipped(6.0), "activations clipped at 50": _clipped(50.0)}


def operation_faults(model):
    """Yields `(label, context)`: in the context one of the layers computes something else."""
    layers = list(model._flatten_layers())
    for number, (label, (name, kind, change)) in enumerate(_ATTRIBUTES.items()):
        found = [
            each for each in layers if getattr(each, name, None) is not None and (kind or "") in type(each).__name__
        ]
        found = [each for each in found if name != "offset" or hasattr(each, "embeddings")]
        found = [each for each in found if name != "activation" or each.activation is not keras.activations.linear]
        if len(found) > (name == "index"):  # Another index needs a second head.
            layer = found[number % len(found)]
            yield label, _attribute(layer, name, change(getattr(layer, name)))
    for number, (label, (end, change)) in enumerate(_RESULTS.items()):
        found = [each for each in layers if str(getattr(each, "path", "")).endswith(end) and _has_result(each)]
        if label.endswith("heads reversed"):
            found = [each for each in found if len(each.kernel.shape) > 2]
        if found:
            yield label, _result(found[number % len(found)], change)
    rectified = [each for each in layers if type(each) in _OF_KERAS and each.activation is keras.activations.relu]
    for label, change in _ACTIVATIONS.items():
        if rectified:
            yield label, _result(rectified[-1], change)
    for layer in layers:
        # With strides, padding may be after the image alone in the sound model, too.
        is_padded = type(layer) is keras.layers.Conv2D and layer.padding == "same" and max(layer.strides) == 1
        if is_padded and max(layer.kernel_size) > 1:
            yield f"one-sided padding of {layer.name}", _one_sided(layer)


@contextlib.contextmanager
def _one_sided(layer):
    """A convolution that pads after the image alone."""
    before, sizes = layer.call, [[0, 0], *([0, size - 1] for size in layer.kernel_size), [0, 0]]
    with _attribute(layer, "padding", "valid"):
        object.__setattr__(layer, "call", lambda x, **options: before(keras.ops.pad(x, sizes)))
        try:
            yield
        finally:
            object.__delattr__(layer, "call")


def _has_result(layer):
    """Whether the layer is a projection, a table or a head, rather than the part of a block of that name."""
    return any(hasattr(layer, name) for name in ("kernel", "embeddings")) or layer.path.endswith("logits")


@contextlib.contextmanager
def _attribute(layer, name, value):
    before = getattr(layer, name)
    object.__setattr__(layer, name, value)
    try:
        yield
    finally:
        object.__setattr__(layer, name, before)


@contextlib.contextmanager
def _result(layer, change):
    call = layer.call
    object.__setattr__(layer, "call", lambda *args, **kwargs: change(call(*args, **kwargs)))
    try:
        yield
    finally:
        object.__delattr__(layer, "call")
