"""Tokenizers of letters, as of wav2vec 2.0."""

from __future__ import annotations

from typing import Any

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.hugging_face.json import library_errors
from keras_transformer.text.hugging_face.vocabulary_ids import read_vocabulary
from keras_transformer.utils.types import Path

FILE = "vocab.json"


def is_letters(config: dict[str, Any]) -> bool:
    """Returns whether the merged config files are those of a tokenizer of letters."""
    return config.get("tokenizer_class") == "Wav2Vec2CTCTokenizer"


def letters(path: Path, config: dict[str, Any]) -> Any:
    """Returns the `tokenizers.Tokenizer` of a `vocab.json` with one token for each letter and one for the space.

    Unlike `Wav2Vec2CTCTokenizer`, decoding does not merge repetitions: decoding of CTC has done so.

    Raises:
        InvalidTokenizerError: the file is not an object of token to id; or `do_lower_case` or several languages, which are
            not supported.
    """
    vocabulary = read_vocabulary(path)
    if config.get("do_lower_case"):
        raise InvalidTokenizerError(f"'{path}': do_lower_case is not supported.")
    delimiter, space = config.get("word_delimiter_token", "|"), config.get("replace_word_delimiter_char", " ")
    unknown = config.get("unk_token") or "<unk>"
    unknown = unknown["content"] if isinstance(unknown, dict) else unknown
    tokenizers = library()
    with library_errors(path):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab=vocabulary, unk_token=unknown))
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), behavior="isolated")
        # The delimiter too, which files list as a special token, but which is text.
        tokenizer.add_tokens([token for token in vocabulary if len(token) > 1 or token == delimiter])
        decoders = tokenizers.decoders
        # Not `Strip`, which fails on texts of spaces alone.
        parts = [decoders.Fuse(), decoders.Replace(tokenizers.Regex("^ +| +$"), "")]
        if delimiter is not None:
            tokenizer.normalizer = tokenizers.normalizers.Replace(" ", delimiter)
            parts.insert(0, decoders.Replace(delimiter, space))
        tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer
