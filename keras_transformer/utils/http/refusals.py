"""Error responses in the form that the clients of a path expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

BUSY, UNAVAILABLE = 429, 503
# OpenAI's words for what clients tell apart; others are the number of the status.
_CODES = {
    400: "invalid_value",
    401: "invalid_api_key",
    413: "request_too_large",
    BUSY: "rate_limit_exceeded",
    500: "internal_error",
    UNAVAILABLE: "service_unavailable",
    504: "timeout",
}


def error_code(status: int) -> str:
    """Returns OpenAI's code of an HTTP status.

    Example:

    >>> error_code(401), error_code(405)
    ('invalid_api_key', '405')
    """
    return _CODES.get(status, str(status))


def model_record(name: str, created: int) -> dict[str, str | int]:
    """Returns the record of a model in OpenAI's list of models.

    Args:
        name: str.
        created: int. Seconds since 1970.
    """
    return {"id": name, "object": "model", "created": created, "owned_by": "user"}


def refusal(
    status: int,
    reason: str,
    parameter: str | None = None,
    path: str = "",
    headers: Mapping[str, str] | None = None,
    code: str | None = None,
) -> JSONResponse:
    """Returns an error response.

    Args:
        status: int: HTTP status.
        reason: str.
        parameter: str or None: name of the invalid parameter.
        path: str: path of the request. Below `/v2` the form is that of the Open Inference Protocol, otherwise OpenAI's.
        headers: dict of further headers.
        code: str or None: OpenAI's code of the error; None for that of the status.

    Example:

    >>> refusal(404, "no such model", path="/v2/models/a").body
    b'{"error":"no such model"}'
    """
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == BUSY else "invalid_request_error"
    word = code or error_code(status)
    content: str | dict[str, str | None] = {"message": reason, "type": kind, "param": parameter, "code": word}
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
