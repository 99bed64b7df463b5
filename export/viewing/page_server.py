"""Serves one page to this machine."""

from __future__ import annotations

import http.server
import signal
import threading
from types import FrameType

LOOPBACK = "127.0.0.1"
# The page loads nothing, and no other page may frame it.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)


def page_server(text: str, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Returns a server of one page on the loopback address; `serve_forever` starts it.

    Args:
        text: HTML text.
        port: 0 for a free one.

    Raises:
        OSError: the port is taken.
    """
    content = text.encode("utf-8")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of another host name, which resolves to this machine, must not read it.
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (LOOPBACK, "localhost"):
                self.send_error(403)
            elif self.path != "/":
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Content-Security-Policy", _POLICY)
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return http.server.ThreadingHTTPServer((LOOPBACK, port), Handler)


def serve_until_interrupted(server: http.server.ThreadingHTTPServer) -> None:
    """Serves in the main thread until SIGINT, which is Ctrl+C, or SIGTERM."""

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown).start()  # It waits for the loop, which is in this thread.

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.serve_forever()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
