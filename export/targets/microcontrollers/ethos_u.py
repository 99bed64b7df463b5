"""Arm's Ethos-U, an NPU beside a microcontroller: files that Vela compiles, of which the NPU runs most operators."""

from __future__ import annotations

import csv
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras_transformer.export.errors import TargetError
from keras_transformer.export.quantization.calibrated import FullInt8
from keras_transformer.export.runtime.libraries import Library
from keras_transformer.export.targets.microcontrollers.interpreter import TFLITE_MICRO, MicroRuntime
from keras_transformer.export.targets.microcontrollers.micro import MicroTarget
from keras_transformer.export.targets.microcontrollers.operators import node_of
from keras_transformer.export.targets.microcontrollers.sources import write_sources
from keras_transformer.export.targets.target import Arrays, Measured, Node
from keras_transformer.export.tflite.graph import graphs
from keras_transformer.export.tflite.tree import indices, read
from keras_transformer.utils.errors import one_line
from keras_transformer.version import install_command

VELA = Library("ethosu", "ethos-u-vela")
_ACCELERATORS_TEXT = """
ethos-u55-32 ethos-u55-64 ethos-u55-128 ethos-u55-256 ethos-u65-256 ethos-u65-512
ethos-u85-128 ethos-u85-256 ethos-u85-512 ethos-u85-1024 ethos-u85-2048
"""
ACCELERATORS = tuple(_ACCELERATORS_TEXT.split())
_SECONDS = 900
_FILE = "model.tflite"
_REFUSED = re.compile(r"operator: \w+, ofm: '(?P<name>[^']*)'\nReason: (?P<reason>.*)")
_NOT_TAKEN, _ENDS = "not taken by Vela", "take integers: FullInt8(..., input_type='int8', output_type='int8')"
_ARENA_NOTE = """: the memory of the NPU, as Vela plans it, and what the interpreter took
// on a computer, where pointers are of 64 bits"""


@dataclasses.dataclass(frozen=True)
class EthosU(MicroTarget):
    """Arm's Ethos-U, whose files Vela compiles. See `Target`.

    The NPU has no simulator here. The file is run by tflite-micro before it is compiled; what of it the NPU runs, its cycles
    and its memory are those of Vela.

    Args:
        accelerator: one of `ACCELERATORS`, such as `"ethos-u55-128"`: the NPU, and its products in a cycle.
        least_share: the share of the operators that the NPU must run, from 0 to 1, or None.

    Raises:
        TargetError: there is no such accelerator, or no such share.

    Example:

    >>> EthosU("ethos-u65-256", least_share=0.95).options
    {'accelerator': 'ethos-u65-256', 'least_share': 0.95}
    """

    accelerator: str = "ethos-u55-128"
    least_share: float | None = None

    name = "ethos-u"
    libraries = (VELA, TFLITE_MICRO)
    precisions = (FullInt8.mode,)
    # Kernels of the CPU round otherwise in every layer: see `micro`.
    tolerance = {FullInt8.mode: 0.1}
    compiled_suffix = ".ethos-u"
    setup = install_command("ethos-u")
    runs_compiled = False

    def __post_init__(self) -> None:
        if self.accelerator not in ACCELERATORS:
            raise TargetError(
                self.name, f"accelerator must be one of {', '.join(ACCELERATORS)}, not {self.accelerator!r}"
            )
        if self.least_share is not None and not 0 <= self.least_share <= 1:
            raise TargetError(self.name, f"least_share must be from 0 to 1, not {self.least_share!r}")

    @property
    def options(self) -> dict[str, object]:
        return {"accelerator": self.accelerator, "least_share": self.least_share}

    def run(self, path: pathlib.Path, signature: str, cases: Sequence[Arrays], precision: str | None) -> Measured:
        content = path.read_bytes()
        outputs = [MicroRuntime(content)(each) for each in cases]
        compiled, nodes = compile_file(path, self.accelerator), self.nodes(path, signature)
        return Measured(nodes, nodes - len(compiled.left), outputs, {}, tuple(compiled.left), compiled.figures)

    def compile(self, path: pathlib.Path, signature: str, compiled: pathlib.Path, precision: str | None) -> bool:
        """Writes the file that Vela makes, `model.cc` and `model.h` into a folder."""
        found, runtime = compile_file(path, self.accelerator), MicroRuntime(path.read_bytes())
        arena = int(found.figures["sram_bytes"]) + runtime.persistent_bytes()
        write_sources(compiled, found.content, runtime.ends, arena, _ARENA_NOTE)
        (compiled / _FILE).write_bytes(found.content)
        return True

    @property
    def simulator(self) -> str:
        vela, micro = super().simulator.split(", ")
        return f"{micro} before {vela} compiled it for {self.accelerator}, not by the NPU"


class Compiled(NamedTuple):
    """What Vela makes of a file.

    Args:
        content: bytes of the compiled .tflite file.
        left: list of `Node`: those that the CPU runs.
        figures: dict of cycles, milliseconds and bytes by name.
    """

    content: bytes
    left: list[Node]
    figures: dict[str, int | float]


def compile_file(path: pathlib.Path, accelerator: str) -> Compiled:
    """Compiles a file with Vela.

    Args:
        path: path of a .tflite file of integers.
        accelerator: one of `ACCELERATORS`.

    Raises:
        RuntimeError: Vela fails.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        command = [sys.executable, "-m", "ethosu.vela", str(path), "--output-dir", place]
        command += ["--accelerator-config", accelerator]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        summary = next(folder.glob("*summary*.csv"), None)
        if done.returncode or summary is None:
            raise RuntimeError(f"Vela fails: {one_line(done.stderr or done.stdout)}")
        with summary.open(encoding="utf-8") as lines:
            row = next(csv.DictReader(lines))
        content = (folder / f"{path.stem}_vela.tflite").read_bytes()
    reasons = {match["name"]: match["reason"] for match in _REFUSED.finditer(done.stdout)}
    return Compiled(content, _left(content, reasons), _figures(row))


def _left(content: bytes, reasons: Mapping[str, str]) -> list[Node]:
    """The nodes of a compiled file that are no calls of the NPU."""
    found = []
    for graph in graphs(read(content)):
        ends = {*indices(graph.subgraph.inputs), *indices(graph.subgraph.outputs)}
        for operator in graph.subgraph.operators:
            kind = graph.kind(operator)
            if kind != "CUSTOM":
                reason = reasons.get(graph.name(int(operator.outputs[0])), _NOT_TAKEN)
                is_end = not ends.isdisjoint((*indices(operator.inputs), *indices(operator.outputs)))
                remedy = _ENDS if is_end and kind in ("QUANTIZE", "DEQUANTIZE") else ""
                found.append(node_of(graph, operator, reason, remedy))
    return found


def _figures(row: Mapping[str, str]) -> dict[str, int | float]:
    """The figures of a row of Vela's summary, whose sizes are of 1024 bytes."""
    flash = sum(float(row[f"{each}_memory_used"]) for each in ("dram", "on_chip_flash", "off_chip_flash"))
    return {
        "cycles": int(float(row["cycles_total"])),
        "milliseconds": 1000 * float(row["inference_time"]),
        "sram_bytes": round(1024 * float(row["sram_memory_used"])),
        "flash_bytes": round(1024 * flash),
        "multiplications": int(float(row["nn_macs"])),
    }
