"""A folder of HTML files as a corpus."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

from browsing.errors import CorpusError, PageError
from browsing.pages import Page, read_html
from keras_transformer.utils.types import Path

_SUFFIXES = (".html", ".htm", ".xhtml")


class Corpus:
    """The HTML files of a folder.

    The files are listed once: a path that was not listed is never opened. Links of the file system that lead out of the
    folder are left out.

    Args:
        directory: str or path.
        include: function from an address, such as "library/json.html", to bool; or None (default) for every file.
        max_bytes: int >= 1. Larger files are left out. Default 4,000,000.

    Attributes:
        addresses: tuple of str, sorted.

    Raises:
        CorpusError: the folder contains no HTML file.

    Example:

    >>> import pathlib
    >>> pathlib.Path("site").mkdir()
    >>> _ = pathlib.Path("site/cats.html").write_text("<title>Cats</title><p>They sleep.")
    >>> corpus = Corpus("site")
    >>> corpus.addresses, corpus.page("cats.html").lines
    (('cats.html',), ('They sleep.',))
    """

    def __init__(
        self, directory: Path, include: Callable[[str], bool] | None = None, max_bytes: int = 4_000_000
    ) -> None:
        root = pathlib.Path(directory).resolve()
        self._paths = {}
        for path in sorted(root.rglob("*")) if root.is_dir() else ():
            address = path.relative_to(root).as_posix()
            if path.suffix.lower() not in _SUFFIXES or not path.resolve().is_relative_to(root):
                continue
            if path.is_file() and path.stat().st_size <= max_bytes and (include is None or include(address)):
                self._paths[address] = path
        if not self._paths:
            raise CorpusError(f"'{directory}' contains no HTML files.")
        self.addresses = tuple(self._paths)
        self._pages: dict[str, Page] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, address: str) -> bool:
        return address in self._paths

    def html(self, address: str) -> bytes:
        """The content of a file.

        Raises:
            PageError: the corpus has no such address.
        """
        if address not in self._paths:
            raise PageError(f"The corpus has no page {address[:100]!r}.")
        return self._paths[address].read_bytes()

    def page(self, address: str) -> Page:
        """A file as text, which is read once.

        Raises:
            PageError: the corpus has no such address.
        """
        if address not in self._pages:
            self._pages[address] = read_html(address, self.html(address).decode("utf-8", errors="replace"))
        return self._pages[address]

    def pages(self) -> Iterator[Page]:
        """Yields every page, one after another."""
        yield from map(self.page, self.addresses)
