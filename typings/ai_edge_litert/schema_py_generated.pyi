# The classes of the file format that are read and written, with their fields. What a file does not have is None.
from typing import Any

class OperatorCodeT:
    builtinCode: int
    deprecatedBuiltinCode: int
    customCode: bytes | str | None
    version: int

class QuantizationParametersT:
    min: list[float] | None
    max: list[float] | None
    scale: Any
    zeroPoint: Any
    detailsType: int
    details: Any
    quantizedDimension: int

class TensorT:
    name: Any
    shape: Any
    shapeSignature: Any
    type: int
    buffer: int
    quantization: Any
    isVariable: bool
    hasRank: bool

class OperatorT:
    opcodeIndex: int
    inputs: Any
    outputs: Any
    intermediates: Any
    builtinOptionsType: int
    builtinOptions: Any
    builtinOptions2Type: int
    builtinOptions2: Any
    customOptions: Any

class SubGraphT:
    name: bytes | str | None
    tensors: list[TensorT]
    inputs: Any
    outputs: Any
    operators: list[OperatorT]

class BufferT:
    data: Any
    offset: int
    size: int

class MetadataT:
    name: bytes | str | None
    buffer: int

class TensorMapT:
    name: Any
    tensorIndex: int

class SignatureDefT:
    signatureKey: Any
    inputs: list[TensorMapT]
    outputs: list[TensorMapT]
    subgraphIndex: int

class ModelT:
    version: int
    description: bytes | str | None
    operatorCodes: list[OperatorCodeT]
    subgraphs: list[SubGraphT]
    buffers: list[BufferT]
    metadata: Any
    metadataBuffer: Any
    signatureDefs: Any

def __getattr__(name: str) -> Any: ...
