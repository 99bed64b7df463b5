"""Error responses in the form that the clients of a path expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

BUSY, UNAVAILABLE = 429, 503


def refusal(
    status: int,
    reason: str,
    parameter: str | None = None,
    path: str = "",
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Returns an error response.

    Args:
        status: int: HTTP status.
        reason: str.
        parameter: str or None: name of the invalid parameter.
        path: str: path of the request. Below `/v2` the form is that of the Open Inference Protocol, otherwise OpenAI's.
        headers: dict of further headers.

    Example:

    >>> refusal(404, "no such model", path="/v2/models/a").body
    b'{"error":"no such model"}'
    """
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == BUSY else "invalid_request_error"
    content: str | dict[str, str | None] = {"message": reason, "type": kind, "param": parameter, "code": str(status)}
    if path == "/v2" or path.startswith("/v2/"):
        content = reason
    retry = {"Retry-After": "1"} if status in (BUSY, UNAVAILABLE) else {}
    return JSONResponse({"error": content}, status, headers={**retry, **(headers or {})})


def refuse_http(request: Request, error: Any) -> Response:
    """The response to a Starlette `HTTPException`, such as an unknown path."""
    return refusal(error.status_code, str(error.detail), path=request.url.path, headers=error.headers)


def hide_failure(request: Request, error: Exception) -> Response:
    """The response to an unexpected error, without its message."""
    return refusal(500, f"the server failed: {type(error).__name__}", path=request.url.path)
