"""Episodes of many browsers at a time, by a policy or by a scripted searcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from browsing.browser import Browser
from browsing.client import SEARCH
from browsing.sphinx_facts import Fact
from browsing.state import Quote

# From texts to their continuations.
Policy = Callable[[list[str]], Sequence[str]]
_MAX_FINDS = 4


@dataclass(frozen=True)
class Step:
    """A text that was shown, and what was written after it: an action, or in the end the answer.

    Example:

    >>> Step("question: What do cats do?\\nleft: 9\\nnext:", "search cats").action
    'search cats'
    """

    prompt: str
    action: str


@dataclass(frozen=True)
class Episode:
    """A question, what was done, and what was answered.

    Attributes:
        question: str.
        steps: tuple of `Step`. The last one is the answer.
        quotes: tuple of `Quote`.
        answer: str.

    Example:

    >>> Episode("What do cats do?", (Step("... answer:", "sleep"),), (), "sleep").answer
    'sleep'
    """

    question: str
    steps: tuple[Step, ...]
    quotes: tuple[Quote, ...]
    answer: str

    @property
    def reference_text(self) -> str:
        """str: question, quotes and answer, which a reward model reads."""
        return f"{self.steps[-1].prompt} {self.answer}" if self.steps else self.answer


def run_episodes(browsers: Sequence[Browser], policy: Policy) -> list[Episode]:
    """Runs browsers to their ends: each turn is one call of the policy with the states of all that have not ended.

    Args:
        browsers: `Browser`s with their questions.
        policy: function from a list of str, states, to the action of each, and of answer prompts to answers; such as
            `LanguagePolicy`.

    Returns:
        List of `Episode`, in the order of the browsers.

    Example: see `Browser` for the server.

    >>> from browsing import CorpusClient
    >>> browser = Browser(CorpusClient("http://127.0.0.1:9"), "What do cats do?")
    >>> [episode] = run_episodes([browser], lambda texts: ["sleep" if "answer:" in text else "end" for text in texts])
    >>> [step.action for step in episode.steps], episode.answer
    (['end', 'sleep'], 'sleep')
    """
    steps: list[list[Step]] = [[] for _ in browsers]
    while active := [index for index, browser in enumerate(browsers) if not browser.ended]:
        prompts = [browsers[index].text for index in active]
        for index, prompt, action in zip(active, prompts, policy(prompts), strict=True):
            steps[index].append(Step(prompt, action))
            browsers[index].act(action)
    prompts = [browser.answer_text for browser in browsers]
    answers = policy(prompts) if prompts else []
    episodes = []
    for browser, before, prompt, answer in zip(browsers, steps, prompts, answers, strict=True):
        own = (*before, Step(prompt, answer))
        episodes.append(Episode(browser.state.question, own, browser.state.quotes, answer))
    return episodes


def demonstrate(browser: Browser, fact: Fact) -> Episode | None:
    """Lets a scripted searcher, which knows the answer, browse for it.

    It searches for the name, opens the page of the fact if that is among the results, finds the entry, scrolls to the
    passage and quotes it.

    Args:
        browser: `Browser` with the question of the fact.
        fact: `Fact`.

    Returns:
        `Episode`, or None if the searcher does not get there within the limits.

    Example: see `examples/browsing_answers.py`.

    >>> from browsing import CorpusClient
    >>> fact = Fact("Which version added cats.nap?", "1.4", "cats.nap", "added", "New in version 1.4.", "cats.html", 3, 9)
    >>> demonstrate(Browser(CorpusClient("http://127.0.0.1:9"), fact.question), fact) is None  # No server.
    True
    """
    steps: list[Step] = []
    while not browser.ended:
        action = _next_action(browser, fact)
        if action is None:
            return None
        steps.append(Step(browser.text, action))
        browser.act(action)
        if browser.error is not None:
            return None
    if not browser.state.quotes:
        return None
    steps.append(Step(browser.answer_text, fact.answer))
    return Episode(fact.question, tuple(steps), browser.state.quotes, fact.answer)


def _next_action(browser: Browser, fact: Fact) -> str | None:
    """The action of the searcher, or None if it gives up."""
    page, past = browser.state.page, browser.state.past
    if browser.state.quotes:
        return "end"
    if page is None:
        return f"search {fact.name}"
    if page.address == SEARCH:
        targets = [link.target for link in browser.view.links]
        return f"open {targets.index('/' + fact.address) + 1}" if "/" + fact.address in targets else None
    place = page.text.find(fact.quote, page.line_starts[browser.state.position])
    last = min(browser.view.end, fact.end)
    end = page.line_starts[last] if last < len(page.lines) else len(page.text) + 1
    if page.line_starts[fact.line] <= place and place + len(fact.quote) < end:
        return f"quote {fact.quote}"
    if browser.state.position >= fact.line and browser.state.position < fact.end:
        return "scroll down"
    wanted = f"find {fact.name.rpartition('.')[2]}("
    return wanted if past.count(wanted) < _MAX_FINDS else None


class LanguagePolicy:
    """A language model as a policy: it continues each text up to its end token.

    Args:
        generator: `generation.Generator` of a language model with a tokenizer that has an end token, such as
            `model.generator()`.
        max_new_tokens: int >= 1. Longest action, in tokens. Default 48.
        sampler: str or sampler, as of `Generator.generate`. Default "greedy".
        seed: int or None. Each call draws other samples.
        batch_size: int >= 1. Number of texts in a batch. Default 64.

    Call arguments:
        texts: list of str.

    Returns:
        List of str, without spaces around them.

    Example:

    >>> from keras_transformer import models, tasks, text
    >>> tokenizer = text.BytePair.train(["next: end answer: sleep"], 280)
    >>> backbone = models.Llama(models.Size(1, 8, 2, 16), tokenizer.vocabulary_size)
    >>> policy = LanguagePolicy(tasks.LanguageModel(backbone, tokenizer=tokenizer).generator(), max_new_tokens=2)
    >>> len(policy(["next:", "answer:"]))
    2
    """

    def __init__(
        self,
        generator: Any,
        *,
        max_new_tokens: int = 48,
        sampler: Any = "greedy",
        seed: int | None = None,
        batch_size: int = 64,
    ) -> None:
        self.generator, self.max_new_tokens, self.sampler = generator, max_new_tokens, sampler
        self.seed, self.batch_size = seed, batch_size
        self._calls = 0

    def __call__(self, texts: list[str]) -> list[str]:
        self._calls += 1
        seed = None if self.seed is None else self.seed + 1_000_003 * self._calls
        options: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "sampler": self.sampler, "seed": seed}
        found = self.generator.generate(list(texts), batch_size=self.batch_size, **options)
        return [text.strip(" ") for text in found]
