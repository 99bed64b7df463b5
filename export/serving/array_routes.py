"""The routes of models of arrays, as in the columnar format of TensorFlow Serving's REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from keras_transformer.export.serving.requests import RequestError, write_outputs
from keras_transformer.export.serving.responses import while_connected

if TYPE_CHECKING:
    from keras_transformer.export.serving.calls import Calls


class ArrayRoutes:
    """`POST /v1/models/NAME:predict`.

    Args:
        calls: `Calls`.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def predict(self, request: Any) -> Response:
        """The response to a request."""
        model = self._calls.model(request.path_params["name"])
        if model.reader is None:
            raise RequestError(400, f"'{model.name}' is a language model: use /v1/completions")
        signature, arrays = model.reader.read(await request.body())
        outputs = await while_connected(request, self._calls.predict(model, signature, arrays))
        return Response(write_outputs(outputs), media_type="application/json")
