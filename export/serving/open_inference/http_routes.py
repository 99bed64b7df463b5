"""The Open Inference Protocol over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keras_transformer.export.serving.open_inference.http_body import LENGTH_HEADER, read_infer, write_infer
from keras_transformer.export.serving.open_inference.models import SERVER, VERSION, Models, wanted_outputs
from keras_transformer.export.serving.requests import RequestError
from keras_transformer.export.serving.responses import while_connected
from keras_transformer.export.serving.served_model import UNHEALTHY
from keras_transformer.utils.http.refusals import refusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from keras_transformer.export.serving.calls import Calls

_MODEL = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")


class OpenInferenceRoutes:
    """The routes below `/v2`.

    Args:
        calls: `Calls`.
        figures: function that raises if a model is not healthy.
    """

    def __init__(self, calls: Calls, figures: Callable[[], Awaitable[object]]) -> None:
        self._calls, self._figures = calls, figures
        self._models = Models(calls)

    def routes(self, counted: Callable[[Any], Any]) -> list[Route]:
        """Returns the routes.

        Args:
            counted: function that wraps the endpoint of `infer`.
        """
        infer = counted(self._infer)
        return [
            *(Route(f"{model}/infer", infer, methods=["POST"]) for model in _MODEL),
            Route("/v2", self._server),
            Route("/v2/health/live", self._live),
            Route("/v2/health/ready", self._ready),
            *(Route(f"{model}/ready", self._model_ready) for model in _MODEL),
            *(Route(model, self._model) for model in _MODEL),
            Route("/v2/repository/index", self._index, methods=["POST"]),
        ]

    async def _infer(self, request: Request) -> Response:
        name, version = request.path_params["name"], request.path_params.get("version", "")
        model, reader, signature = self._models.find_arrays(name, version)
        request.state.model = model.name
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RequestError(415, "compressed bodies are not supported")
        asked = read_infer(await request.body(), request.headers.get(LENGTH_HEADER))
        arrays = reader.check(signature, asked.arrays)
        wanted_outputs({spec.name: None for spec in model.outputs[signature]}, asked.names)
        outputs = await while_connected(request, self._calls.predict(model, signature, arrays))
        content, headers = write_infer(name, asked, wanted_outputs(outputs, asked.names))
        return Response(content, headers=headers)

    async def _server(self, request: Request) -> Response:
        return JSONResponse(SERVER)

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, request: Request) -> Response:
        try:
            await self._figures()
        except UNHEALTHY as error:
            return refusal(503, f"not ready: {type(error).__name__}", path=request.url.path)
        return JSONResponse({"ready": True})

    async def _model_ready(self, request: Request) -> Response:
        model, name = await self._described(request)
        if isinstance(model, Response):
            return model
        try:
            await model.replicas.is_healthy()
        except UNHEALTHY as error:
            return refusal(503, f"not ready: {type(error).__name__}", path=request.url.path)
        return JSONResponse({"name": name, "ready": True})

    async def _model(self, request: Request) -> Response:
        model, name = await self._described(request)
        return model if isinstance(model, Response) else JSONResponse(self._models.metadata(name))

    async def _described(self, request: Request) -> tuple[Any, str]:
        """The model of a path, or the refusal; and its name."""
        name = request.path_params["name"]
        try:
            return self._models.find(name, request.path_params.get("version", ""))[0], name
        except RequestError as error:
            return refusal(error.status, error.reason, path=request.url.path), name

    async def _index(self, request: Request) -> Response:
        return JSONResponse([{"name": name, "version": VERSION, "state": "READY"} for name in self._models.names])
