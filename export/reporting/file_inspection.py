"""The contents of one file as text: a `.tflite`, `.onnx` or `.keras` file, whoever wrote it. Nothing is run or loaded."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.data.report import readable_size
from keras_transformer.export.data.tables import Part, Table
from keras_transformer.export.errors import InvalidBundleError, MissingLibraryError
from keras_transformer.export.formats import get_format
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import h5py
    import onnx_ir as ir

    from keras_transformer.export.tflite.graph import Graph

# Numbers of these types are the weights as they were trained; other ones are what quantization made of them.
_FLOATS = ("float32", "float64", "bfloat16")
_FULL_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}
_INTEGERS = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "float16")


@dataclasses.dataclass
class FileContents:
    """What is in a file.

    Args:
        path: str.
        kind: the name of the format, such as "tflite".
        size: bytes of the file.
        signatures: dict of signature name to "inputs" and "outputs", dicts of name to a text such as
            `"float32 (?, 16, 16, 3)"`.
        operations: Counter of the names of operators, or of layers.
        weights: dict of type to a pair: number of constants, and their bytes.
        notes: lines about the file.
    """

    path: str
    kind: str
    size: int
    signatures: dict[str, dict[str, dict[str, str]]] = dataclasses.field(default_factory=dict)
    operations: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    weights: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)

    def add_weights(self, found: Iterable[tuple[str, int]]) -> None:
        """Counts constants.

        Args:
            found: pairs of type and bytes.
        """
        for kind, size in found:
            count, total = self.weights.get(kind, (0, 0))
            self.weights[kind] = count + 1, total + size

    @property
    def quantized(self) -> str:
        """What share of the weights is quantized, in words."""
        total = sum(self.weights[kind][1] for kind in self.weights if kind in (*_FLOATS, *_INTEGERS))
        packed = sum(self.weights[kind][1] for kind in self.weights if kind in _INTEGERS)
        if not packed:
            return "no weight is quantized"
        return f"{packed / total:.0%} of the bytes of weights are quantized"

    def parts(self) -> list[Part]:
        """What the command `inspect` prints."""
        lines: list[Part] = [f"{self.path}: {self.kind}, {readable_size(self.size)}"]
        for name, sides in self.signatures.items():
            lines.append(f"signature {name}")
            lines += [
                f"  {side[:-1]:7}{each}: {words}" for side, specs in sides.items() for each, words in specs.items()
            ]
        if self.operations:
            head = "layers" if self.kind == "keras" else "operators"
            counts = ", ".join(f"{name} {count}" for name, count in self.operations.most_common())
            lines += ["", f"{self.operations.total()} {head}: {counts}"]
        if self.weights:
            rows = [(kind, str(count), readable_size(size)) for kind, (count, size) in sorted(self.weights.items())]
            lines += ["", Table(("weights", "constants", "bytes"), rows, texts=("weights",)), self.quantized]
        return [*lines, "", *self.notes] if self.notes else lines

    def to_dict(self) -> JsonObject:
        """The contents as dicts, lists and numbers."""
        weights = {kind: {"constants": count, "bytes": size} for kind, (count, size) in self.weights.items()}
        return dataclasses.asdict(self) | {"operations": dict(self.operations), "weights": weights}


def inspect_file(path: pathlib.Path) -> FileContents:
    """Returns the contents of a file.

    Args:
        path: path of a `.tflite`, `.onnx` or `.keras` file.

    Raises:
        InvalidBundleError: it is none of these, or damaged.
        MissingLibraryError: what reads such files is not installed.
    """
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise InvalidBundleError(f"'{path}' is neither a bundle nor a file of {', '.join(_READERS)}")
    found = FileContents(str(path), path.suffix[1:], path.stat().st_size)
    try:
        reader(path, found)
    except ImportError as error:
        raise MissingLibraryError(f"a {path.suffix} file", error.name or "") from error
    except library_exceptions() as error:
        raise InvalidBundleError(f"'{path}' is no {path.suffix} file, or damaged: {one_line(error)}") from error
    return found


def _words(dtype: str, shape: Sequence[object]) -> str:
    return f"{dtype.lower()} ({', '.join('?' if size is None else str(size) for size in shape)})"


def _read_tflite(path: pathlib.Path, found: FileContents) -> None:
    from keras_transformer.export.tflite.graph import graphs
    from keras_transformer.export.tflite.tree import indices, read_file, signature_of, size_of

    with open(path, "rb") as file:
        if file.read(8)[4:] != b"TFL3":
            raise ValueError("it does not begin as one")
    model = read_file(path)
    subgraphs = graphs(model)

    def described(graph: Graph, index: int) -> str:
        return _words(graph.type(index), signature_of(graph.tensors[index]))

    for each in model.signatureDefs or ():
        graph = subgraphs[each.subgraphIndex]
        sides = {"inputs": each.inputs or (), "outputs": each.outputs or ()}
        found.signatures[each.signatureKey.decode()] = {
            side: {one.name.decode(): described(graph, one.tensorIndex) for one in maps} for side, maps in sides.items()
        }
    if not found.signatures:
        graph = subgraphs[0]
        ends = {"inputs": indices(graph.subgraph.inputs), "outputs": indices(graph.subgraph.outputs)}
        found.signatures["(none)"] = {
            side: {graph.name(index): described(graph, index) for index in those} for side, those in ends.items()
        }
    constants = {
        tensor.buffer: (graph.type(index).lower(), size_of(model.buffers[tensor.buffer]))
        for graph in subgraphs
        for index, tensor in enumerate(graph.tensors)
        if graph.is_constant(index)
    }
    found.add_weights(constants.values())
    format = get_format("tflite")
    found.operations, found.notes = format.count_operations(path), format.inspect(path)


def _read_onnx(path: pathlib.Path, found: FileContents) -> None:
    from keras_transformer.export.onnx.graph import all_graphs, all_nodes
    from keras_transformer.export.onnx.weights.files import read

    model = read(path)

    def described(value: ir.Value) -> str:
        shape = [] if value.shape is None else [size if isinstance(size, int) else str(size) for size in value.shape]
        return _words("?" if value.dtype is None else _FULL_NAMES.get(value.dtype.name, value.dtype.name), shape)

    sides = {"inputs": model.graph.inputs, "outputs": model.graph.outputs}
    found.signatures["(file)"] = {
        side: {str(each.name): described(each) for each in values} for side, values in sides.items()
    }
    tensors = (
        value.const_value
        for graph in all_graphs(model.graph)
        for value in graph.initializers.values()
        if value.const_value is not None
    )
    found.add_weights((_FULL_NAMES.get(each.dtype.name, each.dtype.name.lower()), each.nbytes) for each in tensors)
    found.operations = collections.Counter(node.op_type for node in all_nodes(model.graph))
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in model.opset_imports.items())
    found.notes = [f"opset {opsets}; written by {model.producer_name or 'nobody named'} {model.producer_version or ''}"]


def _read_keras(path: pathlib.Path, found: FileContents) -> None:
    import h5py

    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
        version = json.loads(archive.read("metadata.json")).get("keras_version", "?")
        with archive.open("model.weights.h5") as stream, h5py.File(stream) as file:
            found.add_weights(_datasets(file))
    layers = list(_layers(config))
    found.operations = collections.Counter(each["class_name"] for each in layers if each["class_name"] != "InputLayer")
    inputs = [each["config"] for each in layers if each["class_name"] == "InputLayer"]
    sizes = {each["name"]: _words(str(each.get("dtype")), each.get("batch_shape") or ()) for each in inputs}
    found.signatures[str(config.get("config", {}).get("name", config.get("class_name")))] = {"inputs": sizes}
    custom = sorted({each["class_name"] for each in layers if not str(each.get("module") or "").startswith("keras")})
    found.notes = [f"saved by Keras {version}; export writes it as TFLite, ONNX and SavedModel"]
    found.notes += [f"classes of its own, which export needs with --import: {', '.join(custom)}"] if custom else []


def _layers(config: JsonObject) -> Iterator[JsonObject]:
    """The configs of the layers of a model, and of models in it."""
    for each in config.get("config", {}).get("layers", ()):
        if "layers" in each.get("config", {}):
            yield from _layers(each)
        else:
            yield each


def _datasets(group: h5py.Group) -> Iterator[tuple[str, int]]:
    """The type and the bytes of each array in a file of weights."""
    import h5py

    for each in group.values():
        if isinstance(each, h5py.Dataset):
            yield str(each.dtype), int(each.nbytes)
        else:
            yield from _datasets(each)


_READERS: dict[str, Callable[[pathlib.Path, FileContents], None]] = {
    ".tflite": _read_tflite,
    ".onnx": _read_onnx,
    ".keras": _read_keras,
}
