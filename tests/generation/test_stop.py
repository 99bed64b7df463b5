"""Ends of texts, with and without streaming."""

import itertools

import pytest

from keras_transformer.generation import Generator
from keras_transformer.generation.stop import StopSequences
from keras_transformer.text import Bytes, Characters

TOKENIZER = Characters("abcdefgh ")
END = TOKENIZER.token_to_id("</s>")


def both(models, script, tokenizer=TOKENIZER, prompt="a", **options):
    """Returns the text of `generate`, after comparing it with `stream`."""
    steps = models.Script(tokenizer.vocabulary_size, script)
    generator = Generator(steps, tokenizer, end_id=END)
    whole = generator.generate(prompt, max_new_tokens=len(script), **options)
    reads = len(steps.calls)
    pieces = list(generator.stream(prompt, max_new_tokens=len(script), **options))
    assert ("".join(pieces) if isinstance(whole, str) else pieces) == whole
    return whole, reads


@pytest.mark.parametrize(
    "stop, expected, reads",
    [
        (None, "abc dab cd", 10),
        ("c", "ab", 3),
        (" d", "abc", 5),
        (["gg", "b c"], "abc da", 9),
        (["c d", "d"], "ab", 5),
        ("e", "abc dab cd", 10),
        ("abc", "", 3),
        ("cd", "abc dab ", 10),
        (TOKENIZER.encode("da"), "abc ", 6),
        ([TOKENIZER.encode("da"), "b"], "a", 2),
        ([TOKENIZER.encode("c"), TOKENIZER.encode("bc")], "a", 3),
        ([TOKENIZER.encode("bc"), TOKENIZER.encode("c")], "a", 3),
    ],
)
def test_text_ends_before_the_first_stop(models, stop, expected, reads):
    assert both(models, TOKENIZER.encode("abc dab cd"), stop=stop) == (expected, reads)


def test_ids_end_before_the_first_stop(models):
    script = [7, 8, 7, 7, 9, 6, 6]
    prompt = [5]
    assert both(models, script, prompt=prompt, stop=[7, 7, 9])[0] == [7, 8]
    assert both(models, script, prompt=prompt, stop=[[6, 6], [7, 9]])[0] == [7, 8, 7]
    assert both(models, script, prompt=prompt, stop=[[9, 6, 6]])[0] == [7, 8, 7, 7]
    assert both(models, script, prompt=prompt, stop=[[9, 9]])[0] == script
    # A stop text also ends ids: "c" is 7.
    assert TOKENIZER.encode("d") == [8]
    assert both(models, [7, 9, 8, 7], prompt=prompt, stop=[[8]])[0] == [7, 9]


def test_end_token_ends_and_is_not_returned(models):
    assert both(models, [7, 8, END, 9]) == (TOKENIZER.decode([7, 8]), 3)
    assert both(models, [7, 8, END, 9], prompt=[5])[0] == [7, 8]
    assert both(models, [END, 9]) == ("", 1)


def test_stop_within_a_character_of_several_bytes(models):
    tokenizer = Bytes()
    script = tokenizer.encode("aé€𝄞b€c")
    assert both(models, script, tokenizer, stop="𝄞") == ("aé€", 1 + 2 + 3 + 4)
    assert both(models, script, tokenizer, stop="b€")[0] == "aé€𝄞"
    # Two of the three bytes of €: the remaining text ends within a character.
    assert both(models, script, tokenizer, stop=tokenizer.encode("€")[:2])[0] == "aé"
    assert both(models, script, tokenizer, stop=tokenizer.encode("€")[1:])[0] == "aé\ufffd"


def test_every_text_streams_as_it_is_cut():
    """All short texts over two letters, with stops that overlap themselves."""
    tokenizer = Characters("ab")
    for stop in ("aa", "aba", ["ab", "bb"], ["b", "aab"]):
        stops = StopSequences(stop, tokenizer, ())
        for letters in itertools.product("ab", repeat=6):
            ids = tokenizer.encode("".join(letters))
            count = next((n for n in range(1, 7) if stops.ends(ids[:n])), 6)
            expected = stops.cut(ids[:count], as_text=True)
            assert "".join(stops.stream(ids, as_text=True)) == expected
            found = [text for text in ([stop] if isinstance(stop, str) else stop) if text in "".join(letters[:count])]
            assert expected == min(
                ("".join(letters).split(text)[0] for text in found), key=len, default="".join(letters)
            )
