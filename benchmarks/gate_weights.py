"""Faults of weights: every kind of weight of a model, each changed in several ways, and planted by editing the file."""

import contextlib
import re
import shutil

import numpy as np

from keras_transformer.export.verification.weights.images import transposed

# Smaller patterns may occur in a file by chance.
_FEWEST_BYTES = 8
_NUMBER = re.compile(r"_?\d+(?=/|$)")


def scaled(value):
    return value * np.float32(1.001)


def one_element_negated(value):
    value.reshape(-1)[value.size // 3] *= -1
    return value


def one_row_zero(value):
    value[len(value) // 3] = 0  # Not the half: tables of T5 have a row there that nothing reads.
    return value


def rows_exchanged(value):
    value[[0, -1]] = value[[-1, 0]]
    return value


def halves_exchanged(value):
    """Two halves of the last axis, or of the heads of a kernel of heads."""
    return np.roll(value, value.shape[-2 if value.ndim > 2 else -1] // 2, axis=-2 if value.ndim > 2 else -1)


def shifted(value):
    return np.roll(value, 1, axis=0)


def half_precision(value):
    return value.astype("float16").astype("float32")


def one_element_slightly(value):
    """128 units in the last place of the largest element, which no output shows."""
    flat = value.reshape(-1)
    flat[np.abs(flat).argmax()] *= np.float32(1 + 2.0**-16)
    return value


def zero(value):
    return np.zeros_like(value)


def late_rows_zero(value):
    value[len(value) // 3 :] = 0
    return value


def axes_exchanged(value):
    return value.T.reshape(value.shape)


ALWAYS = (scaled, one_element_negated, one_row_zero)
IN_TURN = (
    rows_exchanged,
    halves_exchanged,
    shifted,
    half_precision,
    one_element_slightly,
    zero,
    late_rows_zero,
    axes_exchanged,
)


def weight_faults(model):
    """Yields `(label, weight, values)`: the fault, the weight in one of the layers, and what the file has instead."""
    kinds = {}
    for weight in model.weights:
        if "float" in str(weight.dtype) and weight.shape.num_elements() > 1:
            kinds.setdefault(_NUMBER.sub("", weight.path), []).append(weight)
    for number, (kind, weights) in enumerate(kinds.items()):
        for turn, change in enumerate((*ALWAYS, IN_TURN[number % len(IN_TURN)])):
            weight = weights[(7 * turn + number) % len(weights)]
            value = np.asarray(weight)
            values = np.ascontiguousarray(change(value.copy()))
            if not np.array_equal(values, value):
                yield f"{kind}: {change.__name__}", weight, values
        if len(weights) > 1:
            yield f"{kind}: of another layer", weights[0], np.asarray(weights[-1])


@contextlib.contextmanager
def assigned(weight, values):
    """Context manager in which a variable has other values."""
    before = weight.numpy()
    weight.assign(values)
    try:
        yield
    finally:
        weight.assign(before)


class EditedFiles:
    """Files of one format of which weights can be changed.

    Args:
        folder: `pathlib.Path` of the bundle.
        format: name of the format.
        names: paths of the variables, in the order of `TracedModule.exported_variables`.
    """

    def __init__(self, folder, format, names):
        self._folder, self._format, self._names = folder, format, names
        self._loaded = None

    @contextlib.contextmanager
    def planted(self, name, value, changed):
        """Context manager in which the files have other values of a variable; yields whether they contained it."""
        if self._format == "saved_model":
            with self._checkpoint(self._folder / "saved_model", self._names.index(name), changed):
                yield True
            return
        kept = {}
        for path in [*self._folder.glob("model*.onnx*"), *self._folder.glob("model.weights*")]:
            if self._format == "onnx":
                kept[path] = path.read_bytes()
        if self._format == "tflite":
            kept = {path: path.read_bytes() for path in self._folder.glob("*.tflite")}
        edits = {path: _replaced(content, value, changed) for path, content in kept.items()}
        try:
            for path, content in edits.items():
                if content != kept[path]:
                    path.write_bytes(content)
            yield edits != kept
        finally:
            for path, content in kept.items():
                if edits[path] != content:
                    path.write_bytes(content)

    @contextlib.contextmanager
    def _checkpoint(self, path, index, changed):
        """A SavedModel with other values of a variable: in its checkpoint, and in what is loaded, as if it were again."""
        import tensorflow as tf

        from keras_transformer.export.saved_model.runtime import load_saved_model

        self._loaded = self._loaded or load_saved_model(str(path), 2)
        folder, kept = path / "variables", path / "kept"
        folder.rename(kept)
        reader = tf.train.load_checkpoint(str(kept / "variables"))
        tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        tensors[f"exported_variables/{index}/.ATTRIBUTES/VARIABLE_VALUE"] = changed
        folder.mkdir()
        values = [tf.constant(each) for each in tensors.values()]
        prefix, whole = str(folder / "variables"), [""] * len(tensors)
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=list(tensors), shape_and_slices=whole, tensors=values)
        try:
            with assigned(self._loaded.exported_variables[index], changed):
                yield
        finally:
            shutil.rmtree(folder)
            kept.rename(folder)


def _replaced(content, value, changed):
    """Bytes of a file in which a variable, under any order of its axes, is replaced."""
    seen = set()
    for old, new in zip(transposed(value), transposed(changed), strict=True):
        pattern = np.ascontiguousarray(old).tobytes()
        if len(pattern) >= _FEWEST_BYTES and pattern not in seen:
            seen.add(pattern)
            content = content.replace(pattern, np.ascontiguousarray(new).tobytes())
    return content
