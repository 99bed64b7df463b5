"""Speculative decoding: the greedy text of the target, and its distribution when sampling."""

import itertools
import types

import numpy as np
import pytest

from keras_transformer.generation import (
    GenerationError,
    Generator,
    Greedy,
    PromptLookup,
    PromptTooLongError,
    Random,
    Speculative,
)
from keras_transformer.generation.search.draft_model import draw_from

PROMPTS = [[1], [2, 3, 4, 5, 6], [5, 5, 1], [3, 3], [6, 0, 6, 6]]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("noise", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_greedy_is_the_target_alone(models, count, noise, penalty):
    target, draft = models.History(seed=2, max_length=17), models.History(seed=2, noise=noise, max_length=17)
    generator = Generator(target, end_id=0)
    options = {"max_new_tokens": 12, "repetition_penalty": penalty, "stop": [[4, 4], [1, 3]]}
    expected = generator.generate(PROMPTS, **options)
    sampler = Speculative(Generator(draft), count)
    assert generator.generate(PROMPTS, sampler=sampler, **options) == expected
    assert [generator.generate(prompt, sampler=sampler, **options) for prompt in PROMPTS] == expected
    assert [list(generator.stream(prompt, sampler=sampler, **options)) for prompt in PROMPTS] == expected


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 4, 5])
def test_short_texts(models, max_new_tokens):
    generator = Generator(models.History(seed=2))
    sampler = Speculative(models.History(seed=2, noise=0.5), 3)
    expected = generator.generate(PROMPTS, max_new_tokens=max_new_tokens)
    assert generator.generate(PROMPTS, max_new_tokens=max_new_tokens, sampler=sampler) == expected


def test_steps_that_a_perfect_draft_saves(models):
    target, draft = models.History(seed=2), models.History(seed=2)
    sampler = Speculative(draft, num_draft_tokens=3)
    Generator(target).generate([1], max_new_tokens=9, sampler=sampler)
    # One token after the prompt, then twice three draft tokens and one token of the target.
    assert target.calls == [(1, 1), (1, 4), (1, 4)]
    assert sampler.accepted_per_step == 3.0


def test_accepted_tokens_are_counted(models):
    # The draft always predicts 1, the target repeats 1, 1, 2: it accepts two of three draft tokens.
    target, draft = models.Script(4, [1, 1, 2] * 5), models.Script(4, [1] * 15)
    sampler = Speculative(draft, num_draft_tokens=3)
    assert Generator(target).generate([0], max_new_tokens=10, sampler=sampler) == [1, 1, 2] * 3 + [1]
    # 1 | draft 1 1 1: 1 and then 2 | 1 1 1: 1 1 2 | 1 1 1: 1 1 2 | no draft left: 1
    assert sampler.accepted_per_step == pytest.approx((1 + 2 + 2 + 0) / 4)
    # The counters restart with the next request, in two batches.
    Generator(target).generate([[0], [0]], max_new_tokens=10, sampler=sampler, batch_size=1)
    assert sampler.accepted_per_step == pytest.approx((1 + 2 + 2 + 0) / 4)
    Generator(target).generate([[0], [0], [0]], max_new_tokens=5, sampler=sampler)
    assert sampler.accepted_per_step == pytest.approx((1 + 1) / 2)


@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize("lookup", [PromptLookup(), PromptLookup(longest=2, shortest=1)])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_lookup_gives_the_target_alone(models, count, lookup, penalty):
    generator = Generator(models.History(seed=2, max_length=40), end_id=0)
    options = {"max_new_tokens": 30, "repetition_penalty": penalty}
    expected = generator.generate(PROMPTS, **options)
    sampler = Speculative(lookup, count)
    assert generator.generate(PROMPTS, sampler=sampler, **options) == expected
    assert [generator.generate(prompt, sampler=sampler, **options) for prompt in PROMPTS] == expected


