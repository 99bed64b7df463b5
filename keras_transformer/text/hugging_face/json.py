"""Parsing, validation and loading of `tokenizer.json` files and of vocabularies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from keras_transformer.text.errors import InvalidTokenizerError, TokenizerLibraryError
from keras_transformer.text.hugging_face.formats import library, library_calls, one_line
from keras_transformer.text.hugging_face.limits import check_limits
from keras_transformer.utils.errors import FILE_ERRORS
from keras_transformer.utils.json_files import parse_json, read_json
from keras_transformer.utils.types import JsonObject, Path

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.processors import PostProcessor

# Limit of the largest id, relative to the number of tokens and absolute: tables have one entry for each id.
_MAX_ID_RATIO, _MAX_ID = 8, 100_000
# Every vocabulary has a token for at least one of these texts.
_PROBES = ("a", "0", "the", "\u4e00", ".")


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


def parsed(text: str) -> JsonObject:
    """Parses and validates the content of a `tokenizer.json`.

    Raises:
        InvalidTokenizerError: the text is not JSON, has no valid model or added tokens, or is beyond a limit.
    """
    try:
        content = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidTokenizerError(f"Not a tokenizer.json: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise InvalidTokenizerError("Not a tokenizer.json: no model.")
    _check_model_vocabulary(content["model"].get("vocab"))
    for each in added_tokens(content):
        if not isinstance(each.get("content"), str) or not is_id(each.get("id")):
            raise InvalidTokenizerError(f"Not a tokenizer.json: invalid added token {str(each)[:80]}")
        each.setdefault("special", False)
    check_limits(content)
    return content


def added_tokens(content: JsonObject) -> list[JsonObject]:
    """Returns the "added_tokens" of a `tokenizer.json`.

    Raises:
        InvalidTokenizerError: the value is not a list of objects.
    """
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(each, dict) for each in added):
        raise InvalidTokenizerError("Not a tokenizer.json: 'added_tokens' is not a list of objects.")
    return added


def _check_model_vocabulary(vocabulary: object) -> None:
    if isinstance(vocabulary, list):  # Pairs of token and score.
        return
    if not isinstance(vocabulary, dict):
        raise InvalidTokenizerError("Not a tokenizer.json: the model has no 'vocab'.")
    check_vocabulary(vocabulary, "Not a tokenizer.json")


def load_content(content: JsonObject) -> tokenizers.Tokenizer:
    """Returns a `tokenizers.Tokenizer`.

    Raises:
        InvalidTokenizerError: the library cannot load the content.
    """
    tokenizers = library()
    with library_errors("tokenizer.json"):
        return tokenizers.Tokenizer.from_str(json.dumps(content))


@contextlib.contextmanager
def library_errors(name: Path) -> Iterator[None]:
    """Context manager that converts exceptions of the library to an `InvalidTokenizerError` with the file name.

    The library raises plain `Exception`s, errors of Python for wrong types, and for some content a panic.
    """
    try:
        with library_calls():
            yield
    except (InvalidTokenizerError, MemoryError):
        raise
    except FILE_ERRORS as error:
        cause = error.__cause__ if isinstance(error, TokenizerLibraryError) else error
        raise InvalidTokenizerError(f"'{name}' contains no valid tokenizer: {one_line(cause or error)}") from None


def without_special(content: JsonObject, ids: Container[int]) -> JsonObject:
    """Returns the content without the special tokens `ids`, such that the others keep their ids."""
    added = [each for each in added_tokens(content) if each["id"] not in ids]
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        # Replaced by a placeholder in the private use area that does not occur in text.
        vocabulary = [
            [f"\ue000{index}\ue001", each[1]] if index in ids else each for index, each in enumerate(vocabulary)
        ]
    return {**content, "added_tokens": added, "model": {**content["model"], "vocab": vocabulary}}


def check_ids(content: JsonObject, tokenizer: tokenizers.Tokenizer) -> None:
    """Verifies that added tokens have the ids of the file, and that templates only use ids of the vocabulary.

    Raises:
        InvalidTokenizerError: an id differs; the message has the token.
    """
    for each in added_tokens(content):
        found = tokenizer.token_to_id(each["content"])
        if found != each["id"]:
            raise InvalidTokenizerError(
                f"The added token {each['content']!r} has the id {each['id']} in tokenizer.json, but {found} when loaded."
            )
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    for name, index in _template_ids(content.get("post_processor")):
        if not is_id(index) or index >= size or tokenizer.id_to_token(index) is None:
            raise InvalidTokenizerError(
                f"The template has the id {index!r} for {name!r}, which is not in the vocabulary."
            )


def _template_ids(processor: object) -> Iterator[tuple[Any, Any]]:
    """Yields token and id of all tokens that a post-processor adds."""
    if not isinstance(processor, dict):
        return
    for each in processor.get("processors") or ():
        yield from _template_ids(each)
    if processor.get("type") == "TemplateProcessing":
        for name, token in (processor.get("special_tokens") or {}).items():
            for index in token["ids"]:
                yield name, index
    for role in ("cls", "sep"):
        found = processor.get(role)
        if isinstance(found, list):
            yield (found[0], found[1]) if len(found) == 2 else (role, found)


class Template(NamedTuple):
    """The template of a single text.

    Attributes:
        before, after: tuples of the ids that it adds before and after the text.
        before_segments, after_segments: tuples of the segment ids of these.
        text_segment: int. The segment id of the text.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    before_segments: tuple[int, ...]
    after_segments: tuple[int, ...]
    text_segment: int


def read_template(tokenizer: tokenizers.Tokenizer, processor: PostProcessor) -> Template:
    """Returns the `Template` of a single text.

    Args:
        tokenizer: `tokenizers.Tokenizer` without a post-processor.
        processor: its post-processor.

    Raises:
        InvalidTokenizerError: the template does not contain the text exactly once.
    """
    for probe in _PROBES:
        encoding = tokenizer.encode(probe, add_special_tokens=False)
        if not encoding.ids:
            continue
        processed = processor.process(encoding, None, True)
        inside = [index for index, number in enumerate(processed.sequence_ids) if number == 0]
        if len(inside) == len(encoding.ids) and inside[-1] - inside[0] + 1 == len(inside):
            ids, segments, first, last = processed.ids, processed.type_ids, inside[0], inside[-1] + 1
            return Template(
                tuple(ids[:first]), tuple(ids[last:]), tuple(segments[:first]), tuple(segments[last:]), segments[first]
            )
    raise InvalidTokenizerError("The template of this tokenizer.json does not contain the text exactly once.")
