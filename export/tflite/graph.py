"""TFLite files as graphs that can be read and changed: LiteRT's own object tree of a file, and the few edits we need."""

import functools

import numpy as np

_IDENTIFIER = b"TFL3"
_ALIGNMENT = 16


def schema():
    """The module with the classes of the file format; it comes with LiteRT."""
    from ai_edge_litert import schema_py_generated

    return schema_py_generated


def read(content):
    """The object tree of a file.

    Args:
        content: bytes of a .tflite file.

    Returns:
        `ModelT`. Its buffers are views of `content`: replace them, never write into them.
    """
    return schema().ModelT.InitFromObj(schema().Model.GetRootAs(content, 0))


def write(model):
    """The bytes of an object tree, every buffer at a multiple of 16 bytes, as kernels expect.

    Args:
        model: `ModelT`.

    Returns:
        bytes.
    """
    import flatbuffers

    shared = {id(tensor.quantization): tensor.quantization for graph in model.subgraphs for tensor in graph.tensors}
    parameters = [each for each in shared.values() if each is not None]
    for buffer in model.buffers:
        buffer.Pack = _packer(buffer)
    for each in parameters:
        # A scale for each row of a large table is large too: tensors that share the object share its bytes.
        each.Pack = functools.cache(each.Pack)
    builder = flatbuffers.Builder(sum(size_of(buffer) for buffer in model.buffers) + 2**20)
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    for each in (*model.buffers, *parameters):
        del each.Pack
    return bytes(builder.Output())


def _packer(buffer):
    """`Pack` of one buffer; the generated one lets weights lie anywhere."""

    def pack(builder):
        vector = None
        if size_of(buffer):
            raw = np.frombuffer(np.ascontiguousarray(buffer.data), "uint8")
            builder.StartVector(1, raw.size, _ALIGNMENT)
            builder.head -= raw.size
            builder.Bytes[builder.head : builder.head + raw.size] = raw.tobytes()
            vector = builder.EndVector()
        schema().BufferStart(builder)
        if vector is not None:
            schema().BufferAddData(builder, vector)
        return schema().BufferEnd(builder)

    return pack


def size_of(buffer):
    """Bytes of a `BufferT`."""
    return 0 if buffer.data is None else len(buffer.data)


class Graph:
    """One subgraph of a model, with what its tensors and operators mean.

    Args:
        model: `ModelT`.
        subgraph: `SubGraphT` of it.
    """

    def __init__(self, model, subgraph):
        self.model = model
        self.subgraph = subgraph
        self.tensors = subgraph.tensors

    def kind(self, operator):
        """Name of an operator, such as `"FULLY_CONNECTED"`."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        return operator_names()[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def constant(self, index):
        """Value of a constant tensor of int32 or float32, or None."""
        tensor = self.tensors[index] if index >= 0 else None
        if tensor is None or not size_of(self.model.buffers[tensor.buffer]):
            return None
        types = {schema().TensorType.INT32: "int32", schema().TensorType.FLOAT32: "float32"}
        if tensor.type not in types:
            return None
        data = np.frombuffer(np.ascontiguousarray(self.model.buffers[tensor.buffer].data), types[tensor.type])
        return data.reshape(shape_of(tensor))

    def add_tensor(self, name, kind, shape, buffer=0, quantization=None):
        """Adds a tensor; returns its index. A None in the shape is a dynamic size."""
        tensor = schema().TensorT()
        tensor.name = name.encode()
        tensor.type = getattr(schema().TensorType, kind)
        tensor.shape = np.array([size or 1 for size in shape], "int32")
        if None in shape:
            tensor.shapeSignature = np.array([-1 if size is None else size for size in shape], "int32")
        tensor.buffer = buffer
        tensor.quantization = quantization
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def add_constant(self, name, kind, array, quantization=None):
        """Adds a constant tensor; returns its index."""
        return self.add_tensor(name, kind, array.shape, add_buffer(self.model, array), quantization)

    def insert(self, position, kind, inputs, outputs, options=None):
        """Inserts an operator before the one at `position`; `options` is an instance of the kind's options class."""
        operator = schema().OperatorT()
        operator.opcodeIndex = self._code(kind)
        operator.inputs = np.array(inputs, "int32")
        operator.outputs = np.array(outputs, "int32")
        if options is not None:
            name = type(options).__name__[:-1]
            operator.builtinOptions = options
            operator.builtinOptionsType = getattr(schema().BuiltinOptions, name)
        self.subgraph.operators.insert(position, operator)

    def _code(self, kind):
        number = getattr(schema().BuiltinOperator, kind)
        for index, code in enumerate(self.model.operatorCodes):
            if max(code.builtinCode, code.deprecatedBuiltinCode) == number:
                # Only versions of later kinds of inputs come into use here.
                code.version = max(code.version, _VERSIONS.get(kind, 1))
                return index
        code = schema().OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
        code.version = _VERSIONS.get(kind, 1)
        self.model.operatorCodes.append(code)
        return len(self.model.operatorCodes) - 1


# Versions from which these operators take what is given to them here; older runtimes then say so.
_VERSIONS = {"DEQUANTIZE": 5, "EMBEDDING_LOOKUP": 4, "QUANTIZE": 1}


def graphs(model):
    """A `Graph` for each subgraph."""
    return [Graph(model, subgraph) for subgraph in model.subgraphs]


def add_buffer(model, array):
    """Adds a buffer that holds an array; returns its index."""
    buffer = schema().BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), "uint8")
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def shape_of(tensor):
    """Shape of a tensor, dynamic sizes as 1."""
    return tuple(map(int, tensor.shape)) if tensor.shape is not None else ()


def signature_of(tensor):
    """Shape of a tensor, dynamic sizes as None."""
    sizes = tensor.shapeSignature if tensor.shapeSignature is not None and len(tensor.shapeSignature) else tensor.shape
    return tuple(None if size < 0 else int(size) for size in ([] if sizes is None else sizes))


@functools.cache
def operator_names():
    """Dict of operator number to name."""
    return {number: name for name, number in vars(schema().BuiltinOperator).items() if name.isupper()}
