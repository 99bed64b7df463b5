"""WordPiece, as in BERT: greedy longest-match-first subwords."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.text.corpus import check_size, stream_texts
from keras_transformer.text.errors import InvalidTokenizerError, SpecialTokenError
from keras_transformer.text.hugging_face.formats import encode_batch, library, library_calls
from keras_transformer.text.tokenizers.special_tokens import BERT, special_token_roles, tokens_in, well_known_roles
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.tokenizer_files import (
    MAX_CHARACTERS_PER_WORD,
    PREFIX,
    read_file,
    vocabulary_lines,
)
from keras_transformer.utils.types import Path, SpecialTokens

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.graphs import WordPieceGraph

FILE = "vocab.txt"


class WordPiece(Tokenizer):
    """WordPiece tokenizer: splits words greedily into the longest pieces of a vocabulary, after BERT normalization.

    Normalization removes control characters, and with `lowercase` lowercases text and strips accents. Text is split at
    whitespace, punctuation and Chinese characters. Spacing and, with `lowercase`, case are lost: `decode` joins words by
    single spaces.

    `graph()` returns the same ids, except for about one thousand of the 1.1 million Unicode code points (420 without
    `lowercase`), which are newer than the Unicode tables of one of the two libraries.

    Args:
        vocabulary: list of str. The tokens in the order of their ids. Tokens that continue a word start with "##".
        lowercase: bool. Whether text is lowercased, decomposed (NFD) and stripped of accents.
        special_tokens: dict of role to token, or None to detect special tokens with well-known names.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        InvalidTokenizerError: a duplicate token, or no unknown token.
        SpecialTokenError: a special token is not in the vocabulary, or is a word that may occur in text.

    Example:

    >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", ","]
    >>> tokenizer = WordPiece(words)
    >>> tokenizer.encode("Unaffable, UN!", start=True, end=True)
    [2, 5, 6, 7, 8, 5, 1, 3]
    >>> tokenizer.decode([5, 6, 7, 8, 5])
    'unaffable , un'

    Reference:
        Wu et al. 2016, section 4.1. Normalization and greedy matching: the published code of Devlin et al. 2019.
    """

    kind = "wordpiece"
    _drops_first_space = True

    def __init__(
        self, vocabulary: Iterable[str], lowercase: bool = True, special_tokens: SpecialTokens | None = None
    ) -> None:
        self.vocabulary = list(vocabulary)
        self.lowercase = bool(lowercase)
        self._ids = {token: index for index, token in enumerate(self.vocabulary)}
        if len(self._ids) < len(self.vocabulary):
            duplicate = next(token for index, token in enumerate(self.vocabulary) if self._ids[token] != index)
            raise InvalidTokenizerError(f"The vocabulary contains {duplicate!r} twice.")
        roles: dict[str, Any] = dict(special_tokens or {})
        if special_tokens is None:
            listed = [token for token in self.vocabulary if token[:1] in "[<" and token[-1:] in "]>" and len(token) > 2]
            roles = {role: token for role, token in well_known_roles(listed).items() if role != "additional"}
        if "unknown" not in roles:
            raise InvalidTokenizerError("WordPiece needs an unknown token, such as [UNK], in its vocabulary.")
        self._tokenizer = _build(self._ids, roles["unknown"], self.lowercase)
        super().__init__(roles)
        self._check_special_tokens()
        self._bytes = [self._bytes_of(index, token) for index, token in enumerate(self.vocabulary)]

    def _check_special_tokens(self) -> None:
        for token, index in self._ids_of_special.items():
            if index != self.unknown_id and index in self.encode(token):
                raise SpecialTokenError(
                    f"The special token {token!r} is a word that may occur in text: use a name such as '[{token}]'."
                )

    def _bytes_of(self, index: int, token: str) -> bytes:
        if token.startswith(PREFIX) and index not in self._special_ids and token != PREFIX:
            return token[len(PREFIX) :].encode("utf-8")
        return f" {token}".encode()

    @classmethod
    def train(
        cls,
        files_or_texts: Path | Iterable[Path],
        vocabulary_size: int,
        *,
        special_tokens: SpecialTokens | None = None,
        lowercase: bool = True,
        min_frequency: int = 2,
    ) -> WordPiece:
        """Trains the vocabulary on a corpus.

        Args:
            files_or_texts: path, list of paths, or iterable of str. Streamed: memory depends only on the number of distinct
                words.
            vocabulary_size: int. Maximum number of tokens. The vocabulary is smaller if the corpus has fewer pieces. If it
                cannot contain all characters, it contains the most frequent ones.
            special_tokens: dict of role to token. Defaults to [PAD], [UNK], [CLS], [SEP], [MASK].
            lowercase: bool. As for the class.
            min_frequency: int >= 1. Minimum count of a pair to be merged.

        Returns:
            A `WordPiece`.

        Raises:
            TextError: an argument is out of range.
            EmptyTextError, EncodingError, MissingTextError: the corpus is empty, not UTF-8 or missing.
        """
        roles = special_token_roles(special_tokens, BERT)
        if "unknown" not in roles:
            raise SpecialTokenError("WordPiece needs an unknown token.")
        special = tokens_in(roles)
        check_size(vocabulary_size, len(special) + 2)
        texts = stream_texts(files_or_texts)
        tokenizer = _build({}, roles["unknown"], lowercase)
        trainer = library().trainers.WordPieceTrainer(
            vocab_size=vocabulary_size,
            min_frequency=min_frequency,
            special_tokens=special,
            # A character can be two tokens: at the start of a word and within a word.
            limit_alphabet=(vocabulary_size - len(special)) // 2,
            continuing_subword_prefix=PREFIX,
            show_progress=False,
        )
        with library_calls():
            tokenizer.train_from_iterator(texts, trainer)
        ids = tokenizer.get_vocab()
        return cls(sorted(ids, key=ids.get), lowercase, roles)

    @classmethod
    def from_file(cls, path: Path, lowercase: bool = True, special_tokens: SpecialTokens | None = None) -> WordPiece:
        """Loads a `vocab.txt` with one token per line, such as that of BERT.

        Args:
            path: str or path.
            lowercase, special_tokens: as for the class.

        Raises:
            InvalidTokenizerError: the file does not exist or is not a vocabulary.
        """
        return cls(vocabulary_lines(read_file(path), path), lowercase, special_tokens)

    @property
    def vocabulary_size(self) -> int:
        return len(self.vocabulary)

    @property
    def lossless(self) -> bool:
        """False: normalization and the loss of spacing are not reversible."""
        return False

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def id_to_token(self, index: int) -> str:
        return self.vocabulary[self._check_id(index)]

    def _token_bytes(self, index: int) -> bytes:
        return self._bytes[index]

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        return encode_batch(self._tokenizer, texts, offsets)

    def _graph(self) -> WordPieceGraph:
        from keras_transformer.text.tokenizers.graphs import WordPieceGraph

        return WordPieceGraph(self)

    def _options(self) -> dict[str, object]:
        return {"lowercase": self.lowercase}

    def _files(self) -> dict[str, bytes]:
        return {FILE: "".join(f"{token}\n" for token in self.vocabulary).encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, Any]
    ) -> WordPiece:
        return cls(vocabulary_lines(files[FILE], FILE), options["lowercase"], special_tokens)


def _build(ids: dict[str, int], unknown: str, lowercase: bool) -> Any:
    tokenizers = library()
    model = tokenizers.models.WordPiece(
        vocab=ids, unk_token=unknown, max_input_chars_per_word=MAX_CHARACTERS_PER_WORD, continuing_subword_prefix=PREFIX
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer
