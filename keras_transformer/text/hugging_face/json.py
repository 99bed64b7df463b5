"""The content of a `tokenizer.json`: parsed, checked, and run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.formats import library

# Ids beyond this many times the number of tokens are a mistake: tables run over all of them.
_SPARSEST, _FEW = 8, 100_000


def parsed(text: str) -> dict[str, Any]:
    """The JSON object, with a model in it.

    Raises:
        InvalidTokenizerError: it is not that.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidTokenizerError(f"Not a tokenizer.json: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise InvalidTokenizerError("Not a tokenizer.json: it holds no model.")
    _check_vocabulary(content["model"].get("vocab"))
    for each in added_tokens(content):
        if not isinstance(each.get("content"), str) or not is_id(each.get("id")):
            raise InvalidTokenizerError(f"Not a tokenizer.json: an added token is {str(each)[:80]}")
        each.setdefault("special", False)
    return content


def added_tokens(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The list of dicts of the tokens outside of the model.

    Raises:
        InvalidTokenizerError: it is none.
    """
    added = content.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(each, dict) for each in added):
        raise InvalidTokenizerError("Not a tokenizer.json: 'added_tokens' is no list of objects.")
    return added


def is_id(value: Any) -> bool:
    """Whether this may be the id of a token."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_vocabulary(vocabulary: Any) -> None:
    if isinstance(vocabulary, list):  # Of pairs of token and score.
        return
    if not isinstance(vocabulary, dict):
        raise InvalidTokenizerError("Not a tokenizer.json: its model has no 'vocab'.")
    for token, index in vocabulary.items():
        if not is_id(index):
            raise InvalidTokenizerError(f"Not a tokenizer.json: the token {token!r} has the id {index!r}.")
    largest = max(vocabulary.values(), default=0)
    if largest > max(_SPARSEST * len(vocabulary), _FEW):
        raise InvalidTokenizerError(f"Not a tokenizer.json: an id of {largest} among {len(vocabulary)} tokens.")


def runnable(content: dict[str, Any]) -> Any:
    """A tokenizer of the library.

    Raises:
        InvalidTokenizerError: the library refuses it.
    """
    tokenizers = library()
    with refused("tokenizer.json"):
        return tokenizers.Tokenizer.from_str(json.dumps(content))


@contextlib.contextmanager
def refused(name: Any) -> Iterator[None]:
    """Turns what the library raises into an error that names the file.

    It has no narrower class than Exception, and panics, with a class beside that, on some content.
    """
    try:
        yield
    except (InvalidTokenizerError, KeyboardInterrupt, SystemExit, MemoryError, ImportError):
        raise
    except BaseException as error:
        raise InvalidTokenizerError(f"'{name}' holds no tokenizer that can be used: {error}") from None


def without_special(content: dict[str, Any], ids: Any) -> dict[str, Any]:
    """The content with special tokens that no text can spell; all others keep their ids."""
    added = [each for each in added_tokens(content) if each["id"] not in ids]
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        # Characters of the private use area, and a number that is in no name.
        vocabulary = [
            [f"\ue000{index}\ue001", each[1]] if index in ids else each for index, each in enumerate(vocabulary)
        ]
    return {**content, "added_tokens": added, "model": {**content["model"], "vocab": vocabulary}}


def check_ids(content: dict[str, Any], tokenizer: Any) -> None:
    """Proves that added tokens have the ids that the file gives them, and that templates name no others.

    Raises:
        InvalidTokenizerError: names the token.
    """
    for each in added_tokens(content):
        found = tokenizer.token_to_id(each["content"])
        if found != each["id"]:
            raise InvalidTokenizerError(
                f"The added token {each['content']!r} has the id {each['id']} in the tokenizer.json, but would get {found}."
            )
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    for name, index in _template_ids(content.get("post_processor")):
        if not is_id(index) or index >= size or tokenizer.id_to_token(index) is None:
            raise InvalidTokenizerError(
                f"The template names the id {index!r} for {name!r}, which is not in the vocabulary."
            )


def _template_ids(processor: Any):
    """Yields token and id of all that a post-processor adds."""
    if not isinstance(processor, dict):
        return
    for each in processor.get("processors") or ():
        yield from _template_ids(each)
    if processor.get("type") == "TemplateProcessing":
        for name, token in (processor.get("special_tokens") or {}).items():
            for index in token["ids"]:
                yield name, index
    for role in ("cls", "sep"):
        if isinstance(processor.get(role), list):
            yield tuple(processor[role])
