"""Facts of documentation, and the searcher that shows how to find them."""

from dataclasses import replace

import pytest

from browsing import Browser, BrowserLimits, demonstrate, sphinx_facts


@pytest.fixture(scope="module")
def facts(site):
    return {(fact.name, fact.kind): fact for fact in sphinx_facts(site.pages())}


def test_facts_are_those_of_the_own_lines_of_entries(facts):
    assert {key: (fact.answer, fact.quote, fact.line, fact.end) for key, fact in facts.items()} == {
        ("cats.purr", "added"): ("1.4", "New in version 1.4.", 4, 9),
        ("cats.purr", "default"): ("3", "volume=3", 4, 9),
        ("cats.purr.stop", "added"): ("2.1", "New in version 2.1.", 6, 8),
    }
    assert facts["cats.purr", "default"].question == "What is the default of volume in cats.purr?"


def quoted(client, *actions):
    browser = Browser(client, "Which version added cats.purr?")
    for action in ("search Purrs", "open 1", *actions):
        browser.act(action)
    return browser.state.quotes


def test_a_proven_answer_has_the_passage_of_the_entry(facts, client):
    fact = facts["cats.purr", "added"]
    right = quoted(client, "quote New in version 1.4.")
    assert fact.is_proven(" 1.4 ", right, client)
    assert not fact.is_proven("1.5", right, client)
    assert not fact.is_proven("1.4", (), client)
    assert not fact.is_proven("1.4", quoted(client, "quote version 1.4."), client)
    # The passage of the inner entry is within the outer one, and is another passage.
    inner = quoted(client, "quote New in version 2.1.")
    assert facts["cats.purr.stop", "added"].is_proven("2.1", inner, client)
    assert not fact.is_proven("1.4", inner, client)
    # A quote that nobody can find in its page proves nothing, not even beside a true one.
    for change in ({"text": "New in version 1.4. Yes."}, {"address": "lost.html"}, {"line": 2}, {"address": "../x"}):
        forged = (replace(right[0], **change),)
        assert not fact.is_proven("1.4", forged, client)
        assert not fact.is_proven("1.4", right + forged, client)


def test_the_searcher_finds_the_passage(facts, client):
    fact = facts["cats.purr.stop", "added"]
    # The stand-in for full-text search finds texts that contain the query.
    fact = replace(fact, name="stop")
    episode = demonstrate(Browser(client, fact.question, BrowserLimits(max_state=220)), fact)
    assert [step.action for step in episode.steps] == [
        *("search stop", "open 1", "find stop(", "quote New in version 2.1.", "end", "2.1"),
    ]
    assert fact.is_proven(episode.answer, episode.quotes, client)
    assert episode.reference_text == (
        "question: Which version added cats.purr.stop?\nquote: Cats; stop(); New in version 2.1.\nanswer: 2.1"
    )
    assert demonstrate(Browser(client, fact.question, BrowserLimits(max_actions=2)), fact) is None
    assert demonstrate(Browser(client, fact.question), replace(fact, address="index.html")) is None
