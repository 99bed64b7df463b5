"""A tokenizer back from its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_transformer.text.errors import InvalidTokenizerError, TextError
from keras_transformer.text.hugging_face.tokenizer import HuggingFaceTokenizer
from keras_transformer.text.tokenizers import storage
from keras_transformer.text.tokenizers.byte_pair import BytePair
from keras_transformer.text.tokenizers.bytes import Bytes
from keras_transformer.text.tokenizers.characters import Characters
from keras_transformer.text.tokenizers.sentencepiece import SentencePiece
from keras_transformer.text.tokenizers.wordpiece import WordPiece
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer

TOKENIZERS: dict[str, type[Tokenizer]] = {
    "wordpiece": WordPiece,
    "sentencepiece": SentencePiece,
    "byte_pair": BytePair,
    "characters": Characters,
    "bytes": Bytes,
    "hugging_face": HuggingFaceTokenizer,
}


def load_tokenizer(directory: Path) -> Tokenizer:
    """Reads a tokenizer that `Tokenizer.save` has written.

    Args:
        directory: str or path of the folder.

    Returns:
        A `WordPiece`, `SentencePiece`, `BytePair`, `Characters`, `Bytes` or `HuggingFaceTokenizer`, with the fingerprint of
        the one saved.

    Raises:
        InvalidTokenizerError: no such folder, no tokenizer in it, one of an unknown kind, or one that was altered.

    Example:

    >>> from keras_transformer.text import Bytes
    >>> Bytes().save("tokenizer")
    >>> load_tokenizer("tokenizer").decode([69, 70])
    'AB'
    """
    config, files = storage.read(directory)
    try:
        return from_parts(config, files)
    except InvalidTokenizerError as error:
        raise InvalidTokenizerError(f"'{directory}': {error}") from error
    except (TextError, KeyError) as error:
        raise InvalidTokenizerError(f"'{directory}' holds a tokenizer that does not hang together: {error}") from error


def from_parts(config: dict[str, Any], files: dict[str, bytes]) -> Tokenizer:
    """A tokenizer from what `config()` gives and the content of its files.

    Args:
        config: dict of "kind", "special_tokens" and "options".
        files: dict of file name to bytes.

    Returns:
        The tokenizer.

    Raises:
        InvalidTokenizerError: the kind is unknown, or a file unfit.
    """
    kind = config["kind"]
    if kind not in TOKENIZERS:
        raise InvalidTokenizerError(f"a tokenizer of kind {kind!r}. Known kinds: {', '.join(sorted(TOKENIZERS))}")
    return TOKENIZERS[kind]._from_files(files, config["special_tokens"], config["options"])
