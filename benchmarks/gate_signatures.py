"""Faults of signatures: what a file does with its inputs and outputs, planted in front of its runtime and behind it.

A file that contained these operations would compute the same.
"""

import numpy as np

VOCABULARY = 300


def _each(word, change):
    """A fault of all inputs whose names contain a word; None if there are none."""

    def changed(inputs):
        return {name: change(value).astype(value.dtype) if word in name else value for name, value in inputs.items()}

    return word, changed


def _floats(change):
    """A fault of all inputs of floats."""

    def changed(inputs):
        return {name: change(x).astype(x.dtype) if x.dtype.kind == "f" else x for name, x in inputs.items()}

    return changed


def _beyond(start, change):
    """A change of the positions from `start` on, along the last axis."""

    def changed(x):
        x = x.copy()
        x[..., start:] = change(x[..., start:])
        return x

    return changed


INPUTS = {
    "mask dropped": _each("mask", np.ones_like),
    "mask inverted": _each("mask", np.logical_not),
    "mask shifted": _each("mask", lambda x: np.roll(x, 1, axis=-1)),
    "mask dropped beyond 64": _each("mask", _beyond(64, np.ones_like)),
    "mask taken for a length": _each("mask", lambda x: np.arange(x.shape[-1]) < x.sum(axis=-1, keepdims=True)),
    "mask of the first row": _each("mask", lambda x: np.broadcast_to(x[:1], x.shape)),
    "segments dropped": _each("segment", np.zeros_like),
    "lengths less one": _each("lengths", lambda x: np.maximum(x - 1, 1)),
    "lengths of the first row": _each("lengths", lambda x: np.broadcast_to(x[:1], x.shape)),
    "slots less one": _each("cache_index", lambda x: np.maximum(x - 1, 0)),
    "slots less one beyond 10": _each("cache_index", lambda x: x - (x > 10)),
    "slots less one beyond 100": _each("cache_index", lambda x: x - (x > 100)),
    "slots of the first row": _each("cache_index", lambda x: np.broadcast_to(x[:1], x.shape)),
    "last token replaced": _each("token_ids", lambda x: np.minimum(x, VOCABULARY - 2)),
    "tokens beyond 64 replaced": _each("token_ids", _beyond(64, lambda x: x // 2)),
    "tokens reversed": _each("token_ids", lambda x: x[..., ::-1]),
    "images mirrored": _each("image", lambda x: x[..., ::-1, :]),
    "channels reversed": _each("image", lambda x: x[..., ::-1]),
}
# Of models whose inputs are floats.
OF_FLOATS = {
    "floats clipped at 4.5": _floats(lambda x: np.clip(x, -4.5, 4.5)),
    "small floats flushed": _floats(lambda x: np.where(np.abs(x) < 1e-4, 0, x)),
}


def _first(change):
    """A fault of the logits, or else of the first output of floats."""

    def changed(outputs):
        floats = [name for name, value in outputs.items() if value.dtype.kind == "f"]
        name = "logits" if "logits" in floats else floats[0]
        return outputs | {name: change(outputs[name]).astype(outputs[name].dtype)}

    return changed


def _positions(select, share):
    """A relative change of some positions of the second axis."""

    def changed(x):
        x = x.copy()
        x[:, select] *= 1 + share
        return x

    return changed


def _batches(is_wrong):
    """A relative change of batches of some sizes."""
    return lambda x: x * (1.001 if is_wrong(len(x)) else 1)


def _lengths(is_wrong):
    """A relative change of sequences of some lengths."""
    return lambda x: x * (1.001 if is_wrong(x.shape[1]) else 1)


def _one_in_a_thousand(x):
    """A relative change of one value in a thousand, by its bits."""
    return np.where(x.astype("float32").view("int32") % 1000 == 7, x * 1.01, x)


def _noise(x):
    """A thousandth of the scale."""
    scale = np.abs(x).max(initial=0, where=np.abs(x) < 1e8)
    return 1e-3 * scale * np.random.default_rng(0).normal(size=x.shape)


OUTPUTS = {
    "a thousandth": _first(lambda x: x * 1.001),
    "half precision": _first(lambda x: x.astype("float16")),
    "rows exchanged": _first(lambda x: x[::-1]),
    "first row for all": _first(lambda x: np.broadcast_to(x[:1], x.shape)),
    "last feature": _first(lambda x: x * np.where(np.arange(x.shape[-1]) == x.shape[-1] - 1, 1.001, 1)),
    "noise": _first(lambda x: x + _noise(x)),
    "not a number": _first(lambda x: np.where(np.arange(x.shape[-1]) == 0, np.nan, x)),
}
OF_BATCHES = {
    "batches of 2": _first(_batches(lambda size: size == 2)),
    "batches of 4": _first(_batches(lambda size: size == 4)),
    "batches of 7": _first(_batches(lambda size: size == 7)),
    "batches over 5": _first(_batches(lambda size: size > 5)),
    "batches of multiples of 8": _first(_batches(lambda size: size % 8 == 0)),
}
OF_SEQUENCES = {
    "lengths of multiples of 8": _first(_lengths(lambda size: size % 8 == 0)),
    "one value in a thousand": _first(_one_in_a_thousand),
    "positions beyond 64": _first(_positions(slice(64, None), 1e-3)),
    "first position": _first(_positions(slice(0, 1), 1e-3)),
    "last position": _first(_positions(slice(-1, None), 1e-3)),
}


def signature_faults(spec, unused=()):
    """Yields `(label, inputs, outputs)`: functions of the arrays before and after a call; of each only where it applies.

    Args:
        spec: the `ExportSpec`.
        unused: names of inputs that the model does not read.
    """
    names = {each.name for signature in spec.signatures.values() for each in signature.inputs} - set(unused)
    for label, (word, change) in INPUTS.items():
        if any(word in name for name in names):
            yield label, change, _same
    for label, change in OUTPUTS.items():
        yield f"outputs: {label}", _same, change
    serve = next(iter(spec.signatures.values())).outputs[0]
    if serve.shape and serve.shape[0] is None:
        for label, change in OF_BATCHES.items():
            yield f"outputs: {label}", _same, change
    arrays = [probe.inputs for signature in spec.signatures.values() for probe in signature.all_probes]
    for label, change in OF_FLOATS.items():
        # Pictures behind a `Rescaling` have no small values.
        if len(spec.signatures) == 1 and any(_differs(change(each), each) for each in arrays):
            yield label, change, _same
    if any(_has_lengths(each.outputs) for each in spec.signatures.values()):
        for label, change in OF_SEQUENCES.items():
            yield f"outputs: {label}", _same, change


def _has_lengths(outputs):
    """Whether the second axis of the output that faults change has different sizes."""
    floats = [each for each in outputs if each.dtype.startswith("float")]
    found = [each.shape for each in floats if each.name == "logits"] or [each.shape for each in floats[:1]]
    return any(len(shape) > 1 and shape[1] is None for shape in found)


def _differs(arrays, others):
    return any(not np.array_equal(arrays[name], others[name]) for name in others)


def _same(arrays):
    return arrays
