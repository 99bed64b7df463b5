"""Loading of saved tokenizers."""

from __future__ import annotations

from keras_transformer.text.errors import InvalidTokenizerError, TextError
from keras_transformer.text.hugging_face.tokenizer import HuggingFaceTokenizer
from keras_transformer.text.tokenizers import storage
from keras_transformer.text.tokenizers.byte_pair import BytePair
from keras_transformer.text.tokenizers.bytes import Bytes
from keras_transformer.text.tokenizers.characters import Characters
from keras_transformer.text.tokenizers.interspersed_characters import InterspersedCharacters
from keras_transformer.text.tokenizers.sentencepiece import SentencePiece
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.wordpiece import WordPiece
from keras_transformer.utils.types import Config, Path

TOKENIZERS: dict[str, type[Tokenizer]] = {
    "wordpiece": WordPiece,
    "sentencepiece": SentencePiece,
    "byte_pair": BytePair,
    "characters": Characters,
    "interspersed_characters": InterspersedCharacters,
    "bytes": Bytes,
    "hugging_face": HuggingFaceTokenizer,
}


def load_tokenizer(directory: Path) -> Tokenizer:
    """Loads a tokenizer saved with `Tokenizer.save`.

    Args:
        directory: str or path. The folder.

    Returns:
        A tokenizer of one of the classes in `TOKENIZERS`, with the same fingerprint as the saved tokenizer.

    Raises:
        InvalidTokenizerError: the folder does not exist, contains no tokenizer or one of an unknown kind, or was
            modified.

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
        raise InvalidTokenizerError(f"'{directory}' contains an inconsistent tokenizer: {error}") from error


def from_parts(config: Config, files: dict[str, bytes]) -> Tokenizer:
    """Creates a tokenizer from its `config()` and the content of its files.

    Args:
        config: dict of "kind", "special_tokens" and "options".
        files: dict of file name to bytes.

    Returns:
        The tokenizer.

    Raises:
        InvalidTokenizerError: the kind is unknown, or a file is invalid.
    """
    kind = config["kind"]
    if kind not in TOKENIZERS:
        raise InvalidTokenizerError(f"unknown tokenizer kind {kind!r}. Valid kinds: {', '.join(sorted(TOKENIZERS))}")
    return TOKENIZERS[kind]._from_files(files, config["special_tokens"], config["options"])
