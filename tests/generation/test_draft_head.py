"""The draft head: its formula, the text of the target, the hidden state that it reads, and its file."""

import types

import numpy as np
import pytest

from keras_transformer.generation import DraftHead, GenerationError, Generator, Random, Speculative
from keras_transformer.generation.search.draft_model import Draft, Proposals

PROMPTS = [[1], [2, 3, 4, 5, 6], [5, 5, 1], [3, 3], [6, 0, 6, 6]]
NAMES = [
    "input_projection",
    "recurrent",
    "embeddings",
    "scale",
    "expansion",
    "contraction",
    "output_projection",
    "bias",
]


def shapes(hidden, width, inner, count):
    first = [(hidden, width), (width, width), (count + 1, width), (width,)]
    return [*first, (width, inner), (inner, width), (width, count), (count,)]


def random_head(tokens=(0, 2, 3, 5), hidden=6, seed=0):
    rng = np.random.default_rng(seed)
    return DraftHead(np.array(tokens), *(rng.normal(size=each) for each in shapes(hidden, 4, 5, len(tokens))))


def head_of_successors(successors):
    """A head that knows the token after each one, whatever the hidden state."""
    count = len(successors)
    arrays = dict(zip(NAMES, (np.zeros(each) for each in shapes(1, count, 2, count)), strict=True))
    arrays["embeddings"][1:] = np.eye(count)
    arrays["output_projection"] = np.eye(count)[successors]
    return DraftHead(np.arange(count), **arrays | {"scale": np.ones(count)})


def test_a_step_follows_the_formula():
    head = random_head()
    hidden, tokens = np.random.default_rng(1).normal(size=(3, 6)), [3, 1, 5]  # It does not know 1.
    logits, state = head.step(head.begin(hidden.astype("float32")), np.array(tokens))
    logits_2, _ = head.step(state, np.array([2, 2, 4]))
    parts = {name: getattr(head, name).astype("float64") for name in NAMES}

    def norm(x):
        return x / np.sqrt((x**2).mean() + 1e-6)

    def read(state, token):
        row = [0, 2, 3, 5].index(token) + 1 if token in (0, 2, 3, 5) else 0
        z = norm(state @ parts["recurrent"] + parts["embeddings"][row]) * parts["scale"]
        u = z @ parts["expansion"]
        gelu = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
        state = z + gelu @ parts["contraction"]
        return state @ parts["output_projection"] + parts["bias"], state

    for row in range(3):
        first, state = read(norm(hidden[row]) @ parts["input_projection"], tokens[row])
        second, _ = read(state, [2, 2, 4][row])
        np.testing.assert_allclose(logits[row], first, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(logits_2[row], second, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 3, 7, 30])
@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_greedy_is_the_target_alone(models, count, penalty):
    generator = Generator(models.History(seed=2, max_length=17), end_id=0)
    options = {"max_new_tokens": 12, "repetition_penalty": penalty, "stop": [[4, 4], [1, 3]]}
    expected = generator.generate(PROMPTS, **options)
    sampler = Speculative(random_head(), count)
    assert generator.generate(PROMPTS, sampler=sampler, **options) == expected
    assert [generator.generate(prompt, sampler=sampler, **options) for prompt in PROMPTS] == expected


def test_steps_that_a_perfect_head_saves(models):
    successors = [3, 6, 1, 0, 2, 4, 5]
    table = np.zeros((7, 7, 7))
    table[:, range(7), successors] = 9.0
    target = models.Table(table)
    sampler = Speculative(head_of_successors(successors), num_draft_tokens=3)
    expected = Generator(models.Table(table)).generate([1], max_new_tokens=9)
    assert Generator(target).generate([1], max_new_tokens=9, sampler=sampler) == expected
    assert target.calls == [(1, 1), (1, 4), (1, 4)]
    assert sampler.accepted_per_step == 3.0


