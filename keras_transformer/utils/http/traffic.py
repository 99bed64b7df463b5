"""The requests that a server has accepted, so that it can end when they are answered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Traffic:
    """Number of requests in progress, and whether further ones are refused.

    Args:
        max_requests: int >= 1: largest number of requests in progress, from the first byte of a body to the last of the
            response.

    Example:

    >>> traffic = Traffic(max_requests=1)
    >>> with traffic.request():
    ...     print(traffic.refused())
    (429, '1 requests are in progress: try again later')
    >>> traffic.is_draining = True
    >>> traffic.refused()
    (503, 'the server is shutting down')
    """

    def __init__(self, max_requests: int = 1024) -> None:
        self._max_requests = max_requests
        self.active = 0
        self.is_draining = False

    def refused(self) -> tuple[int, str] | None:
        """Status and reason if no further request is accepted now."""
        if self.is_draining:
            return 503, "the server is shutting down"
        if self.active >= self._max_requests:
            return 429, f"{self.active} requests are in progress: try again later"
        return None

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Context of an accepted request."""
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