def test_lookup_proposes_what_followed_the_latest_equal_tokens():
    draft = PromptLookup(longest=2, shortest=1).of_request(types.SimpleNamespace(prompts=[[], []]), Greedy())
    first = draft.propose([[1, 2, 9, 1, 2, 8, 4, 1, 2], [3, 4, 5]], 2, None)
    assert first.tokens.tolist() == [[8, 4], [0, 0]]
    assert (first.counts.tolist(), first.probabilities) == ([2, 0], None)
    # 5 2 is new, so the latest 2 counts, which precedes 5 now; 3 4 is followed by 5.
    second = draft.propose([[1, 2, 9, 1, 2, 8, 4, 1, 2, 5, 2], [3, 4, 5, 3, 4]], 3, None)
    assert second.tokens.tolist() == [[5, 2, 0], [5, 3, 4]]
    assert second.counts.tolist() == [2, 3]
    none = draft.propose([[1, 2, 9, 1, 2, 8, 4, 1, 2, 5, 2, 7], [3, 4, 5, 3, 4, 6]], 3, None)
    assert none.tokens.shape == (2, 0)


def test_steps_that_lookup_saves(models):
    target = models.Script(4, [1, 2, 3] * 5)
    sampler = Speculative(PromptLookup(), num_draft_tokens=4)
    assert Generator(target).generate([0], max_new_tokens=12, sampler=sampler) == [1, 2, 3] * 4
    # 1, 2, 3, 1 and 2 one at a time; then 3 1 2 follow 1 2, with a token more; of the last three two are proposed.
    assert target.calls[:5] == [(1, 1)] * 5
    assert sum(shape[1] for shape in target.calls) - 12 < 4
    assert len(target.calls) < 9


def test_sampling_with_lookup_has_the_targets_distribution(models):
    draws, length, sampler = 10_000, 4, Random(temperature=0.8)
    target = models.History(vocabulary_size=4, scale=0.6)
    lookup = Speculative(PromptLookup(longest=1, shortest=1), 2, sampler)
    prompt = [2, 1, 3, 2, 0, 1]
    generate = Generator(target).generate
    found = generate([prompt] * draws, max_new_tokens=length, sampler=lookup, seed=1)
    counts = np.zeros((4,) * length)
    np.add.at(counts, tuple(np.array(found).T), 1)
    assert abs(statistic(counts, exact_distribution(target, prompt, length, sampler))) < 4
    assert 0.1 < lookup.accepted_per_step < 1.9
    # Others in the batch change nothing.
    mixed = generate([[3], prompt, [0, 2]], max_new_tokens=8, sampler=lookup, seed=3)
    assert generate([[3], prompt, [0, 2]], max_new_tokens=8, sampler=lookup, seed=3, batch_size=1) == mixed


def test_lookup_needs_sizes_in_order():
    for sizes in ({"longest": 1}, {"shortest": 0}, {"longest": 2, "shortest": 3}):
        with pytest.raises(ValueError, match="shortest <= longest"):
            PromptLookup(**sizes)


def exact_distribution(steps, prompt, length, sampler, penalty=1.0):
    """Returns the probability of each text of `length` tokens in float64, with explicit filters."""
    size = steps.spec.vocabulary_size
    probabilities = np.zeros((size,) * length)
    for text in itertools.product(range(size), repeat=length):
        total = 1.0
        for index, token in enumerate(text):
            read = [*prompt, *text[:index]]
            logits = steps.formula(np.array([read]), np.zeros((1, 1)))[0][0]
            seen = np.isin(np.arange(size), read)
            logits = np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)
            logits = logits / sampler.temperature
            if sampler.top_k:
                logits[np.argsort(-logits)[sampler.top_k :]] = -np.inf
            total *= np.exp(logits[token]) / np.exp(logits).sum()
        probabilities[text] = total
    return probabilities