def test_it_reads_the_state_that_chose_the_last_token(models):
    """Proposals are accepted in different numbers, so that the state is at different places of each row."""
    target, seen = models.History(seed=2, max_length=40), []

    class Spy(Draft):
        """Proposes what the target says, but for every third token."""

        reads_states = True

        def check(self, target, requests):
            pass

        def of_request(self, request, sampler):
            self.count = 0
            return self

        def observe(self, hidden_states, vocabulary_size):
            assert vocabulary_size == 7
            self.chosen = (hidden_states @ target.head).argmax(axis=-1)

        def propose(self, sequences, count, uniforms):
            seen.append(([each[-1] for each in sequences], self.chosen.tolist()))
            proposals = np.zeros((len(sequences), count), "int32")
            for row, sequence in enumerate(sequences):
                text = list(sequence)
                for _ in range(count):
                    self.count += 1
                    best = target.formula(np.array([text]), np.zeros((1, 1)))[0][0].argmax()
                    text.append(int(best + (self.count % 3 == 0)) % 7)
                proposals[row] = text[-count:]
            return Proposals(proposals, None, np.full(len(sequences), count))

    prompts = [[1], [2, 3, 4, 5, 6], [5, 5, 1]]
    expected = Generator(models.History(seed=2, max_length=40)).generate(prompts, max_new_tokens=20)
    assert Generator(target).generate(prompts, max_new_tokens=20, sampler=Speculative(Spy(), 4)) == expected
    assert len(seen) > 5
    for last, chosen in seen[:4]:  # Rows that have ended read old tokens.
        assert last == chosen


def test_sampling_has_the_targets_distribution(models):
    draws, sampler = 20_000, Random(temperature=0.8)
    target = models.History(vocabulary_size=4, scale=0.6)
    rng = np.random.default_rng(5)
    head = DraftHead(np.array([0, 1, 3]), *(0.7 * rng.normal(size=each) for each in shapes(6, 4, 5, 3)))
    speculative = Speculative(head, 2, sampler)
    found = Generator(target).generate([[2, 1]] * draws, max_new_tokens=3, sampler=speculative, seed=1)
    counts = np.zeros((4, 4, 4))
    np.add.at(counts, tuple(np.array(found).T), 1)
    expected = np.zeros((4, 4, 4))
    for text in np.ndindex(4, 4, 4):
        total = 1.0
        for index, token in enumerate(text):
            logits = target.formula(np.array([[2, 1, *text[:index]]]), np.zeros((1, 1)))[0][0] / 0.8
            total *= np.exp(logits[token]) / np.exp(logits).sum()
        expected[text] = total * draws
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 63) < 4 * np.sqrt(2 * 63)
    assert 0.1 < speculative.accepted_per_step < 1.9


def test_a_file_holds_half_precision(tmp_path, models):
    head, path = random_head(), tmp_path / "head.safetensors"
    head.save(path)
    loaded = DraftHead.load(path)
    assert path.stat().st_size < 1500
    np.testing.assert_array_equal(loaded.tokens, head.tokens)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(head, name).astype("float16").astype("float32"))
    from safetensors.numpy import save_file

    save_file({"tokens": head.tokens}, path)
    with pytest.raises(ValueError, match="is not a draft head"):
        DraftHead.load(path)


def test_refuses_what_does_not_fit(models):
    generator = Generator(models.History())
    with pytest.raises(GenerationError, match="knows the token 9"):
        generator.generate([1], max_new_tokens=4, sampler=Speculative(random_head((1, 9))))
    with pytest.raises(GenerationError, match="states of 5 numbers; the model has 6"):
        generator.generate([1], max_new_tokens=4, sampler=Speculative(random_head(hidden=5)))
    arrays = [np.zeros(each) for each in shapes(6, 4, 5, 2)]
    with pytest.raises(ValueError, match="ascending"):
        DraftHead(np.array([3, 1]), *arrays)
    with pytest.raises(ValueError, match=r"embeddings must have the shape \(4, 4\)"):
        DraftHead(np.array([1, 2, 3]), *arrays)


def test_a_grammar_may_allow_only_tokens_that_it_does_not_know():
    request = types.SimpleNamespace(prompts=[[1]], lengths=np.array([1]))
    allowed = np.array([False, True, False, False, True, False, False])
    request.process_logits = lambda logits, rows: np.where(allowed, logits, -np.inf)
    draft = random_head().of_request(request, Random())
    draft.observe(np.ones((1, 6)), 7)
    found = draft.propose([[1, 2]], 2, np.array([[0.2, 0.9]]))
    assert found.tokens.tolist() == [[1, 4]]
    np.testing.assert_allclose(found.probabilities[0, :, [1, 4]], 0.5)
