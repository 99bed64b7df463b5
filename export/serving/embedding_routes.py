"""The route of embeddings, as in OpenAI's API: vectors of texts, from a bundle with a tokenizer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from starlette.responses import Response

from keras_transformer.export.serving.requests import RequestError, to_json
from keras_transformer.export.serving.responses import while_connected
from keras_transformer.generation.engine.completions import InvalidBodyError, Parameters, read_object, read_values
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from starlette.requests import Request

    from keras_transformer.export.serving.calls import Calls
    from keras_transformer.export.serving.served_model import ServedModel

EMBEDDINGS = "/v1/embeddings"
# Outputs by name that are the vector of a text, the best one first; without any, the only output of vectors.
_OUTPUTS = ("embedding", "pooled")
_FORMATS = ("float", "base64")


def _is_texts(value: object) -> bool:
    texts = value if isinstance(value, list) else [value]
    return bool(texts) and all(isinstance(each, str) for each in texts)


_PARAMETERS: Parameters = {
    "model": (None, lambda value: isinstance(value, str), "the name of a model"),
    "input": (None, _is_texts, "text, or a list of texts"),
    "encoding_format": ("float", lambda value: value in _FORMATS, "'float' or 'base64'"),
    "user": (None, lambda value: isinstance(value, str), "text"),
}


class EmbeddingRoutes:
    """`POST /v1/embeddings`.

    Args:
        calls: `Calls`.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def embeddings(self, request: Request) -> Response:
        """The response to a request."""
        values = read_values(read_object(await request.body()), _PARAMETERS, {})
        if values["input"] is None:
            raise InvalidBodyError("'input' is missing.", "input")
        model = self._calls.model(values["model"])
        request.state.model = model.name
        if model.reader is None or model.reader.tokenizer is None:
            raise RequestError(400, f"'{model.name}' makes no embeddings: it is no encoder with a tokenizer")
        signature = next(iter(model.reader.signatures))
        output = _output(model, signature)
        parts = model.reader.read_texts(signature, values["input"])
        vectors = await while_connected(request, self._vectors(model, signature, parts, output))
        content = _content(model.name, vectors, values["encoding_format"], sum(map(_tokens, parts)))
        return Response(to_json(content), media_type="application/json")

    async def _vectors(
        self, model: ServedModel, signature: str, parts: Sequence[dict[str, np.ndarray]], output: str
    ) -> np.ndarray:
        """The vectors of all parts, one after another: each may take as much memory as a request may."""
        return np.concatenate([(await self._calls.predict(model, signature, each))[output] for each in parts])


def _output(model: ServedModel, signature: str) -> str:
    """The name of the output that is the vector of a text."""
    vectors = [
        spec.name for spec in model.outputs[signature] if len(spec.shape) == 2 and spec.dtype.startswith("float")
    ]
    named = [name for name in _OUTPUTS if name in vectors]
    if not named and len(vectors) != 1:
        raise RequestError(400, f"'{model.name}' makes no embeddings: no output is named {' or '.join(_OUTPUTS)}")
    return (named or vectors)[0]


def _tokens(arrays: dict[str, np.ndarray]) -> int:
    mask = arrays.get("padding_mask")
    return int(max(each.size for each in arrays.values()) if mask is None else mask.sum())


def _content(name: str, vectors: np.ndarray, encoding: str, tokens: int) -> JsonObject:
    found: list[np.ndarray | str] = list(vectors)
    if encoding == "base64":
        found = [base64.b64encode(each.astype("<f4").tobytes()).decode() for each in vectors]
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(found)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": name, "usage": usage}
