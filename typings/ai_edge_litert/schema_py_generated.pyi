from typing import Any

import numpy as np

# The classes that read a file in place, with their methods. A vector that is absent reads as 0.

class Table:
    Bytes: bytes
    Pos: int

class OperatorCode:
    def BuiltinCode(self) -> int: ...
    def DeprecatedBuiltinCode(self) -> int: ...

class Tensor:
    def Type(self) -> int: ...
    def Buffer(self) -> int: ...
    def Sparsity(self) -> object | None: ...
    def ShapeLength(self) -> int: ...
    def ShapeAsNumpy(self) -> np.ndarray: ...
    def ShapeSignatureLength(self) -> int: ...
    def ShapeSignatureAsNumpy(self) -> np.ndarray: ...

class Operator:
    def OpcodeIndex(self) -> int: ...
    def Inputs(self, j: int) -> int: ...
    def InputsLength(self) -> int: ...
    def InputsAsNumpy(self) -> np.ndarray: ...
    def OutputsLength(self) -> int: ...
    def OutputsAsNumpy(self) -> np.ndarray: ...
    def BuiltinOptions(self) -> Table | None: ...
    def BuiltinOptionsType(self) -> int: ...
    def LargeCustomOptionsOffset(self) -> int: ...
    def LargeCustomOptionsSize(self) -> int: ...

class SubGraph:
    def Tensors(self, j: int) -> Tensor: ...
    def TensorsLength(self) -> int: ...
    def Operators(self, j: int) -> Operator: ...
    def OperatorsLength(self) -> int: ...
    def InputsAsNumpy(self) -> np.ndarray: ...
    def OutputsAsNumpy(self) -> np.ndarray: ...

class Buffer:
    def DataLength(self) -> int: ...
    def DataAsNumpy(self) -> np.ndarray: ...
    def Offset(self) -> int: ...
    def Size(self) -> int: ...

class SignatureDef:
    def SignatureKey(self) -> bytes | None: ...
    def SubgraphIndex(self) -> int: ...

class Model:
    @classmethod
    def GetRootAs(cls, buf: object, offset: int = 0) -> Model: ...
    def OperatorCodes(self, j: int) -> OperatorCode: ...
    def OperatorCodesLength(self) -> int: ...
    def Subgraphs(self, j: int) -> SubGraph: ...
    def SubgraphsLength(self) -> int: ...
    def Buffers(self, j: int) -> Buffer: ...
    def BuffersLength(self) -> int: ...
    def SignatureDefs(self, j: int) -> SignatureDef: ...
    def SignatureDefsLength(self) -> int: ...

# The classes that are changed and written, with their fields. What a file does not have is None.

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
