"""Full-text search."""

import math

import pytest

from browsing import CorpusError, CorpusServer, FullTextIndex, Page
from browsing.full_text import words

pytest.importorskip("bm25s")


def test_words_with_dots_count_as_their_parts_too():
    assert words("See json.dumps(obj), Naïve_1.") == ["see", "json.dumps", "json", "dumps", "obj", "naïve_1"]


def test_order_is_that_of_bm25():
    documents = ["a a b", "a c c c c c", "d", "b"]
    index = FullTextIndex(documents)

    def score(query, document):
        tokens, mean = document.split(), sum(len(each.split()) for each in documents) / 4
        total = 0.0
        for word in query.split():
            count, holders = tokens.count(word), sum(word in each.split() for each in documents)
            weight = math.log(1 + (4 - holders + 0.5) / (holders + 0.5))
            total += weight * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(tokens) / mean))
        return total

    for query in ("a", "a b", "c b", "a d"):
        expected = sorted(range(4), key=lambda index: -score(query, documents[index]))
        assert index.search(query, 9) == [each for each in expected if score(query, documents[each]) > 0]
    assert index.search("a b", 1) == [0]
    assert index.search("unknown", 3) == []
    assert len(index) == 4


def test_pages_are_found_by_titles_and_anchors(site):
    with CorpusServer(site) as server:
        assert server.results("cats.nap", 5)[0] == {"address": "animals/cats.html", "title": "Cats"}
    index = FullTextIndex.of_pages([Page("a", "Dogs", ("Bark.",)), Page("b", "Cats", ("Nap.",))])
    assert index.search("dogs", 2) == [0]
    with pytest.raises(CorpusError):
        FullTextIndex(["", "..."])
