"""Validation of vocabularies, objects of token to id, before a library reads them."""

from __future__ import annotations

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.types import JsonObject, Path

# Limit of the largest id, relative to the number of tokens and absolute: tables have one entry for each id.
_MAX_ID_RATIO, _MAX_ID = 8, 100_000


def is_id(value: object) -> bool:
    """Whether `value` is a non-negative int."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_vocabulary(vocabulary: JsonObject, refusal: str) -> None:
    """Verifies that the values are ids, none of them far beyond the number of tokens.

    Args:
        vocabulary: dict of token to id.
        refusal: str. Beginning of the message.

    Raises:
        InvalidTokenizerError: a value is no id, or too large.
    """
    for token, index in vocabulary.items():
        if not is_id(index):
            raise InvalidTokenizerError(f"{refusal}: the token {token!r} has the id {repr(index)[:80]}.")
    largest = max(vocabulary.values(), default=0)
    if largest > max(_MAX_ID_RATIO * len(vocabulary), _MAX_ID):
        raise InvalidTokenizerError(f"{refusal}: largest id {largest} for {len(vocabulary)} tokens.")


def read_vocabulary(path: Path) -> dict[str, int]:
    """Returns the ids by token of a file such as `vocab.json`.

    Raises:
        InvalidTokenizerError: the file cannot be read, is empty, or is not an object of token to id, as one of several
            languages.
    """
    vocabulary = read_json(path, InvalidTokenizerError)
    refusal = f"'{path}' is not an object of token to id"
    if not vocabulary:
        raise InvalidTokenizerError(f"{refusal}: it is empty.")
    check_vocabulary(vocabulary, refusal)
    return vocabulary
