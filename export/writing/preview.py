"""What an export would write, and what it would refuse, found without converting anything."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from keras_transformer.export.bundle.metadata import check_input_names, check_metadata
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.tables import Part, Table, Verdict
from keras_transformer.export.errors import UnsupportedOpError
from keras_transformer.export.formats import FORMATS
from keras_transformer.export.quantization.options import FullInt8, Quantization
from keras_transformer.export.quantization.precisions import precision_name
from keras_transformer.export.request import Request
from keras_transformer.export.writing.data_checks import check_data, with_fitting_batches
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.export.graph.traced import TracedModule

_BITS = {"fp16": 16, "int8": 8, "int8_static": 8, "full_int8": 8, "weight_int8": 8, "weight_int4": 4.5, "ternary": 2}


@dataclasses.dataclass(frozen=True)
class PlannedFiles:
    """The files of one format in one precision.

    Args:
        format: str.
        precision: str, such as "float32".
        directory: the folder of the bundle.
        bytes: about how many bytes of weights the files have; None where a mode keeps what a file has.
        quantized: share of the weights that would be quantized; None for float files.
        refused: why the format would be refused; None where nothing is known against it.
    """

    format: str
    precision: str
    directory: str
    bytes: int | None
    quantized: float | None = None
    refused: str | None = None


@dataclasses.dataclass
class Preview:
    """Result of a dry run: nothing was written.

    Args:
        signatures: dict of signature name to "inputs" and "outputs", tuples of `ArraySpec`.
        files: list of `PlannedFiles`.

    Example:

    >>> Preview({}, [PlannedFiles("onnx", "float32", "/tmp/bundle", 1200)]).verdict().text
    'nothing was written: onnx would be'
    """

    signatures: dict[str, dict[str, tuple[ArraySpec, ...]]]
    files: list[PlannedFiles]

    def parts(self) -> list[Part]:
        """What is printed."""
        lines: list[Part] = []
        for name, sides in self.signatures.items():
            lines.append(f"signature {name}")
            lines += [f"  {side[:-1]:7}{each.name}: {each.describe()}" for side in sides for each in sides[side]]
        rows = [
            (
                each.format,
                each.precision,
                "-" if each.bytes is None else f"about {readable_size(each.bytes)}",
                "-" if each.quantized is None else f"{each.quantized:.1%}",
                each.directory,
            )
            for each in self.files
        ]
        head = ("format", "precision", "weights", "quantized", "folder")
        lines += ["", Table(head, rows, texts=("format", "precision", "folder"))]
        if any(each.quantized is not None for each in self.files):
            lines.append(f"weights with fewer than {SMALL:,} numbers stay float, but in full_int8")
        return lines + list(dict.fromkeys(f"refused: {each.refused}" for each in self.files if each.refused))

    def verdict(self) -> Verdict:
        """The last line."""
        names = {each: f"{each.format} in {each.precision}" if self._is_several else each.format for each in self.files}
        refused = [names[each] for each in self.files if each.refused]
        written = [names[each] for each in self.files if not each.refused]
        text = f"nothing was written: {', '.join(written) or 'nothing'} would be"
        return Verdict(text + (f", {', '.join(refused)} would be refused" if refused else ""), not refused)

    @property
    def _is_several(self) -> bool:
        """Whether there is more than one precision."""
        return len({each.precision for each in self.files}) > 1

    def to_dict(self) -> JsonObject:
        """The preview as dicts, lists and numbers."""
        signatures = {
            name: {side: [each.to_dict() for each in specs] for side, specs in sides.items()}
            for name, sides in self.signatures.items()
        }
        return {"signatures": signatures, "files": [dataclasses.asdict(each) for each in self.files]}


def preview(spec: ExportSpec, request: Request) -> Preview:
    """Checks metadata and data, traces the model, and looks every operation up in the table of operations.

    A converter may still refuse what the table does not know of, and verification a file that computes something else.

    Args:
        spec: `ExportSpec`.
        request: `Request`.

    Raises:
        ExportError: any of those of `write_bundles` that come before it writes.
    """
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.operations.layers import EVERYWHERE

    spec = with_fitting_batches(spec.only(request.formats))
    check_metadata(spec.metadata)
    check_input_names(spec.metadata, (each.name for key in spec.signatures.values() for each in key.inputs))
    check_data(spec, request.precisions)
    traced = TracedModule(spec, EVERYWHERE)
    refused = {name: _refusal(spec, traced, name) for name in request.formats}
    sizes = [math.prod(each.shape) for each in spec.variables if len(each.shape) > 1]
    total = sum(math.prod(each.shape) for each in spec.variables)
    files: list[PlannedFiles] = []
    for precision in request.precisions:
        name = precision_name(precision)
        folder = str(request.directory / name if request.has_folders else request.directory)
        count, size = _quantized(precision, sizes, total)
        nothing = f"{name}: no weight has {SMALL:,} numbers, so that none would be quantized" if count == 0 else None
        files += [PlannedFiles(each, name, folder, size, count, refused[each] or nothing) for each in request.formats]
    signatures = {key: {"inputs": each.inputs, "outputs": each.outputs} for key, each in spec.signatures.items()}
    return Preview(signatures, files)


def _quantized(precision: Quantization | None, sizes: list[int], total: int) -> tuple[float | None, int | None]:
    """The share of the weights that a mode quantizes, and about how many bytes they have then."""
    if precision is None:
        return None, 4 * total
    least = 1 if isinstance(precision, FullInt8) else SMALL
    count = sum(each for each in sizes if each >= least)
    bits = _BITS.get(precision.mode)
    return count / max(total, 1), None if bits is None else int(count * bits / 8 + 4 * (total - count))


def _refusal(spec: ExportSpec, traced: TracedModule, name: str) -> str | None:
    """The first operation of a model that the table refuses in a format."""
    from keras_transformer.export.operations.lowering import lowered

    source = FORMATS[name].made_from or name
    try:
        for graph in traced.graphs.values():
            lowered(graph, source, spec.locate)
    except UnsupportedOpError as error:
        return str(error)
    return None
