"""The patched private attributes of tf2onnx: present, restored afterwards, and named if missing."""

import pytest

from keras_transformer.export.onnx.tf2onnx_optimizer import optimize_graph

transpose_optimizer = pytest.importorskip("tf2onnx.optimizer.transpose_optimizer")


def test_a_changed_tf2onnx_is_named(monkeypatch):
    monkeypatch.delattr(transpose_optimizer.TransposeOptimizer, "_mul_handler")
    with pytest.raises(RuntimeError, match=r"tf2onnx \S+ has no TransposeOptimizer._mul_handler: install tf2onnx 1.17"):
        optimize_graph(None)


def test_corrections_are_undone(monkeypatch):
    from tf2onnx import optimizer
    from tf2onnx.optimizer.back_to_back_optimizer import _func_map

    before = dict(_func_map), transpose_optimizer.TransposeOptimizer._mul_handler
    during = []
    monkeypatch.setattr(
        optimizer, "optimize_graph", lambda graph: during.append(transpose_optimizer.TransposeOptimizer._mul_handler)
    )
    optimize_graph(None)
    assert during != [before[1]]
    assert (dict(_func_map), transpose_optimizer.TransposeOptimizer._mul_handler) == before
