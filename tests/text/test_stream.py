"""Text token by token."""

from keras_transformer.text import Bytes, WordPiece


def pushed(tokenizer, ids, **options):
    stream = tokenizer.stream(**options)
    return [stream.push(index) for index in ids] + [stream.finish()]


def test_pieces_join_to_what_decode_gives(tokenizer, texts_of_all_kinds):
    for text in texts_of_all_kinds[:80]:
        ids = tokenizer.encode(text, start=True, end=True)
        for options in ({"skip_special_tokens": True}, {"skip_special_tokens": False}):
            assert "".join(pushed(tokenizer, ids, **options)) == tokenizer.decode(ids, **options)


def test_any_ids_join_to_what_decode_gives(tokenizer):
    # Not what any text encodes to: halves of characters, special tokens, a continuation first.
    ids = [(7 * place * place + 3 * place) % tokenizer.vocabulary_size for place in range(300)]
    for start in range(0, 300, 30):
        part = ids[start : start + 30]
        assert "".join(pushed(tokenizer, part)) == tokenizer.decode(part)


def test_no_half_character_is_given(lossless):
    text = "é😀👩‍💻你"
    pieces = pushed(lossless, lossless.encode(text))
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)


def test_characters_come_when_they_are_whole():
    tokenizer = Bytes()
    assert pushed(tokenizer, tokenizer.encode("a😀")) == ["a", "", "", "", "😀", ""]
    # A character that is never finished.
    assert pushed(tokenizer, tokenizer.encode("a😀")[:3]) == ["a", "", "", "\ufffd"]
    assert tokenizer.decode(tokenizer.encode("a😀")[:3]) == "a\ufffd"


def test_wordpiece_spaces_come_with_the_next_word():
    tokenizer = WordPiece(["[UNK]", "[SEP]", "un", "##able", "cat"])
    assert pushed(tokenizer, [1, 2, 3, 4, 1]) == ["", "un", "able", " cat", "", ""]
