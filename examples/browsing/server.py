"""A server of a corpus on the loopback interface."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from browsing.corpus import Corpus
from browsing.errors import PageError
from browsing.full_text import FullTextIndex

_MAX_RESULTS = 50


class Searches(Protocol):
    """Search among the pages of a corpus, such as `FullTextIndex`."""

    def search(self, query: str, count: int) -> list[int]:
        """Returns indices of pages, best first."""
        ...


class CorpusServer:
    """Serves the pages of a corpus, and a search among them, to this machine alone.

    It listens on 127.0.0.1, on a port that the system chooses, and answers only requests whose `Host` is that origin. It is
    a context manager: outside of `with`, or before `start` and after `close`, it does not listen.

    Args:
        corpus: `Corpus`.
        index: the search: `FullTextIndex`, or another object with its `search`. None (default) for a new
            `FullTextIndex` of the pages.

    Attributes:
        origin: str. Such as "http://127.0.0.1:40321".

    Raises:
        ImportError: `index` is None, and bm25s is not installed.

    `GET /ADDRESS` answers with the file, and `GET /search?query=WORDS&count=5` with JSON, a list of `{"address", "title"}`.

    Example:

    >>> import pathlib
    >>> from browsing import CorpusClient
    >>> _ = pathlib.Path("cats.html").write_text("<title>Cats</title><p>They sleep.")
    >>> class Everything:
    ...     def search(self, query, count):
    ...         return [0]
    >>> with CorpusServer(Corpus("."), Everything()) as server:
    ...     client = CorpusClient(server.origin)
    ...     client.page("cats.html").lines
    ('They sleep.',)
    """

    def __init__(self, corpus: Corpus, index: Searches | None = None) -> None:
        pages = list(corpus.pages())
        self.corpus = corpus
        self.index: Searches = FullTextIndex.of_pages(pages) if index is None else index
        self._titles = {page.address: page.title for page in pages}
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.origin = ""

    def __enter__(self) -> CorpusServer:
        return self.start()

    def __exit__(self, *error: Any) -> None:
        self.close()

    def start(self) -> CorpusServer:
        """Listens until `close`, and returns the server."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{server.server_address[1]}"
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stops listening."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None
        self.origin = ""

    def results(self, query: str, count: int) -> list[dict[str, str]]:
        """The results of a search: a list of dicts of "address" and "title", best first."""
        found = self.index.search(query, min(count, _MAX_RESULTS))
        addresses = [self.corpus.addresses[index] for index in found]
        return [{"address": address, "title": self._titles[address]} for address in addresses]


def _handler(server: CorpusServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            # A page of another site that resolves its name to 127.0.0.1 sends its own name as the host.
            if f"http://{self.headers.get('Host', '')}" != server.origin:
                self.send_error(403)
                return
            parts = urlsplit(self.path)
            try:
                if parts.path == "/search":
                    self._answer("application/json", self._results(parts.query))
                else:
                    self._answer("text/html; charset=utf-8", server.corpus.html(unquote(parts.path)[1:]))
            except PageError:
                self.send_error(404)
            except ValueError:
                self.send_error(400)

        def _results(self, query: str) -> bytes:
            given = parse_qs(query)
            count = int(given.get("count", ["5"])[0])
            if count < 1:
                raise ValueError("count")
            return json.dumps(server.results(given.get("query", [""])[0], count)).encode()

        def _answer(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Logs nothing."""

    return Handler
