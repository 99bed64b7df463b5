"""The messages of the gRPC service, from the definitions of the Open Inference Protocol.

They are in a pool of their own, so that a client of the same protocol in this process keeps its own classes.

Reference: open_inference_grpc.proto of https://github.com/kserve/open-inference-protocol; parameters of the types double and
uint64 as in Triton's grpc_service.proto.
"""

from __future__ import annotations

from typing import Any

from keras_transformer.export.errors import MissingLibraryError

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ModuleNotFoundError as error:
    raise MissingLibraryError("the gRPC service", "protobuf", extra="grpc") from error

SERVICE = "inference.GRPCInferenceService"
_PACKAGE = "inference"
_PARAMETERS = ("map", "InferParameter")
_TENSOR = [
    ("name", 1, "string"),
    ("datatype", 2, "string"),
    ("shape", 3, "*int64"),
    ("parameters", 4, _PARAMETERS),
    ("contents", 5, "InferTensorContents"),
]
_CONTENTS = {
    "bool_contents": "bool",
    "int_contents": "int32",
    "int64_contents": "int64",
    "uint_contents": "uint32",
    "uint64_contents": "uint64",
    "fp32_contents": "float",
    "fp64_contents": "double",
    "bytes_contents": "bytes",
}
_OF_A_MODEL = [("name", 1, "string"), ("version", 2, "string")]
# Name of a message, or path of a nested one, to fields: name, number and type; `*` for repeated.
_MESSAGES: dict[str, list[tuple[str, int, Any]]] = {
    "ServerLiveRequest": [],
    "ServerLiveResponse": [("live", 1, "bool")],
    "ServerReadyRequest": [],
    "ServerReadyResponse": [("ready", 1, "bool")],
    "ModelReadyRequest": _OF_A_MODEL,
    "ModelReadyResponse": [("ready", 1, "bool")],
    "ServerMetadataRequest": [],
    "ServerMetadataResponse": [("name", 1, "string"), ("version", 2, "string"), ("extensions", 3, "*string")],
    "ModelMetadataRequest": _OF_A_MODEL,
    "ModelMetadataResponse": [
        ("name", 1, "string"),
        ("versions", 2, "*string"),
        ("platform", 3, "string"),
        ("inputs", 4, "*ModelMetadataResponse.TensorMetadata"),
        ("outputs", 5, "*ModelMetadataResponse.TensorMetadata"),
    ],
    "ModelMetadataResponse.TensorMetadata": _TENSOR[:3],
    "InferParameter": [
        ("bool_param", 1, "bool"),
        ("int64_param", 2, "int64"),
        ("string_param", 3, "string"),
        ("double_param", 4, "double"),
        ("uint64_param", 5, "uint64"),
    ],
    "InferTensorContents": [(name, number, f"*{kind}") for number, (name, kind) in enumerate(_CONTENTS.items(), 1)],
    "ModelInferRequest": [
        ("model_name", 1, "string"),
        ("model_version", 2, "string"),
        ("id", 3, "string"),
        ("parameters", 4, _PARAMETERS),
        ("inputs", 5, "*ModelInferRequest.InferInputTensor"),
        ("outputs", 6, "*ModelInferRequest.InferRequestedOutputTensor"),
        ("raw_input_contents", 7, "*bytes"),
    ],
    "ModelInferRequest.InferInputTensor": _TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": [("name", 1, "string"), ("parameters", 2, _PARAMETERS)],
    "ModelInferResponse": [
        ("model_name", 1, "string"),
        ("model_version", 2, "string"),
        ("id", 3, "string"),
        ("parameters", 4, _PARAMETERS),
        ("outputs", 5, "*ModelInferResponse.InferOutputTensor"),
        ("raw_output_contents", 6, "*bytes"),
    ],
    "ModelInferResponse.InferOutputTensor": _TENSOR,
}
# The choice of a value of a parameter is one of its fields.
_ONE_OF = {"InferParameter": "parameter_choice"}
_FIELD = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="open_inference_grpc.proto", package=_PACKAGE, syntax="proto3")
    found: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, fields in _MESSAGES.items():
        outer, _, name = path.rpartition(".")
        message = found[path] = found[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        if path in _ONE_OF:
            message.oneof_decl.add(name=_ONE_OF[path])
        for field, number, kind in fields:
            added = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
            if path in _ONE_OF:
                added.oneof_index = 0
            _set_type(message, path, added, kind)
    return file


def _set_type(message: descriptor_pb2.DescriptorProto, path: str, field: Any, kind: str | tuple[str, str]) -> None:
    if isinstance(kind, tuple):  # A map of text to a message is a repeated entry.
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
        value = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_MESSAGE)
        value.type_name = f".{_PACKAGE}.{kind[1]}"
        kind = f"*{path}.ParametersEntry"
    if kind.startswith("*"):
        field.label, kind = _FIELD.LABEL_REPEATED, kind[1:]
    scalar = _FIELD.DESCRIPTOR.enum_types_by_name["Type"].values_by_name.get(f"TYPE_{kind.upper()}")
    if scalar is not None:
        field.type = scalar.number
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        path: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{path}")) for path in _MESSAGES
    }


MESSAGES: dict[str, Any] = _classes()
