"""The pieces of the browsing example, on the corpus that it writes."""

import argparse

import numpy as np
import pytest

import browsing

pytestmark = pytest.mark.exhaustive
pytest.importorskip("bm25s")


@pytest.fixture(scope="module")
def example(example_module):
    return example_module("browsing_answers")


@pytest.fixture(scope="module")
def shown(example, tmp_path_factory):
    """The client, and the facts of each part with the episodes of the searcher."""
    folder = tmp_path_factory.mktemp("corpus")
    example.write_corpus(folder)
    corpus = browsing.Corpus(folder, example.is_content)
    with browsing.CorpusServer(corpus) as server:
        client = browsing.CorpusClient(server.origin)
        parts = example.split_facts(browsing.sphinx_facts(corpus.pages()), argparse.Namespace(seed=0, facts=64))
        yield client, example.demonstrate_all(parts, client), list(corpus.pages())


def test_the_searcher_finds_every_fact_and_no_name_is_in_two_parts(shown):
    client, parts, _ = shown
    assert sum(map(len, parts.values())) == 64
    names = [{fact.name for fact, _ in pairs} for pairs in parts.values()]
    assert sum(map(len, names)) == len(set.union(*names)) == 32
    assert all(fact.is_proven(each.answer, each.quotes, client) for pairs in parts.values() for fact, each in pairs)


def test_answers_count_with_true_quotes_alone(example, shown):
    client, parts, _ = shown
    facts, episodes = map(list, zip(*parts["cloning"], strict=True))
    assert example.measure(facts, episodes, client) == {"right": 1.0, "proven": 1.0}
    without = [browsing.Episode(each.question, each.steps, (), each.answer) for each in episodes]
    assert example.measure(facts, without, client) == {"right": 1.0, "proven": 0.0}


class Reader:
    """Stands in for a language model that writes the same each time."""

    def __init__(self, text):
        self.text = text

    def generator(self):
        return self

    def generate(self, prompts, **options):
        return [self.text] * len(prompts)


def test_readers_are_held_to_what_they_were_shown(example, shown):
    _, parts, pages = shown
    fact = next(fact for fact, _ in parts["cloning"] if fact.kind == "added")
    page = next(page for page in pages if page.address == fact.address)
    whole, other = browsing.Passage(page, 0, len(page.text)), browsing.Passage(page, 0, 20)
    right = Reader(f"{fact.quote} => {fact.answer}")
    assert example.measure_reader(right, [fact], None) == {"right": 1.0, "proven": 1.0}
    assert example.measure_reader(right, [fact], lambda _: other) == {"right": 1.0, "proven": 0.0}
    assert example.measure_reader(Reader(f"{fact.quote} => 9.9"), [fact], lambda _: whole)["right"] == 0.0


def test_comparisons_are_between_proven_and_other_answers(example, shown):
    client, parts, _ = shown
    fact, episode = parts["cloning"][0]
    *before, last = episode.steps
    wrong = browsing.Episode(episode.question, (*before, browsing.Step(last.prompt, "9.9")), episode.quotes, "9.9")
    first, second, labels = example.comparisons([fact] * 2, [[episode, wrong, episode], [wrong, wrong]], client, 0)
    assert len(labels) == 1
    better, worse = (first[0], second[0]) if labels[0] else (second[0], first[0])
    assert (better, worse) == (episode.reference_text, wrong.reference_text)
    assert example.comparisons([fact] * 20, [[episode, wrong]] * 20, client, 0)[2].mean() not in (0.0, 1.0)


def test_the_nearest_chunk_is_a_passage_of_its_page(example, shown, tmp_path):
    from keras_transformer import text

    _, parts, pages = shown
    tokenizer = text.BytePair.train([page.text for page in pages], 400)
    retrieve = example.nearest_chunks(pages, tokenizer, argparse.Namespace(out=tmp_path))
    passages = [retrieve(fact) for fact, _ in parts["cloning"][:5]]
    assert all(passage.text in passage.page.text and len(passage.text) > 20 for passage in passages)
    assert np.mean([fact.name in p.page.text for (fact, _), p in zip(parts["cloning"], passages, strict=False)]) > 0.3
