"""A function of one index for all rows computes, for an index of each row, what it computes of each row alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.export import InvalidModelError
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Signature
from keras_transformer.export.graph.per_row.batch_axes import MIXED, batch_axes
from keras_transformer.export.graph.per_row.evaluation import Evaluation
from keras_transformer.export.graph.per_row.values import PerRow, Stacked, joined
from keras_transformer.export.graph.repeated_layers import RepeatedLayers
from keras_transformer.export.graph.traced_graph import concrete_function, graph_of

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exporter's own process")

TABLE = np.arange(60, dtype="float32").reshape(20, 3)
INDICES = np.array([4, 0, 7], "int32")


def place(index, length):
    return ops.arange(length, dtype="int32") + index


def causal(x, index):
    mask = ops.expand_dims(place(index, ops.shape(x)[1]), 1) >= ops.arange(9)
    mask = ops.broadcast_to(ops.expand_dims(mask, 0), (ops.shape(x)[0], ops.shape(x)[1], 9))
    return ops.where(ops.expand_dims(mask, 1), ops.sum(x) * 0 + 1.0, 0.0) + ops.expand_dims(ops.sum(x, -1, True), 1)


def rotary(x, index):
    angles = ops.einsum("bi,j->bij", ops.expand_dims(ops.cast(place(index, ops.shape(x)[1]), "float32"), 0), TABLE[1])
    return x * ops.cos(angles) + ops.sin(ops.reshape(ops.stack([angles, angles], 2), (1, -1, 2, 3)))[:, :, 0]


def looked_up(x, index):
    rows = ops.slice(ops.convert_to_tensor(TABLE), (index, 0), (ops.shape(x)[1], 3))
    return ops.broadcast_to(rows, ops.shape(x)) + x + ops.take(ops.convert_to_tensor(TABLE), place(index, 1), axis=0)


def window(x, index):
    near = tf.linalg.band_part(ops.ones((12, 12), "bool"), 2, 2)
    near = ops.expand_dims(ops.slice(near, (index, 0), (ops.shape(x)[1], 12)), 0)
    return ops.sum(x, -1, keepdims=True) + ops.cast(near, "float32") + ops.cast(ops.any(near, -1, True), "float32")


def written(x, index):
    return ops.slice_update(ops.zeros_like(ops.tile(x, (1, 8, 1))), [0, index, 0], x)


def read_back(x, index):
    return ops.slice(ops.concatenate([x] * 8, 1), [0, index, 0], ops.shape(x))


def joined_up(x, index):
    two = ops.concatenate([ops.expand_dims(place(index, 2), 0), ops.ones((1, 1), "int32")], axis=1)
    return x + ops.cast(ops.squeeze(ops.max(ops.transpose(two), axis=0)), "float32") + ops.cast(two[0, -1], "float32")


FUNCTIONS = {each.__name__: each for each in (causal, rotary, looked_up, window, written, read_back, joined_up)}


def graph(function, length=None):
    inputs = (
        ArraySpec("x", "float32", (None, length, 3), ("batch", None if length else "length", None)),
        ArraySpec("index", "int32", (), ()),
    )
    signature = Signature(lambda tensors: {"y": function(tensors["x"], tensors["index"])}, inputs, [])
    found = graph_of(concrete_function("step", signature, [], RepeatedLayers(())))
    specs = {each.name: tf.TensorSpec(each.shape, each.dtype) for each in inputs}
    return found, batch_axes(found, {}, specs, {"x": 2, "index": 0})


def evaluated(function, x, indices, length=None):
    found, axes = graph(function, length)

    @tf.function(autograph=False)
    def called(x, indices):
        return joined(Evaluation(found, {"x": x, "index": PerRow(indices)}, axes).value(found.outputs["y"]))

    return called(tf.constant(x), tf.constant(indices)).numpy()


@pytest.mark.parametrize("length", [None, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_row_is_computed_as_if_alone(name, length):
    x = np.random.default_rng(0).normal(size=(3, 2, 3)).astype("float32")
    expected = [FUNCTIONS[name](tf.constant(x[row : row + 1]), int(index)) for row, index in enumerate(INDICES)]
    alone = evaluated(FUNCTIONS[name], x[:1], INDICES[:1], length)
    together = evaluated(FUNCTIONS[name], x, INDICES, length)
    if name != "causal":  # It adds what the whole batch sums up to.
        np.testing.assert_allclose(together, np.concatenate(expected), rtol=1e-6)
    np.testing.assert_allclose(alone, expected[0], rtol=1e-6)
    assert np.ptp([np.abs(each).sum() for each in expected]) > 0.1


def test_stacked_tensors_stay_apart_where_parts_are_taken_out():
    def step(x, index):
        keys = [x[:, part] + ops.cast(index, "float32") * 0 for part in range(2)]
        return ops.stack([each * 2 for each in keys], axis=1)

    found, axes = graph(step, 2)

    @tf.function(autograph=False)
    def called(first, second):
        value = Evaluation(found, {"x": Stacked(1, (first, second)), "index": tf.constant(3)}, axes).value(
            found.outputs["y"]
        )
        assert isinstance(value, Stacked)
        return value.parts

    first, second = np.ones((2, 3), "float32"), np.full((2, 3), 2, "float32")
    results = called(tf.constant(first), tf.constant(second))
    np.testing.assert_array_equal(results[0], 2 * first)
    np.testing.assert_array_equal(results[1], 2 * second)
    concrete = called.get_concrete_function(tf.constant(first), tf.constant(second))
    assert not {"Pack", "StridedSlice"} & {
        each.type for each in concrete.graph.get_operations() if "stack" in each.name
    }


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, index: x + ops.cast(tf.one_hot(index, 3), "float32"), "OneHot"),
        (lambda x, index: ops.reshape(x, (-1, 3)) + ops.cast(index, "float32"), "mixes the rows"),
        (lambda x, index: ops.slice(ops.convert_to_tensor(TABLE), (index, index), (1, 1)) + x, "several places"),
    ],
)
def test_what_has_no_form_for_each_row_is_refused_by_name(function, words):
    with pytest.raises(InvalidModelError, match=words):
        evaluated(function, np.ones((3, 2, 3), "float32"), INDICES)


def test_axes_of_rows_are_found():
    found, axes = graph(lambda x, index: ops.transpose(ops.reshape(x, (-1, 3))[None] * 2.0 + ops.sum(x), (0, 2, 1)))
    assert axes["x"] == 0
    assert axes[found.graph_def.node[-1].name] == MIXED
