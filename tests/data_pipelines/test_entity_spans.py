import pytest

from keras_transformer.data import TagError, entity_spans, span_f1


@pytest.mark.parametrize(
    "tags, spans",
    [
        ("O O", []),
        ("B-a I-a I-a", [("a", 0, 3)]),
        ("B-a B-a", [("a", 0, 1), ("a", 1, 2)]),
        ("B-a I-b", [("a", 0, 1), ("b", 1, 2)]),  # another type begins a new one
        ("O I-a I-a O", [("a", 1, 3)]),  # I- after O begins one
        ("B-a O I-a", [("a", 0, 1), ("a", 2, 3)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 2)]),
        ("", []),
    ],
)
def test_spans(tags, spans):
    assert entity_spans(tags.split()) == spans


def test_f1_by_hand():
    expected = [["B-a", "I-a", "O", "B-b"], ["O", "O"], ["B-a", "O", "B-c"]]
    predicted = [["B-a", "I-a", "O", "B-a"], ["O", "B-b"], ["B-a", "I-a", "B-c"]]
    # Expected a(0,2) b(3,4) a(0,1) c(2,3); predicted a(0,2) a(3,4) b(1,2) a(0,2) c(2,3): two are right.
    scores = span_f1(expected, predicted)
    assert scores[3:] == (4, 5, 2)
    assert scores.precision == pytest.approx(2 / 5)
    assert scores.recall == pytest.approx(2 / 4)
    assert scores.f1 == pytest.approx(2 * 0.4 * 0.5 / 0.9)


def test_nothing_found_and_nothing_to_find():
    assert span_f1([["B-a"]], [["O"]])[:3] == (0.0, 0.0, 0.0)
    assert span_f1([["O"]], [["O"]])[:3] == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "expected, predicted, message",
    [
        ([["O"]], [], "1 sentences"),
        ([["O"], ["O"]], [["O"], ["O", "O"]], "Sentence 1 has 1 tokens"),
        ([["O"], ["O"]], [["O"], ["E-a"]], "Sentence 1: Token 0.*'E-a'"),
        ([["B-"]], [["O"]], "'B-'"),
    ],
)
def test_refuses(expected, predicted, message):
    with pytest.raises(TagError, match=message):
        span_f1(expected, predicted)
