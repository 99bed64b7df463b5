"""TFLite files of a few operators, built by hand, and run by the interpreter."""

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import schema, write

# The versions that have the types of these tests.
_VERSIONS = {"BROADCAST_TO": 3, "ADD": 4, ("STRIDED_SLICE", "BOOL"): 3}


class Built:
    """A model with one graph and the signature `serve`.

    Args:
        inputs: dict of name to `(type, shape)`.
    """

    def __init__(self, **inputs):
        self.model = schema().ModelT()
        self.model.version, self.model.operatorCodes, self.model.buffers = 3, [], [schema().BufferT()]
        graph = schema().SubGraphT()
        graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [], []
        self.model.subgraphs = [graph]
        self.graph = Graph(self.model, graph)
        self.tensors = {name: self.graph.add_tensor(name, *each) for name, each in inputs.items()}
        graph.inputs = list(self.tensors.values())

    def constant(self, array):
        kinds = {"float32": "FLOAT32", "int8": "INT8", "int32": "INT32", "int64": "INT64", "bool": "BOOL"}
        array = np.asarray(array)
        return self.graph.add_constant(f"constant_{len(self.graph.tensors)}", kinds[str(array.dtype)], array)

    def add(self, kind, inputs, type, shape, options=None, **fields):
        """Adds an operator; returns the index of its result."""
        output = self.graph.add_tensor(f"block_0/{kind.lower()}_{len(self.graph.tensors)}", type, shape)
        inputs = [self.tensors[each] if isinstance(each, str) else each for each in inputs]
        chosen = getattr(schema(), f"{options}OptionsT")() if options else None
        for name, value in fields.items():
            setattr(chosen, name, value)
        operator = self.graph.operator(kind, inputs, (output,), chosen)
        self.model.operatorCodes[operator.opcodeIndex].version = _VERSIONS.get((kind, type), _VERSIONS.get(kind, 1))
        self.graph.subgraph.operators.append(operator)
        return output

    def finish(self, **outputs):
        """Names the outputs."""
        self.graph.subgraph.outputs = list(outputs.values())
        signature = schema().SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = b"serve", 0
        signature.inputs = [_map(name, index) for name, index in self.tensors.items()]
        signature.outputs = [_map(name, index) for name, index in outputs.items()]
        self.model.signatureDefs = [signature]
        return self

    def kinds(self):
        return [self.graph.kind(each) for each in self.graph.subgraph.operators]

    def run(self, **arrays):
        """The outputs, by the interpreter's own kernels."""
        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = Interpreter(
            model_content=write(self.model), num_threads=1, experimental_op_resolver_type=resolver
        )
        return interpreter.get_signature_runner("serve")(**arrays)


def _map(name, index):
    found = schema().TensorMapT()
    found.name, found.tensorIndex = name.encode(), index
    return found


def cache_update(count=1, heads=2, length=5, width=3, start=None):
    """`cache * (1 - scatter(ones)) + scatter(new)`, as the converter writes the update of a cache.

    Args:
        count: number of new tokens.
        start: slot of the first one; None for the input `index`.
    """
    dynamic = {"index": ("INT32", (1,))} if start is None else {}
    built = Built(cache=("FLOAT32", (1, heads, length, width)), new=("FLOAT32", (count * heads, width)), **dynamic)
    grid = [(0, head, token + (start or 0)) for token in range(count) for head in range(heads)]
    places = built.constant(np.array(grid, "int32"))
    if start is None:
        slope = built.constant(np.array([[0, 0, 1]], "int32"))
        number = built.add("RESHAPE", ("index", built.constant(np.array([1, 1], "int32"))), "INT32", (1, 1), "Reshape")
        moved = built.add("MUL", (slope, number), "INT32", (1, 3), "Mul")
        places = built.add("ADD", (places, moved), "INT32", (count * heads, 3), "Add")
    shape, wide = built.constant(np.array([1, heads, length, width], "int32")), (1, heads, length, width)
    rows = built.constant(np.array([count * heads, width], "int64"))
    ones = built.add("BROADCAST_TO", (built.constant(np.float32(1)), rows), "FLOAT32", (count * heads, width))
    mask = built.add("SCATTER_ND", (places, ones, shape), "FLOAT32", wide, "ScatterNd")
    rest = built.add("SUB", (built.constant(np.float32(1)), mask), "FLOAT32", wide, "Sub")
    kept = built.add("MUL", (rest, "cache"), "FLOAT32", wide, "Mul")
    added = built.add("SCATTER_ND", (places, "new", shape), "FLOAT32", wide, "ScatterNd")
    return built.finish(next=built.add("ADD", (kept, added), "FLOAT32", wide, "Add"))
