from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import Message

class OpDef(Message):
    class ArgDef(Message):
        name: str
        type: int
        type_attr: str
        number_attr: str
        type_list_attr: str

    name: str
    is_stateful: bool
    @property
    def input_arg(self) -> RepeatedCompositeFieldContainer[ArgDef]: ...
    @property
    def output_arg(self) -> RepeatedCompositeFieldContainer[ArgDef]: ...
