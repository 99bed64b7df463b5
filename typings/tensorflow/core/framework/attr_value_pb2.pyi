from typing import Literal

from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
)
from google.protobuf.message import Message
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

class AttrValue(Message):
    class ListValue(Message):
        s: RepeatedScalarFieldContainer[bytes]
        i: RepeatedScalarFieldContainer[int]
        f: RepeatedScalarFieldContainer[float]
        b: RepeatedScalarFieldContainer[bool]
        type: RepeatedScalarFieldContainer[int]
        @property
        def shape(self) -> RepeatedCompositeFieldContainer[TensorShapeProto]: ...
        @property
        def tensor(self) -> RepeatedCompositeFieldContainer[TensorProto]: ...
        @property
        def func(self) -> RepeatedCompositeFieldContainer[NameAttrList]: ...

    s: bytes
    i: int
    f: float
    b: bool
    type: int
    placeholder: str
    @property
    def shape(self) -> TensorShapeProto: ...
    @property
    def tensor(self) -> TensorProto: ...
    @property
    def list(self) -> ListValue: ...
    @property
    def func(self) -> NameAttrList: ...
    def WhichOneof(
        self, oneof_group: str | bytes
    ) -> Literal["s", "i", "f", "b", "type", "shape", "tensor", "list", "func", "placeholder"] | None: ...

class NameAttrList(Message):
    name: str
    @property
    def attr(self) -> MessageMap[str, AttrValue]: ...
