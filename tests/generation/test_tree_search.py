"""Tree search with a known best text, against recursion, with and without rewindable caches."""

import dataclasses
import itertools

import numpy as np
import pytest

from keras_transformer.generation import GenerationError, Generator, TreeSearch
from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.decoding_request import DecodingRequest, ModelOutput
from keras_transformer.generation.search.tree import Tree

END = 0


def fixed_size(steps):
    """The same model, declared as not rewindable; the cache itself checks the inputs."""
    steps.spec = dataclasses.replace(steps.spec, cache_is_rewindable=False)
    return steps


def worth(texts):
    """Scores a quarter per token of the common prefix with the best text, 3, 3, 1, 4; 2 is more likely, but a dead end."""
    best = [3, 3, 1, 4]
    return [
        0.4 if text[1:] == [2] else np.logical_and.accumulate(np.equal(text[1:], best[: len(text) - 1])).sum() / 4
        for text in texts
    ]


def hidden_steps(models):
    """Token 2 is always by far the most likely."""
    logits = np.log([0.02, 0.08, 0.7, 0.1, 0.1])
    return models.Table(np.tile(logits, (5, 5, 1)))


@pytest.mark.parametrize("num_leaves", [1, 4, 16])
@pytest.mark.parametrize("rewindable", [True, False])
def test_finds_the_best_text_of_a_known_tree(models, num_leaves, rewindable):
    steps = hidden_steps(models) if rewindable else fixed_size(hidden_steps(models))
    search = TreeSearch(worth, num_simulations=200, num_leaves=num_leaves)
    texts, scores = Generator(steps).generate([2], max_new_tokens=4, sampler=search, return_scores=True)
    assert (texts, scores) == ([3, 3, 1, 4], 1.0)
    assert Generator(steps).generate([2], max_new_tokens=4) == [2, 2, 2, 2]


def test_one_simulation_is_greedy_and_more_are_better(models):
    """The score increases with the simulations, up to that of the best of all 625 texts."""
    steps = models.History(5, scale=1.0)
    weights = np.random.default_rng(1).uniform(size=(4, 5))

    def score(texts):
        return [np.mean([weights[index, token] for index, token in enumerate(text[2:])]) for text in texts]

    found = []
    for count in (1, 16, 64, 1000):
        search = TreeSearch(score, num_simulations=count, exploration=0.5, num_leaves=5)
        text, value = Generator(steps).generate([1, 2], max_new_tokens=4, sampler=search, return_scores=True)
        assert value == pytest.approx(score([[1, 2, *text]])[0])
        found.append((value, text))
    assert found[0][1] == Generator(steps).generate([1, 2], max_new_tokens=4)
    values = [value for value, _ in found]
    assert values == sorted(values)
    assert values[0] < values[1] < values[2] < values[3]
    assert values[3] > 0.999 * weights.max(axis=1).mean()


def test_selection_by_hand():
    """Two simulations of a tree of three tokens by the PUCT formula, with N visits of the parent."""
    tree = Tree(2.0, lambda tokens: len(tokens) == 2)
    tree.root.expand(np.array([7, 8, 9]), np.array([0.5, 0.3, 0.2]), np.log([0.5, 0.3, 0.2]))
    path, leaf = tree.select()
    assert leaf.tokens == [7]
    leaf.expand(np.array([5, 6]), np.array([0.9, 0.1]), np.log([0.9, 0.1]))
    tree.backpropagate(path, 0.2)
    # 0.2 + 2 · 0.5 · √2 / 2 = 0.907 against 2 · 0.3 · √2 = 0.849.
    path, leaf = tree.select()
    assert leaf.tokens == [7, 5]
    assert leaf.is_finished
    tree.backpropagate(path, 0.0)
    # 0.1 + 2 · 0.5 · √3 / 3 = 0.677 against 2 · 0.3 · √3 = 1.039.
    path, leaf = tree.select()
    assert leaf.tokens == [8]
    assert leaf.log_probability == pytest.approx(np.log(0.3))
    assert tree.root.visits.tolist() == [2, 1, 0]
    assert tree.root.totals.tolist() == [0.2, 0.0, 0.0]
    tree.commit()
    assert tree.root.tokens == [7]
    assert tree.root.visits.tolist() == [1, 0]


@pytest.mark.parametrize("options", [{}, {"rollout_length": 2}], ids=str)
def test_prompts_together_are_as_alone_and_caches_do_not_matter(models, options):
    """Texts that end early, at different lengths, with longer ones; with a penalty, and with seeded rollouts."""

    def score(texts):
        return [(sum(text) * 7 % 11) / 11 for text in texts]

    prompts = [[3], [1, 2, 5, 4], [6, 6]]
    search = TreeSearch(score, num_simulations=12, num_leaves=4, exploration=1.0, **options)
    request = {"max_new_tokens": 6, "sampler": search, "seed": 3, "repetition_penalty": 1.2, "return_scores": True}
    texts, scores = Generator(models.History(), end_id=END).generate(prompts, **request)
    assert len({len(text) for text in texts}) > 1
    for steps in (models.History(), fixed_size(models.History())):
        assert Generator(steps, end_id=END).generate(prompts, **request) == (texts, scores)
    if not options:  # Alone, a prompt has another seed.
        for prompt, text, value in zip(prompts, texts, scores, strict=True):
            assert Generator(models.History(), end_id=END).generate(prompt, **request) == (text, value)
    other = Generator(models.History(), end_id=END).generate(prompts, **{**request, "seed": 4})
    assert (other != (texts, scores)) == bool(options)


