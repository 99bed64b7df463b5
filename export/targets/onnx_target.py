"""What the targets of ONNX files share."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from keras_transformer.export.runtime.libraries import ONNX
from keras_transformer.export.targets.onnx_rules import count_nodes
from keras_transformer.export.targets.target import Target

if TYPE_CHECKING:
    import onnx_ir as ir


class OnnxTarget(Target):
    """An accelerator that runs ONNX files. See `Target`."""

    format = ONNX

    def rewrite(self, model: ir.Model, slots: int | None = None) -> None:
        from keras_transformer.export.onnx.delegates.rewrite import rewrite

        rewrite(self.name, model, slots)

    def nodes(self, path: pathlib.Path, signature: str) -> int:
        return count_nodes(path)
