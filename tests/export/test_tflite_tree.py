"""TFLite files that are larger than a flatbuffer can be: large buffers follow it."""

import numpy as np
import pytest

from keras_transformer.export.tflite import tree

HIDDEN = 96


@pytest.fixture(scope="module")
def model(tflite):
    """The object tree of a decoder, whose buffers are views of its file."""
    tflite["decoder"]
    return tree.read_file(tflite.directory / "decoder" / "model.tflite")


def written(model, path, monkeypatch):
    monkeypatch.setattr(tree, "_LARGEST", 2**16)
    monkeypatch.setattr(tree, "_OUTSIDE", 2**12)
    tree.write_file(model, path)
    return path


def test_large_buffers_are_outside_and_small_ones_inside(model, tmp_path, monkeypatch):
    found = tree.read_file(written(model, tmp_path / "large.tflite", monkeypatch))
    content = (tmp_path / "large.tflite").read_bytes()
    outside = [each for each in found.buffers if each.offset]
    assert len(outside) == sum(tree.size_of(each) >= 2**12 for each in model.buffers) > 5
    assert any(each.data is not None for each in found.buffers if not each.offset)
    for got, expected in zip(found.buffers, model.buffers, strict=True):
        assert tree.size_of(got) == tree.size_of(expected)
        if got.offset:
            assert got.offset % 16 == 0
            assert content[got.offset : got.offset + got.size] == bytes(np.asarray(expected.data))
        elif tree.size_of(got):
            np.testing.assert_array_equal(got.data, expected.data)


def test_it_computes_the_same(tflite, model, tmp_path, monkeypatch):
    from ai_edge_litert.interpreter import Interpreter

    paths = tflite.directory / "decoder" / "model.tflite", written(model, tmp_path / "large.tflite", monkeypatch)
    inputs = {"token_ids": np.array([[7, 3, 200, 41]], "int32"), "lengths": np.array([3], "int32")}
    found = []
    for path in paths:
        runner = Interpreter(str(path)).get_signature_runner("prefill")
        shapes = {name: each["shape_signature"] for name, each in runner.get_input_details().items()}
        caches = {name: (1, shape[1], 8, shape[3]) for name, shape in shapes.items() if name not in inputs}
        found.append(runner(**inputs, **{name: np.zeros(shape, "float32") for name, shape in caches.items()}))
    for name, expected in found[0].items():
        np.testing.assert_array_equal(found[1][name], expected)


def test_a_tree_is_written_over_the_file_that_it_is_mapped_from(model, tmp_path, monkeypatch):
    path = written(model, tmp_path / "large.tflite", monkeypatch)
    content = path.read_bytes()
    again = tree.read_file(path)
    tree.write_file(again, path)
    assert path.read_bytes() == content
    monkeypatch.undo()
    tree.write_file(tree.read_file(path), path)
    assert path.read_bytes() == tree.write(model)
    assert [each.name for each in tmp_path.iterdir()] == ["large.tflite"]
