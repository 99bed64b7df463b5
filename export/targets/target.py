"""The contract of a target: an accelerator that a bundle is written for."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.export.quantization.calibrated import FullInt8, Int8Static
from keras_transformer.export.runtime.libraries import Library

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

    from keras_transformer.export.onnx.options import OnnxOptions

Arrays = Mapping[str, np.ndarray]
# The modes whose activations are integers of ranges that were measured.
STATIC = (Int8Static.mode, FullInt8.mode)


class Node(NamedTuple):
    """A node of a written graph that a static rule refuses.

    Args:
        op: name of the operator.
        name: name of the node in the traced graph, from which its layer is found.
        reason: why the accelerator refuses it.
        remedy: what to change, or "".
    """

    op: str
    name: str
    reason: str
    remedy: str = ""


class Measured(NamedTuple):
    """What an accelerator did with one signature.

    Args:
        nodes: number of nodes, as the accelerator counts them.
        taken: how many of them it ran.
        outputs: list of dicts of output arrays, one for each dict of inputs.
        refused: dict of operator to the reason for which the accelerator refused it.
        left: tuple of `Node`: those that it does not run, where it names them.
        figures: dict of what else was measured: numbers by name, those of bytes with a name that ends in "_bytes".
    """

    nodes: int
    taken: int
    outputs: list[dict[str, np.ndarray]]
    refused: dict[str, str]
    left: tuple[Node, ...] = ()
    figures: Mapping[str, int | float] = {}


class NoAcceleratorError(Exception):
    """The accelerator's library is installed, but finds no accelerator and no simulator."""


class RefusedNodeError(Exception):
    """A node does not run where nothing else would run it.

    Args:
        node: `Node`.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(f"{node.op} '{node.name}': {node.reason}")
        self.node = node


class Target:
    """An accelerator: what its files must be, and how a file is checked and run.

    Subclasses have no state but their options, and import libraries in their methods only.

    Attributes:
        name: key of `TARGETS`.
        format: key of `FORMATS`: the one format that is written.
        libraries: the libraries that run a file.
        precisions: modes of quantization that the accelerator runs; None for float32.
        tolerance: the largest difference from the CPU, as a share of the scale of an output, by mode.
        compiled_suffix: end of the names of files that the accelerator's compiler makes, or "".
        setup: what to do where a library is missing, in one sentence.
        quantizes_results: whether it multiplies integers only where the product becomes integers too.
        stands_alone: whether nothing runs there but its runtime. A file has one signature then, the libraries are needed,
            and a node that is refused is an error.
        runs_compiled: whether the libraries run what the compiler made, too, which takes whole files then.
        least_share: the share of the nodes that it must take, or None.
    """

    name: str
    format: str
    libraries: tuple[Library, ...] = ()
    precisions: tuple[str | None, ...] = (None,)
    tolerance: Mapping[str | None, float] = {None: 1e-4}
    compiled_suffix: str = ""
    setup: str = ""
    quantizes_results: bool = False
    stands_alone: bool = False
    runs_compiled: bool = True
    least_share: float | None = None

    @property
    def options(self) -> dict[str, object]:
        """The arguments of the class."""
        return {}

    @property
    def onnx(self) -> OnnxOptions | None:
        """The `OnnxOptions` of its files where the export names none, or None."""
        return None

    def rewrite(self, model: Any, slots: int | None = None) -> None:
        """Changes a converted model in place, into the operators that the accelerator has; values change by rounding only.

        Args:
            model: `ModelT` of a TFLite file, or `onnx_ir.Model` of an ONNX file.
            slots: number of the slots of the cache of a decoder in ONNX, or None.
        """

    def rewrite_integers(self, model: ModelT) -> None:
        """Changes a model that was quantized with `FullInt8` in place, into the operators that the accelerator has.

        Args:
            model: `ModelT` of a TFLite file.
        """

    def nodes(self, path: pathlib.Path, signature: str) -> int:
        """Number of nodes of the graph of a signature."""
        raise NotImplementedError

    def check(self, path: pathlib.Path, signature: str) -> list[Node]:
        """The nodes of a signature that the accelerator refuses, as far as the file alone tells.

        Needs no library of the accelerator.
        """
        raise NotImplementedError

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        """Runs a signature on the accelerator, or on its simulator. Called in a process of its own, which may crash.

        Args:
            path: path of the file.
            signature: name of the signature.
            cases: sequence of dicts of input arrays.
            precision: mode of quantization of the file, or None.

        Raises:
            NoAcceleratorError: there is none.
        """
        raise NotImplementedError

    def compile(self, path: pathlib.Path, signature: str, compiled: pathlib.Path, precision: str | None) -> bool:
        """Writes a file, or a folder, that the accelerator's compiler made of a signature, which it takes whole.

        Args:
            path: path of the file.
            signature: name of the signature.
            compiled: path to write; its name ends in `compiled_suffix`.
            precision: mode of quantization of the file, or None.

        Returns:
            bool. False where the accelerator has no such files.
        """
        return False

    def missing_library(self) -> str | None:
        """What is missing to run files, or None."""
        for library in self.libraries:
            if library.version is None:
                return f"{library.distribution} is not installed" + (f": {self.setup}" if self.setup else "")
        return None

    @property
    def simulator(self) -> str:
        """The libraries that run a file, with their versions."""
        return ", ".join(f"{each.distribution} {each.version}" for each in self.libraries)
