import itertools

import numpy as np
import pytest

from keras_transformer.tasks.text.spans import AnswerSpan, answer_f1, best_spans, exact_match, normalize_answer


def test_spans_against_all_pairs():
    random = np.random.default_rng(0)
    starts, ends = random.normal(size=(2, 3, 12))
    context = random.uniform(size=(3, 12)) < 0.8
    found = best_spans(starts, ends, context, max_length=4, num_best=5)
    for row in range(3):
        pairs = [
            AnswerSpan(i, j, starts[row, i] + ends[row, j])
            for i, j in itertools.combinations_with_replacement(range(12), 2)
            if j - i < 4 and context[row, i : j + 1].all()
        ]
        assert found[row] == sorted(pairs, key=lambda span: -span.score)[:5]


def test_equal_scores_go_to_the_earlier_and_then_the_shorter():
    zeros = np.zeros((1, 3))
    spans = best_spans(zeros, zeros, np.ones((1, 3)), max_length=2, num_best=9)[0]
    assert [(span.start, span.end) for span in spans] == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)]


def test_no_context_no_span():
    assert best_spans(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2))) == [[]]


@pytest.mark.parametrize("options", [{"max_length": 0}, {"num_best": 0}])
def test_counts_below_one(options):
    with pytest.raises(ValueError, match="at least 1"):
        best_spans(np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), **options)


def test_shapes_that_differ():
    with pytest.raises(ValueError, match=r"\(1, 2\), \(1, 3\)"):
        best_spans(np.zeros((1, 2)), np.zeros((1, 3)), np.ones((1, 2)))


# What the official script (evaluate-v1.1.py) gives, worked out by hand from its rules.
@pytest.mark.parametrize(
    "text, normal",
    [("The U.S.A.", "usa"), ("an  apple\ta day", "apple day"), ("theatre", "theatre"), ("A", ""), ("Àn Ö", "àn ö")],
)
def test_normal_form(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    "prediction, answers, exact, f1",
    [
        ("the cat sat", ["cat sat"], 1, 1),
        ("cat", ["the cat sat down"], 0, 0.5),
        ("cat cat dog", ["cat dog dog"], 0, 2 / 3),
        ("bird", ["cat", "dog"], 0, 0),
        ("", ["cat"], 0, 0),
        ("dog", ["cat", "big dog"], 0, 2 / 3),
    ],
)
def test_scores(prediction, answers, exact, f1):
    assert exact_match(prediction, answers) == exact
    assert answer_f1(prediction, answers) == pytest.approx(f1)
