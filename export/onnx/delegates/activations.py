"""Activation functions with more digits on Hexagon (onnxruntime-qnn 2.7).

Its compiler joins `x · sigmoid(x)` into an operator that is twice as far off as a form with `Tanh`: of a small RetNet
outputs were 1.1 % of the scale away, and are 0.5 % now. Its `Softplus` is 1.2 % too large at 0.5.
"""

from __future__ import annotations

import numpy as np

from keras_transformer.export.onnx.delegates.editor import Editor


def with_tanh(editor: Editor) -> None:
    """`x · sigmoid(x)` as `x / 2 + x / 2 · tanh(x / 2)`."""
    found = {}
    for node in editor.nodes("Mul"):
        for x, gate in (node.input, reversed(node.input)):
            sigmoid = editor.maker(gate, "Sigmoid")
            if sigmoid is not None and sigmoid.input[0] == x:
                make, made = editor.making(node)
                half = make("Mul", x, make.constant(np.array(0.5, "float32"), "share"))
                make.into(node.output[0], "Add", half, make("Mul", half, make("Tanh", half)))
                found[node.output[0]] = made
                break
    editor.replace(found)


def without_softplus(editor: Editor) -> None:
    """`softplus(x)` as `max(x, 0) + log(1 + exp(-|x|))`."""
    found = {}
    for node in editor.nodes("Softplus"):
        make, made = editor.making(node)
        zero, one = (make.constant(np.array(each, "float32"), label) for each, label in ((0.0, "zero"), (1.0, "one")))
        share = make("Exp", make("Neg", make("Abs", node.input[0])))
        rest = make("Log", make("Add", share, one))
        make.into(node.output[0], "Add", make("Max", node.input[0], zero), rest)
        found[node.output[0]] = made
    editor.replace(found)
