from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message
from tensorflow.core.framework.function_pb2 import FunctionDefLibrary
from tensorflow.core.framework.node_def_pb2 import NodeDef

class GraphDef(Message):
    @property
    def node(self) -> RepeatedCompositeFieldContainer[NodeDef]: ...
    @property
    def library(self) -> FunctionDefLibrary: ...
    @property
    def versions(self) -> Message: ...
