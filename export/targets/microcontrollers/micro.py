"""TensorFlow Lite for Microcontrollers: a file of fixed shapes, and the C++ that contains it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.quantization.calibrated import FullInt8
from keras_transformer.export.runtime.libraries import TFLITE
from keras_transformer.export.targets.microcontrollers.interpreter import TFLITE_MICRO, MicroRuntime
from keras_transformer.export.targets.microcontrollers.kernels import compare_operators
from keras_transformer.export.targets.microcontrollers.operators import refused_nodes
from keras_transformer.export.targets.microcontrollers.sources import array_of, compacted, write_sources
from keras_transformer.export.targets.target import Arrays, Measured, Node, Target
from keras_transformer.export.targets.tflite_rules import graph_of
from keras_transformer.export.tflite.tree import read, read_file, size_of
from keras_transformer.version import install_command

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

_SUFFIX = ".micro"
# Cases on which operators are run one by one.
_CASES = 4
_ARENA_NOTE = """, as tflite-micro measured it on a computer, where pointers are of 64 bits.
// Kernels of vendors, such as CMSIS-NN and ESP-NN, may take more"""


class MicroTarget(Target):
    """A device that runs TensorFlow Lite for Microcontrollers, with an NPU or without. See `Target`."""

    format = TFLITE
    stands_alone = True

    def rewrite(self, model: ModelT, slots: int | None = None) -> None:
        from keras_transformer.export.targets.microcontrollers.rewrites import rewrite

        rewrite(model)

    def rewrite_integers(self, model: ModelT) -> None:
        from keras_transformer.export.targets.microcontrollers.rewrites import rewrite_integers

        rewrite_integers(model)

    def nodes(self, path: pathlib.Path, signature: str) -> int:
        return len(graph_of(read_file(path), signature).subgraph.operators)

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        return refused_nodes(path)


class Micro(MicroTarget):
    """TensorFlow Lite for Microcontrollers, run by the interpreter of tflite-micro. See `Target`.

    Beside the file the bundle has a folder with `model.cc`, the file as an array, and `model.h`: the operators to register,
    the size of the arena, and the scales of inputs and outputs. The array is read again and run.
    """

    name = "micro"
    libraries = (TFLITE_MICRO,)
    precisions = (None, FullInt8.mode)
    # In integers the CPU's own kernels round otherwise in every layer; operators are compared one by one, bit for bit.
    tolerance = {None: 1e-4, FullInt8.mode: 0.1}
    compiled_suffix = _SUFFIX
    setup = install_command("micro")

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        is_array = path.suffix == _SUFFIX
        content = array_of(path) if is_array else path.read_bytes()
        runtime = MicroRuntime(content)
        outputs = [runtime(each) for each in cases]
        model = read(content)
        nodes = len(model.subgraphs[0].operators)
        figures = {"arena_bytes": runtime.arena_bytes(), "weight_bytes": sum(map(size_of, model.buffers))}
        figures["array_bytes"] = len(compacted(content))
        if precision is not None and not is_array:
            figures |= compared_with_litert(content, runtime, cases[:_CASES])
        return Measured(nodes, nodes, outputs, {}, figures=figures)

    def compile(self, path: pathlib.Path, signature: str, compiled: pathlib.Path, precision: str | None) -> bool:
        """Writes `model.cc` and `model.h` into a folder."""
        content = compacted(path.read_bytes())
        runtime = MicroRuntime(content)
        write_sources(compiled, content, runtime.ends, runtime.arena_bytes(), _ARENA_NOTE)
        return True


def compared_with_litert(content: bytes, runtime: MicroRuntime, cases: Iterable[Arrays]) -> dict[str, int]:
    """The operators of integers that compute what LiteRT's kernels do, bit for bit.

    Args:
        content: bytes of a .tflite file.
        runtime: its `MicroRuntime`.
        cases: iterable of dicts of input arrays.

    Returns:
        Dict of figures: how many were compared, how many are equal, and, by operator, the largest difference of the others
        in steps.
    """
    found = compare_operators(content, [runtime.codes(each) for each in cases])
    equal = sum(each.steps == 0 for each in found)
    figures = {"operators_compared_with_litert": len(found), "equal_bit_for_bit": equal}
    for each in found:
        if each.steps:
            key = f"largest_steps_of_{each.kind.lower()}"
            figures[key] = max(figures.get(key, 0), each.steps)
    return figures