def statistic(counts, probabilities):
    """Returns chi-square in standard deviations from its mean; cells with less than five expected counts are merged."""
    expected = probabilities.ravel() * counts.sum()
    assert counts.ravel()[expected == 0].sum() == 0
    big = expected >= 5
    cells = np.append(expected[big], expected[~big].sum())
    found = np.append(counts.ravel()[big], counts.ravel()[~big].sum())
    cells, found = cells[cells > 0], found[cells > 0]
    freedom = len(cells) - 1
    return (((found - cells) ** 2 / cells).sum() - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize(
    "sampler, noise, count, penalty",
    [
        (Random(), 1.0, 2, 1.0),
        (Random(temperature=1.5), 4.0, 3, 1.0),
        (Random(temperature=0.8, top_k=3), 1.0, 1, 1.0),
        (Random(), 1.0, 2, 1.6),
        (Random(), 0.0, 2, 1.0),
    ],
)
def test_texts_have_the_targets_distribution(models, sampler, noise, count, penalty):
    draws, length = 10_000, 4
    target = models.History(vocabulary_size=4, scale=0.6)
    draft = models.History(vocabulary_size=4, scale=0.6, noise=noise)
    found = Generator(target).generate(
        [[2, 1]] * draws,
        max_new_tokens=length,
        sampler=Speculative(draft, count, sampler),
        seed=1,
        repetition_penalty=penalty,
    )
    counts = np.zeros((4,) * length)
    np.add.at(counts, tuple(np.array(found).T), 1)
    assert abs(statistic(counts, exact_distribution(target, [2, 1], length, sampler, penalty))) < 4
    if noise:
        # The test can distinguish the distribution of the draft from that of the target.
        assert statistic(counts, exact_distribution(draft, [2, 1], length, sampler, penalty) + 1e-12) > 20


def test_what_has_no_probability_is_never_drawn():
    probabilities = np.random.default_rng(0).random((200, 5))
    probabilities[:, [0, 4]] = 0
    assert set(draw_from(probabilities, np.zeros(200)).tolist()) == {1}
    assert set(draw_from(probabilities, np.full(200, np.nextafter(1, 0))).tolist()) == {3}


def test_seed_reproduces_and_rows_draw_for_themselves(models):
    generator = Generator(models.History(seed=2, scale=0.5), end_id=0)
    options = {"max_new_tokens": 10, "sampler": Speculative(models.History(seed=2, scale=0.5, noise=1.0), 3, "random")}
    found = generator.generate(PROMPTS, seed=5, **options)
    assert found == generator.generate(PROMPTS, seed=5, **options)
    assert found == generator.generate(PROMPTS, seed=5, batch_size=2, **options)
    assert found != generator.generate(PROMPTS, seed=6, **options)
    assert found[0] == generator.generate(PROMPTS[0], seed=5, **options)


def test_encoder_decoder_gives_the_draft_its_source(models):
    target = models.History(seed=2, is_encoder_decoder=True)
    generator = Generator(target, start_id=1, end_id=0)
    sources = [[3, 4], [5], [6, 6, 2]]
    expected = generator.generate(sources, max_new_tokens=8)
    sampler = Speculative(models.History(seed=2, is_encoder_decoder=True), 3)
    assert generator.generate(sources, max_new_tokens=8, sampler=sampler) == expected
    assert len({tuple(each) for each in expected}) == 3
    # With another source the draft would predict other tokens.
    assert sampler.accepted_per_step > 2


@pytest.mark.parametrize(
    "draft, error, message",
    [
        ({"vocabulary_size": 8}, GenerationError, "vocabulary of 8 tokens, the model one of 7"),
        ({"is_encoder_decoder": True}, GenerationError, "both be encoder-decoders"),
        ({"max_length": 6}, PromptTooLongError, "has 7 tokens; the maximum length of the draft is 6"),
    ],
)
def test_unfit_draft_is_refused_before_any_work(models, draft, error, message):
    target, draft = models.History(), models.History(**draft)
    generator, sampler = Generator(target), Speculative(draft)
    with pytest.raises(error, match=message):
        generator.generate([[1], [1, 2]], max_new_tokens=5, sampler=sampler, batch_size=1)
    with pytest.raises(error, match=message):
        generator.stream([1, 2], max_new_tokens=5, sampler=sampler)
    assert target.calls == draft.calls == []


@pytest.mark.parametrize(
    "options, culprit",
    [
        ({"num_draft_tokens": 0}, "num_draft_tokens"),
        ({"sampler": "beam"}, "BeamSearch"),
        ({"sampler": "unheard-of"}, "Unknown sampler"),
        ({"draft": "small"}, "draft must be"),
    ],
)
def test_bad_options_are_refused(models, options, culprit):
    with pytest.raises(ValueError, match=culprit):
        Speculative(**{"draft": models.History(), "sampler": Greedy(), **options})
