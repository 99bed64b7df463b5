from google.protobuf.message import Message
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

class TensorProto(Message):
    dtype: int
    tensor_content: bytes
    @property
    def tensor_shape(self) -> TensorShapeProto: ...
