"""The line of an error that names its cause, the exceptions of libraries, and what follows a failure."""

import contextlib
import io
import sys
import types
import zipfile

import keras
import numpy as np
import pytest

from keras_transformer.utils.errors import FILE_ERRORS, failure_to, library_exceptions, on_failure, one_line


class Sums(keras.layers.Layer):
    def call(self, inputs):
        raise ValueError("It sums nothing.\nNot even that.")


class Outer(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = Sums()

    def call(self, inputs):
        return self.inner(inputs)


@pytest.mark.parametrize("layer", [Sums, Outer])
def test_the_cause_in_a_layer_is_below_the_first_line(layer):
    with pytest.raises(ValueError, match="Exception encountered when calling") as caught:
        layer()(np.ones((2, 3)))
    assert one_line(caught.value) == "Sums.call(): It sums nothing. Not even that."


def test_the_cause_in_a_compiled_function_is_the_last_line():
    tf = pytest.importorskip("tensorflow")

    @tf.function
    def wrong(inputs):
        if tf.reduce_sum(inputs) > 0:
            raise ValueError("It sums nothing.\n\nNot even that.")
        return inputs

    with pytest.raises(ValueError, match="in user code") as caught:
        wrong(tf.ones(2))
    assert one_line(caught.value) == "ValueError: It sums nothing. Not even that."


def test_the_cause_why_a_shape_is_not_inferred_is_the_last_line():
    class Two(keras.layers.Layer):
        def call(self, one, other):
            return one + other

    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        Two()(keras.Input((3,)))
    assert one_line(caught.value).endswith("missing a required argument: 'other'")


def test_the_cause_in_a_config_is_the_last_one():
    model = keras.saving.serialize_keras_object(keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)]))
    model["config"]["layers"][1]["config"]["units"] = "many"
    with pytest.raises(library_exceptions(), match="could not be deserialized") as caught:
        keras.saving.deserialize_keras_object(model)
    assert one_line(caught.value).startswith("Received an invalid value for `units`")


def test_the_advice_of_tensorflow_is_left_out():
    tf = pytest.importorskip("tensorflow")

    class Branch(keras.layers.Layer):
        def call(self, inputs):
            return inputs if tf.reduce_sum(inputs) > 0 else -inputs

    if keras.backend.backend() != "tensorflow":
        pytest.skip("traced by TensorFlow")
    with pytest.raises(library_exceptions()) as caught:
        tf.function(Branch(), autograph=False).get_concrete_function(tf.TensorSpec((2,)))
    assert one_line(caught.value).endswith("Using a symbolic `tf.Tensor` as a Python `bool` is not allowed.")


def test_the_cause_in_an_operation_is_without_its_place():
    tf = pytest.importorskip("tensorflow")
    with pytest.raises(library_exceptions()) as caught:
        tf.reshape(tf.ones(8), [7, 3])
    assert one_line(caught.value).startswith("Input to reshape is a tensor with 8 values")
    text = "Graph execution error:\n\nDetected at node a defined at (most recent call last):\n  File b\n\nToo large.\n"
    assert one_line(f"{text}\t [[{{{{node a}}}}]] [Op:__inference_b]") == "Too large."


@pytest.mark.parametrize(
    "reason, limit, line",
    [
        ("first\nsecond", 300, "first"),
        ("\n  first  \n", 300, "first"),
        (KeyError(), 300, "KeyError"),
        (ValueError("\n"), 300, "ValueError"),
        ("abcdefgh", 6, "abc..."),
    ],
)
def test_other_texts_are_their_first_line(reason, limit, line):
    assert one_line(reason, limit) == line


def test_exceptions_of_libraries_are_those_of_what_is_loaded(monkeypatch):
    class Fail(Exception):
        pass

    name = "onnxruntime.capi.onnxruntime_pybind11_state"
    monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(Fail=Fail, run=print, version="1"))
    assert Fail in library_exceptions()
    monkeypatch.delitem(sys.modules, name)
    assert Fail not in library_exceptions()
    assert not {Exception, BaseException, ImportError} & {*library_exceptions()}


@pytest.mark.parametrize("header", [b"{'descr': '<f4', 'shape': (", b"1 +", b"{'a': '''", b"\xff", b"[" * 500])
def test_a_damaged_header_of_an_array_is_an_error_of_its_file(header):
    content = np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header
    for cut in (0, 4, 9, len(content)):
        with pytest.raises(FILE_ERRORS):
            np.load(io.BytesIO(content[:cut]))


def test_a_damaged_archive_is_an_error_of_its_file():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("name", bytes(range(100)) * 100)
    content, whole = file.getvalue(), 0
    for index in range(len(content)):
        changed = content[:index] + bytes([content[index] ^ 0x55]) + content[index + 1 :]
        with contextlib.suppress(*FILE_ERRORS), zipfile.ZipFile(io.BytesIO(changed)) as archive:
            archive.read(archive.namelist()[0])
            whole += 1
    assert 0 < whole < len(content) / 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_is_undone(error):
    undone = []
    with on_failure(undone.append, "whole"):
        pass
    with pytest.raises(error), on_failure(undone.append, "broken"):
        raise error
    assert undone == ["broken"]


def test_a_failure_is_handed_over_and_an_interrupt_goes_on():
    class PanicException(BaseException):
        pass

    failures = []
    for error in (ValueError("no"), PanicException("no")):
        with failure_to(failures.append):
            raise error
        assert failures.pop() is error
    for interrupt in (KeyboardInterrupt, SystemExit):
        with pytest.raises(interrupt), failure_to(failures.append):
            raise interrupt
    assert failures == []
