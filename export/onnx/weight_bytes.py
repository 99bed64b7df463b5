"""The bytes of the constants of ONNX files, in the order in which the graphs use them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator

import onnx

from keras_transformer.export.data.weights import WeightBytes
from keras_transformer.export.onnx.traversal import all_graphs

# As numpy names them.
_DTYPES = {"float": "float32", "double": "float64"}


def weight_bytes(directory: pathlib.Path, paths: Iterable[str]) -> Iterator[WeightBytes]:
    """Yields the constants of ONNX files; what several files share is yielded once.

    Args:
        directory: `pathlib.Path` of the bundle.
        paths: paths of the files in it.

    Yields:
        `WeightBytes`.
    """
    seen = set()
    for path in dict.fromkeys(paths):
        model = onnx.load(str(directory / path), load_external_data=False)
        for tensor in _in_order(model.graph):
            external = {each.key: each.value for each in tensor.external_data}
            key = (external.get("location"), external.get("offset", "0"))
            if external and key in seen:
                continue
            seen.add(key)
            dtype = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
            dtype = _DTYPES.get(dtype, dtype)
            yield WeightBytes(tensor.name, dtype, tuple(tensor.dims), _size(tensor, external))


def _in_order(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """The initializers and constants of a graph and its bodies, in the order of their first use."""
    graphs = list(all_graphs(graph))
    tensors = {tensor.name: tensor for each in graphs for tensor in each.initializer}
    found: dict[str, onnx.TensorProto] = {}
    for node in (node for each in graphs for node in each.node):
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.type == onnx.AttributeProto.TENSOR:
                attribute.t.name = attribute.t.name or node.output[0]
                found[node.output[0]] = attribute.t
        found |= {name: tensors[name] for name in node.input if name in tensors and name not in found}
    return [*found.values(), *(tensor for name, tensor in tensors.items() if name not in found)]


def _size(tensor: onnx.TensorProto, external: dict[str, str]) -> int:
    if "length" in external:
        return int(external["length"])
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data)
    return int(onnx.numpy_helper.to_array(tensor).nbytes)
