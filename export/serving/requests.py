"""Validation of HTTP requests before they reach a replica; errors have a status and a reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from keras_transformer.export.bundle.tokenizers import encode_texts
from keras_transformer.export.errors import ExportError, InputError, MissingLibraryError
from keras_transformer.export.runtime.inputs import check_inputs
from keras_transformer.utils.http.json_bodies import InvalidJsonError, parse_json
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.export.data.array_spec import ArraySpec
    from keras_transformer.text import Tokenizer

_KEYS = ("inputs", "signature_name")
# OpenAI's code of an unknown model.
MODEL_NOT_FOUND = "model_not_found"
# Bytes of a text that a token has at most, on average, in texts that are worth reading.
_BYTES_PER_TOKEN = 16


class RequestError(ExportError):
    """A rejected request. The message goes to the client, with the HTTP status.

    Args:
        status: int: HTTP status, 4xx for faults of the client, 5xx for faults of the server.
        reason: str, one line.
        code: str or None: OpenAI's code of the error; None for that of the status.
    """

    def __init__(self, status: int, reason: str, code: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.code = code

    def __reduce__(self) -> tuple[type[RequestError], tuple[int, str, str | None]]:
        return type(self), (self.status, self.reason, self.code)  # It is pickled from a replica to a gateway.


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Args:
        max_bytes: int >= 1: size of a body. Default 4 MiB.
        max_examples: int >= 1: examples in one request. Default 256.
        timeout_s: float > 0: seconds until a request fails with 504. Default 60.
        read_s: float > 0: seconds in which a body must arrive, or the request fails with 408. Default 30.
        max_tokens: int >= 1: tokens of a sequence. Attention needs memory that grows with their square, so that the number
            of examples times the square of their length is at most the square of this number. Default 4,096.

    Raises:
        ExportError: a value is out of range.

    Example:

    >>> Limits(max_examples=8).timeout_s
    60.0
    """

    max_bytes: int = 4 << 20
    max_examples: int = 256
    timeout_s: float = 60.0
    read_s: float = 30.0
    max_tokens: int = 4096

    def __post_init__(self) -> None:
        counts = ("max_bytes", "max_examples", "max_tokens")
        for name in (*counts, "timeout_s", "read_s"):
            kinds = int if name in counts else (int, float)
            value = getattr(self, name)
            if not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value < 2**62:
                raise ExportError(f"{name} must be positive. Received: {value!r}")


