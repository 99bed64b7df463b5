"""The HTTP application of served models: it validates requests, has them computed, and says what went wrong."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keras_transformer.export.serving.calls import Calls
from keras_transformer.export.serving.embedding_routes import EMBEDDINGS, EmbeddingRoutes
from keras_transformer.export.serving.open_inference.http_routes import OpenInferenceRoutes
from keras_transformer.export.serving.openai_responses import RESPONSES, ResponseRoutes
from keras_transformer.export.serving.requests import MODEL_NOT_FOUND, Limits, RequestError, write_outputs
from keras_transformer.export.serving.responses import while_connected
from keras_transformer.export.serving.served_model import CHAT, COMPLETIONS, UNHEALTHY, ReplicaDiedError
from keras_transformer.export.serving.text_routes import TextRoutes
from keras_transformer.generation.engine.completions import InvalidBodyError
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.http.access import Access
from keras_transformer.utils.http.guard import Guard
from keras_transformer.utils.http.refusals import UNAVAILABLE, hide_failure, model_record, refusal, refuse_http
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from starlette.requests import Request

    from keras_transformer.export.serving.served_model import ServedModel

_LOG = logging.getLogger(__name__)
_CLIENT_GONE = 499
_HEALTH_S = 5


class Gateway:
    """An ASGI application in front of models.

    Args:
        models: list of `ServedModel`.
        limits: `Limits`, or None for its defaults.
        retries: int >= 0: how often a request is retried when its replica dies. 0 where none can die alone.
        access: `Access`, or None for the key of the environment, if there is one, and any host.

    Attributes:
        application: `Guard`: the application.
        calls: `Calls`: what the routes call.
    """

    def __init__(
        self,
        models: Sequence[ServedModel],
        limits: Limits | None = None,
        retries: int = 8,
        access: Access | None = None,
    ) -> None:
        limits = limits or Limits()
        self.calls = Calls(models, limits, retries)
        self._started = int(time.time())
        arrays, texts = ArrayRoutes(self.calls), TextRoutes(self.calls)
        open_inference = OpenInferenceRoutes(self.calls, self.figures)
        routes = [
            *open_inference.routes(self._counted),
            Route("/v1/models/{name}:predict", self._counted(arrays.predict), methods=["POST"]),
            Route(COMPLETIONS, self._counted(texts.completions), methods=["POST"]),
            Route(CHAT, self._counted(texts.chat), methods=["POST"]),
            Route(RESPONSES, self._counted(ResponseRoutes(texts).respond), methods=["POST"]),
            Route(EMBEDDINGS, self._counted(EmbeddingRoutes(self.calls).embeddings), methods=["POST"]),
            Route("/health", self._health),
            Route("/metrics", self._figures),
            Route("/v1/models", self._models),
            Route("/v1/models/{name}", self._model),
        ]
        handlers = {HTTPException: refuse_http, Exception: hide_failure}
        starlette = Starlette(routes=routes, exception_handlers=handlers)
        self.application = Guard(starlette, access or Access.of_address(""), limits.max_bytes, limits.read_s)

    def _counted(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint with metrics, and with errors as responses."""
        calls = self.calls

        async def counted(request):
            name = request.path_params.get("name")
            request.state.model = began = name if name in calls.models else calls.only_name
            calls.metrics.began(began)
            start, status = time.perf_counter(), 500
            try:
                response = await self._responded(handler, request)
                status = response.status_code
                return response
            except asyncio.CancelledError:
                status = _CLIENT_GONE
                raise
            except HTTPException as error:
                status = error.status_code
                raise
            finally:
                calls.metrics.ended(began, request.state.model, status, time.perf_counter() - start)

        return counted

    async def _responded(self, handler: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        path = request.url.path
        try:
            return await handler(request)
        except RequestError as error:
            return refusal(error.status, error.reason, path=path, code=error.code)
        except InvalidBodyError as error:
            return refusal(400, str(error), error.parameter, path=path)
        except ReplicaDiedError:
            return refusal(UNAVAILABLE, "every replica for this request has died", path=path)
        except TimeoutError:
            return refusal(504, f"no response within {self.calls.limits.timeout_s:g} seconds", path=path)
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except HTTPException:
            raise
        except Exception as error:  # The boundary of the server: its client gets no traceback, the log does.
            _LOG.exception("a request failed")
            return refusal(500, f"the server failed: {type(error).__name__}", path=path)

    async def figures(self) -> JsonObject:
        """The figures of healthy models; raises one of `UNHEALTHY`."""
        figures: JsonObject = {}
        async with asyncio.timeout(_HEALTH_S):
            for model in self.calls.models.values():
                figures[model.name] = await model.replicas.is_healthy() or {}
        return figures

    async def _health(self, request: Request) -> Response:
        try:
            figures = await self.figures()
        except UNHEALTHY as error:
            return JSONResponse({"status": "unavailable", "reason": one_line(error)}, UNAVAILABLE)
        return JSONResponse({"status": "ok", **figures.get(self.calls.only_name, {})})

    async def _models(self, request: Request) -> Response:
        data = [model_record(name, self._started) for name in self.calls.models]
        return JSONResponse({"object": "list", "data": data})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name.removesuffix(":predict") in self.calls.models and name.endswith(":predict"):
            return refusal(405, "a request is sent with POST")
        if name not in self.calls.models:
            reason = f"there is no model '{name:.80}'; there is {', '.join(self.calls.models)}"
            return refusal(404, reason, "model", code=MODEL_NOT_FOUND)
        return JSONResponse(self.calls.models[name].described | model_record(name, self._started))

    async def _figures(self, request: Request) -> Response:
        try:
            figures = await self.figures()
        except UNHEALTHY:  # The figures of requests are there all the same.
            figures = {}
        content, kind = self.calls.metrics.text(figures)
        return Response(content, headers={"content-type": kind})


class ArrayRoutes:
    """`POST /v1/models/NAME:predict`, in the columnar format of TensorFlow Serving's REST API.

    Args:
        calls: `Calls`.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def predict(self, request: Request) -> Response:
        """The response to a request."""
        model = self._calls.model(request.path_params["name"])
        if model.reader is None:
            raise RequestError(400, f"'{model.name}' is a language model: use /v1/completions")
        signature, arrays = model.reader.read(await request.body())
        outputs = await while_connected(request, self._calls.predict(model, signature, arrays))
        return Response(write_outputs(outputs), media_type="application/json")
