import gzip

import pytest

from keras_transformer.data import (
    MissingTextFileError,
    TextFileError,
    read_conll,
    read_json_lines,
    read_lines,
    read_pairs,
    read_tsv,
)


def test_lines_keep_everything_but_their_ends(tmp_path):
    # Other marks that Unicode counts as line ends, and spaces, belong to the line.
    text = "one \r\n\n two\u2028\x0bthree\x85\nlast"
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert list(read_lines(tmp_path / "a.txt")) == ["one ", "", " two\u2028\x0bthree\x85", "last"]


def test_gzip_and_byte_order_mark(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\ufeffgrün\nblau\n".encode()))
    assert list(read_lines(tmp_path / "a.txt.gz")) == ["grün", "blau"]


def test_another_encoding(tmp_path):
    (tmp_path / "a.txt").write_bytes("grün\n".encode("latin-1"))
    assert list(read_lines(tmp_path / "a.txt", encoding="latin-1")) == ["grün"]


def test_reads_no_further_than_asked(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 100_000 + b"\xff\n")
    lines = read_lines(tmp_path / "a.txt")
    assert [next(lines) for _ in range(3)] == ["fine"] * 3


@pytest.mark.parametrize(
    "content, message",
    [
        (b"fine\nna\xefve\n", r"a\.txt', line 2: not UTF-8 \(byte 2 is 0xef\)"),
        (b"", r"a\.txt' is empty"),
    ],
)
def test_lines_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(TextFileError, match=message):
        list(read_lines(tmp_path / "a.txt"))


def test_broken_gzip(tmp_path):
    whole = gzip.compress(bytes(range(65, 90)) * 1000 + b"\n")
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "none.gz").write_bytes(b"plain text\n")
    for name in ("cut.gz", "none.gz"):
        with pytest.raises(TextFileError, match=name):
            list(read_lines(tmp_path / name))


def test_no_file(tmp_path):
    with pytest.raises(MissingTextFileError, match="none.txt"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(FileNotFoundError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_pairs_of_files_of_other_lengths(tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("x\ny\n")
    pairs = read_pairs(tmp_path / "a", tmp_path / "b")
    assert [next(pairs), next(pairs)] == [("1", "x"), ("2", "y")]
    with pytest.raises(TextFileError, match="b' has fewer lines than '.*a'"):
        next(pairs)
    with pytest.raises(TextFileError, match="b' has fewer lines than '.*a'"):
        list(read_pairs(tmp_path / "b", tmp_path / "a"))


def test_tsv(tmp_path):
    (tmp_path / "a.tsv").write_text('label\ttext\n1\t"as it\n0\t\n')
    assert list(read_tsv(tmp_path / "a.tsv")) == [("label", "text"), ("1", '"as it'), ("0", "")]
    assert list(read_tsv(tmp_path / "a.tsv", header=True))[1] == {"label": "0", "text": ""}
    assert list(read_tsv(tmp_path / "a.tsv", ["y", "x"], header=True))[0] == {"y": "1", "x": '"as it'}


@pytest.mark.parametrize("columns", [2, None, ["a", "b"]])
def test_tsv_of_ragged_rows(tmp_path, columns):
    (tmp_path / "a.tsv").write_text("1\tgood\n0\tbad\tindeed\n")
    rows = read_tsv(tmp_path / "a.tsv", columns)
    next(rows)
    with pytest.raises(TextFileError, match=r"a\.tsv', line 2: 3 columns, expected 2"):
        next(rows)


def test_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "gr\\u00fcn"}\n\n[1, 2.5, null]\n{"text": \n')
    values = read_json_lines(tmp_path / "a.jsonl")
    assert [next(values), next(values)] == [{"text": "grün"}, [1, 2.5, None]]
    with pytest.raises(TextFileError, match=r"a\.jsonl', line 4: not JSON"):
        next(values)


def test_conll_with_lines_of_white_space_and_hashes(tmp_path):
    (tmp_path / "a.conll").write_text("\n#New\tO\nYork\tB-place\n\t\nit\tO\n\n\n \n#\tO\n")
    sentences = list(read_conll(tmp_path / "a.conll"))
    assert [sentence.tokens for sentence in sentences] == [("#New", "York"), ("it",), ("#",)]
    assert sentences[0].columns == (("O", "B-place"),)


CONLL_U = """# sent_id = 1
# text = Don't # it
1-2\tDon't\t_\t_
1\tDo\tdo\tAUX
2\tn't\tnot\tPART
2.1\tghost\t_\t_
3\t#\t#\tSYM
4\tit\tit\tPRON

# sent_id = 2
1\tYes\tyes\tINTJ
"""


def test_conll_u_passes_over_comments_ranges_and_empty_nodes(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLL_U)
    first, second = read_conll(tmp_path / "a.conllu", columns=(3, 2), token_column=1)
    assert first.tokens == ("Do", "n't", "#", "it")
    assert first.columns == (("AUX", "PART", "SYM", "PRON"), ("do", "not", "#", "it"))
    assert second == (("Yes",), (("INTJ",), ("yes",)))


def test_conll_that_lacks_a_column(tmp_path):
    (tmp_path / "a.conll").write_text("it\tO\nrains\n")
    with pytest.raises(TextFileError, match=r"a\.conll', line 2: 1 columns, expected at least 2"):
        list(read_conll(tmp_path / "a.conll"))
