"""Activation functions with more digits on Hexagon (onnxruntime-qnn 2.7).

Its compiler joins `x · sigmoid(x)` into an operator that is twice as far off as a form with `Tanh`: of a small RetNet
outputs were 1.1 % of the scale away, and are 0.5 % now. Its `Softplus` is 1.2 % too large at 0.5.
"""

from __future__ import annotations

import numpy as np

from keras_transformer.export.onnx.delegates.editor import Editor, make


def with_tanh(editor: Editor) -> None:
    """`x · sigmoid(x)` as `x / 2 + x / 2 · tanh(x / 2)`."""
    found = {}
    for node in editor.graph.node:
        if node.op_type != "Mul":
            continue
        for x, gate in (node.input, reversed(node.input)):
            sigmoid = editor.maker(gate, "Sigmoid")
            if sigmoid is not None and sigmoid.input[0] == x:
                y = node.output[0]
                found[y] = [
                    make("Mul", [x, editor.constant(y, np.array(0.5, "float32"))], f"{y}/half", node),
                    make("Tanh", [f"{y}/half"], f"{y}/tanh", node),
                    make("Mul", [f"{y}/half", f"{y}/tanh"], f"{y}/product", node),
                    make("Add", [f"{y}/half", f"{y}/product"], y, node),
                ]
                break
    if found:
        editor.replace(found)


def without_softplus(editor: Editor) -> None:
    """`softplus(x)` as `max(x, 0) + log(1 + exp(-|x|))`."""
    found = {}
    for node in list(editor.graph.node):
        if node.op_type == "Softplus":
            x, y = node.input[0], node.output[0]
            zero, one = (editor.constant(y, np.array(number, "float32")) for number in (0.0, 1.0))
            found[y] = [
                make("Abs", [x], f"{y}/size", node),
                make("Neg", [f"{y}/size"], f"{y}/negative", node),
                make("Exp", [f"{y}/negative"], f"{y}/share", node),
                make("Add", [f"{y}/share", one], f"{y}/sum", node),
                make("Log", [f"{y}/sum"], f"{y}/rest", node),
                make("Max", [x, zero], f"{y}/positive", node),
                make("Add", [f"{y}/positive", f"{y}/rest"], y, node),
            ]
    if found:
        editor.replace(found)