@dataclasses.dataclass
class Reader:
    """Bodies of requests as arrays, as in the columnar format of TensorFlow Serving's REST API.

    A body is a JSON object: "inputs", an object of nested lists by input name, or the list itself where there is one input,
    or texts where the bundle has a tokenizer; and "signature_name", which may be left out.

    Args:
        signatures: dict of name to inputs, tuples of `ArraySpec`; the first is the one that is meant where none is named.
        limits: `Limits`.
        tokenizer: the tokenizer of the bundle, or None.
        tokenizer_options: dict of its options.

    Example:

    >>> from keras_transformer.export import ArraySpec
    >>> reader = Reader({"serve": (ArraySpec("x", "float32", (None, 2), ("batch", None)),)}, Limits())
    >>> signature, arrays = reader.read(b'{"inputs": [[1, 2], [3, 4]]}')
    >>> signature, arrays["x"].tolist()
    ('serve', [[1.0, 2.0], [3.0, 4.0]])
    """

    signatures: Mapping[str, Sequence[ArraySpec]]
    limits: Limits
    tokenizer: Tokenizer | None = None
    tokenizer_options: JsonObject = dataclasses.field(default_factory=dict)

    def read(self, body: bytes | str) -> tuple[str, dict[str, np.ndarray]]:
        """Parses a body into a signature and arrays.

        Args:
            body: bytes.

        Returns:
            Name of the signature, and dict of input name to array.

        Raises:
            RequestError: 400 if the body is not a JSON request; 413 if it is too large.
        """
        request = _read_json(body, self.limits)
        for key in request:
            if key not in _KEYS:
                raise RequestError(400, f"unknown key '{key:.40}'; a request has {' and '.join(_KEYS)}")
        signature = request.get("signature_name", next(iter(self.signatures)))
        if not isinstance(signature, str) or signature not in self.signatures:
            raise RequestError(400, f"no such signature_name; there is {', '.join(self.signatures)}")
        if "inputs" not in request:
            raise RequestError(400, "'inputs' is missing")
        return signature, self.check(signature, self._named(request["inputs"], self.signatures[signature]))

    def check(self, signature: str, named: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Checks the inputs of a signature.

        Args:
            signature: str.
            named: dict of input name to array or nested lists.

        Returns:
            Dict of input name to array.

        Raises:
            RequestError: 400 if they are not the inputs of the signature; 413 for too many examples.
        """
        specs = self.signatures[signature]
        try:
            arrays = check_inputs(specs, named)
        except InputError as error:
            raise RequestError(400, str(error)) from None
        self._check_sizes(specs, arrays)
        examples, rows = max((len(each) for each in arrays.values() if each.ndim), default=1), self._rows(specs, arrays)
        if examples > rows:
            raise RequestError(
                413, f"{examples} sequences of {self._length(specs, arrays)} tokens at once; at most {rows}"
            )
        return arrays

    def read_texts(self, signature: str, texts: str | list[str]) -> list[dict[str, np.ndarray]]:
        """The inputs of a signature for texts, in as many parts as keep `Limits.max_tokens`.

        Raises:
            RequestError: 400 if they are not texts for the signature; 413 for too many, or one that is too long.
        """
        specs = self.signatures[signature]
        arrays = check_inputs(specs, self._encoded(texts, specs))
        self._check_sizes(specs, arrays)
        count, rows = max(len(each) for each in arrays.values()), self._rows(specs, arrays)
        return [{name: each[start : start + rows] for name, each in arrays.items()} for start in range(0, count, rows)]

    def _length(self, specs: Sequence[ArraySpec], arrays: dict[str, np.ndarray]) -> int:
        """The tokens of a sequence: the largest size of a dynamic axis of integers behind that of the batch."""
        sizes = [
            size
            for spec in specs
            if np.dtype(arrays[spec.name].dtype).kind in "iu"
            for axis, size in list(zip(spec.axes, arrays[spec.name].shape, strict=True))[1:]
            if axis is not None
        ]
        return max(sizes, default=0)

    def _rows(self, specs: Sequence[ArraySpec], arrays: dict[str, np.ndarray]) -> int:
        """How many sequences of this length may be computed at once."""
        length = self._length(specs, arrays)
        return max(self.limits.max_tokens**2 // length**2, 1) if length else self.limits.max_examples

    def _named(self, inputs: Any, specs: Sequence[ArraySpec]) -> dict[str, Any]:
        """Inputs by name."""
        if isinstance(inputs, str) or (isinstance(inputs, list) and inputs and isinstance(inputs[0], str)):
            return self._encoded(inputs, specs)
        if isinstance(inputs, dict):
            return inputs
        if len(specs) != 1:
            names = ", ".join(spec.name for spec in specs)
            raise RequestError(400, f"'inputs' must be an object with {names}")
        return {specs[0].name: inputs}

    def _encoded(self, texts: Any, specs: Sequence[ArraySpec]) -> dict[str, np.ndarray]:
        texts = [texts] if isinstance(texts, str) else texts
        if len(texts) > self.limits.max_examples:
            raise RequestError(413, f"{len(texts)} examples at once; at most {self.limits.max_examples}")
        if not all(isinstance(text, str) for text in texts):
            raise RequestError(400, "'inputs' mixes texts with something else")
        if any(spec.dtype == "string" for spec in specs):
            return {specs[0].name: texts}
        try:
            return encode_texts(texts, self.tokenizer, self.tokenizer_options, specs)
        except MissingLibraryError:
            raise
        except ExportError as error:
            raise RequestError(400, str(error)) from None

    def _check_sizes(self, specs: Sequence[ArraySpec], arrays: dict[str, np.ndarray]) -> None:
        length = self._length(specs, arrays)
        if length > self.limits.max_tokens:
            raise RequestError(413, f"a sequence of {length} tokens; at most {self.limits.max_tokens}")
        for spec in specs:
            array = arrays[spec.name]
            if array.size == 0:
                raise RequestError(400, f"input '{spec.name}' is empty: {array.shape}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise RequestError(400, f"input '{spec.name}' has a number that is too large for {spec.dtype}")
            if array.dtype.kind == "U" and array.dtype.itemsize // 4 > _BYTES_PER_TOKEN * self.limits.max_tokens:
                most = _BYTES_PER_TOKEN * self.limits.max_tokens
                raise RequestError(413, f"a text of {array.dtype.itemsize // 4} characters; at most {most}")
            if spec.axes[:1] == ("batch",) and len(array) > self.limits.max_examples:
                raise RequestError(413, f"{len(array)} examples at once; at most {self.limits.max_examples}")


def _read_json(body: bytes | str, limits: Limits) -> JsonObject:
    if len(body) > limits.max_bytes:
        raise RequestError(413, f"the body has more than {limits.max_bytes} bytes")
    return read_object(body)


def read_object(body: bytes | str | memoryview) -> JsonObject:
    """The JSON object of a body.

    Raises:
        RequestError: the body is something else.
    """
    try:
        request = parse_json(body, max_depth=None)  # numpy refuses what is nested deeper than an array may be.
    except InvalidJsonError as error:
        raise RequestError(400, f"the body is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise RequestError(400, "the body must be a JSON object")
    return request


def write_outputs(arrays: dict[str, np.ndarray]) -> bytes:
    """Returns outputs as the JSON of a response.

    Args:
        arrays: dict of name to array.

    Returns:
        bytes. NaN and infinities are null.
    """
    return to_json({"outputs": arrays})


def to_json(content: object) -> bytes:
    """Returns objects, lists and arrays as JSON; NaN and infinities are null."""
    return orjson.dumps(content, default=_as_lists, option=orjson.OPT_SERIALIZE_NUMPY)


def _as_lists(array: object) -> object:
    """Arrays of texts and other ones that orjson does not write itself."""
    if isinstance(array, np.ndarray):
        return array.tolist()
    raise TypeError(f"{type(array).__name__} is no JSON")
