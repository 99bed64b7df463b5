"""The layers and constants of an IR, read from its two files without OpenVINO."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from keras_transformer.export.data.weights import StoredWeight, WeightBytes

_NO_OPERATIONS = ("Const", "Parameter", "Result")
# Kernels whose first axes are the channels; those of Keras have them last.
_CONVOLUTIONS = ("Convolution", "ConvolutionBackpropData")
# Types of whole bytes. Weights of float files have no others.
_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "boolean": "bool",
    **{
        f"{kind}{bits}": f"{name}{bits}" for kind, name in {"i": "int", "u": "uint"}.items() for bits in (8, 16, 32, 64)
    },
}


class Constant(NamedTuple):
    """A constant of an IR.

    Args:
        name: its name.
        kind: OpenVINO's name of its type.
        shape: sizes.
        offset: of its first byte in the file of weights.
        size: bytes.
        is_kernel: bool. Whether a convolution reads it.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int
    size: int
    is_kernel: bool


def operations(path: pathlib.Path) -> Iterator[str]:
    """The types of the layers of an IR, of its bodies too, without constants, inputs and outputs."""
    for layer in ElementTree.parse(path).iter("layer"):
        if layer.attrib["type"] not in _NO_OPERATIONS:
            yield layer.attrib["type"]


def constants(path: pathlib.Path) -> Iterator[Constant]:
    """The constants of an IR and of its bodies.

    Args:
        path: path of the `.xml` file.

    Yields:
        `Constant`.
    """
    for graph in ElementTree.parse(path).iter():
        layers = {layer.attrib["id"]: layer for layer in graph.findall("layers/layer")}
        kernels = {
            edge.attrib["from-layer"]
            for edge in graph.findall("edges/edge")
            if layers[edge.attrib["to-layer"]].attrib["type"] in _CONVOLUTIONS and edge.attrib["to-port"] == "1"
        }
        for number, layer in layers.items():
            data = layer.find("data")
            if layer.attrib["type"] == "Const" and data is not None:
                shape = tuple(int(size) for size in data.attrib["shape"].split(",") if size)
                span = int(data.attrib["offset"]), int(data.attrib["size"])
                yield Constant(layer.attrib["name"], data.attrib["element_type"], shape, *span, number in kernels)


def stored_weights(directory: pathlib.Path, files: Iterable[str], names: Sequence[str]) -> Iterator[StoredWeight]:
    """Yields the constants of the IRs of float files.

    Args:
        directory: folder of the bundle.
        files: paths of the `.xml` files in it.
        names: names of the variables.

    Yields:
        `StoredWeight`. Kernels of convolutions have Keras's order of axes, spatial ones first.
    """
    known = frozenset(names)
    for path in dict.fromkeys(files):
        weights = (directory / path).with_suffix(".bin")
        for each in constants(directory / path):
            if each.kind not in _DTYPES or not each.size:
                continue
            array = np.memmap(weights, _DTYPES[each.kind], "r", each.offset, each.shape)
            values = np.moveaxis(array, (1, 0), (-2, -1)) if each.is_kernel else np.asarray(array)
            yield StoredWeight(each.name, values, each.name if each.name in known else None)


def weight_bytes(directory: pathlib.Path, files: Iterable[str]) -> Iterator[WeightBytes]:
    """Yields the constants of IRs and their bytes; see `Format.weight_bytes`."""
    for path in dict.fromkeys(files):
        for each in constants(directory / path):
            yield WeightBytes(each.name, _DTYPES.get(each.kind, each.kind), each.shape, each.size)
