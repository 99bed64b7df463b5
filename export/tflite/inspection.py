"""What becomes of a TFLite file on a device: which nodes XNNPACK takes on the CPU, and what a GPU delegate would refuse."""

import collections
import copy
import dataclasses
import pathlib
import re

from keras_transformer.export.tflite.graph import Graph, read, schema, signature_of, size_of, write
from keras_transformer.utils.captured_stderr import quiet

# Sizes that dynamic axes get while the runtime plans; nothing is computed.
_SIZE = 8
_GPU_RANK = 4
_GPU_WARNING = re.compile(r"GPU COMPATIBILITY WARNING: (?P<reason>.+)")
_SUBGRAPH = re.compile(r"^Subgraph#(?P<index>\d+)")
# Inputs that say what the result's shape is: the delegate wants to know them beforehand.
_SHAPES = {"RESHAPE": 1, "SLICE": 2, "STRIDED_SLICE": 2, "BROADCAST_TO": 1, "TILE": 1, "TRANSPOSE": 1}
_NUMBERS = ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT4")


@dataclasses.dataclass(frozen=True)
class DelegateRow:
    """What the delegates make of one signature.

    Args:
        signature: name of the signature; of a loop in it, `"name/loop 1"` and so on.
        nodes: int, nodes in all.
        taken: int, nodes that XNNPACK takes.
        partitions: int, pieces that those nodes are in: one where nothing lies between them.
        outside: dict of `(op, reason)` to the number of nodes that XNNPACK leaves to the interpreter.
        gpu: tuple of what a GPU delegate would refuse, as text; empty where it would take everything.
    """

    signature: str
    nodes: int
    taken: int
    partitions: int
    outside: dict
    gpu: tuple

    def __str__(self):
        outside = ", ".join(f"{op} {count} ({reason})" for (op, reason), count in self.outside.items())
        pieces = "piece" if self.partitions == 1 else "pieces"
        lines = [f"{self.signature}: XNNPACK takes {self.taken} of {self.nodes} nodes, in {self.partitions} {pieces}"]
        lines += [f"  outside: {outside}"] if outside else []
        lines.append(f"  GPU: {'; '.join(self.gpu) if self.gpu else 'compatible'}")
        return "\n".join(lines)


def delegate_report(path):
    """What XNNPACK takes of each signature, what stays outside and why, and what a GPU delegate would refuse.

    Args:
        path: path of any .tflite file, or its bytes.

    Returns:
        List of `DelegateRow`, one for each signature, and one for each body of a loop in it.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export
    >>> from keras_transformer.export.tflite.inspection import delegate_report
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["tflite"])
    >>> [row] = delegate_report("/tmp/keras_transformer_doctest/model.tflite")
    >>> (row.signature, row.nodes, row.taken)
    ('serve', 1, 1)
    """
    content = path if isinstance(path, bytes) else pathlib.Path(path).read_bytes()
    model = read(content)
    refused = _gpu_warnings(content)
    rows = []
    for name, index in _entries(model):
        graph = Graph(model, model.subgraphs[index])
        gpu = (*refused.get(index, ()), *_gpu_problems(graph))
        rows.append(_row(name, model, index, graph, tuple(dict.fromkeys(gpu))))
    return rows


def _entries(model):
    """`(name, subgraph)` of each signature and of the bodies of its loops."""
    signatures = [(each.signatureKey.decode(), each.subgraphIndex) for each in model.signatureDefs or ()]
    for name, index in signatures or [("main", 0)]:
        yield name, index
        bodies = [
            each.builtinOptions.bodySubgraphIndex
            for each in model.subgraphs[index].operators
            if isinstance(each.builtinOptions, schema().WhileOptionsT)
        ]
        yield from ((f"{name}/loop {number}", body) for number, body in enumerate(bodies, 1))


def _row(name, model, index, graph, gpu):
    content = _alone(model, index)
    nodes, single = _planned(content, fused=False)
    _, pieces = _planned(content, fused=True)
    taken = {output for each in single for output in each["outputs"]}
    left = [each for each in nodes if not taken.intersection(each["outputs"])]
    outside = collections.Counter((each["op_name"], _reason(graph, each)) for each in left)
    return DelegateRow(name, len(nodes), len(nodes) - len(left), len(pieces), dict(outside.most_common()), gpu)


