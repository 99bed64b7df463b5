"""Tokenizers from the vocabulary files of checkpoints without `tokenizer.json`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.families import FAMILIES, family_of
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.hugging_face.json import library_errors, read_vocabulary
from keras_transformer.text.hugging_face.sentencepiece import BUILDERS
from keras_transformer.text.tokenizers.interspersed_characters import InterspersedCharacters
from keras_transformer.text.tokenizers.special_tokens import BERT
from keras_transformer.text.tokenizers.tokenizer_files import PREFIX, read_file, vocabulary_lines
from keras_transformer.utils.types import Config, Path

if TYPE_CHECKING:
    from types import ModuleType

    import tokenizers
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

    from keras_transformer.text.hugging_face.families import Family


_VOCABULARY = "vocab.json"
# As `VitsTokenizer` does: the language has two letters of one sound, and the vocabulary one of them.
_REPLACEMENTS = {"ron": {"ț": "ţ"}}
_ROLES = {"unk_token": "unknown", "pad_token": "pad"}
SENTENCEPIECE_FILES = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model", "sentencepiece.model", "spm.model")
# Pre-tokenization patterns that differ from that of GPT-2.
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def is_interspersed(config: Config) -> bool:
    """Returns whether the merged config files are those of a tokenizer of VITS."""
    return config.get("tokenizer_class") == "VitsTokenizer"


def interspersed(folder: Path, config: Config) -> InterspersedCharacters:
    """Returns the tokenizer of a folder with `vocab.json` of VITS.

    Args:
        folder: str or path.
        config: dict. The merged config files.

    Raises:
        InvalidTokenizerError: the file is missing, or not an object of token to id; an option is no boolean.
    """
    path = os.path.join(folder, _VOCABULARY)
    vocabulary = read_vocabulary(path)
    roles = {}
    for key, role in _ROLES.items():
        token = config.get(key, "<unk>" if role == "unknown" else "<pad>")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str) and token:
            vocabulary.setdefault(token, len(vocabulary))
            roles[role] = token
    speaks_phonemes = _flag(path, config, "phonemize", True)
    is_roman = _flag(path, config, "is_uroman", False)
    return InterspersedCharacters(
        vocabulary,
        roles,
        blanks=_flag(path, config, "add_blank", True),
        normalize=_flag(path, config, "normalize", True),
        spelling="phonemes" if speaks_phonemes else "roman" if is_roman else None,
        replacements=_REPLACEMENTS.get(str(config.get("language"))),
    )


def _flag(path: str, config: Config, name: str, default: bool) -> bool:
    value = config.get(name, default)
    if not isinstance(value, bool):
        raise InvalidTokenizerError(f"'{path}': {name} must be true or false. Received: {value!r:.80}")
    return value


def is_letters(config: Config) -> bool:
    """Returns whether the merged config files are those of a tokenizer of letters."""
    return config.get("tokenizer_class") == "Wav2Vec2CTCTokenizer"


def letters(path: Path, config: Config) -> tokenizers.Tokenizer:
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


def from_vocabulary(folder: Path, config: Config) -> tuple[Family, Any]:
    """Builds a tokenizer from the vocabulary files of a folder without `tokenizer.json`.

    Args:
        folder: str or path.
        config: dict. The merged config files.

    Returns:
        Tuple of `Family` and `tokenizers.Tokenizer` without its template.

    Raises:
        InvalidTokenizerError: the files are missing, of an unknown family, or invalid.
    """
    family = family_of(config)
    present = {name: os.path.join(folder, name) for name in os.listdir(folder)}
    if _VOCABULARY in present and is_letters(config):
        return FAMILIES["wav2vec2"], letters(present[_VOCABULARY], config)
    if "vocab.txt" in present and (family is None or family.name == "bert"):
        return FAMILIES["bert"], _wordpiece(present["vocab.txt"], config)
    models = [name for name in SENTENCEPIECE_FILES if name in present]
    pairs = "vocab.json" in present and "merges.txt" in present
    if not models and not pairs:
        raise InvalidTokenizerError(
            f"'{folder}' contains no tokenizer: no tokenizer.json, vocab.txt, vocab.json with merges.txt, nor a "
            "SentencePiece model."
        )
    if family is None:
        raise InvalidTokenizerError(f"'{folder}' has a vocabulary, but no tokenizer_class or model_type that is known.")
    if family.name in _BYTE_PAIRS and pairs:
        return family, _byte_pairs(family, present["vocab.json"], present["merges.txt"], config)
    if family.name in BUILDERS and models:
        path = present[models[0]]
        with library_errors(path):
            return family, BUILDERS[family.name](read_file(path), config)
    found = models[0] if models else "vocab.json"
    raise InvalidTokenizerError(f"'{folder}' has a tokenizer of the family {family.name}, which does not use {found}.")


# BERT.


def _wordpiece(path: Path, config: Config) -> tokenizers.Tokenizer:
    words = vocabulary_lines(read_file(path), path)
    tokenizers = library()
    unknown = config.get("unk_token") or BERT["unknown"]
    unknown = unknown["content"] if isinstance(unknown, dict) else unknown
    with library_errors(path):
        ids = {word: index for index, word in enumerate(words)}
        tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab=ids, unk_token=unknown))
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=config.get("tokenize_chinese_chars") is not False,
            strip_accents=config.get("strip_accents"),
            lowercase=config.get("do_lower_case") is not False,
        )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece(prefix=PREFIX)
    return tokenizer


# Byte-level BPE.


def _byte_pairs(family: Family, vocabulary_path: Path, merges_path: Path, config: Config) -> tokenizers.Tokenizer:
    ids, merges = read_vocabulary(vocabulary_path), _read_merges(merges_path)
    tokenizers = library()
    options = {"end_of_word_suffix": "</w>", "unk_token": "<|endoftext|>"} if family.name == "clip" else {}
    with library_errors(merges_path):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=merges, **options))
    prefix = config.get("add_prefix_space") is True
    tokenizer.normalizer, tokenizer.pre_tokenizer = _BYTE_PAIRS[family.name](tokenizers, prefix)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _read_merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(vocabulary_lines(read_file(path), path), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2:
            raise InvalidTokenizerError(f"'{path}' is not a list of merges: line {number} is {line[:80]!r}.")
        merges.append((parts[0], parts[1]))
    return merges


def _gpt2_words(tokenizers: ModuleType, prefix: bool) -> tuple[Normalizer | None, PreTokenizer]:
    return None, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix)


def _clip_words(tokenizers: ModuleType, prefix: bool) -> tuple[Normalizer | None, PreTokenizer]:
    normalizers, parts = tokenizers.normalizers, tokenizers.pre_tokenizers
    clean = [normalizers.NFC(), normalizers.Replace(tokenizers.Regex(r"\s+"), " "), normalizers.Lowercase()]
    words = parts.Split(tokenizers.Regex(_CLIP_WORDS), behavior="removed", invert=True)
    return normalizers.Sequence(clean), parts.Sequence([words, parts.ByteLevel(add_prefix_space=False)])


def _qwen_words(tokenizers: ModuleType, prefix: bool) -> tuple[Normalizer | None, PreTokenizer]:
    parts = tokenizers.pre_tokenizers
    words = parts.Split(tokenizers.Regex(_QWEN_WORDS), behavior="isolated", invert=False)
    return tokenizers.normalizers.NFC(), parts.Sequence(
        [words, parts.ByteLevel(add_prefix_space=prefix, use_regex=False)]
    )


_BYTE_PAIRS = {
    "gpt2": _gpt2_words,
    "roberta": _gpt2_words,
    "whisper": _gpt2_words,
    "clip": _clip_words,
    "qwen2": _qwen_words,
}
