"""Text streamed from files."""

import gzip
import re

import pytest

from keras_transformer.text import (
    BytePair,
    Bytes,
    Characters,
    EmptyTextError,
    EncodingError,
    MissingTextError,
    SentencePiece,
    TextError,
    WordPiece,
)
from keras_transformer.text.corpus import lines_of, read_blocks, stream_texts

TEXT = "first line\nzweite Zeile äöü 😀\r\n\n\u2028last without an end"


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1000])
def test_blocks_join_to_the_text(tmp_path, block_bytes):
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    blocks = list(read_blocks(tmp_path / "a.txt", block_bytes))
    assert "".join(blocks) == TEXT
    assert all(block.endswith("\n") for block in blocks[:-1])


def test_what_is_a_file_and_what_is_text(tmp_path):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt.gz"
    one.write_text("in one\n")
    two.write_bytes(gzip.compress("in two é\n".encode()))
    for given in (one, str(one), [one], [str(one)]):
        assert list(stream_texts(given)) == ["in one\n"]
    assert list(stream_texts([one, str(two)])) == ["in one\n", "in two é\n"]
    assert list(stream_texts([str(one), "a text"])) == [str(one), "a text"]
    assert list(stream_texts(iter([str(one)]))) == [str(one)]
    assert list(stream_texts(["", "a", "\x00"])) == ["a", "\x00"]
    assert list(lines_of(["a\nb\n\n", "c"])) == ["a", "b", "c"]


def test_is_read_as_it_is_consumed():
    seen = []

    def texts():
        for text in ("a", "b", "c"):
            seen.append(text)
            yield text

    stream = stream_texts(texts())
    assert next(stream) == "a"
    assert seen == ["a"]


@pytest.mark.parametrize("train", [WordPiece.train, SentencePiece.train, BytePair.train, Characters.train, Bytes.train])
def test_unfit_text(tmp_path, train):
    (tmp_path / "latin.txt").write_bytes("Gr\u00fc\u00dfe".encode("latin-1") * 3)
    with pytest.raises(EncodingError, match=r"latin.txt' is not UTF-8: byte 2 \(invalid"):
        train(tmp_path / "latin.txt", 400)
    with pytest.raises(MissingTextError, match="nowhere.txt' is not a readable file"):
        train(str(tmp_path / "nowhere.txt"), 400)
    assert issubclass(MissingTextError, (ValueError, FileNotFoundError))
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(EmptyTextError, match="empty.txt"):
        train([tmp_path / "empty.txt"], 400)
    with pytest.raises(EmptyTextError, match="no text"):
        train([], 400)
    with pytest.raises(TextError, match="Item 0 must be str. Received: int"):
        train([5], 400)
    with pytest.raises(TextError, match="Received: bytes"):
        train(b"text", 400)
    with pytest.raises(EncodingError, match="Character 1 of a text is the lone surrogate"):
        train(["a\udfff"], 400)


def test_byte_is_counted_across_blocks(tmp_path):
    path = tmp_path / "late.txt"
    path.write_bytes("é".encode() * 5 + b"\xc3")
    with pytest.raises(EncodingError, match=re.escape("byte 10 (unexpected end of data)")):
        list(read_blocks(path, 3))
    path.write_bytes("é".encode() * 5 + b"\xc3(")
    with pytest.raises(EncodingError, match=re.escape("byte 10 (invalid continuation byte)")):
        list(read_blocks(path, 11))


def test_damaged_gzip(tmp_path):
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(TEXT.encode() * 50)[:-12])
    with pytest.raises(MissingTextError, match="cut.txt.gz' cannot be read"):
        BytePair.train(tmp_path / "cut.txt.gz", 300)


def test_late_error_comes_out_of_training(tmp_path):
    """Also where a library reads the stream."""
    path = tmp_path / "late.txt"
    path.write_bytes(b"good line\n" * 150_000 + b"\xff")
    for train in (WordPiece.train, SentencePiece.train, BytePair.train, Characters.train):
        with pytest.raises(EncodingError, match="byte 1500000"):
            train(path, 400)
