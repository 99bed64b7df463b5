"""A client that asks one corpus on the loopback interface, and nothing else."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections import OrderedDict
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

from browsing.actions import is_control
from browsing.errors import CorpusError, ForbiddenAddressError, PageError
from browsing.pages import Link, Page, read_html

_CHUNK = 65536
# The address of search results, which is no page of the corpus.
SEARCH = "search"


class CorpusClient:
    """Reads pages of one `CorpusServer`.

    Every request goes to the origin of the constructor, whatever a link says: an address of another scheme, host or port,
    with user information, or encoded to look like another one is refused before anything is sent. Redirects are refused,
    and proxies of the environment are not used.

    Args:
        origin: str. Such as "http://127.0.0.1:40321": http, the address 127.0.0.1 and a port.
        max_bytes: int >= 1. Largest page. Default 4,000,000.
        seconds: float > 0. Longest time for a page. Default 10.
        max_pages: int >= 1. Number of pages that are kept in memory, as text. Default 512.

    Raises:
        CorpusError: an argument is out of range.
        ForbiddenAddressError: the origin is not of the form above.

    Example: see `CorpusServer`.

    >>> CorpusClient("http://127.0.0.1:8000").resolve("library/json.html", "../index.html#start")
    ('index.html', 'start')
    """

    def __init__(self, origin: str, *, max_bytes: int = 4_000_000, seconds: float = 10.0, max_pages: int = 512) -> None:
        found = re.fullmatch(r"http://127\.0\.0\.1:([0-9]{1,5})", origin)
        if not found or not 1 <= int(found[1]) <= 65535:
            raise ForbiddenAddressError(f"origin must be http://127.0.0.1:PORT. Received: {origin[:100]!r}")
        for name, value in (("max_bytes", max_bytes), ("seconds", seconds), ("max_pages", max_pages)):
            if not value > 0:
                raise CorpusError(f"{name} must be above 0. Received: {value!r}")
        self.origin, self._port = origin, int(found[1])
        self.max_bytes, self.seconds, self.max_pages = max_bytes, seconds, max_pages
        self._pages: OrderedDict[str, Page] = OrderedDict()

    def resolve(self, base: str, target: str) -> tuple[str, str]:
        """Resolves the target of a link.

        Args:
            base: str. The address of the page with the link; "" for the root.
            target: str. A relative or absolute URL.

        Returns:
            `(address, fragment)`, str: the address in the corpus, and the part after "#", or "".

        Raises:
            ForbiddenAddressError: the target is not in the corpus, or is written in an unusual way: control characters,
                spaces, backslashes, encoded slashes or dots, double encoding.
        """
        if any(is_control(each) or each.isspace() or each == "\\" for each in target):
            raise ForbiddenAddressError(f"Forbidden characters in the address {target[:100]!r}.")
        if "//" in target.removeprefix(f"{self.origin}/"):
            raise ForbiddenAddressError(f"The address {target[:100]!r} names an origin, or has an empty part.")
        try:
            url = urljoin(f"{self.origin}/{quote(base)}", target)
            parts = urlsplit(url)
            origin = f"{parts.scheme}://{parts.netloc}"
        except ValueError as error:
            raise ForbiddenAddressError(f"Invalid address {target[:100]!r}: {error}") from None
        if origin != self.origin or not url.startswith(f"{self.origin}/"):
            raise ForbiddenAddressError(f"The address {target[:100]!r} is outside of {self.origin}.")
        if parts.query:
            raise ForbiddenAddressError(f"The address {target[:100]!r} has a query.")
        address = self._plain_path(parts.path, target)
        return address, unquote(parts.fragment)

    def _plain_path(self, path: str, target: str) -> str:
        address = unquote(path)[1:]
        unusual = re.search(r"%2e|%2f|%5c|%25|%00", path.lower()) or any(map(is_control, address))
        if unusual or "\\" in address or any(part in ("", ".", "..") for part in address.split("/")):
            raise ForbiddenAddressError(f"The address {target[:100]!r} is no plain path.")
        if address == SEARCH:
            raise ForbiddenAddressError("A search is no page: links to it are refused.")
        return address

    def page(self, address: str) -> Page:
        """Reads a page of the corpus.

        Args:
            address: str. As in `Corpus.addresses`.

        Raises:
            ForbiddenAddressError: the address is outside the corpus, or the server redirects.
            PageError: the page does not exist, is not HTML, or is above a limit.
        """
        if self.resolve("", quote(address))[0] != address:
            raise ForbiddenAddressError(f"The address {address[:100]!r} is no plain path.")
        if address not in self._pages:
            content = self._get(f"/{quote(address)}", "text/html")
            self._pages[address] = read_html(address, content.decode("utf-8", errors="replace"))
            if len(self._pages) > self.max_pages:
                self._pages.popitem(last=False)
        self._pages.move_to_end(address)
        return self._pages[address]

    def search(self, query: str, count: int) -> Page:
        """Searches the corpus.

        Args:
            query: str.
            count: int >= 1.

        Returns:
            `Page` with the address "search", and one line and one link for each result, best first.

        Raises:
            PageError: the server does not answer with results.
        """
        content = self._get(f"/search?{urlencode({'query': query, 'count': count})}", "application/json")
        try:
            results = [(str(each["address"]), str(each["title"])) for each in json.loads(content)]
        except (ValueError, TypeError, KeyError):
            raise PageError("The server did not answer with results.") from None
        lines = tuple(f"{_line(title)} ({_line(address)})" for address, title in results)
        links = tuple(Link("/" + quote(address), line, len(lines[line])) for line, (address, _) in enumerate(results))
        return Page(SEARCH, "search results", lines, links, ())

    def _get(self, path: str, kind: str) -> bytes:
        deadline = time.monotonic() + self.seconds
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self.seconds)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if 300 <= response.status < 400:
                raise ForbiddenAddressError(f"The server redirects {path[:100]!r}.")
            if response.status != 200:
                raise PageError(f"The server answers {path[:100]!r} with status {response.status}.")
            if response.headers.get_content_type() != kind:
                raise PageError(f"{path[:100]!r} is not {kind}.")
            return self._read(response, path, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise PageError(f"{path[:100]!r} cannot be read: {error or type(error).__name__}") from None
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse, path: str, deadline: float) -> bytes:
        content = bytearray()
        while chunk := response.read1(_CHUNK):
            content += chunk
            if len(content) > self.max_bytes:
                raise PageError(f"{path[:100]!r} has more than {self.max_bytes} bytes.")
            if time.monotonic() > deadline:
                raise PageError(f"{path[:100]!r} takes more than {self.seconds} seconds.")
        return bytes(content)


def _line(text: str) -> str:
    """A text of a server as one line without control characters."""
    return "".join(" " if each.isspace() or is_control(each) else each for each in text)
