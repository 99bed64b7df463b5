"""The Open Inference Protocol over gRPC, beside an HTTP application and with the same models."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import ExportError, MissingLibraryError
from keras_transformer.export.serving.open_inference.messages import MESSAGES, SERVICE
from keras_transformer.export.serving.open_inference.models import SERVER, VERSION, Models, wanted_outputs
from keras_transformer.export.serving.open_inference.tensors import (
    check_tensor,
    datatype_of,
    from_bytes,
    from_lists,
    to_bytes,
)
from keras_transformer.export.serving.requests import RequestError
from keras_transformer.export.serving.served_model import UNHEALTHY, ReplicaDiedError
from keras_transformer.utils.http.access import AccessError

try:
    import grpc
    import grpc.aio
except ModuleNotFoundError as error:
    raise MissingLibraryError("the gRPC service", "grpcio", extra="grpc") from error

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from keras_transformer.export.serving.gateway import Gateway

_LOG = logging.getLogger(__name__)
_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
# What may be asked without a key, as over HTTP.
_OPEN = ("ServerLive", "ServerReady")
_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
# What a message has besides its tensors.
_HEAD_BYTES = 64 << 10
_STOP_S = 5.0


class GrpcServer:
    """An async context manager that serves the models of a `Gateway` over gRPC.

    Requests need the key of the gateway's access in the metadata `authorization`, as over HTTP.

    Args:
        gateway: `Gateway`.
        host: str: address to listen on.
        port: int; 0 for a free one.

    Attributes:
        port: int: the port, when it has been entered.

    Raises:
        ExportError: the address cannot be had.
    """

    def __init__(self, gateway: Gateway, host: str, port: int) -> None:
        self._calls, self._guard = gateway.calls, gateway.application
        self._models, self._figures = Models(gateway.calls), gateway.figures
        self._host, self.port = f"[{host}]" if ":" in host else host, port

    async def __aenter__(self) -> GrpcServer:
        largest = self._calls.limits.max_bytes + _HEAD_BYTES
        options = [
            ("grpc.max_receive_message_length", largest),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_metadata_size", _HEAD_BYTES),
        ]
        self._server = grpc.aio.server(options=options)
        methods = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._infer,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._checked(name, method),
                request_deserializer=MESSAGES[f"{name}Request"].FromString,
                response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
            )
            for name, method in methods.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        try:
            self.port = self._server.add_insecure_port(f"{self._host}:{self.port}")
        except RuntimeError as error:
            raise ExportError(f"gRPC cannot listen on {self._host}:{self.port}: {error}") from None
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(_STOP_S)

    def _checked(self, name: str, method: Callable[[Any], Awaitable[Message]]) -> Any:
        """The method with its errors as statuses."""

        async def checked(request: object, context: grpc.aio.ServicerContext) -> Any:
            try:
                if name not in _OPEN:
                    self._guard.access.check_key([value for key, value in _texts(context) if key == "authorization"])
                if name != "ModelInfer":
                    return await method(request)
                refused = self._guard.traffic.refused()
                if refused is not None:
                    raise RequestError(*refused)
                with self._guard.traffic.request():
                    return await method(request)
            except (RequestError, AccessError) as error:
                code, reason = _CODES.get(error.status, grpc.StatusCode.INVALID_ARGUMENT), error.reason
                code = grpc.StatusCode.INTERNAL if error.status == 500 else code
            except ReplicaDiedError:
                code, reason = grpc.StatusCode.UNAVAILABLE, "every replica for this request has died"
            except TimeoutError:
                code, reason = grpc.StatusCode.DEADLINE_EXCEEDED, "no response in time"
            except asyncio.CancelledError:
                raise
            except Exception as error:  # The boundary of the server: its client gets no traceback, the log does.
                _LOG.exception("a request failed")
                code, reason = grpc.StatusCode.INTERNAL, f"the server failed: {type(error).__name__}"
            await context.abort(code, reason)

        return checked

    async def _live(self, request: object) -> Message:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def _ready(self, request: object) -> Message:
        try:
            await self._figures()
        except UNHEALTHY:
            return MESSAGES["ServerReadyResponse"](ready=False)
        return MESSAGES["ServerReadyResponse"](ready=not self._guard.traffic.is_draining)

    async def _model_ready(self, request: Any) -> Message:
        try:
            model, _ = self._models.find(request.name, request.version)
            await model.replicas.is_healthy()
        except (RequestError, *UNHEALTHY):
            return MESSAGES["ModelReadyResponse"](ready=False)
        return MESSAGES["ModelReadyResponse"](ready=True)

    async def _server_metadata(self, request: object) -> Message:
        return MESSAGES["ServerMetadataResponse"](**{**SERVER, "extensions": []})

    async def _model_metadata(self, request: Any) -> Message:
        return MESSAGES["ModelMetadataResponse"](**self._models.metadata(request.name, request.version))

    async def _infer(self, request: Any) -> Message:
        calls, start, status = self._calls, time.perf_counter(), 500
        model, reader, signature = self._models.find_arrays(request.model_name, request.model_version)
        calls.metrics.began(model.name)
        try:
            arrays = reader.check(signature, _arrays(request))
            names = [each.name for each in request.outputs]
            wanted_outputs({spec.name: None for spec in model.outputs[signature]}, names)
            outputs = wanted_outputs(await calls.predict(model, signature, arrays), names)
            status = 200
            return _response(request, outputs)
        except RequestError as error:
            status = error.status
            raise
        finally:
            calls.metrics.ended(model.name, model.name, status, time.perf_counter() - start)


def _texts(context: grpc.aio.ServicerContext) -> list[tuple[str, str]]:
    """The metadata of a call that are text."""
    return [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]


def _arrays(request: Any) -> dict[str, np.ndarray]:
    """The inputs: all of them as raw contents, or none."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise RequestError(400, f"{len(raw)} raw_input_contents for {len(request.inputs)} inputs")
    if request.parameters:
        raise RequestError(400, f"the parameter '{next(iter(request.parameters)):.40}' is not supported")
    arrays: dict[str, np.ndarray] = {}
    for index, given in enumerate(request.inputs):
        name, datatype, shape = given.name, given.datatype, list(given.shape)
        check_tensor(name, datatype, shape)
        if name in arrays:
            raise RequestError(400, f"input '{name:.80}' is given twice")
        if given.parameters:
            raise RequestError(400, f"the parameter '{next(iter(given.parameters)):.40}' is not supported")
        content = memoryview(raw[index]) if raw else None
        arrays[name] = _typed(given, shape) if content is None else from_bytes(name, datatype, shape, content)
    return arrays


def _typed(given: Any, shape: list[int]) -> np.ndarray:
    """The array of contents in the field of their type."""
    if given.datatype == "BYTES":
        raw = b"".join(len(text).to_bytes(4, "little") + text for text in given.contents.bytes_contents)
        return from_bytes(given.name, "BYTES", shape, memoryview(raw))
    field = _FIELDS.get(given.datatype)
    if field is None:
        raise RequestError(400, f"input '{given.name:.80}': {given.datatype} needs raw_input_contents")
    values = getattr(given.contents, field)
    if len(values) != math.prod(shape):
        raise RequestError(400, f"input '{given.name:.80}': {len(values)} values in {field} for {shape}")
    return from_lists(given.name, given.datatype, shape, list(values))


def _response(request: Any, outputs: dict[str, np.ndarray]) -> Message:
    head = {"model_name": request.model_name, "model_version": VERSION, "id": request.id}
    tensors = [
        {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)} for name, array in outputs.items()
    ]
    raw = [to_bytes(array) for array in outputs.values()]
    return MESSAGES["ModelInferResponse"](**head, outputs=tensors, raw_output_contents=raw)
