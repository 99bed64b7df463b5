"""The bodies of `infer` over HTTP: JSON, and binary tensors after it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from keras_transformer.export.serving.open_inference.models import VERSION
from keras_transformer.export.serving.open_inference.tensors import (
    check_tensor,
    datatype_of,
    from_bytes,
    from_lists,
    to_bytes,
)
from keras_transformer.export.serving.requests import RequestError, read_object, to_json
from keras_transformer.utils.types import JsonObject

LENGTH_HEADER = "Inference-Header-Content-Length"
_KEYS = ("id", "parameters", "inputs", "outputs")
_INPUT_KEYS = ("name", "datatype", "shape", "parameters", "data")
_OUTPUT_KEYS = ("name", "parameters")
_SIZE, _AS_BINARY, _ALL_BINARY = "binary_data_size", "binary_data", "binary_data_output"


@dataclasses.dataclass
class InferRequest:
    """A request.

    Args:
        arrays: dict of input name to array.
        id: str or None.
        names: list of names of outputs; [] for all.
        binary: dict of the names of outputs to whether they are binary.
        all_binary: bool: for outputs that are not named.
    """

    arrays: dict[str, np.ndarray]
    id: str | None
    names: list[str]
    binary: dict[str, bool]
    all_binary: bool


def read_infer(body: bytes, length: str | None) -> InferRequest:
    """Parses a body.

    Args:
        body: bytes.
        length: str or None: value of `Inference-Header-Content-Length`, the size of the JSON before binary tensors.

    Raises:
        RequestError: 400 names what is wrong.
    """
    view = memoryview(body)
    size = _length(length, len(view))
    request = read_object(view[:size])
    _check_keys(request, _KEYS, "a request")
    inputs = request.get("inputs")
    if not isinstance(inputs, list):
        raise RequestError(400, "'inputs' must be a list")
    arrays, rest = {}, view[size:]
    for given in inputs:
        name, array, rest = _input(given, rest)
        if name in arrays:
            raise RequestError(400, f"input '{name:.80}' is given twice")
        arrays[name] = array
    if rest:
        raise RequestError(400, f"{len(rest)} bytes after the last input")
    parameters = _parameters(request, (_ALL_BINARY,))
    names, binary = _outputs(request.get("outputs"))
    asked = request.get("id")
    if asked is not None and not isinstance(asked, str):
        raise RequestError(400, "'id' must be text")
    return InferRequest(arrays, asked, names, binary, _flag(parameters, _ALL_BINARY, False))


def write_infer(name: str, request: InferRequest, outputs: dict[str, np.ndarray]) -> tuple[bytes, dict[str, str]]:
    """Returns the body of a response, and its headers.

    Args:
        name: str: name of the model.
        request: `InferRequest`.
        outputs: dict of name to array.
    """
    records, contents = [], []
    for each, array in outputs.items():
        record: JsonObject = {"name": each, "datatype": datatype_of(array), "shape": array.shape}
        if request.binary.get(each, request.all_binary):
            contents.append(to_bytes(array))
            record["parameters"] = {_SIZE: len(contents[-1])}
        else:
            record["data"] = array.ravel()
        records.append(record)
    head = {"model_name": name, "model_version": VERSION}
    if request.id is not None:
        head["id"] = request.id
    content = to_json({**head, "outputs": records})
    if not contents:
        return content, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(len(content))}
    return b"".join([content, *contents]), headers


def _length(length: str | None, size: int) -> int:
    if length is None:
        return size
    if not (length.isascii() and length.isdigit() and len(length) < 19 and int(length) <= size):
        raise RequestError(400, f"{LENGTH_HEADER} must be the size of the JSON, at most {size}")
    return int(length)


def _check_keys(given: object, known: tuple[str, ...], what: str) -> None:
    if not isinstance(given, dict):
        raise RequestError(400, f"{what} must be an object")
    for key in given:
        if key not in known:
            raise RequestError(400, f"unknown key '{key:.40}'; {what} has {', '.join(known)}")


def _parameters(given: JsonObject, known: tuple[str, ...]) -> JsonObject:
    parameters = given.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError(400, "'parameters' must be an object")
    for key in parameters:
        if key not in known:
            raise RequestError(400, f"the parameter '{key:.40}' is not supported; supported: {', '.join(known)}")
    return parameters


def _flag(parameters: JsonObject, name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(400, f"the parameter '{name}' must be true or false")
    return value


def _input(given: Any, rest: memoryview) -> tuple[str, np.ndarray, memoryview]:
    """Name and array of an input, and the binary content of the others."""
    _check_keys(given, _INPUT_KEYS, "an input")
    name, datatype, shape = (given.get(key) for key in ("name", "datatype", "shape"))
    check_tensor(name, datatype, shape)
    parameters = _parameters(given, (_SIZE,))
    if _SIZE not in parameters:
        if "data" not in given:
            raise RequestError(400, f"input '{name:.80}' has neither 'data' nor '{_SIZE}'")
        return name, from_lists(name, datatype, shape, given["data"]), rest
    size = parameters[_SIZE]
    if type(size) is not int or not 0 <= size <= len(rest):
        raise RequestError(400, f"input '{name:.80}': '{_SIZE}' must be a number of bytes, at most {len(rest)}")
    if "data" in given:
        raise RequestError(400, f"input '{name:.80}' has both 'data' and '{_SIZE}'")
    return name, from_bytes(name, datatype, shape, rest[:size]), rest[size:]


def _outputs(given: object) -> tuple[list[str], dict[str, bool]]:
    if given is not None and not isinstance(given, list):
        raise RequestError(400, "'outputs' must be a list")
    binary: dict[str, bool] = {}
    names = []
    for each in given or []:
        _check_keys(each, _OUTPUT_KEYS, "an output")
        if not isinstance(each.get("name"), str):
            raise RequestError(400, "each output needs a 'name'")
        names.append(each["name"])
        parameters = _parameters(each, (_AS_BINARY,))
        if _AS_BINARY in parameters:
            binary[each["name"]] = _flag(parameters, _AS_BINARY, False)
    return names, binary
