"""Apple's Core ML, for iOS 17 and macOS 14 and later: an ML program beside the ONNX file that it was made of."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence

from keras_transformer.export.runtime.libraries import Library
from keras_transformer.export.targets.onnx_rules import count_nodes, load_graph, onnx_problems
from keras_transformer.export.targets.onnx_target import OnnxTarget
from keras_transformer.export.targets.target import Arrays, Measured, Node
from keras_transformer.version import install_command

_MOST_RANK = 5
_SUFFIX = ".mlpackage"


class CoreML(OnnxTarget):
    """Core ML. See `Target`.

    Core ML runs on Apple's systems only. Elsewhere the written program is read again, and computed by the values that
    coremltools infers for its operators: its weights, shapes and operators are proven, Apple's kernels are not. It is a
    target and no format for that reason, and because its programs have fixed shapes and no inputs of booleans or int64: a
    format is run by its own runtime, with the axes and types of the signature.
    """

    name = "coreml"
    libraries = (Library("coremltools", "coremltools"),)
    precisions = (None, "fp16")
    tolerance = {None: 1e-4, "fp16": 2e-2}
    compiled_suffix = _SUFFIX
    setup = install_command("coreml")

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        from keras_transformer.export.coreml.operators import OPERATORS

        return list(onnx_problems(load_graph(path), OPERATORS, _MOST_RANK))

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        from keras_transformer.export.coreml.interpreter import Program

        if path.suffix == _SUFFIX:
            program = Program(path)
            return Measured(program.count, program.count, [program(each) for each in cases], {})
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, f"model{_SUFFIX}")
            self.compile(path, signature, package, precision)
            found = self.run(package, signature, cases, precision)
        nodes = count_nodes(path)
        return Measured(nodes, nodes, found.outputs, {})

    def compile(self, path: pathlib.Path, signature: str, compiled: pathlib.Path, precision: str | None) -> bool:
        """Writes the ML program, in 32 bits or, for the Neural Engine, in 16."""
        from keras_transformer.export.coreml.program import write_program

        write_program(path, compiled, half=precision == "fp16")
        return True

    @property
    def simulator(self) -> str:
        return f"{super().simulator}, not by Core ML"
