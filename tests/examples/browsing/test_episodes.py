"""Episodes of many browsers, their batches, and passages."""

import numpy as np
import pytest

from browsing import (
    Browser,
    BrowserLimits,
    CorpusError,
    LanguagePolicy,
    Page,
    Passage,
    PassageIndex,
    Step,
    action_batches,
    cut_passages,
    run_episodes,
)
from keras_transformer import models, tasks, text


def test_browsers_act_together_and_each_as_alone(client):
    plans = {"one?": ["search Cats", "open 1", "quote They roar.", "end"], "two?": ["back", "end"], "three?": ["x"] * 4}
    calls = []

    def policy(prompts):
        calls.append(len(prompts))
        questions = [prompt.splitlines()[0].removeprefix("question: ") for prompt in prompts]
        done = [0 if "answer:" in prompt else 4 - int(prompt.split("left: ")[1].split()[0]) for prompt in prompts]
        is_answer = ["answer:" in prompt for prompt in prompts]
        return [f"{q}!" if ends else plans[q][n] for q, n, ends in zip(questions, done, is_answer, strict=True)]

    episodes = run_episodes([Browser(client, question, BrowserLimits(max_actions=4)) for question in plans], policy)
    assert [[step.action for step in each.steps[:-1]] for each in episodes] == list(plans.values())
    assert calls == [3, 3, 2, 2, 3]
    assert [each.answer for each in episodes] == ["one?!", "two?!", "three?!"]
    assert [quote.text for quote in episodes[0].quotes] == ["They roar."]


@pytest.fixture(scope="module")
def tokenizer():
    return text.BytePair.train(["question: next: answer: search cats end"] * 3, 300)


STEPS = [Step("question: why?\nnext:", "search cats"), Step("q " * 40 + "next:", "end"), Step("answer:", "naïve")]


def test_labels_are_the_actions_and_the_end(tokenizer):
    batches = action_batches(STEPS, tokenizer, batch_size=2, prompt_weight=0.25, seed=3)
    seen = {}
    for step in range(len(batches)):
        inputs, labels, weights = batches[step]
        assert inputs["token_ids"].shape[1] % 32 == 0
        for ids, mask, row, weight in zip(inputs["token_ids"], inputs["padding_mask"], labels, weights, strict=True):
            assert (ids[1:][mask[1:]] == row[:-1][mask[1:]]).all()
            assert (row[~mask] == -100).all()
            assert (weight[~mask] == 0).all()
            assert set(weight[mask].tolist()) == {0.25, 1.0}
            assert row[mask][-1] == tokenizer.end_id
            seen[tokenizer.decode(row[weight == 1][:-1].tolist())] = tokenizer.decode(ids[mask].tolist())
    assert seen == {f" {step.action}": f"{step.prompt} {step.action}" for step in STEPS}
    _, labels, _ = action_batches(STEPS[:1], tokenizer)[0]
    assert tokenizer.decode(labels[labels >= 0][:-1].tolist()) == " search cats"


def test_batches_of_an_epoch_hold_each_row_once_and_long_rows_are_left_out(tokenizer):
    batches = action_batches([Step(f"p{index}", "end") for index in range(10)], tokenizer, batch_size=3)
    orders = []
    for epoch in range(2):
        rows = [row for step in range(4) for row in batches[epoch * 4 + step][0]["token_ids"].tolist()]
        orders.append([tokenizer.decode(row[:4]).split()[0] for row in rows])
        assert sorted(orders[-1]) == [f"p{index}" for index in range(10)]
    assert orders[0] != orders[1]
    short = action_batches(STEPS, tokenizer, max_length=40, batch_size=1)
    assert (len(short), short.dropped) == (2, 1)
    with pytest.raises(CorpusError, match="at most 2"):
        action_batches(STEPS, tokenizer, max_length=2)


def test_advantages_stay_with_their_rows(tokenizer):
    batches = action_batches(STEPS, tokenizer, batch_size=1, advantages=[1.5, -2.0, 0.5])
    found = {}
    for step in range(3):
        inputs, labels = batches[step]
        found[tokenizer.decode(labels[labels >= 0][:-1].tolist()).strip()] = inputs["advantages"].tolist()
    assert found == {"search cats": [1.5], "end": [-2.0], "naïve": [0.5]}


def test_a_language_model_is_a_policy(tokenizer):
    """What it writes is what it gives the largest probability, up to its end token."""
    model = tasks.LanguageModel(models.Llama(models.Size(1, 16, 2, 32), tokenizer.vocabulary_size), tokenizer=tokenizer)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0, 0.4, weight.shape) for weight in model.get_weights()])
    model.compile(jit_compile=False)
    prompts = ["question: a\nnext:", "answer:"]
    written = LanguagePolicy(model.generator(), max_new_tokens=4)(prompts)
    assert written == [each.strip(" ") for each in model.generate(prompts, max_new_tokens=4)]
    drawing = LanguagePolicy(model.generator(), max_new_tokens=6, sampler="random", seed=1)
    first, second = drawing(prompts), drawing(prompts)
    assert first != second
    assert LanguagePolicy(model.generator(), max_new_tokens=6, sampler="random", seed=1)(prompts) == first


def test_passages_are_whole_lines_of_a_size():
    page = Page("a", "A", ("one two", "x" * 50, "three", "four", "five"))
    passages = cut_passages([page, Page("b", "B", ())], size=12)
    assert [passage.text for passage in passages] == ["one two", "x" * 50, "three four", "five"]
    quote = passages[2].quote("four")
    assert (quote.line, quote.stands_in(page)) == (3, True)
    assert passages[2].quote("five") is None
    assert Passage(page, 0, 3).quote("one two") is None


def test_the_best_passage_has_the_words_of_the_query(site):
    pytest.importorskip("bm25s")
    index = PassageIndex(cut_passages(list(site.pages()), size=40))
    assert "cats.nap()" in index.best("When was cats.nap added?").text
    assert index.best("unknown") is None