def test_a_source_and_the_width_of_one(models):
    def score(texts):
        assert max(map(len, texts)) <= 3  # The start token is not returned.
        return [text.count(5) / len(text) for text in texts]

    steps = [models.History(is_encoder_decoder=True), fixed_size(models.History(is_encoder_decoder=True))]
    search = TreeSearch(score, num_simulations=200, num_leaves=1)
    found = [Generator(each, start_id=2).generate([[4, 1], [3]], max_new_tokens=3, sampler=search) for each in steps]
    assert found == [[[5, 5, 5], [5, 5, 6]]] * 2


def test_what_is_shared_is_not_read_again(models):
    """A leaf below the previous one costs one token; the prompt is processed once."""
    steps = models.History()
    search = TreeSearch(num_simulations=8, num_leaves=1, exploration=0.0)
    Generator(steps).generate([[1, 2, 3, 4, 5, 6]], max_new_tokens=3, sampler=search)
    assert steps.calls[0] == (1, 6)
    assert set(steps.calls[1:]) <= {(1, 1), (1, 2)}
    # Without exploration one path is followed to its end.
    assert len(steps.calls) == 1 + 2


def test_without_a_scorer_the_model_judges(models):
    """The score is the geometric mean of probabilities; a long search finds the best text."""
    steps = models.History(4, scale=1.5)
    search = TreeSearch(num_simulations=600, exploration=1.0, num_leaves=4)
    text, value = Generator(steps).generate([1], max_new_tokens=3, sampler=search, return_scores=True)

    def mean(tokens):
        total, read = 0.0, [1]
        for token in tokens:
            logits = steps.formula(np.array([read]), np.zeros((1, 1)))[0]
            total, read = total + numpy_ops.log_softmax(logits)[0, token], [*read, token]
        return np.exp(total / len(tokens))

    best = max(itertools.product(range(4), repeat=3), key=mean)
    assert text == list(best)
    assert value == pytest.approx(mean(best), rel=1e-5)


def test_stop_sequences_end_a_text_and_end_tokens_are_not_scored(models):
    seen = []

    def score(texts):
        seen.extend(texts)
        return [0.9 if text[-1] == 3 else 0.1 for text in texts]

    table = np.zeros((5, 5, 5))
    generator = Generator(models.Table(table), end_id=END)
    options = {"max_new_tokens": 5, "sampler": TreeSearch(score, num_simulations=20, exploration=0.1)}
    assert generator.generate([1], stop=[3], **options) == []
    assert all(END not in text for text in seen)


def test_streaming_gives_each_token_when_it_is_certain(models):
    search = TreeSearch(lambda texts: [text.count(5) / len(text) for text in texts], num_simulations=20)
    generator = Generator(models.History())
    assert list(generator.stream([1], max_new_tokens=4, sampler=search)) == generator.generate(
        [1], max_new_tokens=4, sampler=search
    )


@pytest.mark.parametrize(
    ("scores", "message"),
    [([0.5], "as many texts"), ([1.5] * 8, r"\[0, 1\]"), ([float("nan")] * 8, "nan")],
)
def test_refuses_scores_of_another_kind(models, scores, message):
    with pytest.raises(GenerationError, match=message):
        Generator(models.History(8)).generate([1], max_new_tokens=3, sampler=TreeSearch(lambda texts: scores))


@pytest.mark.parametrize(
    "options",
    [
        {"scorer": 3},
        {"num_simulations": 0},
        {"num_leaves": 0},
        {"rollout_length": -1},
        {"top_k": 0},
        {"exploration": -1.0},
        {"temperature": 0.0},
    ],
    ids=str,
)
def test_refuses_arguments_out_of_range(options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        TreeSearch(**options)


def test_temperature_and_top_k_shape_the_priors():
    logits = np.array([[[2.0, 0.0, 1.0, -1.0]]])
    search = TreeSearch(num_simulations=1, temperature=2.0, top_k=3).search(DecodingRequest([np.array([0])], 2, [None]))
    search.advance(ModelOutput(logits, None))
    root = search._trees[0].root
    assert root.choices.tolist() == [0, 2, 1]
    np.testing.assert_allclose(root.priors, numpy_ops.softmax(np.array([1.0, 0.5, 0.0])))
    np.testing.assert_allclose(root._log_probs, numpy_ops.log_softmax(logits[0, 0])[[0, 2, 1]])
