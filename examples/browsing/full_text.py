"""Full-text search by BM25."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from browsing.errors import CorpusError
from browsing.pages import Page


class FullTextIndex:
    """BM25 index over documents, by the library bm25s.

    Words are lowercase. A word with dots, such as "json.dumps", also counts as each of its parts.

    Args:
        documents: iterable of str.

    Raises:
        ImportError: bm25s is not installed.
        CorpusError: there is no document with a word.

    Example:

    ```
    index = FullTextIndex(["cats sleep a lot", "json.dumps writes JSON"])
    index.search("who dumps", 5)  # [1]
    ```

    Reference: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009; k1 = 1.5, b = 0.75, with
        the inverse document frequencies of Lucene.
    """

    def __init__(self, documents: Iterable[str]) -> None:
        self._index = _library().BM25(k1=1.5, b=0.75, method="lucene", backend="numpy")
        tokens = [words(document) for document in documents]
        if not any(tokens):
            raise CorpusError("There is no document with a word.")
        self._index.index(tokens, show_progress=False)
        self._size = len(tokens)

    @classmethod
    def of_pages(cls, pages: Iterable[Page]) -> FullTextIndex:
        """The index of pages: of their titles, their lines and the anchors of their sections."""
        return cls(
            " ".join([page.title, page.text, *(each.anchor for each in page.sections if each.is_definition)])
            for page in pages
        )

    def __len__(self) -> int:
        return self._size

    def search(self, query: str, count: int) -> list[int]:
        """Finds documents.

        Args:
            query: str.
            count: int >= 1.

        Returns:
            List of int, at most `count`: the indices of documents with words of the query, best first.
        """
        found = sorted(set(words(query)) & self._index.vocab_dict.keys())
        if not found:
            return []
        scores = self._index.get_scores(found)
        order = np.argsort(-scores, kind="stable")[:count]
        return [int(index) for index in order if scores[index] > 0]


def words(text: str) -> list[str]:
    """The words of a text as the index counts them."""
    result = []
    for word in re.findall(r"\w+(?:\.\w+)*", text.lower()):
        result.append(word)
        if "." in word:
            result += word.split(".")
    return result


def _library() -> Any:
    try:
        import bm25s
    except ImportError:
        raise ImportError("Full-text search needs bm25s: pip install bm25s.") from None
    return bm25s
