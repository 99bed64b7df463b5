"""Small hand-written ONNX graphs, before and after rewriting."""

import collections

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import parser

from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.passes.optimize import optimize


def all_nodes(graph):
    """Yields the nodes of a `GraphProto` and of the bodies in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from all_nodes(attribute.g)


def operators(model):
    """Counts the operators of a graph and its subgraphs."""
    return collections.Counter(node.op_type for node in all_nodes(model.graph))


def rewritten(text, feeds, options=OnnxOptions(), tolerance=1e-5, **words):  # noqa: B008
    """Returns the operators of a graph after rewriting; asserts that its outputs are equal."""
    for word, value in words.items():
        text = text.replace(word, str(value))
    before = parser.parse_model(text)
    onnx.checker.check_model(before, full_check=True)
    changed = ir.from_proto(before)
    optimize(changed, options)
    after = ir.to_proto(changed)
    del after.graph.value_info[:]
    (expected,), (found,) = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, feeds) for each in (before, after)
    )
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)
    return operators(after)


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")
