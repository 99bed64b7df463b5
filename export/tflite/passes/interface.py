"""The interface of a TFLite file: names and order of its inputs and outputs, its description, and its metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.bundle.metadata import DESCRIPTION, file_entries, producer
from keras_transformer.export.graph.interface_names import output_names
from keras_transformer.export.tflite.tree import add_buffer, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, SignatureDefT, SubGraphT, TensorMapT

    from keras_transformer.export.data.export_spec import ExportSpec, Signature

_PRODUCER = "producer"


def name_interface(model: ModelT, spec: ExportSpec) -> None:
    """Names the tensors of inputs and outputs, and puts them in order.

    The converter sorts them by name, and names tensors after operations, such as `decode/call:2`. Signatures have the right
    names already; the tensors' are what programs see that take inputs by position. A tensor of an output with the name of
    an input is named as in ONNX files, `NAME_output`.

    Args:
        model: `ModelT`, changed in place.
        spec: the `ExportSpec` that it was converted from.
    """
    for definition in model.signatureDefs:
        _name(definition, model.subgraphs[definition.subgraphIndex], spec.signatures[definition.signatureKey.decode()])


def _name(definition: SignatureDefT, graph: SubGraphT, signature: Signature) -> None:
    inputs, outputs = [each.name for each in signature.inputs], [each.name for each in signature.outputs]
    definition.inputs, graph.inputs = _ordered(definition.inputs, inputs, graph.inputs)
    definition.outputs, graph.outputs = _ordered(definition.outputs, outputs, graph.outputs)
    labels = {map.tensorIndex: map.name for map in reversed(definition.outputs)}
    names = output_names(inputs, outputs)
    labels = {index: names[name.decode()].encode() for index, name in labels.items()}
    # An output that is an input keeps the name of the input.
    labels |= {map.tensorIndex: map.name for map in definition.inputs}
    for index, label in labels.items():
        graph.tensors[index].name = label


def _ordered(maps: Iterable[TensorMapT], names: list[str], indices: Any) -> tuple[list[TensorMapT], Any]:
    """The `TensorMapT`s in the order of the signature, and the tensors in the same order."""
    found = {each.name.decode(): each for each in maps}
    ordered = [found[name] for name in names]
    wanted = [each.tensorIndex for each in ordered]
    if sorted(wanted) != sorted(int(index) for index in indices):
        return ordered, indices  # The graph has other inputs, or one tensor is several outputs.
    return ordered, np.array(wanted, "int32")


def describe(model: ModelT, metadata: Mapping[str, Any]) -> None:
    """Writes metadata into a model: its description, and a buffer for each entry, in UTF-8.

    Args:
        model: `ModelT`, changed in place.
        metadata: dict of JSON values; each is a buffer of that name, beside `producer`.
    """
    model.description = metadata.get(DESCRIPTION) or producer()
    for name, text in {_PRODUCER: producer(), **file_entries(dict(metadata))}.items():
        add_metadata(model, name, text.encode())


def add_metadata(model: ModelT, name: str, content: bytes) -> None:
    """Adds a buffer of metadata.

    Args:
        model: `ModelT`, changed in place.
        name: name of the entry.
        content: its bytes.
    """
    entry = schema().MetadataT()
    entry.name, entry.buffer = name, add_buffer(model, np.frombuffer(content, "uint8"))
    model.metadata = [*(model.metadata or ()), entry]


def read_metadata(model: ModelT) -> dict[str, bytes]:
    """The entries of a model.

    Args:
        model: `ModelT`.

    Returns:
        Dict of name to bytes.
    """
    entries = model.metadata or ()
    return {each.name.decode(): bytes(np.asarray(model.buffers[each.buffer].data, "uint8")) for each in entries}
