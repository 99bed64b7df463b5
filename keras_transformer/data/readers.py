"""Streaming readers of text files, plain or gzip: lines, tables, JSON lines and CoNLL columns."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from keras_transformer.data.errors import MissingTextFileError, TextFileError
from keras_transformer.utils.types import Path


class Sentence(NamedTuple):
    """An annotated sentence: its tokens, and for each column a tuple of the annotations of the tokens.

    Example:

    >>> Sentence(("New", "York"), (("B-place", "I-place"),)).columns[0]
    ('B-place', 'I-place')
    """

    tokens: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yields the lines of a text file, without line endings. A file whose name ends in .gz is decompressed.

    Lines end with a line feed, or with carriage return and line feed. One line at a time is in memory.

    Args:
        path: str or path.
        encoding: str. "utf-8", or another extension of ASCII, such as "latin-1". Default "utf-8".

    Yields:
        str, one per line.

    Raises:
        MissingTextFileError: the file does not exist or cannot be read.
        TextFileError: the file is empty, has another encoding, or is a corrupt gzip; the message names file and line.

    Example:

    >>> from pathlib import Path
    >>> _ = Path("text.txt").write_text("one\\ntwo\\n")
    >>> list(read_lines("text.txt"))
    ['one', 'two']
    """
    for _, line in _numbered_lines(path, encoding):
        yield line


def read_pairs(source_path: Path, target_path: Path) -> Iterator[tuple[str, str]]:
    """Yields pairs of lines of two files: a parallel corpus.

    Args:
        source_path: str or path.
        target_path: str or path, with the same number of lines.

    Yields:
        `(source, target)`, both str.

    Raises:
        TextFileError: the numbers of lines differ; and as in `read_lines`.

    Example:

    >>> from pathlib import Path
    >>> _ = Path("text.en").write_text("a dog\\n"), Path("text.de").write_text("ein Hund\\n")
    >>> list(read_pairs("text.en", "text.de"))
    [('a dog', 'ein Hund')]
    """
    sources, targets = _numbered_lines(source_path), _numbered_lines(target_path)
    end = (None, None)
    while True:
        (_, source), (_, target) = next(sources, end), next(targets, end)
        if source is None and target is None:
            return
        if source is None or target is None:
            shorter, longer = (source_path, target_path) if source is None else (target_path, source_path)
            raise TextFileError(f"'{shorter}' has fewer lines than '{longer}'.")
        yield source, target


def read_tsv(
    path: Path, columns: int | Sequence[str] | None = None, *, header: bool = False, separator: str = "\t"
) -> Iterator[Any]:
    """Yields the rows of a table: one row per line, with fields split at `separator`, without quoting.

    Args:
        path: str or path.
        columns: int, the number of fields of every row; names, to yield dicts; None for the number of the first row.
        header: bool. Whether the first line has the names of the columns; rows are then dicts. Default False.
        separator: str. Default: tab.

    Yields:
        A tuple of str per row, or a dict of name to str.

    Raises:
        TextFileError: a row with another number of fields; and as in `read_lines`.

    Example:

    >>> from pathlib import Path
    >>> _ = Path("pairs.tsv").write_text("label\\ttext\\n1\\tgood\\n")
    >>> list(read_tsv("pairs.tsv", header=True))
    [{'label': '1', 'text': 'good'}]
    """
    names = None if columns is None or isinstance(columns, int) else list(columns)
    count = columns if isinstance(columns, int) else None if names is None else len(names)
    for number, line in _numbered_lines(path):
        fields = tuple(line.split(separator))
        count = len(fields) if count is None else count
        if len(fields) != count:
            raise TextFileError(f"'{path}', line {number}: {len(fields)} columns, expected {count}.")
        if header and number == 1:
            names = names or list(fields)
            continue
        yield fields if names is None else dict(zip(names, fields, strict=True))


def read_json_lines(path: Path) -> Iterator[Any]:
    """Yields the values of a JSON lines file: one JSON value per line. Empty lines are skipped.

    Args:
        path: str or path.

    Yields:
        dict, list, str, number, bool or None.

    Raises:
        TextFileError: a line is not JSON; and as in `read_lines`.

    Example:

    >>> from pathlib import Path
    >>> _ = Path("records.jsonl").write_text('{"text": "good", "label": 1}\\n')
    >>> list(read_json_lines("records.jsonl"))
    [{'text': 'good', 'label': 1}]
    """
    for number, line in _numbered_lines(path):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise TextFileError(f"'{path}', line {number}: not JSON ({error}).") from None


def read_conll(
    path: Path, columns: Sequence[int] = (1,), *, token_column: int = 0, separator: str | None = "\t"
) -> Iterator[Sentence]:
    """Yields the sentences of a file in columns: one token per line, and an empty line after each sentence.

    A line of white space is empty too. If the first column has the ids of CoNLL-U, comments (`#`), multiword token ranges
    (`3-4`) and empty nodes (`5.1`) are skipped. Otherwise `#` is an ordinary token.

    Args:
        path: str or path.
        columns: ints. The columns to read besides the token's, counted from 0. CoNLL-U's UPOS is 3. Default (1,).
        token_column: int. Default 0. Use 1 for CoNLL-U: any value above 0 implies that column 0 has the ids.
        separator: str, or None for any white space. Default: tab.

    Yields:
        `Sentence`: `tokens`, a tuple of str, and `columns`, a tuple of tuples of str, one for each of `columns`.

    Raises:
        TextFileError: a line does not have a requested column; and as in `read_lines`.

    Example:

    >>> from pathlib import Path
    >>> _ = Path("tags.conll").write_text("New\\tB-place\\nYork\\tI-place\\n\\nrain\\tO\\n")
    >>> [(sentence.tokens, sentence.columns[0]) for sentence in read_conll("tags.conll")]
    [(('New', 'York'), ('B-place', 'I-place')), (('rain',), ('O',))]

    Reference: https://universaldependencies.org/format.html for CoNLL-U.
    """
    wanted = (token_column, *columns)
    rows: list[list[str]] = []
    for number, line in _numbered_lines(path):
        if not line.strip():
            if rows:
                yield _sentence(rows)
            rows = []
            continue
        fields = line.split(separator)
        if token_column > 0 and not _is_word(fields[0], rows):
            continue
        if len(fields) <= max(wanted):
            raise TextFileError(f"'{path}', line {number}: {len(fields)} columns, expected at least {max(wanted) + 1}.")
        rows.append([fields[column] for column in wanted])
    if rows:
        yield _sentence(rows)


def _is_word(field, rows):
    """Whether a CoNLL-U line is a token: not a comment, which come before the tokens, nor a range or an empty node."""
    return not (field.startswith("#") and not rows) and not ("-" in field or "." in field)


def _sentence(rows):
    tokens, *columns = zip(*rows, strict=True)
    return Sentence(tokens, tuple(columns))


def _numbered_lines(path, encoding="utf-8"):
    """Yields pairs of a line's number, from 1, and its text."""
    opener: Any = gzip.open if str(path).endswith(".gz") else open
    number = 0
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                yield number, _text(line, encoding, path, number)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise MissingTextFileError(f"'{path}' cannot be read: {error.strerror}.") from None
    except (OSError, EOFError) as error:
        raise TextFileError(f"'{path}', after line {number}: {error}.") from None
    if not number:
        raise TextFileError(f"'{path}' is empty.")


def _text(line, encoding, path, number):
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode(encoding)
    except UnicodeDecodeError as error:
        raise TextFileError(
            f"'{path}', line {number}: not {encoding.upper()} (byte {error.start} is 0x{line[error.start]:02x})."
        ) from None
