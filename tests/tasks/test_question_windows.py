import pytest

from keras_transformer.tasks.text.question_windows import question_windows
from keras_transformer.text import Characters, WordPiece

TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghij", "##x"])
CONTEXT = "a b c d e f g h"


def windows(**options):
    return question_windows(TOKENIZER, "i j", CONTEXT, **{"max_length": 8, "stride": 2, **options})


def letters(window):
    return "".join(TOKENIZER.id_to_token(index)[-1] for index in window.token_ids)


def test_windows_overlap_and_hold_the_whole_context():
    found = windows()
    # [CLS] i j [SEP] and three tokens of context, each window two further on.
    assert [letters(window) for window in found] == ["]ij]abc]", "]ij]cde]", "]ij]efg]", "]ij]gh]"]
    assert found[0].segment_ids == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found[-1].segment_ids == [0, 0, 0, 0, 1, 1, 1]


def test_one_window_where_all_fits():
    assert [letters(window) for window in windows(max_length=13)] == ["]ij]abcdefgh]"]
    assert [letters(window) for window in windows(max_length=40)] == ["]ij]abcdefgh]"]


def test_offsets_name_the_characters_of_the_context():
    for window in windows():
        said = [CONTEXT[begin:stop] for begin, stop in window.offsets]
        inside = [index for index, real in enumerate(window.context_mask) if real]
        assert inside == list(range(4, len(window.token_ids) - 1))
        assert "".join(said[index] for index in inside) == letters(window)[4:-1]


def test_answer_in_the_windows_that_hold_all_of_it():
    found = windows(answer=(4, "c d"))
    assert [window.answer for window in found] == [(0, 0), (4, 5), (0, 0), (0, 0)]
    found = windows(answer=(4, "c"))
    assert [window.answer for window in found] == [(6, 6), (4, 4), (0, 0), (0, 0)]


def test_answer_that_is_part_of_a_token_takes_the_token():
    tokenizer = WordPiece(["[UNK]", "[CLS]", "[SEP]", "a", "##bc", "d"])
    (window,) = question_windows(tokenizer, "d", "d abc", answer=(4, "c"))
    begin, stop = window.offsets[window.answer[0]]
    assert ("d abc"[begin:stop], window.answer[0]) == ("bc", window.answer[1])


def test_start_and_end_tokens_stand_in_for_bert_s():
    tokenizer = Characters.train(["ab"], 10)
    (window,) = question_windows(tokenizer, "a", "bb")
    assert window.token_ids == [
        tokenizer.start_id,
        *tokenizer.encode("a"),
        tokenizer.end_id,
        *tokenizer.encode("bb"),
        tokenizer.end_id,
    ]


def test_a_long_question_is_cut():
    (window,) = question_windows(TOKENIZER, "a b c d", "e", max_question_length=2)
    assert letters(window) == "]ab]e]"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_length": 5}, "leaves no context"),
        ({"stride": 0}, "stride"),
        ({"stride": 4}, r"in \[1, 3\]"),
        ({"answer": (0, "b")}, "answer 'b' must start at character 0"),
        ({"answer": (0, "")}, "answer ''"),
    ],
)
def test_what_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        windows(**options)