def _alone(model, index):
    """A file in which one subgraph comes first, since that one alone tells its nodes, and others only if it uses them."""
    changed = copy.copy(model)
    changed.signatureDefs = None
    order = _reachable(model, index)
    places = {old: new for new, old in enumerate(order)}
    changed.subgraphs = []
    for old in order:
        graph = copy.copy(model.subgraphs[old])
        graph.operators = [_renumbered(each, places) for each in graph.operators]
        changed.subgraphs.append(graph)
    used = {tensor.buffer for graph in changed.subgraphs for tensor in graph.tensors}
    changed.buffers = [each if at in used else schema().BufferT() for at, each in enumerate(model.buffers)]
    return write(changed)


def _reachable(model, index):
    """A subgraph, then those that its operators call, and so on."""
    order = [index]
    for current in order:
        for operator in model.subgraphs[current].operators:
            order += [each for _, each in _calls(operator) if each not in order]
    return order


def _calls(operator):
    """`(attribute, subgraph)` of every subgraph that an operator names."""
    options = [each for each in (operator.builtinOptions, operator.builtinOptions2) if each is not None]
    attributes = [item for each in options for item in vars(each).items()]
    return [(key, value) for key, value in attributes if key.lower().endswith("subgraphindex") and value >= 0]


def _renumbered(operator, places):
    if not _calls(operator):
        return operator
    operator = copy.copy(operator)
    for side in ("builtinOptions", "builtinOptions2"):
        options = copy.copy(getattr(operator, side))
        for key, value in _calls(operator):
            if hasattr(options, key):
                setattr(options, key, places[value])
        setattr(operator, side, options)
    return operator


def _planned(content, fused):
    """The nodes of the first subgraph, and those of the delegate, which stand for the nodes whose outputs they have."""
    from ai_edge_litert.interpreter import Interpreter

    with quiet():
        interpreter = Interpreter(
            model_content=content, num_threads=1, experimental_disable_delegate_node_fusion=not fused
        )
        nodes = interpreter._get_ops_details()
        for each in interpreter.get_input_details():
            if (each["shape_signature"] < 0).any():
                sizes = [_SIZE if size < 0 else size for size in each["shape_signature"]]
                interpreter.resize_tensor_input(each["index"], sizes)
        interpreter.allocate_tensors()
        return nodes, interpreter._get_ops_details()[len(nodes) :]


def _reason(graph, node):
    """Why XNNPACK leaves a node alone, as far as the file tells."""
    inputs = [index for index in node["inputs"] if index >= 0]
    place = _SHAPES.get(node["op_name"])
    if place is not None and len(inputs) > place and not _is_constant(graph, inputs[place]):
        return "dynamic shape"
    data = [index for index in (*inputs, *node["outputs"]) if not _is_constant(graph, index)]
    types = [_type(graph, index) for index in data if index < len(graph.tensors)]
    others = [each for each in types if each not in _NUMBERS]
    if others:
        return f"type {others[0].lower()}"
    return "op not supported"


def _is_constant(graph, index):
    return bool(index < len(graph.tensors) and size_of(graph.model.buffers[graph.tensors[index].buffer]))


def _type(graph, index):
    number = graph.tensors[index].type
    return next(name for name, value in vars(schema().TensorType).items() if value == number and name.isupper())


def _gpu_warnings(content):
    """Dict of subgraph to what LiteRT's own analyzer warns of."""
    from ai_edge_litert import _pywrap_analyzer_wrapper as analyzer

    with quiet():
        text = analyzer.ModelAnalyzer(content, False, True)
    found, current = {}, 0
    for line in text.splitlines():
        header, warning = _SUBGRAPH.match(line), _GPU_WARNING.search(line)
        if header:
            current = int(header["index"])
        elif warning:
            found.setdefault(current, {})[warning["reason"].strip()] = None
    return {index: tuple(reasons) for index, reasons in found.items()}


def _gpu_problems(graph):
    """What phones' GPU delegates are known to refuse, and the analyzer does not see."""
    tensors = {index for each in graph.subgraph.operators for index in (*_all(each.inputs), *_all(each.outputs))}
    shapes = [signature_of(graph.tensors[index]) for index in tensors if index >= 0]
    if any(None in shape for shape in shapes):
        yield "dynamic shapes"
    ranks = [len(shape) for shape in shapes if len(shape) > _GPU_RANK]
    if ranks:
        yield f"{len(ranks)} tensors of rank {max(ranks)}"
    broadcasts = sum(graph.kind(each) == "BROADCAST_TO" for each in graph.subgraph.operators)
    if broadcasts:
        yield f"{broadcasts} BROADCAST_TO"


def _all(indices):
    return () if indices is None else indices
