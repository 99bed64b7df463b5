"""Exponentials with right numbers on Hexagon.

Its `Exp` in fp16 is wrong below -88: of -90 it is -131008, of -300 it is 131008 (onnxruntime-qnn 2.7). Numbers that small
are those of weights that a mask takes out.
"""

from __future__ import annotations

import numpy as np

from keras_transformer.export.onnx.delegates.editor import Editor

# The exponential of -80 is 2e-35: nothing beside a number of fp16, whose smallest is 6e-8.
_LEAST = -80.0


def with_bounded_arguments(editor: Editor) -> None:
    """`exp(x)` as `exp(max(x, -80))`."""
    found = {}
    for node in editor.nodes("Exp"):
        make, made = editor.making(node)
        bounded = make("Max", node.input[0], make.constant(np.array(_LEAST, "float32"), "least"))
        make.into(node.output[0], "Exp", bounded)
        found[node.output[0]] = made
    editor.replace(found)
