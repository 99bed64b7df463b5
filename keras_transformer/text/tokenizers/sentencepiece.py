"""SentencePiece: subword tokenization of raw text, including spaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.text.corpus import check_size, stream_texts
from keras_transformer.text.errors import InvalidTokenizerError, TextError
from keras_transformer.text.tokenizers.sentencepiece_model import (
    SPACE,
    read_charsmap,
    read_model_type,
    with_exact_scores,
)
from keras_transformer.text.tokenizers.sentencepiece_training import library, meta_pieces, train_model
from keras_transformer.text.tokenizers.special_tokens import PLAIN, special_token_roles, tokens_in
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.tokenizer_files import read_file
from keras_transformer.utils.types import JsonObject, Path, SpecialTokens

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.graphs import SentencePieceGraph

FILE, CHAT_FILE = "sentencepiece.model", "chat_template.jinja"
MODEL_TYPES = ("unigram", "bpe")


class SentencePiece(Tokenizer):
    """Subword tokenizer by the `sentencepiece` library: a unigram language model or byte-pair encoding (BPE).

    `graph()` returns the same ids for models trained by `train`. For other unigram models, the two libraries may select
    different segmentations of equal score (of runs such as "......"). `train` rounds the scores to avoid this, see
    `sentencepiece_model.with_exact_scores`.

    Args:
        model: bytes of a SentencePiece model.
        special_tokens: dict of role to token, or None for the special tokens of the model.
        chat_template: str or None. The chat template, in Jinja; see `generation.ChatTemplate`. Default None.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        InvalidTokenizerError: the bytes are not a SentencePiece model.
        SpecialTokenError: a special token is not in the vocabulary.

    Example:

    >>> tokenizer = SentencePiece.train(["the cat sat on the mat"] * 9, 300, lossless=True)
    >>> tokenizer.decode(tokenizer.encode(" the  cat\\n ")) == " the  cat\\n "
    True

    Reference:
        Kudo and Richardson 2018. Unigram model: Kudo 2018, section 3.2.
    """

    kind = "sentencepiece"

    def __init__(
        self, model: bytes, special_tokens: SpecialTokens | None = None, chat_template: str | None = None
    ) -> None:
        self._model = bytes(model)
        self.chat_template = chat_template
        # Before the library, which checks neither.
        read_charsmap(self._model)
        self.model_type = read_model_type(self._model)
        try:
            self._processor = library().SentencePieceProcessor(model_proto=self._model)
        except (RuntimeError, TypeError, OSError) as error:
            raise InvalidTokenizerError(f"Not a SentencePiece model: {error}") from None
        self._size = self._processor.vocab_size()
        super().__init__(_own_roles(self._processor) if special_tokens is None else special_tokens)
        self._inspect_model()

    def _inspect_model(self) -> None:
        """Sets the bytes of each piece, and whether the model preserves text."""
        processor = self._processor
        self._byte_ids = [processor.piece_to_id(f"<0x{value:02X}>") for value in range(256)]
        self.byte_fallback = all(processor.is_byte(index) for index in self._byte_ids)
        # The normalized text starts with a space if the model adds a dummy prefix.
        self._drops_first_space = processor.normalize("a").startswith(SPACE)
        sample = "  \u00c5\ufb01\u3000\n "
        self._lossless = self.byte_fallback and processor.normalize(sample) == sample.replace(" ", SPACE)
        self._bytes = [self._bytes_of(index) for index in range(self._size)]

    def _bytes_of(self, index: int) -> bytes:
        piece = self._processor.id_to_piece(index)
        if self._processor.is_byte(index):
            return bytes([int(piece[3:5], 16)])
        return piece.encode("utf-8") if index in self._special_ids else piece.replace(SPACE, " ").encode("utf-8")

    @classmethod
    def train(
        cls,
        files_or_texts: Path | Iterable[Path],
        vocabulary_size: int,
        *,
        model_type: str = "unigram",
        special_tokens: SpecialTokens | None = None,
        lossless: bool = False,
        byte_fallback: bool = True,
        normalization: str = "nmt_nfkc",
        character_coverage: float = 0.9995,
        num_threads: int = 2,
    ) -> SentencePiece:
        """Trains a model on a corpus.

        Args:
            files_or_texts: path, list of paths, or iterable of str. Read line by line. Corpora of more than five million
                lines are sampled to that number, which bounds memory.
            vocabulary_size: int. Maximum number of pieces. The vocabulary is smaller if the corpus has fewer pieces.
            model_type: "unigram" or "bpe".
            special_tokens: dict of role to token. Defaults to <pad>, <unk>, <s>, </s>, <mask>.
            lossless: bool. Whether decoding returns the exact text: no normalization, all spaces are kept, and
                `byte_fallback` is on.
            byte_fallback: bool. Whether characters without a piece are encoded as UTF-8 bytes instead of the unknown token.
                Uses 256 pieces.
            normalization: "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf" (lowercase) or "identity".
            character_coverage: float in (0, 1]. Fraction of the characters in the corpus that are covered by pieces.
            num_threads: int >= 1. Does not affect the pieces.

        Returns:
            A `SentencePiece`.

        Raises:
            TextError: an argument is out of range; the vocabulary is too small for the characters of the corpus.
            EmptyTextError, EncodingError, MissingTextError: the corpus is empty, not UTF-8 or missing.
        """
        if model_type not in MODEL_TYPES:
            raise TextError(f"Unknown model_type {model_type!r}. Valid: {', '.join(MODEL_TYPES)}")
        roles = special_token_roles(special_tokens, PLAIN)
        if "unknown" not in roles:
            raise TextError("SentencePiece needs an unknown token.")
        check_size(vocabulary_size, len(tokens_in(roles)) + 1 + 256 * bool(byte_fallback or lossless))
        options = {
            "model_type": model_type,
            "vocab_size": vocabulary_size,
            "byte_fallback": bool(byte_fallback or lossless),
            "normalization_rule_name": "identity" if lossless else normalization,
            "remove_extra_whitespaces": not lossless,
            "add_dummy_prefix": not lossless,
            "character_coverage": character_coverage,
            "num_threads": num_threads,
            **meta_pieces(roles),
        }
        model = train_model(stream_texts(files_or_texts), options)
        return cls(with_exact_scores(model) if model_type == "unigram" else model, roles)

    @classmethod
    def from_file(cls, path: Path, special_tokens: SpecialTokens | None = None) -> SentencePiece:
        """Loads a SentencePiece model file, such as that of a pretrained model.

        Args:
            path: str or path.
            special_tokens: dict of role to token, or None for the special tokens of the model.

        Raises:
            InvalidTokenizerError: the file does not exist or is not a SentencePiece model.
        """
        return cls(read_file(path), special_tokens)

    @property
    def vocabulary_size(self) -> int:
        return self._size

    @property
    def lossless(self) -> bool:
        """Whether the model has byte fallback, does not normalize, and keeps all spaces."""
        return self._lossless

    def token_to_id(self, token: str) -> int | None:
        index = self._processor.piece_to_id(token)
        return index if self._processor.id_to_piece(index) == token else None

    def id_to_token(self, index: int) -> str:
        return self._processor.id_to_piece(self._check_id(index))

    def _token_bytes(self, index: int) -> bytes:
        return self._bytes[index]

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        if not offsets:
            if self._lossless and any(SPACE in text for text in texts):
                return [self._encode_escaped(text, False)[0] for text in texts], []
            return self._processor.encode(texts), []
        pairs = [self._encode_escaped(text, True) for text in texts]
        return [ids for ids, _ in pairs], [spans for _, spans in pairs]

    def _encode_escaped(self, text: str, offsets: bool) -> tuple[list[int], list[tuple[int, int]]]:
        """Encodes U+2581, which the model treats as a space, as bytes if the model is lossless."""
        parts = text.split(SPACE) if self._lossless else [text]
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        begin = 0
        for number, part in enumerate(parts):
            if number:
                ids += [self._byte_ids[value] for value in SPACE.encode()]
                spans += [(begin, begin + 1)] * 3
                begin += 1
            if offsets:
                mapping = self._processor.encode_as_offset_mapping(part)
                ids += mapping["ids"]
                spans += _character_offsets(mapping["offsets"], begin)
            else:
                ids += self._processor.encode(part)
            begin += len(part)
        return ids, spans

    def _graph(self) -> SentencePieceGraph:
        from keras_transformer.text.tokenizers.graphs import SentencePieceGraph

        return SentencePieceGraph(self)

    def _files(self) -> dict[str, bytes]:
        files = {FILE: self._model}
        return files if self.chat_template is None else {**files, CHAT_FILE: self.chat_template.encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, object]
    ) -> SentencePiece:
        template = files[CHAT_FILE].decode("utf-8") if CHAT_FILE in files else None
        return cls(files[FILE], special_tokens, template)


def _character_offsets(offsets: Sequence[tuple[int, int]], shift: int) -> list[tuple[int, int]]:
    """Shifted offsets in which all bytes of a character have its offset. The library sets it only for the last byte."""
    spans: list[tuple[int, int]] = []
    character = None
    for begin, end in reversed(offsets):
        if begin == end and character is not None and end == character[0]:
            begin, end = character
        else:
            character = (begin, end)
        spans.append((begin + shift, end + shift))
    return spans[::-1]


def _own_roles(processor: Any) -> JsonObject:
    ids = {
        "pad": processor.pad_id(),
        "unknown": processor.unk_id(),
        "start": processor.bos_id(),
        "end": processor.eos_id(),
    }
    roles: JsonObject = {role: processor.id_to_piece(index) for role, index in ids.items() if index >= 0}
    controls = [
        processor.id_to_piece(index)
        for index in range(processor.vocab_size())
        if processor.is_control(index) and index not in ids.values()
    ]
    for role, token in (("mask", "<mask>"), ("mask", "[MASK]"), ("classification", "[CLS]"), ("separator", "[SEP]")):
        if token in controls and role not in roles:
            roles[role] = controls.pop(controls.index(token))
    return {**roles, "additional": controls} if controls else roles
