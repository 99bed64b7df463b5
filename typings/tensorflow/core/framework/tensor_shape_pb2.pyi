from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message

class TensorShapeProto(Message):
    class Dim(Message):
        size: int
        name: str

    unknown_rank: bool
    @property
    def dim(self) -> RepeatedCompositeFieldContainer[Dim]: ...
